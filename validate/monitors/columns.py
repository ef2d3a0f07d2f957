"""Logs with one call per line, read column by column: a whole block of lines is taken apart at once, and only
cells that are not what most are get a look of their own."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.event_calls import Collector, Ints
from tapscope.validate.monitors.books import Books
from tapscope.validate.monitors.lines import (
    UTC_EPOCH,
    Format,
    LogFile,
    UnreadableError,
    header,
    line_blocks,
    local_ns,
    number_or_none,
    outside_quotes,
)

Bools = NDArray[np.bool_]
T = TypeVar("T")

NOTHING = "-"
"""Text of a cell that a line does not have, as servers write it."""


_QUOTED = re.compile(r'"[^\n]*"')
"""What lines.outside_quotes leaves out of each line."""


@dataclass(frozen=True)
class Rows:
    """Lines of one log, taken apart.

    source : index of the log; line : number of each line, from 1
    cells : column name -> text of each line; unreadable : numbers of lines that were found to be no calls as
        they should, shared by all Rows made from the same lines
    """

    source: int
    line: Ints
    cells: dict[str, list[str]]
    unreadable: list[Ints] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, name: str) -> list[str]:
        return self.cells[name]

    def where(self, chosen: Bools) -> Rows:
        """Some of the lines."""
        if chosen.all():
            return self
        cells = {name: list(compress(texts, chosen)) for name, texts in self.cells.items()}
        return Rows(self.source, self.line[chosen], cells, self.unreadable)

    def readable(self, good: Bools) -> Rows:
        """The good lines; the others are noted."""
        if not good.all():
            self.unreadable.append(self.line[~good])
        return self.where(good)

    def parsed(self, *columns: tuple[str, Callable[[list[str]], Parsed]]) -> tuple[Rows, list[Ints]]:
        """Lines whose cells in these columns can be read, and the values. columns : name, what reads it"""
        found = [parse(self.cells[name]) for name, parse in columns]
        good = np.logical_and.reduce([each.good for each in found])
        return self.readable(good), [each.values[good] for each in found]

    def whole(self, *names: str) -> tuple[Rows, list[Ints]]:
        """The same of whole numbers."""
        return self.parsed(*((name, whole) for name in names))

    def numbers(self, name: str) -> list[int]:
        """A column of whole numbers, -1 for what is none; the log may lack it."""
        texts = self.cells.get(name)
        return [-1] * len(self) if texts is None else of_each(number_or_none, texts)

    def ports(self, name: str) -> list[int]:
        """Ports of a column of ADDRESS:PORT, -1 for what has none."""
        return of_each(lambda text: number_or_none(text.rpartition(":")[2]), self.cells[name])


LAST_YEAR = 2262
"""In it the nanoseconds since the epoch come to need more than 64 bits."""


@dataclass(frozen=True)
class Parsed:
    """Values of a column, int64; only those that are `good` mean something."""

    values: Ints
    good: Bools


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
    field = rf"(?:^| )({'|'.join(names)})=(\S*)"
    one, many = re.compile(field), re.compile(rf"{field}|\n", re.MULTILINE)

    def cells(texts: list[str]) -> tuple[None, dict[str, list[str]]]:
        # Nearly always all lines have the same fields in the same order.
        found = many.findall(_QUOTED.sub("", "\n".join(texts) + "\n"))
        layout = [name for name, _ in found[: len(found) // len(texts)]]
        if [name for name, _ in found] == layout * len(texts) and len(set(layout)) == len(layout):
            values = [value for _, value in found]
            there = {name: values[place :: len(layout)] for place, name in enumerate(layout)}
            return None, {name: there.get(name) or [NOTHING] * len(texts) for name in names}
        fields = [dict(one.findall(outside_quotes(text))) for text in texts]
        return None, {name: [each.get(name, NOTHING) for each in fields] for name in names}

    _read(file, collector, form, cells, take, UTC_EPOCH, 0)


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
    width = len(columns)

    def cells(texts: list[str]) -> tuple[Bools, dict[str, list[str]]]:
        if separator == "," and any('"' in text for text in texts):
            rows = [next(csv.reader([text])) for text in texts]
            whole = np.array([len(row) == width for row in rows], dtype=bool)
            flat = list(chain.from_iterable(compress(rows, whole)))
        else:
            whole = np.array([text.count(separator) == width - 1 for text in texts], dtype=bool)
            flat = separator.join(compress(texts, whole)).split(separator) if whole.any() else []
        return whole, {name: flat[at::width] for name, at in columns.items()}

    _read(file, collector, form, cells, take, zone, 1)


def _read(
    file: LogFile,
    collector: Collector,
    form: Format,
    cells: Callable[[list[str]], tuple[Bools | None, dict[str, list[str]]]],
    take: Callable[[Rows], Stays],
    zone: str,
    skip: int,
) -> None:
    """Feed blocks of lines to `take`, which stores their calls, and keep the books of the file.

    cells : per line whether it has all cells (None: all do), and the columns of those that have; skip :
    header lines
    """
    books = Books(file, collector, form, zone)
    for first, texts in line_blocks(file.path, collector):
        line = np.arange(first, first + len(texts), dtype=np.int64)
        books.lines = first + len(texts) - 1
        chosen = (line > skip) & np.array([bool(text) for text in texts], dtype=bool)
        if not chosen.all():
            line, texts = line[chosen], list(compress(texts, chosen))
        if not texts:
            continue
        whole, columns = cells(texts)
        unreadable: list[Ints] = [] if whole is None else [line[~whole]]
        rows = Rows(books.source, line if whole is None else line[whole], columns, unreadable)
        books.add(*take(rows))
        for lost in unreadable:
            books.lost(lost)
    books.close()


def of_each(function: Callable[[str], T], texts: Sequence[str]) -> list[T]:
    """function(text) of every one; texts that repeat are looked at once."""
    known = {text: function(text) for text in set(texts)}
    return list(map(known.__getitem__, texts))


def parsed(texts: Sequence[str], parse: Callable[[str], int]) -> Parsed:
    """Text by text; one for which `parse` raises is not good."""
    values, good = np.zeros(len(texts), dtype=np.int64), np.ones(len(texts), dtype=bool)
    for place, text in enumerate(texts):
        try:
            values[place] = parse(text)
        except (UnreadableError, ValueError, OverflowError):
            good[place] = False
    return Parsed(values, good)


def whole(texts: Sequence[str]) -> Parsed:
    """Whole numbers that fit 64 bits."""
    try:
        return Parsed(np.array(list(map(int, texts)), dtype=np.int64), np.ones(len(texts), dtype=bool))
    except (ValueError, OverflowError):
        return parsed(texts, int)


def of_form(form: str, texts: Sequence[str]) -> tuple[Bools, list[Ints]]:
    """Texts that look like `form`, in which 0 stands for any digit: which do, and for each run of digits the
    numbers of those that do."""
    if not len(texts):
        return np.empty(0, dtype=bool), [np.empty(0, dtype=np.int64) for _ in re.findall("0+", form)]
    letters = _letters(texts, len(form))
    if letters is None:
        right = np.array([len(text) == len(form) for text in texts], dtype=bool)
        fits, numbers = of_form(form, list(compress(texts, right)))
        right[right] = fits
        return right, numbers
    digits = letters - np.uint8(ord("0"))  # what is less than '0' wraps to more than 9
    places = np.frombuffer(form.encode("ascii"), dtype=np.uint8)
    digit = places == ord("0")
    alike = (digits[digit] <= 9).all(axis=0) & (letters[~digit] == places[~digit, None]).all(axis=0)
    numbers = []
    for run in re.finditer("0+", form):
        number = np.zeros(len(alike), dtype=np.int64)
        for place in range(*run.span()):
            number = number * 10 + digits[place]
        numbers.append(number[alike])
    return alike, numbers


def _letters(texts: Sequence[str], length: int) -> NDArray[np.uint8] | None:
    """A row per place of texts that all have this length and no line end, a column per text; else None."""
    read = np.frombuffer("\n".join([*texts, ""]).encode("ascii", "replace"), dtype=np.uint8)
    if len(read) != len(texts) * (length + 1):
        return None
    letters = read.reshape(-1, length + 1).T
    return letters[:-1] if (letters[-1] == ord("\n")).all() else None


def completed(texts: Sequence[str], fits: Bools, values: Ints, parse: Callable[[str], int]) -> Parsed:
    """Values of the texts that fit, and of the others as `parse` gives them one by one."""
    if fits.all():
        return Parsed(values, fits)
    rest = parsed(list(compress(texts, ~fits)), parse)
    found, good = np.zeros(len(texts), dtype=np.int64), np.ones(len(texts), dtype=bool)
    found[fits] = values
    found[~fits], good[~fits] = rest.values, rest.good
    return Parsed(found, good)


def local_stamps(texts: Sequence[str]) -> Parsed:
    """lines.local_ns of every text."""
    fits, (year, month, day, hour, minute, second, micro) = of_form("0000-00-00 00:00:00.000000", texts)
    dates, of_date = np.unique((year * 100 + month) * 100 + day, return_inverse=True)
    midnight = parsed([f"{date:08d}" for date in dates.tolist()], local_ns)
    real = midnight.good[of_date] & (hour < 24) & (minute < 60) & (second < 60)
    real &= year < LAST_YEAR
    seconds = (hour * 60 + minute) * 60 + second
    values = midnight.values[of_date] + seconds * 1_000_000_000 + micro * 1_000
    fits[fits] = real
    return completed(texts, fits, values[real], local_ns)
