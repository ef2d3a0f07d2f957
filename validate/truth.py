"""The truth of a run: which transaction each request message on the wire belongs to, and its join to what the
tap saw.

`truth/calls.csv[.gz]` has one row per request message: ts_ns, src, sport, dst, dport, tcp_seq (raw sequence
number of the first payload byte), protocol, request_id (empty: belongs to no transaction), how (how the ID
was found) and, where known, kind (the protocol's name of the message) and part (of the calls that one request
was split into at the same time, which one this is or belongs to; 0: not split). Made by the testbed from the
capture before it was scrubbed.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate, chain, compress, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.errors import TapscopeError
from tapscope.validate.blocks import OVERLONG, blocks
from tapscope.validate.event_calls import Names

Ints = NDArray[np.int64]

NEEDED = ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq", "protocol", "request_id")

ONE_WAY = frozenset({"COM_QUIT", "COM_STMT_CLOSE", "COM_STMT_SEND_LONG_DATA"})
"""Kinds that have no answer by protocol, and are therefore no calls."""

REACH_NS = 1_000_000_000
"""Rows with equal ports and sequence number are one request only if their stamps are this near."""


@dataclass
class Keys:
    """What identifies a request message. src, dst: codes of one `Names`; all int64, one length."""

    ts_ns: Ints
    src: Ints
    sport: Ints
    dst: Ints
    dport: Ints
    tcp_seq: Ints

    def __len__(self) -> int:
        return len(self.ts_ns)

    def rows(self, chosen: NDArray[Any]) -> Keys:
        """The same, of some rows."""
        return Keys(*(column[chosen] for column in self.columns()))

    def columns(self) -> tuple[Ints, ...]:
        """The six columns."""
        return (self.ts_ns, self.src, self.sport, self.dst, self.dport, self.tcp_seq)


@dataclass
class Truth:
    """Rows of a truth file.

    keys : Keys, src and dst coded by `addresses`; request_id : index into request_ids, -1 none
    part : which of the calls that a request was split into, from 1; 0 where it was not
    protocol, how, kind : texts; counters : what was odd, by name
    """

    path: str
    keys: Keys
    request_id: Ints
    part: Ints
    request_ids: list[str]
    protocol: list[str]
    how: list[str]
    kind: list[str]
    counters: dict[str, int]


def csv_rows(
    path: Path, needed: tuple[str, ...], counters: dict[str, int], name: str
) -> Iterator[dict[str, str]]:
    """Rows of a CSV file with a header, gzipped or not; short rows and a cut file are counted under `name`.

    Raises TapscopeError for a missing file, and for one whose header lacks a needed column.
    """
    for chunk in csv_columns(path, needed, counters, name):
        names = tuple(chunk)
        for row in zip(*chunk.values(), strict=True):
            yield dict(zip(names, row, strict=True))


def csv_columns(
    path: Path, needed: tuple[str, ...], counters: dict[str, int], name: str
) -> Iterator[dict[str, list[str]]]:
    """The same, many rows at a time, column by column; what a row lacks of the other columns is ''."""
    blocks_of_rows = _cells(path, counters, name)
    first, lengths = next(blocks_of_rows, ([], [0]))
    width = lengths[0]
    header = first[:width]
    missing = [column for column in needed if column not in header]
    if missing:
        raise TapscopeError(
            f"line 1: column {missing[0]} is missing; expected {', '.join(needed)}",
            path=path,
            remedy="Give a file with these columns (docs/validating.md).",
        )
    least = max(header.index(column) for column in needed) + 1
    for cells, widths in chain([(first[width:], lengths[1:])], blocks_of_rows):
        even = cells
        if widths.count(width) != len(widths):
            short = sum(each < least for each in widths)
            if short:
                counters[f"{name}.short_row"] = counters.get(f"{name}.short_row", 0) + short
            ends = zip(accumulate(widths), widths, strict=True)
            rows = (cells[end - each : end] for end, each in ends if each >= least)
            even = [cell for row in rows for cell in (row + [""] * width)[:width]]
        if even:
            yield {column: even[place::width] for place, column in enumerate(header)}


def _cells(path: Path, counters: dict[str, int], name: str) -> Iterator[tuple[list[str], list[int]]]:
    """The cells of many rows one after the other, and how many cells each row has; empty rows are left out.

    Rows are split at commas, until a quoted cell comes: from there on the csv module reads them.
    """
    texts = _texts(path, counters, name)
    try:
        for text in texts:
            if '"' in text or "\r" in text:
                rest = (StringIO(each, newline="") for each in chain([text], texts))
                reader = filter(None, csv.reader(chain.from_iterable(rest)))
                while rows := list(islice(reader, CHUNK)):
                    yield list(chain.from_iterable(rows)), list(map(len, rows))
                return
            whole = list(filter(None, text.split("\n")))
            if whole:
                yield ",".join(whole).split(","), [line.count(",") + 1 for line in whole]
    except (UnicodeDecodeError, csv.Error) as error:
        raise TapscopeError(
            f"this is not a CSV file: {error}", path=path, remedy="Give a CSV file with a header line."
        ) from error


def _texts(path: Path, counters: dict[str, int], name: str) -> Iterator[str]:
    """Blocks of whole lines, whose ends are \\n; a cut file ends early and is counted."""
    try:
        for block in blocks(path):
            if block == OVERLONG:
                counters[f"{name}.overlong_line"] = counters.get(f"{name}.overlong_line", 0) + 1
                continue
            yield block.decode("utf-8").replace("\r\n", "\n")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        counters[f"{name}.truncated_file"] = 1
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise TapscopeError(what, path=path, remedy="Check the path.") from error


CHUNK = 50_000
"""Rows that the csv module reads at a time."""

NUMBERS = ("ts_ns", "sport", "dport", "tcp_seq")


def read(path: str | Path, addresses: Names) -> Truth:
    """Read a truth file. Rows with a number that is none are counted and left out."""
    path = Path(path)
    counters: dict[str, int] = {}
    ids = Names()
    blocks_of_keys: list[list[Ints]] = []
    protocol: list[str] = []
    how: list[str] = []
    kind: list[str] = []
    shared: dict[str, str] = {}  # a few texts, which the file repeats in every row
    for found in csv_columns(path, NEEDED, counters, "truth"):
        chunk = found
        if "part" in chunk:
            chunk["part"] = [text or "0" for text in chunk["part"]]
        columns = [name for name in (*NUMBERS, "part") if name in chunk]
        try:
            numbers = [_whole(chunk[name]) for name in columns]
        except ValueError:
            rows = zip(*(chunk[name] for name in columns), strict=True)
            good = [all(map(_is_number, row)) for row in rows]
            counters["truth.bad_number"] = counters.get("truth.bad_number", 0) + good.count(False)
            chunk = {name: list(compress(values, good)) for name, values in chunk.items()}
            numbers = [_whole(chunk[name]) for name in columns]
        count = len(chunk["ts_ns"])
        request = [ids.code(text) if text else -1 for text in chunk["request_id"]]
        src, dst = (addresses.codes(chunk[name]) for name in ("src", "dst"))
        ts_ns, sport, dport, tcp_seq, *part = numbers
        block = [ts_ns, src, sport, dst, dport, tcp_seq, request, *(part or [np.zeros(count, np.int64)])]
        blocks_of_keys.append([np.asarray(column, dtype=np.int64) for column in block])
        upper = {text: text.upper() for text in set(chunk["protocol"])}
        protocol += map(upper.__getitem__, chunk["protocol"])
        for texts, name in ((how, "how"), (kind, "kind")):
            cells = chunk.get(name) or [""] * count
            texts += map(shared.setdefault, cells, cells)
    nothing_read = [[np.empty(0, dtype=np.int64)] * 8]
    *keys, request_id, parts = map(np.concatenate, zip(*(blocks_of_keys or nothing_read), strict=True))
    return Truth(
        path=str(path),
        keys=Keys(*keys),
        request_id=request_id,
        part=parts,
        request_ids=ids.texts,
        protocol=protocol,
        how=how,
        kind=kind,
        counters=counters,
    )


def _whole(texts: list[str]) -> Ints:
    return np.array(list(map(int, texts)), dtype=np.int64)


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def key_of(row: Mapping[str, str], prefix: str, addresses: Names) -> tuple[int, ...]:
    """The key columns of a CSV row, in the order of Keys; ValueError when one is not a number."""
    return (
        int(row[prefix + "ts_ns"]),
        addresses.code(row[prefix + "src"]),
        int(row[prefix + "sport"]),
        addresses.code(row[prefix + "dst"]),
        int(row[prefix + "dport"]),
        int(row[prefix + "tcp_seq"]),
    )


def _joined(columns: list[Ints]) -> list[Ints]:
    """The same columns as fewer, two where possible: neighbours in one number, as long as 62 bits hold it."""
    found: list[Ints] = []
    free = 0
    for column in columns:
        high = int(column.max(initial=0))
        if int(column.min(initial=0)) < 0:
            free = 0
            found.append(column)
            continue
        bits = high.bit_length()
        if found and bits <= free:
            found[-1] = (found[-1] << bits) | column
            free -= bits
        else:
            found.append(column)
            free = 62 - bits
    return found


def match(wanted: Keys, offered: Keys) -> Ints:
    """For every row of `wanted` the row of `offered` that is the same request message; -1 none.

    Addresses, ports and sequence number must be equal; of several (reused ports, wrapped numbers) the nearest
    in time is taken, within REACH_NS. No row of `offered` is given twice: the nearest of those that want it
    gets it.
    """
    columns = [np.concatenate(pair) for pair in zip(wanted.columns(), offered.columns(), strict=True)]
    at, places = columns[0], _joined(columns[1:])
    order = np.lexsort((at, *places))
    changes = np.zeros(len(order), dtype=np.int64)
    for column in places:
        changes[1:] |= column[order[1:]] != column[order[:-1]]
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(changes)
    is_offered = np.arange(len(order)) >= len(wanted)
    best = np.full(len(wanted), -1, dtype=np.int64)
    distance = np.full(len(wanted), REACH_NS + 1, dtype=np.int64)
    place = np.arange(len(order))
    for direction in (1, -1):
        walk = order[::direction]
        position = np.where(is_offered[walk], place, -1)
        last = np.maximum.accumulate(position) if len(position) else position
        seekers = np.flatnonzero(~is_offered[walk] & (last >= 0))
        candidate = walk[last[seekers]]
        seeker = walk[seekers]
        apart = np.abs(at[candidate] - at[seeker])
        better = (group[candidate] == group[seeker]) & (apart < distance[seeker])
        best[seeker[better]] = candidate[better] - len(wanted)
        distance[seeker[better]] = apart[better]
    found = np.flatnonzero(best >= 0)
    found = found[np.lexsort((distance[found], best[found]))]
    repeated = np.zeros(len(found), dtype=bool)
    repeated[1:] = best[found[1:]] == best[found[:-1]]
    best[found[repeated]] = -1
    return best
