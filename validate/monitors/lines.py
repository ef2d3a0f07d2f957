"""Log files as numbered lines: compressed and rotated files, cut last lines, and stamps without a zone."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from tapscope.store.errors import TapscopeError
from tapscope.validate.blocks import OVERLONG, blocks
from tapscope.validate.event_calls import Collector
from tapscope.validate.texts import Texts, lines_of

HEAD_LINES = 40
"""So many lines decide what format a file has; an Apache error log starts with a page of start-up
messages."""

SHOWN_CHARACTERS = 60
"""Of a line that is quoted in an error: enough to recognise it, not enough to leak what users sent."""

LOCAL = "local"
"""Zone of a log whose stamps name none; zones.settle_zones replaces it by what it found."""

UTC_EPOCH = "UTC epoch"
"""Zone of a log whose stamps count from the epoch."""

_TOO_LONG = OVERLONG.decode().rstrip("\n")

_ROTATED = re.compile(r"([._-](\d{1,4}|\d{8}(-?\d{2,6})?))?(\.gz)?$")


@dataclass(frozen=True)
class LogFile:
    """One file of a monitor. `host` is the folder it lies in, or '' when the files lie flat."""

    path: Path
    host: str


class UnreadableError(ValueError):
    """A line that is not what its format promises. Counted, never shown to users as an exception."""


@dataclass(frozen=True)
class Format:
    """One kind of log.

    name : as users call it; family : file names (without rotation suffix) that promise this format
    recognise(lines) : are these first lines of such a file?
    read(file, collector) : put its calls into the collector
    expected : how a line must look, for error messages
    """

    name: str
    tier: str
    family: re.Pattern[str]
    recognise: Callable[[list[str]], bool]
    read: Callable[[LogFile, Collector], None]
    expected: str


def stem(path: Path) -> str:
    """File name without what rotation added: access.log, access.log.1, access.log-20261120.gz ->
    access.log."""
    return _ROTATED.sub("", path.name)


def line_blocks(path: Path, collector: Collector | None = None) -> Iterator[tuple[int, Texts]]:
    """(number of the first, from 1; texts without line ends) of many whole lines at a time.

    A last line without line end was cut (the server was still writing): counted, not given. So is the rest of
    a compressed file that ends too early. A line that is too long to be kept is counted; blocks.OVERLONG is
    given for it.
    """
    number = 1
    try:
        for block in blocks(path):
            if block == OVERLONG and collector is not None:
                collector.count("overlong_line")
            texts, cut = lines_of(block)
            if cut and collector is not None:
                collector.count("truncated_last_line")
            yield number, texts
            number += len(texts)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        if collector is not None:
            collector.count("truncated_compressed_file")
    except OSError as error:
        raise TapscopeError(
            f"cannot be read: {error.strerror}", path=path, remedy="Check the file and its permissions."
        ) from error


def lines(path: Path, collector: Collector | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text without line end) of every whole line, as `line_blocks` gives them."""
    for first, texts in line_blocks(path, collector):
        yield from enumerate(texts.tolist(), first)


def head(path: Path) -> list[str]:
    """First lines of a file; none behind one that is too long to be a line."""
    found: list[str] = []
    left = HEAD_LINES
    for _, block in line_blocks(path):
        for text in block[:left]:
            if text == _TOO_LONG:
                return found
            if text:
                found.append(text)
        left -= len(block)
        if left <= 0:
            break
    return found


def wrong_format(path: Path, number: int, text: str, expected: str) -> TapscopeError:
    """The error for a log that is not what its place or its first lines promise."""
    shown = text[:SHOWN_CHARACTERS] + ("..." if len(text) > SHOWN_CHARACTERS else "")
    return TapscopeError(
        f"line {number} is not {expected}: {shown!r}",
        path=path,
        remedy="Give the server the log format of docs/validating.md, or leave this file out.",
    )


def header(file: LogFile, needed: tuple[str, ...], expected: str, separator: str = "\t") -> dict[str, int]:
    """Column name -> position of a file with a header line; TapscopeError when a needed one is missing."""
    names = next((block[0] for _, block in line_blocks(file.path) if len(block)), "").split(separator)
    missing = [name for name in needed if name not in names]
    if missing:
        raise TapscopeError(
            f"line 1: column {missing[0]} is missing; expected {expected}",
            path=file.path,
            remedy="Export the log again with its header line.",
        )
    return {name: position for position, name in enumerate(names)}


def number_or_none(text: str) -> int:
    """A whole number, or -1 for anything else."""
    return int(text) if text.isdigit() else -1


def outside_quotes(line: str) -> str:
    """The line without what stands between its first and last quotation mark: the request line, which users
    wrote and which could otherwise fake a field."""
    first, last = line.find('"'), line.rfind('"')
    return line if first < 0 or last == first else line[:first] + line[last + 1 :]


def local_ns(text: str) -> int:
    """Nanoseconds since the epoch of 'YYYY-MM-DD hh:mm:ss[.ffffff]' as if it were UTC; UnreadableError if it
    is not that.

    The zone is settled later for the whole log (zones.settle_zones): a log line has too little to tell it.
    """
    seconds, _, fraction = text.partition(".")
    if fraction and not (fraction.isdecimal() and len(fraction) <= 6):
        raise UnreadableError
    return _second_ns(seconds) + int(fraction.ljust(6, "0") or "0") * 1_000


@lru_cache(maxsize=4096)  # logs are in order of time, so that one second's lines come together
def _second_ns(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UnreadableError from None
    if at.tzinfo is not None or at.microsecond:
        raise UnreadableError
    return (at.replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1) * 1_000_000_000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
