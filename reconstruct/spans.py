"""Neutral span tables as input: the calls of a system as its services report them, each by its own clock.

One row is one call: who called whom, and four times in microseconds since the Unix epoch, by the clock of the
caller (sent, response received) and by that of the callee (received, response sent). Any of them may be
empty: not observed. Only the id of the row is kept of what its maker knows; nothing in the table says which
call was made on behalf of which. Connections are unknown, and none is invented: a call shares its connection
with no other one.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct import ctf, dapper
from tapscope.store.errors import TapscopeError

COLUMNS = (
    "message_id",
    "caller_service",
    "callee_service",
    "endpoint",
    "t_request_sent_us",
    "t_request_received_us",
    "t_response_sent_us",
    "t_response_received_us",
)
"""Columns that a span table has, in any order; others are ignored."""

LATEST_US = 9_000_000_000_000_000
"""Times behind it (year 2255) do not fit into int64 ns."""

Ints = NDArray[np.int64]


@dataclass
class Spans:
    """Rows of span tables in the order of the files. Times are int64 ns UTC, -1 = not observed.

    caller, callee : index into services; endpoint : index into endpoints. A row has at least one of sent_ns
    and received_ns; an end is known only where its beginning by the same clock is, and not before it.
    """

    message_id: list[str]
    services: list[str]
    endpoints: list[str]
    caller: Ints
    callee: Ints
    endpoint: Ints
    sent_ns: Ints
    received_ns: Ints
    responded_ns: Ints
    answered_ns: Ints
    counters: dict[str, int] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    """Per file: path, kind "spans", format, bytes, rows, first_ns, last_ns, first_line of every oddity, and
    warning when rows were left out."""

    trace_id: list[str] = field(default_factory=list)
    parent_id: list[str] = field(default_factory=list)
    """Of annotated spans (CTF traces) only: each row's trace, and the message id of its parent ("" none)."""

    annotations: dict[str, list[Any]] = field(default_factory=dict)
    """Columns of the table `annotation` of a run file."""

    def __len__(self) -> int:
        return len(self.message_id)


class _BadRowError(Exception):
    """A row that is left out; the argument is the counter's name."""


@dataclass
class _Rows:
    """Spans while they are read."""

    ids: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    services: dict[str, int] = field(default_factory=dict)
    endpoints: dict[str, int] = field(default_factory=dict)
    who: array[int] = field(default_factory=lambda: array("q"))  # caller, callee, endpoint of each row
    times: array[int] = field(default_factory=lambda: array("q"))  # the four times of each row
    counters: dict[str, int] = field(default_factory=dict)


def read(paths: Sequence[str | Path], *, keep_text: bool = False) -> Spans:
    """Read span tables (CSV with a header line, also gzipped), or folders with CTF traces of annotated spans
    (reconstruct/dapper.py). Several of them make one table. keep_text : values of annotations as they
    are, else hashed.

    A bad row is left out and counted by name ("span.bad_time", ...); the source says in which line the first
    of each name stands. Raises TapscopeError for a file that cannot be read or whose header lacks a column,
    and for traces beside tables.
    """
    rows = _Rows()
    places = [Path(path) for path in paths]
    traced = [ctf.is_trace(path) for path in places]
    noted = dapper.Annotations(keep_text)
    found: dict[str, dapper.Span] = {}
    if any(traced):
        if not all(traced):
            raise TapscopeError(
                "this is a span table, but others are CTF traces, which tell parents",
                path=places[traced.index(False)],
                remedy="Trace them one after the other.",
            )
        sources = [_read_trace(path, rows, found, noted) for path in places]
        _add_spans(rows, found, sources)
    else:
        sources = [_read_file(path, rows) for path in places]
    caller, callee, endpoint = _columns(rows.who, 3)
    sent_ns, received_ns, responded_ns, answered_ns = _columns(rows.times, 4)
    return Spans(
        rows.ids,
        list(rows.services),
        list(rows.endpoints),
        caller,
        callee,
        endpoint,
        sent_ns,
        received_ns,
        responded_ns,
        answered_ns,
        counters=rows.counters,
        sources=sources,
        trace_id=[found[own].trace_id for own in rows.ids] if found else [],
        parent_id=[found[own].parent_id for own in rows.ids] if found else [],
        annotations=noted.columns,
    )


def _columns(cells: array[int], width: int) -> list[Ints]:
    return [np.ascontiguousarray(column) for column in np.frombuffer(cells, np.int64).reshape(-1, width).T]


def _read_file(path: Path, rows: _Rows) -> dict[str, Any]:
    first_line: dict[str, int] = {}
    before = len(rows.ids)
    left_out = 0

    def count(name: str, line: int) -> None:
        rows.counters[name] = rows.counters.get(name, 0) + 1
        first_line.setdefault(name, line)

    with _opened(path) as file:
        places = _places(file, path)
        for line, text in _lines(file, count):
            try:
                _add(rows, _cells(text), places, lambda name, line=line: count(name, line))
            except _BadRowError as error:
                count(str(error), line)
                left_out += 1
    cut = first_line.keys() & {"span.truncated_file"}
    times = np.frombuffer(rows.times, dtype=np.int64)[4 * before :]
    times = times[times >= 0]
    source: dict[str, Any] = {
        "path": str(path),
        "kind": "spans",
        "format": "csv",
        "bytes": path.stat().st_size,
        "first_ns": int(times.min()) if len(times) else -1,
        "last_ns": int(times.max()) if len(times) else -1,
        "rows": len(rows.ids) - before,
        "rows_left_out": left_out,
    }
    if first_line:
        source["first_line"] = first_line
        told = ", ".join(f"{name.partition('.')[2]} (line {line})" for name, line in first_line.items())
        lost = f"{left_out} rows left out" + ("; the file is cut" if cut else "")
        source["warning"] = f"{lost}; first of each kind: {told}"
    return source


def _read_trace(
    path: Path, rows: _Rows, found: dict[str, dapper.Span], noted: dapper.Annotations
) -> dict[str, Any]:
    odd: dict[str, int] = {}

    def count(name: str, value: int) -> None:
        odd[name] = odd.get(name, 0) + value
        rows.counters[f"span.{name}"] = rows.counters.get(f"span.{name}", 0) + value

    before = len(noted.columns["time_ns"])
    dapper.read(path, found, count, noted)
    times = noted.columns["time_ns"][before:]
    source: dict[str, Any] = {
        "path": str(path),
        "kind": "spans",
        "format": "ctf",
        "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        "first_ns": min(times, default=-1),
        "last_ns": max(times, default=-1),
        "rows": len(times),
        "rows_left_out": sum(odd.get(name, 0) for name in ("unreadable_event", "discarded_event")),
    }
    if odd:  # what is left out of the rows made from them is counted besides
        source["warning"] = "not all is there: " + ", ".join(f"{name} {value}" for name, value in odd.items())
    return source


def _add_spans(rows: _Rows, found: dict[str, dapper.Span], sources: list[dict[str, Any]]) -> None:
    """Annotated spans as rows, once all traces are read: a span's two sides may be in different ones."""

    def count(name: str) -> None:
        rows.counters[name] = rows.counters.get(name, 0) + 1

    everybody = list(range(len(COLUMNS)))
    for message_id, span in found.items():
        cells = [message_id, dapper.caller(span, found), span.callee, span.name]
        cells += ["" if at < 0 else f"{at // 1000}.{at % 1000:03d}" for at in dapper.times(span)]
        try:
            _add(rows, cells, everybody, count)
        except _BadRowError as error:
            count(str(error))
            sources[-1]["rows_left_out"] += 1
        else:
            if span.parent_id and span.parent_id not in found:
                count("span.parent_not_traced")


def _lines(file: IO[str], count: Any) -> Iterator[tuple[int, str]]:
    """Every line behind the header that is not empty, without its end, and its number."""
    line = 1
    while True:
        try:
            text = next(file)
        except StopIteration:
            return
        except (EOFError, zlib.error, gzip.BadGzipFile):
            count("span.truncated_file", line)
            return
        line += 1
        if text := text.rstrip("\r\n"):
            yield line, text


def _cells(text: str) -> list[str]:
    """The cells of one line. Every line is taken apart by itself: a cell that goes on in the next one is a
    stray quote as a rule, and would swallow all rows up to the next quote."""
    if '"' not in text:
        return text.split(",")
    try:
        row: list[str] = next(csv.reader([text + "\n"]))
    except csv.Error:  # a cell that is too long, as a rule
        raise _BadRowError("span.unreadable_row") from None
    if row[-1].endswith("\n"):
        raise _BadRowError("span.unclosed_quote")
    return row


def _add(rows: _Rows, row: list[str], places: list[int], count: Any) -> None:
    try:
        cells = [row[place].strip() for place in places]
    except IndexError:
        raise _BadRowError("span.short_row") from None
    message_id, caller, callee, endpoint = cells[:4]
    if not message_id:
        raise _BadRowError("span.no_message_id")
    if not caller or not callee:
        raise _BadRowError("span.no_service")
    if message_id in rows.seen:
        raise _BadRowError("span.repeated_message_id")
    sent, received, responded, answered = map(_time_ns, cells[4:])
    if sent < 0 and received < 0:
        raise _BadRowError("span.no_request_time")
    if sent < 0 <= answered:
        answered = -1
        count("span.end_without_begin")
    if received < 0 <= responded:
        responded = -1
        count("span.end_without_begin")
    if 0 <= answered < sent or 0 <= responded < received:
        raise _BadRowError("span.ends_before_it_begins")
    rows.seen.add(message_id)
    rows.ids.append(message_id)
    for name in (caller, callee):
        rows.who.append(rows.services.setdefault(name, len(rows.services)))
    rows.who.append(rows.endpoints.setdefault(endpoint, len(rows.endpoints)))
    rows.times.extend((sent, received, responded, answered))


def _time_ns(text: str) -> int:
    """Microseconds, with or without decimals, as int ns; -1 for an empty cell."""
    if not text:
        return -1
    whole, _, part = text.partition(".")
    # isdecimal: int() would also take signs, blanks and underscores.
    if not (whole.isascii() and whole.isdecimal() and (not part or (part.isascii() and part.isdecimal()))):
        raise _BadRowError("span.bad_time")
    if len(whole) > 16 or int(whole) > LATEST_US:
        raise _BadRowError("span.bad_time")
    return int(whole) * 1000 + int(part[:3].ljust(3, "0") or 0)


def _places(file: IO[str], path: Path) -> list[int]:
    """Where the columns of COLUMNS stand."""
    remedy = f"Give a CSV file, also gzipped, whose first line names {', '.join(COLUMNS)}."
    try:
        header = [name.strip() for name in next(csv.reader([next(file, "")]), [])]
    except (csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TapscopeError(
            f"line 1: this is no CSV table: {error}", path=path, offset=0, remedy=remedy
        ) from error
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        what = "this is no span table" if len(missing) == len(COLUMNS) else "this span table is not whole"
        named = ", ".join(missing)
        raise TapscopeError(f"line 1: {what}: no column {named}", path=path, offset=0, remedy=remedy)
    return [header.index(name) for name in COLUMNS]


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Text of a file that may be gzipped. What is no UTF-8 stands as \\xNN: ids still differ."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            plain: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            yield io.TextIOWrapper(plain, encoding="utf-8-sig", errors="backslashreplace", newline="")
    except IsADirectoryError as error:
        raise TapscopeError("this is a folder", path=path, remedy="Name a span table.") from error
    except OSError as error:
        raise TapscopeError(
            f"cannot be read: {error.strerror or error}", path=path, remedy="Check the path."
        ) from error
