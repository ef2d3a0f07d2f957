"""Rows of one kind as a reader finds them, and the table they become."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.samples import LATEST_S, Float, HostTable, Int, Series, typed
from tapscope.store.dynamic import folded

TOO_MANY = 1800  # columns of a table: SQLite has 2000, and derived ones come on top


PACKED_ROWS = 4096
LATEST_NS = LATEST_S * 1_000_000_000


def no_unit(name: str) -> str:
    """Unit of columns whose log tells none."""
    return ""


class Packed:
    """Rows of one layout: their numbers in the table, and their values, packed into columns now and then."""

    def __init__(self) -> None:
        self.rows = array("q")
        self.taken: list[Sequence[Any]] = []
        self.packed: list[
            list[Any]
        ] = []  # per pack, the columns: an array where all are numbers, else a list

    def add(self, values: Sequence[Any]) -> None:
        """The values of one more row."""
        self.taken.append(values)
        if len(self.taken) >= PACKED_ROWS:
            self.pack()

    def pack(self) -> None:
        """Turn the rows taken since the last pack into columns: a number takes 8 bytes then."""
        if self.taken:
            self.packed.append([typed(column) for column in zip(*self.taken, strict=True)])
            self.taken = []

    def numbers(self, column: int) -> NDArray[Any] | None:
        """A column of numbers as one array; None when some of it are texts."""
        parts = [pack[column] for pack in self.packed]
        if not all(isinstance(part, np.ndarray) for part in parts):
            return None
        return np.concatenate(parts)

    def column(self, column: int) -> Any:
        """A column as an array of numbers, or as a list."""
        numbers = self.numbers(column)
        return list(self.values(column)) if numbers is None else numbers

    def values(self, column: int) -> Iterator[Any]:
        """The values of a column, one by one; NaN is None."""
        for pack in self.packed:
            part = pack[column]
            if isinstance(part, np.ndarray):
                yield from (None if value != value else value for value in part.tolist())
            else:
                yield from part


class Rows:
    """Rows (time, key, values) of one kind. Rows may have different columns; what a row lacks is empty."""

    def __init__(self, kind: str, key: str = "", unit: Callable[[str], str] = no_unit) -> None:
        self.kind = kind
        self.key = key  # name of the column that tells series apart: disk, interface, core; '' none
        self.unit = unit
        self.end_ns = array("q")
        self.begin_ns = array("q")  # -1: the sample before tells
        self._keys: dict[str, int] = {}
        self._key_of = array("q")
        self._parts: dict[tuple[str, ...], Packed] = {}
        self._recording = array("q")
        self._number = 0
        self._amended: dict[tuple[str, ...], dict[int, tuple[Any, ...]]] = {}
        self.labels: frozenset[str] = frozenset()  # columns of names, which may look like numbers
        self.went_back = 0

    def __len__(self) -> int:
        return len(self.end_ns)

    def add(
        self, end_ns: int, names: tuple[str, ...], values: Sequence[Any], key: str = "", begin_ns: int = -1
    ) -> None:
        """One row. `names` should be the same object for rows of the same columns.

        OverflowError for times that no clock tells; nothing is added then.
        """
        if not (-1 <= begin_ns < LATEST_NS and 0 <= end_ns < LATEST_NS):
            raise OverflowError(f"a sample from {begin_ns} to {end_ns} ns")
        if self.end_ns and end_ns < self.end_ns[-1]:
            self.restart()
            self.went_back += 1
        part = self._parts.get(names)
        if part is None:
            part = self._parts[names] = Packed()
        part.rows.append(len(self.end_ns))
        part.add(values)
        self.end_ns.append(end_ns)
        self.begin_ns.append(begin_ns)
        self._key_of.append(self._keys.setdefault(key, len(self._keys)))
        self._recording.append(self._number)

    def amend(self, more: dict[str, Any]) -> None:
        """Columns that a later line tells about the last row; nothing when there is none."""
        if self.end_ns:
            self._amended.setdefault(tuple(more), {})[len(self.end_ns) - 1] = tuple(more.values())

    def restart(self) -> None:
        """The recording was started again: the next sample does not reach back to the one before."""
        self._number += 1

    def series(self) -> Series:
        """Order of the rows in the table: by key, recording and time."""
        return Series(
            np.array(self._key_of), np.array(self.end_ns, dtype=np.int64), np.array(self._recording)
        )

    def names(self) -> tuple[str, ...]:
        """The columns in order of their first row, at most as many as a table can hold."""
        return tuple(dict.fromkeys(name for part in (*self._parts, *self._amended) for name in part))[
            :TOO_MANY
        ]

    def raw_columns(self, order: Int) -> dict[str, Any]:
        """The values by name, in `order`; columns beyond what a table can hold are left out."""
        out: dict[str, Any] = {}
        whole = next(iter(self._parts.values())) if len(self._parts) == 1 and not self._amended else None
        for part in self._parts.values():
            part.pack()
        for column, name in enumerate(self.names()):
            if whole is not None:
                packed = whole.numbers(column)
                if packed is not None:
                    out[name] = packed[order]
                    continue
            values: list[Any] = [None] * len(self.end_ns)
            for names, part in self._parts.items():
                if name in names:
                    for row, given in zip(part.rows, part.values(names.index(name)), strict=True):
                        values[row] = given
            for names, amended in self._amended.items():
                if name in names:
                    for row, given in amended.items():
                        values[row] = given[names.index(name)]
            out[name] = [values[i] for i in order]
        return out

    def table(self, rename: dict[str, str] | None = None) -> HostTable:
        """The rows as a table: begin_ns, end_ns, the key, then every column; `rename` maps the log's names
        to those of the table."""
        table, _, _ = self.table_and_columns(rename)
        return table

    def table_and_columns(
        self, rename: dict[str, str] | None = None
    ) -> tuple[HostTable, Series, dict[str, Any]]:
        """The table, its order and the typed columns by the log's names, for derived columns."""
        series = self.series()
        begin = np.array(self.begin_ns, dtype=np.int64)[series.order]
        begin = np.where(begin >= 0, begin, series.begin_ns)
        series.begin_ns = begin
        table = HostTable(self.kind)
        table.add("begin_ns", begin, "ns", "")
        table.add("end_ns", series.end_ns, "ns", "")
        if self.key:
            texts = list(self._keys)
            table.add(self.key, typed([texts[self._key_of[i]] for i in series.order]))
        columns = {}
        for name, values in self.raw_columns(series.order).items():
            stored = (rename or {}).get(name) or folded(name)
            while stored in table.columns:
                stored += "_"
            if name in self.labels:
                table.add(stored, typed(values), self.unit(name), name)
                columns[name] = table.columns[stored]
            else:
                columns[name] = table.add_log_column(stored, values, self.unit(name), name)
        return table, series, columns


def numeric(values: Any) -> Float | None:
    """The column as float64; None when it holds text."""
    return values.astype(np.float64) if isinstance(values, np.ndarray) else None
