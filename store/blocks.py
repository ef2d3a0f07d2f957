"""Columns of large tables as arrays, beside their rows: reading ten million rows is then a matter of memory.

A block is up to ROWS values of one column in few bytes each: a value is stored as its distance from something
near it (LAYOUT: the value before it, or another column of its row), less the least such distance of the
block, in 0, 1, 2 or 4 bytes; where they do not suffice, in eight, with a bit more that says whether there is
one. All sums are modulo 2**64, so that any int64 comes back. Of distances from another column or from
nothing, code 0 stands for -1, "not observed".

Blocks are written in the transaction that writes their rows, and triggers drop them when a row changes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store import schema

ROWS = 65_536
MOST_THREADS = 4
BEFORE = "the value before"

LAYOUT: dict[str, dict[str, str]] = {
    "call": {
        "conn": "",
        "client_node": "",
        "server_node": "",
        "protocol": "",
        "class_id": "",
        "arrive_ns": BEFORE,
        "request_end_ns": "arrive_ns",
        "response_begin_ns": "arrive_ns",
        "depart_ns": "arrive_ns",
        "status": "",
        "flags": "",
        "tcp_seq": "",
        "response_bytes": "",
        "gone_ns": "arrive_ns",
    },
    "link": {
        "child": BEFORE,
        "parent": "child",
        "kind": "",
        "probability": "",
        "runner_up": "child",
        "runner_up_probability": "",
    },
    "trace": {
        "root": BEFORE,
        "calls": "",
        "begin_ns": BEFORE,
        "end_ns": "begin_ns",
        "complete": "",
        "probability": "",
    },
    "trace_call": {"call": BEFORE, "trace": "", "depth": "", "intra_node_ns": ""},
}
"""By table in SQLite and column: what a value is stored as the distance from ("": from zero). Fractions go by
their bits."""

Coded = tuple[int, int, int, int, bytes]
"""start, base, width, absent, data of a block."""


def encode(values: NDArray[np.int64], near: NDArray[np.int64] | None, *, before: bool = False) -> Coded:
    """Code one block of a column (one value and more). `near`: the other column of the rows; `before`:
    values are stored as their distance from the one before."""
    start = int(values[0])
    there = np.ones(len(values), dtype=np.bool_)
    if before:
        values = np.diff(values, prepend=values[:1])
    else:
        there = values != -1
        if near is not None:
            values = values - near
    known = values[there]
    base, most = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    absent = len(values) - len(known)
    if base == most and not absent:
        return start, base, 0, 0, b""
    for width in (1, 2, 4):
        if most - base + 1 < 1 << 8 * width:
            code = np.where(there, values - base + 1, 0).astype(f"<u{width}")
            return start, base, width, absent, code.tobytes()
    return (
        start,
        0,
        8,
        absent,
        np.where(there, values, 0).astype("<i8").tobytes() + np.packbits(there).tobytes(),
    )


def decode(
    coded: Coded, rows: int, near: NDArray[np.int64] | None, *, before: bool = False
) -> NDArray[np.int64]:
    """The values of a block again."""
    start, base, width, absent, data = coded
    there = None
    if width == 0:
        values = np.full(rows, base, dtype=np.int64)
    elif width == 8:
        values = np.frombuffer(data, "<i8", rows).astype(np.int64)
        there = np.unpackbits(np.frombuffer(data, np.uint8, offset=8 * rows), count=rows).astype(np.bool_)
    else:
        code = np.frombuffer(data, f"<u{width}", rows)
        values = code.astype(np.int64)
        values += base - 1
        there = code > 0
    if before:
        values[0] += start
        return np.cumsum(values)
    if near is not None:
        values += near
    if absent and there is not None:
        values[~there] = -1
    return values


def write_blocks(
    connection: sqlite3.Connection, table: str, columns: Mapping[str, NDArray[Any]], first: int
) -> None:
    """Add the blocks of rows from id `first` on; nothing where rows before them have none."""
    if table not in LAYOUT or covered(connection, table) != first:
        return
    connection.executemany(
        "INSERT INTO column_block (table_name, first, rows, name, start, base, width, absent, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        _coded(table, columns, first),
    )


def _coded(table: str, columns: Mapping[str, NDArray[Any]], first: int) -> Iterator[tuple[Any, ...]]:
    count = len(next(iter(columns.values())))
    for low in range(0, count, ROWS):
        part = {name: _whole(columns[name][low : low + ROWS]) for name in LAYOUT[table]}
        for name, near in LAYOUT[table].items():
            coded = encode(part[name], part.get(near), before=near == BEFORE)
            yield table, first + low, len(part[name]), name, *coded


def _whole(values: NDArray[Any]) -> NDArray[np.int64]:
    return (
        np.ascontiguousarray(values).view(np.int64) if values.dtype == np.float64 else values.astype(np.int64)
    )


def drop_blocks(connection: sqlite3.Connection, table: str) -> None:
    """Remove the blocks of a table whose rows are about to be replaced."""
    connection.execute("DELETE FROM column_block WHERE table_name = ?", (table,))


def covered(connection: sqlite3.Connection, table: str) -> int:
    """How many rows from id 0 on the blocks of a table hold."""
    query = "SELECT first + rows FROM column_block WHERE table_name = ? ORDER BY first DESC LIMIT 1"
    found = connection.execute(query, (table,)).fetchone()
    return 0 if found is None else int(found[0])


def in_blocks(connection: sqlite3.Connection, table: str) -> set[str]:
    """Columns that the blocks of a table hold: a file written before LAYOUT named one has none of it."""
    query = "SELECT name FROM column_block WHERE table_name = ? AND first = 0"
    return {name for (name,) in connection.execute(query, (table,))} & set(LAYOUT.get(table, ()))


def read_blocks(
    path: Path, table: str, dtypes: Mapping[str, np.dtype[Any]], rows: int
) -> dict[str, NDArray[Any]]:
    """Columns of a table whose blocks hold all of its `rows`, read with a thread per core.

    Each thread reads at a moment of its own: nobody may write meanwhile (`RunFile.read_table` looks whether
    somebody did).
    """
    out = {name: np.empty(rows, dtype) for name, dtype in dtypes.items()}
    needed = sorted({*dtypes, *(LAYOUT[table][name] for name in dtypes)} & set(LAYOUT[table]))
    marks = ", ".join("?" * len(needed))
    query = (
        "SELECT name, rows, start, base, width, absent, data FROM column_block "
        f"WHERE table_name = ? AND first = ? AND name IN ({marks})"
    )

    def read(firsts: Sequence[int]) -> None:
        with schema.explained(path), closing(schema.connect(path, write=False)) as connection:
            for first in firsts:
                _place(connection.execute(query, (table, first, *needed)), table, first, out)

    with schema.explained(path), closing(schema.connect(path, write=False)) as connection:
        listed = connection.execute(
            "SELECT DISTINCT first FROM column_block WHERE table_name = ?", (table,)
        ).fetchall()
    firsts = [first for (first,) in listed]
    threads = min(len(os.sched_getaffinity(0)), MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(read, (firsts[n::threads] for n in range(threads))):
            pass
    return out


def _place(blocks: sqlite3.Cursor, table: str, first: int, out: Mapping[str, NDArray[Any]]) -> None:
    """Decode the columns of the rows from `first` on into `out`."""
    layout = LAYOUT[table]
    coded = {name: (count, rest) for name, count, *rest in blocks}
    values: dict[str, NDArray[np.int64]] = {}
    # A column that others are stored by comes first.
    for name in sorted(coded, key=lambda name: layout[name] in layout):
        count, rest = coded[name]
        near = layout[name]
        values[name] = decode(tuple(rest), count, values.get(near), before=near == BEFORE)
        if name in out:
            there = out[name][first : first + count]
            there[:] = values[name].view(np.float64) if there.dtype == np.float64 else values[name]
