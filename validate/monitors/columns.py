"""Logs with one call per line, read column by column: a whole block of lines is taken apart at once, and only
cells that are not what most are get a look of their own."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress

import numpy as np

from tapscope.validate.event_calls import Collector
from tapscope.validate.monitors.books import Books
from tapscope.validate.monitors.fields import NOTHING, Fields
from tapscope.validate.monitors.lines import (
    UTC_EPOCH,
    Format,
    LogFile,
    header,
    line_blocks,
    local_ns,
    number_or_none,
)
from tapscope.validate.parsing import Parsed, completed, digits, of_form, parsed, whole
from tapscope.validate.texts import Bools, Ints, Texts

__all__ = ["LINE", "NOTHING", "Rows", "Stays", "local_stamps", "read_fields", "read_table", "read_whole"]


@dataclass(frozen=True)
class Rows:
    """Lines of one log, taken apart.

    source : index of the log; line : number of each line, from 1
    cells : column name -> text of each line; unreadable : numbers of lines that were found to be no calls as
        they should, shared by all Rows made from the same lines
    """

    source: int
    line: Ints
    cells: dict[str, Texts]
    unreadable: list[Ints] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> Texts:
        return self.cells[name]

    def where(self, chosen: Bools) -> Rows:
        """Some of the lines."""
        if chosen.all():
            return self
        cells = {name: texts.where(chosen) for name, texts in self.cells.items()}
        return Rows(self.source, self.line[chosen], cells, self.unreadable)

    def readable(self, good: Bools) -> Rows:
        """The good lines; the others are noted."""
        if not good.all():
            self.unreadable.append(self.line[~good])
        return self.where(good)

    def parsed(self, *columns: tuple[str, Callable[[Texts], Parsed]]) -> tuple[Rows, list[Ints]]:
        """Lines whose cells in these columns can be read, and the values. columns : name, what reads it"""
        found = [parse(self.cells[name]) for name, parse in columns]
        good = np.logical_and.reduce([each.good for each in found])
        return self.readable(good), [each.values[good] for each in found]

    def whole(self, *names: str) -> tuple[Rows, list[Ints]]:
        """The same of whole numbers."""
        return self.parsed(*((name, whole) for name in names))

    def numbers(self, name: str) -> Ints:
        """A column of whole numbers, -1 for what is none; the log may lack it."""
        texts = self.cells.get(name)
        return np.full(len(self), -1, dtype=np.int64) if texts is None else _numbers(texts)

    def ports(self, name: str) -> Ints:
        """Ports of a column of ADDRESS:PORT, -1 for what has none."""
        return _numbers(self.cells[name].behind_last(":"))


def _numbers(texts: Texts) -> Ints:
    fits, values = digits(texts)
    return completed(texts, fits, values[fits], number_or_none).values


LAST_YEAR = 2262
"""In it the nanoseconds since the epoch come to need more than 64 bits."""

Stays = tuple[Ints, Ints, Ints]
"""Numbers of the lines that are calls, in ascending order, their arrivals and departures in ns."""


def read_fields(
    file: LogFile,
    collector: Collector,
    form: Format,
    names: Sequence[str],
    take: Callable[[Rows], Stays],
) -> None:
    """A log of lines with fields `name=value` in any order, outside of the quoted request line. A field that
    a line lacks is NOTHING, one that it has twice is the last."""
    fields = Fields(names)
    _read(file, collector, form, lambda texts: (None, fields.cells(texts)), take, UTC_EPOCH, 0)


def read_table(
    file: LogFile,
    collector: Collector,
    form: Format,
    needed: tuple[str, ...],
    take: Callable[[Rows], Stays],
    *,
    zone: str = UTC_EPOCH,
    separator: str = "\t",
) -> None:
    """A log with a header line, which must name the needed columns. Separated by commas: cells may be
    quoted."""
    columns = header(file, needed, form.expected, separator)

    def cells(texts: Texts) -> tuple[Bools, dict[str, Texts]]:
        if separator == "," and (texts.data == ord('"')).any():
            whole, flat = _quoted_cells(texts, len(columns))
        else:
            whole, flat = texts.split(separator, len(columns))
        return whole, {name: flat[at] for name, at in columns.items()}

    _read(file, collector, form, cells, take, zone, 1)


def read_whole(
    file: LogFile, collector: Collector, form: Format, take: Callable[[Rows], Stays], *, zone: str = UTC_EPOCH
) -> None:
    """A log whose lines are not taken apart here: the only column is LINE."""
    _read(file, collector, form, lambda texts: (None, {LINE: texts}), take, zone, 0)


LINE = "line"


def _quoted_cells(texts: Texts, width: int) -> tuple[Bools, list[Texts]]:
    """`Texts.split` at commas where cells may be quoted."""
    rows = [next(csv.reader([text]), []) for text in texts]
    whole = np.array([len(row) == width for row in rows], dtype=bool)
    flat = list(chain.from_iterable(compress(rows, whole)))
    return whole, [Texts.of(flat[at::width]) for at in range(width)]


def _read(
    file: LogFile,
    collector: Collector,
    form: Format,
    cells: Callable[[Texts], tuple[Bools | None, dict[str, Texts]]],
    take: Callable[[Rows], Stays],
    zone: str,
    skip: int,
) -> None:
    """Feed blocks of lines to `take`, which stores their calls, and keep the books of the file.

    cells : per line whether it has all cells (None: all do), and the columns of those that have; skip :
    header lines
    """
    books = Books(file, collector, form, zone)
    for first, block in line_blocks(file.path, collector):
        line = np.arange(first, first + len(block), dtype=np.int64)
        books.lines = first + len(block) - 1
        chosen = (line > skip) & (block.length > 0)
        line, texts = line[chosen], block.where(chosen)
        if not len(texts):
            continue
        whole, columns = cells(texts)
        unreadable: list[Ints] = [] if whole is None else [line[~whole]]
        rows = Rows(books.source, line if whole is None else line[whole], columns, unreadable)
        books.add(*take(rows))
        for lost in unreadable:
            books.lost(lost)
    books.close()


def local_stamps(texts: Texts) -> Parsed:
    """lines.local_ns of every text."""
    fits, (year, month, day, hour, minute, second, micro) = of_form("0000-00-00 00:00:00.000000", texts)
    dates, of_date = np.unique((year * 100 + month) * 100 + day, return_inverse=True)
    midnight = parsed(Texts.of([f"{date:08d}" for date in dates.tolist()]), local_ns)
    real = midnight.good[of_date] & (hour < 24) & (minute < 60) & (second < 60)
    real &= year < LAST_YEAR
    seconds = (hour * 60 + minute) * 60 + second
    values = midnight.values[of_date] + seconds * 1_000_000_000 + micro * 1_000
    fits[fits] = real
    return completed(texts, fits, values[real], local_ns)
