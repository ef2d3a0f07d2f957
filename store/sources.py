"""The register of inputs that were loaded into a run file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any


def source_id(connection: sqlite3.Connection, source: Mapping[str, Any]) -> int:
    """Row of the source with this path and kind, made or brought up to date."""
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
    found = connection.execute("SELECT id FROM source WHERE path = ? AND kind = ?", values[:2]).fetchone()
    if found:
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
