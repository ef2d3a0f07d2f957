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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.errors import TapscopeError
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
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise TapscopeError(what, path=path, remedy="Check the path.") from error
    opener: Any = gzip.open if packed else open
    with opener(path, "rt", newline="") as file:
        try:
            reader = csv.DictReader(file)
            missing = [column for column in needed if column not in (reader.fieldnames or ())]
            if missing:
                raise TapscopeError(
                    f"line 1: column {missing[0]} is missing; expected {', '.join(needed)}",
                    path=path,
                    remedy="Give a file with these columns (docs/validation.md).",
                )
            for row in reader:
                if any(row[column] is None for column in needed):
                    counters[f"{name}.short_row"] = counters.get(f"{name}.short_row", 0) + 1
                    continue
                yield row
        except (EOFError, zlib.error, gzip.BadGzipFile):
            counters[f"{name}.truncated_file"] = 1
        except (UnicodeDecodeError, csv.Error) as error:
            raise TapscopeError(
                f"this is not a CSV file: {error}", path=path, remedy="Give a CSV file with a header line."
            ) from error


def read(path: str | Path, addresses: Names) -> Truth:
    """Read a truth file. Rows with a number that is none are counted and left out."""
    path = Path(path)
    counters: dict[str, int] = {}
    ids = Names()
    numbers: list[tuple[int, ...]] = []
    protocol, how, kind = [], [], []
    for row in csv_rows(path, NEEDED, counters, "truth"):
        try:
            key = key_of(row, "", addresses)
            part = int(row.get("part") or 0)
        except ValueError:
            counters["truth.bad_number"] = counters.get("truth.bad_number", 0) + 1
            continue
        numbers.append((*key, ids.code(row["request_id"]) if row["request_id"] else -1, part))
        protocol.append(row["protocol"].upper())
        how.append(row.get("how") or "")
        kind.append(row.get("kind") or "")
    block = np.array(numbers, dtype=np.int64).reshape(-1, 8)
    return Truth(
        path=str(path),
        keys=Keys(*(block[:, i] for i in range(6))),
        request_id=block[:, 6],
        part=block[:, 7],
        request_ids=ids.texts,
        protocol=protocol,
        how=how,
        kind=kind,
        counters=counters,
    )


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


def match(wanted: Keys, offered: Keys) -> Ints:
    """For every row of `wanted` the row of `offered` that is the same request message; -1 none.

    Addresses, ports and sequence number must be equal; of several (reused ports, wrapped numbers) the nearest
    in time is taken, within REACH_NS. No row of `offered` is given twice: the nearest of those that want it
    gets it.
    """
    columns = [np.concatenate(pair) for pair in zip(wanted.columns(), offered.columns(), strict=True)]
    at, places = columns[0], columns[1:]
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
