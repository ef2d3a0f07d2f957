"""Log files as numbered lines: compressed and rotated files, cut last lines, bad lines, and stamps without a
zone."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.store.errors import TapscopeError
from tapscope.validate.event_calls import TIERS, Collector

HEAD_LINES = 40
"""So many lines decide what format a file has; an Apache error log starts with a page of start-up
messages."""

RECORD_CHARACTERS = 1 << 20
"""A record of several lines that is longer (a bulk INSERT) is not kept whole."""

SHOWN_CHARACTERS = 60
"""Of a line that is quoted in an error: enough to recognise it, not enough to leak what users sent."""

_ROTATED = re.compile(r"([._-](\d{1,4}|\d{8}(-?\d{2,6})?))?(\.gz)?$")


@dataclass(frozen=True)
class LogFile:
    """One file of a monitor. `host` is the folder it lies in, or '' when the files lie flat."""

    path: Path
    host: str


class UnreadableError(Exception):
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


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def lines(path: Path, collector: Collector | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text without line end) of every whole line.

    A last line without line end was cut (the server was still writing): counted, not given. So is the rest of
    a compressed file that ends too early.
    """
    number = 0
    try:
        with _open(path) as file:
            for raw in file:
                number += 1
                if not raw.endswith(b"\n"):
                    if collector is not None:
                        collector.count("truncated_last_line")
                    return
                yield number, raw.decode("utf-8", errors="replace").rstrip("\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        if collector is not None:
            collector.count("truncated_compressed_file")
    except OSError as error:
        raise TapscopeError(
            f"cannot be read: {error.strerror}", path=path, remedy="Check the file and its permissions."
        ) from error


def head(path: Path) -> list[str]:
    """First lines of a file."""
    found = []
    for number, text in lines(path):
        if text:
            found.append(text)
        if number >= HEAD_LINES:
            break
    return found


def wrong_format(path: Path, number: int, text: str, expected: str) -> TapscopeError:
    """The error for a log that is not what its place or its first lines promise."""
    shown = text[:SHOWN_CHARACTERS] + ("..." if len(text) > SHOWN_CHARACTERS else "")
    return TapscopeError(
        f"line {number} is not {expected}: {shown!r}",
        path=path,
        remedy="Give the server the log format of docs/validation.md, or leave this file out.",
    )


def header(file: LogFile, needed: tuple[str, ...], expected: str, separator: str = "\t") -> dict[str, int]:
    """Column name -> position of a file with a header line; TapscopeError when a needed one is missing."""
    names = next((text for _, text in lines(file.path)), "").split(separator)
    missing = [name for name in needed if name not in names]
    if missing:
        raise TapscopeError(
            f"line 1: column {missing[0]} is missing; expected {expected}",
            path=file.path,
            remedy="Export the log again with its header line.",
        )
    return {name: position for position, name in enumerate(names)}


Stay = tuple[int, int]
Numbered = tuple[int, str]
"""A line's number from 1 and its text; of a record of several lines, the number of its first."""


def read_lines(
    file: LogFile,
    collector: Collector,
    form: Format,
    parse: Callable[[int, int, str], Stay | None],
    *,
    zone: str = "UTC epoch",
    skip: int = 0,
    fold: Callable[[Iterator[Numbered]], Iterator[Numbered]] = iter,
) -> None:
    """Feed every line to `parse(source, number, text)` and keep the books of the file.

    skip : header lines; fold : joins the lines of one record, where a record has several

    parse gives (arrive_ns, depart_ns) of the call it stored, None for a line that is no call, and raises
    UnreadableError for a line that should have been one. A lost line may have been a call: the time it may
    have lasted is stored as a gap, so that no comparison uses it. More unreadable than readable lines: the
    log is not of this format.
    """
    tier = TIERS.index(form.tier)
    source = len(collector.sources)
    stays: list[Stay] = []
    lost_after: list[int] = []
    first_bad: tuple[int, str] | None = None
    last = 0
    truncated = collector.counts.get("truncated_last_line", 0)
    for number, text in fold(lines(file.path, collector)):
        last = number
        if number <= skip or not text:
            continue
        try:
            stay = parse(source, number, text)
        except UnreadableError:
            collector.count("unreadable_line")
            first_bad = first_bad or (number, text)
            lost_after.append(len(stays))
            continue
        if stay is not None:
            stays.append(stay)
    if first_bad is not None and len(lost_after) > len(stays):
        raise wrong_format(file.path, *first_bad, form.expected)
    if collector.counts.get("truncated_last_line", 0) > truncated:
        lost_after.append(len(stays))
        last += 1
    _add_gaps(collector, tier, source, stays, lost_after)
    known = [at for stay in stays for at in stay if at >= 0]
    collector.sources.append(
        {
            "path": str(file.path),
            "kind": "events",
            "monitor": form.name,
            "tier": form.tier,
            "host": file.host,
            "bytes": file.path.stat().st_size,
            "lines": last,
            "calls": len(stays),
            "unreadable_lines": len(lost_after),
            "first_ns": min(known, default=-1),
            "last_ns": max(known, default=-1),
            "zone": zone,
        }
    )


def _add_gaps(collector: Collector, tier: int, source: int, stays: list[Stay], lost_after: list[int]) -> None:
    """A lost line departed between its neighbours (servers log at departure) and stayed as long as most calls
    do."""
    if not stays:
        return
    lengths = [depart - arrive for arrive, depart in stays if depart >= 0]
    usual = int(np.percentile(lengths, 99)) if lengths else 0
    for position in lost_after:
        before = max(stays[max(position - 1, 0)])
        after = max(stays[min(position, len(stays) - 1)])
        collector.gaps.append((tier, min(before, after) - usual, max(before, after) + usual, source))


def records(starts: Callable[[str, str], bool]) -> Callable[[Iterator[Numbered]], Iterator[Numbered]]:
    """A `fold` that joins the lines of a record with line ends.

    starts(last line of the record so far, this line): does this line begin the next record? Of a record
    beyond RECORD_CHARACTERS only the last line is kept besides: request IDs stand at the end.
    """

    def fold(numbered: Iterator[Numbered]) -> Iterator[Numbered]:
        first, size, parts = 0, 0, list[str]()
        for number, text in numbered:
            if parts and starts(parts[-1], text):
                yield first, "\n".join(parts)
                size, parts = 0, []
            if not parts:
                first = number
            if size > RECORD_CHARACTERS:
                parts[-1] = text
            else:
                parts.append(text)
                size += len(text)
        if parts:
            yield first, "\n".join(parts)

    return fold


LOCAL = "local"
"""Zone of a log whose stamps name none; events.settle_zones replaces it by what it found."""


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

    The zone is settled later for the whole log (events.settle_zones): a log line has too little to tell it.
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
