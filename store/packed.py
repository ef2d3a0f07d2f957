"""Reads many rows of integer columns out of SQLite: one text per block of rows, not an object per value.

SQLite itself writes the rows of a block one after another in hexadecimal (`printf`, `group_concat`), which
numpy takes for an array of records. While it does so Python is free: several blocks are read at once.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store import schema

LEAST_ROWS = 200_000
"""Below it a connection per thread is not worth its while."""

BLOCK = 32_768
MOST_THREADS = 4


def packable(dtypes: Mapping[str, np.dtype[Any]]) -> bool:
    """Whether all columns are of integers; others have to be read value by value."""
    return all(dtype.kind in "iub" for dtype in dtypes.values())


def read_packed(
    path: Path, table: str, dtypes: Mapping[str, np.dtype[Any]], first: int, last: int
) -> dict[str, NDArray[Any]]:
    """Columns of the rows with ids from `first` to `last`, in order of id, read with a thread per core.

    Columns must hold integers and no NULL. Each block is read at a moment of its own: nobody may write to the
    table meanwhile (`RunFile.read_table` looks whether somebody did).
    """
    out = {name: np.empty(last - first + 1, dtype) for name, dtype in dtypes.items()}
    fields = {"id": np.dtype(np.int64)} | dict(dtypes)
    record = np.dtype([(name, dtype.newbyteorder(">")) for name, dtype in fields.items()])
    form = "".join(f"%0{2 * dtype.itemsize}x" for dtype in fields.values())
    values = ", ".join(_masked(name, dtype) for name, dtype in fields.items())
    query = f"SELECT group_concat(printf('{form}', {values}), '') FROM {table} WHERE id >= ? AND id < ?"
    there = np.zeros(last - first + 1, dtype=np.bool_)
    own = local()
    opened: list[sqlite3.Connection] = []

    def block(low: int) -> None:
        if not hasattr(own, "connection"):
            own.connection = schema.connect(path, write=False, shared=True)
            opened.append(own.connection)
        with schema.explained(path):
            (text,) = own.connection.execute(query, (low, min(low + BLOCK, last + 1))).fetchone()
        if text is None:
            return
        rows = np.frombuffer(bytes.fromhex(text), record)
        at = rows["id"].astype(np.int64) - first
        there[at] = True
        for name, column in out.items():
            column[at] = rows[name]

    threads = min(len(os.sched_getaffinity(0)), MOST_THREADS)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(block, range(first, last + 1, BLOCK)):
                pass
    finally:
        for connection in opened:
            connection.close()
    return out if there.all() else {name: column[there] for name, column in out.items()}


def _masked(name: str, dtype: np.dtype[Any]) -> str:
    """The column without the bits above its own, which a negative number has in SQLite."""
    return name if dtype.itemsize == 8 else f"{name} & {(1 << 8 * dtype.itemsize) - 1}"
