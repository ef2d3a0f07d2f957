"""Tables made from a log's own header: types inferred, units kept, one table per file and kind of record.

Names come from logs, so they are folded to [a-z0-9_]; the original name stands in `host_column`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapscope.store.sources import source_id

MAX_COLUMNS = 1900  # SQLite's default limit is 2000


class DynamicColumn(NamedTuple):
    """A column of a dynamic table."""

    name: str
    unit: str
    type: str
    original: str


class DynamicTable(NamedTuple):
    """A dynamic table and where it came from."""

    table: str
    host: str
    kind: str
    path: str
    columns: list[DynamicColumn]


def folded(text: str) -> str:
    """A log's name as an SQL name: lower case letters, digits and single underscores, never empty."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower().replace("%", " pct")).strip("_")
    if not name:
        return "column"
    return f"c_{name}" if name[0].isdigit() else name


def drop_dynamic(connection: sqlite3.Connection, path: str) -> None:
    """Remove every table that was made from this file; called inside a transaction."""
    _drop(connection, "source IN (SELECT id FROM source WHERE path = ? AND kind = 'host')", (path,))


def _drop(connection: sqlite3.Connection, which: str, values: tuple[Any, ...]) -> None:
    for old, table in connection.execute(f"SELECT id, name FROM host_table WHERE {which}", values).fetchall():
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("DELETE FROM host_column WHERE host_table = ?", (old,))
        connection.execute("DELETE FROM host_table WHERE id = ?", (old,))


def write_dynamic(
    connection: sqlite3.Connection,
    name: str,
    columns: Mapping[str, Sequence[Any] | NDArray[Any]],
    units: Mapping[str, str],
    source: Mapping[str, Any],
    originals: Mapping[str, str],
) -> str:
    """Store `columns` (of one length) as table `host_<name>`; called inside a transaction.

    `source` needs `path` and `host`; `kind_of_record` (default `name`) groups tables of the same sort over
    hosts and files. The same path, host and kind loaded again replaces its table. Returns the table's name.
    """
    host = str(source.get("host", ""))
    kind = str(source.get("kind_of_record", name))
    described = {k: v for k, v in source.items() if k not in ("host", "kind_of_record")} | {"host": host}
    described.setdefault("kind", "host")
    identity = source_id(connection, described)
    _drop(connection, "source = ? AND host = ? AND kind = ?", (identity, host, kind))
    table = _free_name(connection, f"host_{folded(name)}")
    stored = _sql_columns(columns)
    if len(stored) > MAX_COLUMNS:
        raise ValueError(f"{len(stored)} columns in {name}; at most {MAX_COLUMNS} fit into one table")
    declared = ", ".join(f'"{column}" {type_}' for column, (_, type_, _) in stored.items())
    connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {declared}) STRICT")
    marks = ", ".join("?" * (len(stored) + 1))
    values = [v for _, _, v in stored.values()]
    connection.executemany(
        f"INSERT INTO {table} VALUES ({marks})",
        zip(range(len(values[0]) if values else 0), *values, strict=True),
    )
    cursor = connection.execute(
        "INSERT INTO host_table (name, host, kind, source) VALUES (?, ?, ?, ?)", (table, host, kind, identity)
    )
    connection.executemany(
        "INSERT INTO host_column (host_table, name, unit, type, original) VALUES (?, ?, ?, ?, ?)",
        [
            (cursor.lastrowid, column, units.get(given, ""), type_, originals.get(given, given))
            for column, (given, type_, _) in stored.items()
        ],
    )
    return table


def _sql_columns(
    columns: Mapping[str, Sequence[Any] | NDArray[Any]],
) -> dict[str, tuple[str, str, list[Any]]]:
    """SQL name -> (given name, SQL type, values), names made unique."""
    stored: dict[str, tuple[str, str, list[Any]]] = {}
    for given, values in columns.items():
        name = base = folded(given) if folded(given) != "id" else "id_"
        ordinal = 2
        while name in stored:
            name = f"{base}_{ordinal}"
            ordinal += 1
        stored[name] = (given, *_typed(values))
    return stored


def _typed(values: Sequence[Any] | NDArray[Any]) -> tuple[str, list[Any]]:
    """SQL type and plain values. Text is taken as number where all of it is; NaN and '' and None are NULL."""
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.dtype.kind in "iub":
        return "INTEGER", array.astype(np.int64).tolist()
    if array is not None and array.dtype.kind == "f":
        return "REAL", array.tolist()
    plain = [None if v is None or v == "" else v for v in values]
    known = [v for v in plain if v is not None]
    if all(_is_int(v) for v in known) and known:
        return "INTEGER", [None if v is None else int(v) for v in plain]
    try:
        return "REAL", [None if v is None else float(v) for v in plain]
    except (TypeError, ValueError):
        return "TEXT", [None if v is None else str(v) for v in plain]


def _is_int(value: Any) -> bool:
    if isinstance(value, (int, np.integer)):
        return -(2**63) <= int(value) < 2**63
    return isinstance(value, str) and bool(re.fullmatch(r"[+-]?\d{1,18}", value))


def _free_name(connection: sqlite3.Connection, base: str) -> str:
    taken = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    name, ordinal = base, 2
    while name in taken or name in ("host_table", "host_column"):
        name = f"{base}_{ordinal}"
        ordinal += 1
    return name


def read_dynamic(
    connection: sqlite3.Connection, table: str, columns: Sequence[str] | None
) -> dict[str, NDArray[Any]]:
    """Columns of a dynamic table: int64, float64 (NaN = missing, also of integers) or object (text)."""
    rows = connection.execute(
        "SELECT c.name, c.type FROM host_column c JOIN host_table t ON t.id = c.host_table WHERE t.name = ? "
        "ORDER BY c.id",
        (table,),
    ).fetchall()
    types = dict(rows)
    if not types:
        raise KeyError(table)
    wanted = list(types) if columns is None else list(columns)
    names = ", ".join(f'"{c}"' for c in wanted)
    found = connection.execute(f"SELECT {names} FROM {table} ORDER BY id").fetchall()
    out: dict[str, NDArray[Any]] = {}
    for i, column in enumerate(wanted):
        values = [row[i] for row in found]
        if types[column] == "TEXT":
            out[column] = np.array(values, dtype=object)
        elif types[column] == "REAL" or None in values:
            out[column] = np.array(values, dtype=np.float64)
        else:
            out[column] = np.array(values, dtype=np.int64)
    return out


def read_dynamic_tables(connection: sqlite3.Connection) -> list[DynamicTable]:
    """Every dynamic table in order of host, kind and name."""
    listed = []
    for identity, name, host, kind, path in connection.execute(
        "SELECT t.id, t.name, t.host, t.kind, s.path FROM host_table t JOIN source s ON s.id = t.source "
        "ORDER BY t.host, t.kind, t.id"
    ).fetchall():
        columns = connection.execute(
            "SELECT name, unit, type, original FROM host_column WHERE host_table = ? ORDER BY id", (identity,)
        ).fetchall()
        listed.append(DynamicTable(name, host, kind, path, [DynamicColumn(*column) for column in columns]))
    return listed
