"""Rows of contract tables in SQLite: how columns become rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.tables import TABLES

BATCH = 65_536  # rows per executemany: enough to hide the call, little enough not to double the memory

SQL_NAME = {
    "connections": "connection",
    "messages": "message",
    "evidence": "evidence",
    "tcp_events": "tcp_event",
    "calls": "call",
    "nodes": "node",
    "links": "link",
    "traces": "trace",
    "trace_calls": "trace_call",
    "loads": "load",
}
"""Name of a contract table in SQLite (singular)."""


def insert_rows(
    connection: sqlite3.Connection,
    name: str,
    ids: Sequence[int] | NDArray[np.int64],
    table: Mapping[str, NDArray[Any]],
    *,
    replace: bool = False,
) -> None:
    """Insert rows of a contract table under these ids; `replace`: also where there are some."""
    columns = [column.name for column in TABLES[name]]
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    query = f"{verb} INTO {SQL_NAME[name]} (id, {', '.join(columns)}) VALUES (?{', ?' * len(columns)})"
    values = [storable(table[column]) for column in columns]
    for low in range(0, len(ids), BATCH):
        numbers = ids[low : low + BATCH]
        batch = [column[low : low + BATCH].tolist() for column in values]
        connection.executemany(
            query,
            zip(numbers if isinstance(numbers, range) else list(map(int, numbers)), *batch, strict=True),
        )


def storable(column: NDArray[Any]) -> NDArray[Any]:
    """SQLite integers are signed: 64-bit hashes are stored by their bits, booleans as 0 and 1."""
    if column.dtype == np.uint64:
        return np.ascontiguousarray(column).view(np.int64)
    if column.dtype == np.bool_:
        return np.ascontiguousarray(column).view(np.uint8)
    return column


def restored(values: Sequence[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A column as it was before it was stored; NULL becomes NaN in a float column."""
    if dtype == np.uint64:
        return np.array(values, dtype=np.int64).view(np.uint64)
    return np.array(values, dtype=dtype)
