"""CSV files with a header line, gzipped or not, many rows at a time and column by column."""

from __future__ import annotations

import csv
import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import StringIO
from itertools import chain
from pathlib import Path

import numpy as np

from tapscope.store.errors import TapscopeError
from tapscope.validate.blocks import OVERLONG, blocks
from tapscope.validate.texts import Ints, Texts, lines_of


def csv_rows(
    path: Path, needed: tuple[str, ...], counters: dict[str, int], name: str
) -> Iterator[dict[str, str]]:
    """Rows of a CSV file with a header, gzipped or not; short rows, lines that are no row, and a cut file are
    counted under `name`.

    Raises TapscopeError for a missing file, and for one whose header lacks a needed column.
    """
    for chunk in csv_columns(path, needed, counters, name):
        names = tuple(chunk)
        for row in zip(*chunk.values(), strict=True):
            yield dict(zip(names, row, strict=True))


def csv_columns(
    path: Path, needed: tuple[str, ...], counters: dict[str, int], name: str
) -> Iterator[dict[str, Texts]]:
    """The same, many rows at a time, column by column; what a row lacks of the other columns is ''."""
    parts = _cells(path, counters, name)
    first, widths = next(parts, (Texts.of([]), np.zeros(1, dtype=np.int64)))
    width = int(widths[0])
    header = [column.strip() for column in first[:width].tolist()]
    missing = [column for column in needed if column not in header]
    if missing:
        raise TapscopeError(
            f"line 1: column {missing[0]} is missing; expected {', '.join(needed)}",
            path=path,
            remedy="Give a file with these columns (docs/validating.md).",
        )
    least = max(header.index(column) for column in needed) + 1
    for cells, each in chain([(first[width:], widths[1:])], parts):
        short = int(np.count_nonzero(each < least))
        if short:
            counters[f"{name}.short_row"] = counters.get(f"{name}.short_row", 0) + short
        if short < len(each):
            yield dict(zip(header, _columns(cells, each, width, least), strict=True))


def _columns(cells: Texts, widths: Ints, width: int, least: int) -> list[Texts]:
    """`width` columns of the rows that have `least` cells and more."""
    if (widths == width).all():
        return [cells[place::width] for place in range(width)]
    begin, end = np.append(cells.begin, 0), np.append(cells.end, 0)  # the last one is empty
    enough = widths >= least
    row, widths = (np.cumsum(widths) - widths)[enough], widths[enough]
    places = (np.where(widths > place, row + place, len(cells)) for place in range(width))
    return [Texts(cells.data, begin[place], end[place]) for place in places]


def _cells(path: Path, counters: dict[str, int], name: str) -> Iterator[tuple[Texts, Ints]]:
    """The cells of many rows one after the other, and how many cells each row has; empty rows are left out.

    Rows are split at commas, in blocks with a quoted cell by the csv module.
    """
    parts = _blocks(path, counters, name)
    try:
        for block in parts:
            if b'"' in block or block.count(b"\r") != block.count(b"\r\n"):
                if rows := _quoted(block.decode(), counters, name):
                    yield Texts.of(list(chain.from_iterable(rows))), np.array(list(map(len, rows)))
                continue
            if not block.isascii():
                block.decode()  # raises what is no text
            lines, _ = lines_of(block if block.endswith(b"\n") else block + b"\n")
            lines = lines.where(lines.length > 0)
            if len(lines):
                yield lines.cut(",")
    except UnicodeDecodeError as error:
        raise TapscopeError(
            f"this is not a CSV file: {error}", path=path, remedy="Give a CSV file with a header line."
        ) from error


def _quoted(text: str, counters: dict[str, int], name: str) -> list[list[str]]:
    """Rows of whole lines with quoted cells, empty ones left out. A cell that goes on in the next line is a
    stray quote as a rule, and would swallow all rows up to the next quote: its line is counted and left out.
    """
    lines = list(StringIO(text if text.endswith(("\n", "\r")) else text + "\n", newline=""))
    try:
        rows = list(csv.reader(lines))
        if len(rows) == len(lines) and not _goes_on(rows[-1]):
            return [row for row in rows if row]
    except csv.Error:
        pass
    rows = []
    for line in lines:
        try:
            row = next(csv.reader([line]))
        except csv.Error:  # a cell that is too long, as a rule
            odd = f"{name}.unreadable_row"
        else:
            if not _goes_on(row):
                rows += [row] if row else []
                continue
            odd = f"{name}.unclosed_quote"
        counters[odd] = counters.get(odd, 0) + 1
    return rows


def _goes_on(row: list[str]) -> bool:
    """Of a row that is read from a whole line: does its last cell go on in the next one?"""
    return bool(row) and row[-1].endswith(("\n", "\r"))


def _blocks(path: Path, counters: dict[str, int], name: str) -> Iterator[bytes]:
    """Blocks of whole lines; a cut file ends early and is counted."""
    try:
        for number, block in enumerate(blocks(path)):
            if number == 0:
                block = block.removeprefix(BOM_UTF8)
            if block == OVERLONG:
                counters[f"{name}.overlong_line"] = counters.get(f"{name}.overlong_line", 0) + 1
                continue
            yield block
    except (EOFError, zlib.error, gzip.BadGzipFile):
        counters[f"{name}.truncated_file"] = 1
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise TapscopeError(what, path=path, remedy="Check the path.") from error
