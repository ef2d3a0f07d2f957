"""The register of inputs that were loaded into a run file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any


def source_id(connection: sqlite3.Connection, source: Mapping[str, Any]) -> int:
    """Row of the source with this path and kind, of a spool also with this session, made or brought up to
    date."""
    known = ("path", "kind", "format", "bytes", "first_ns", "last_ns")
    detail = json.dumps(
        {key: value for key, value in source.items() if key not in known}, sort_keys=True, default=str
    )
    values = (
        str(source["path"]),
        str(source.get("kind", "capture")),
        str(source.get("format", "")),
        int(source.get("bytes", 0)),
        int(source.get("first_ns", -1)),
        int(source.get("last_ns", -1)),
        detail,
    )
    alike = connection.execute(
        "SELECT id, detail FROM source WHERE path = ? AND kind = ? ORDER BY id", values[:2]
    )
    found = next((row for row in alike if _spooled(json.loads(row[1])) == _spooled(source)), None)
    if found is not None:
        connection.execute(
            "UPDATE source SET format = ?, bytes = ?, first_ns = ?, last_ns = ?, detail = ? WHERE id = ?",
            (*values[2:], found[0]),
        )
        return int(found[0])
    cursor = connection.execute(
        f"INSERT INTO source ({', '.join(known)}, detail) VALUES (?, ?, ?, ?, ?, ?, ?)", values
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _spooled(source: Mapping[str, Any]) -> tuple[str, int]:
    """The spool and session that the source is of: an interface has one name in all of them."""
    return str(source.get("spool", "")), int(source.get("session", -1))
