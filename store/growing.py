"""A run file that is written while a capture goes on: rows come in order, and some change later.

Everything that one step brings is one transaction: who reads meanwhile sees whole steps (RunFile.open).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.blocks import LAYOUT, ROWS, covered, write_blocks
from tapscope.store.rows import SQL_NAME, insert_rows
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table, rows

Ids = NDArray[np.int64]

CHANGES = ("? ", "{column} + ?", "{column} | ?", "min({column}, ?)")
"""By the number of an amendment's change: the new value."""


class InOrder:
    """Rows with their numbers, in any order, until those before them are there."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._table: Table = {}
        self._names = names
        self._ids: Ids = np.zeros(0, dtype=np.int64)
        self.next = 0
        """All rows before this one were taken."""

    def add(self, ids: Ids, table: Mapping[str, NDArray[Any]]) -> None:
        """More rows."""
        ids = np.concatenate([self._ids, ids])
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._table = {
            name: (np.concatenate([self._table[name], table[name]]) if self._table else table[name])[order]
            for name in self._names
        }

    def take(self, wanted: NDArray[np.bool_] | None = None) -> tuple[int, Table]:
        """Number of the first row, and all rows that follow without a hole (and that are `wanted`, by
        place)."""
        there = self._ids == self.next + np.arange(len(self._ids))
        if wanted is not None:
            there &= wanted
        count = len(there) if there.all() else int(np.argmin(there))
        first = self.next
        taken = {name: values[:count] for name, values in self._table.items()}
        self._table = {name: values[count:] for name, values in self._table.items()}
        self._ids = self._ids[count:]
        self.next += count
        return first, taken

    def peek(self, name: str) -> NDArray[Any]:
        """A column of the rows that wait."""
        return self._table.get(name, np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._ids)


class GrowingRun:
    """Steps of a run that is being followed."""

    def __init__(self, run: RunFile) -> None:
        self._run = run

    @contextmanager
    def step(self) -> Iterator[Step]:
        """One transaction."""
        with self._run.transaction() as connection:
            yield Step(connection)

    def write_blocks(self, *, all_rows: bool) -> None:
        """Store rows as arrays, too, as far as they fill blocks; `all_rows`: also the last ones."""
        for name, sql in SQL_NAME.items():
            if sql not in LAYOUT:
                continue
            while True:
                with self._run.transaction() as connection:
                    first = covered(connection, sql)
                    table = self._read(connection, name, first)
                    count = rows(table)
                    if count < ROWS and not (all_rows and count):
                        break
                    write_blocks(connection, sql, table, first)

    @staticmethod
    def _read(connection: sqlite3.Connection, name: str, first: int) -> Table:
        columns = list(LAYOUT[SQL_NAME[name]])
        query = f"SELECT {', '.join(columns)} FROM {SQL_NAME[name]} WHERE id >= ? AND id < ? ORDER BY id"
        found = connection.execute(query, (first, first + ROWS)).fetchall()
        whole = zip(*found, strict=True) if found else [()] * len(columns)
        return {
            column: np.array(values, dtype=np.float64 if "probability" in column else np.int64)
            for column, values in zip(columns, whole, strict=True)
        }


class Step:
    """What is written in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def append(self, name: str, first: int, table: Table) -> None:
        """Rows from number `first` on."""
        if table:
            insert_rows(self._connection, name, range(first, first + rows(table)), table)

    def put(self, name: str, ids: Ids, table: Table) -> None:
        """Rows under these numbers, new ones or in place of others."""
        insert_rows(self._connection, name, ids, table, replace=True)

    def amend(self, ids: Ids, column: str, change: int, values: Ids) -> None:
        """Apply a change to a column of messages."""
        value = CHANGES[change].format(column=column)
        self._connection.executemany(
            f"UPDATE message SET {column} = {value} WHERE id = ?",
            zip(values.tolist(), ids.tolist(), strict=True),
        )

    def execute(self, statement: str, *parameters: Any) -> list[Any]:
        """Any other statement."""
        return self._connection.execute(statement, parameters).fetchall()

    def execute_each(self, statement: str, parameters: Iterator[tuple[Any, ...]] | list[Any]) -> None:
        """A statement for each tuple."""
        self._connection.executemany(statement, parameters)
