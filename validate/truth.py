"""The truth of a run: which transaction each request message on the wire belongs to, and its join to what the
tap saw.

`truth/calls.csv[.gz]` has one row per request message: ts_ns, src, sport, dst, dport, tcp_seq (raw sequence
number of the first payload byte), protocol, request_id (empty: belongs to no transaction), how (how the ID
was found) and, where known, kind (the protocol's name of the message) and part (of the calls that one request
was split into at the same time, which one this is or belongs to; 0: not split). Made by the testbed from the
capture before it was scrubbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.csv_files import csv_columns
from tapscope.validate.event_calls import Names
from tapscope.validate.parsing import Parsed, whole

Ints = NDArray[np.int64]

NEEDED = ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq", "protocol", "request_id")

ONE_WAY = frozenset(
    {"COM_QUIT", "COM_STMT_CLOSE", "COM_STMT_SEND_LONG_DATA", "TERMINATE", "quit"}
    | {f"{change} noreply" for change in ("set", "add", "replace", "append", "prepend", "cas")}
    | {f"{change} noreply" for change in ("delete", "incr", "decr", "touch", "flush_all")}
)
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
    protocol, kind : indices into protocols (in capitals) and kinds; counters : what was odd, by name
    """

    path: str
    keys: Keys
    request_id: Ints
    part: Ints
    request_ids: list[str]
    protocol: Ints
    protocols: list[str]
    kind: Ints
    kinds: list[str]
    counters: dict[str, int]


NUMBERS = ("ts_ns", "sport", "dport", "tcp_seq")
COLUMNS = ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq", "request_id", "part", "protocol", "kind")
"""As they stand in `Truth`."""


def read(path: str | Path, addresses: Names) -> Truth:
    """Read a truth file. Rows with a number that is none are counted and left out."""
    path = Path(path)
    counters: dict[str, int] = {}
    ids = Names()
    protocols, kinds = Names(), Names()
    found: list[list[Ints]] = []
    for columns in csv_columns(path, NEEDED, counters, "truth"):
        count = len(columns["ts_ns"])
        numbers = {name: whole(columns[name]) for name in NUMBERS}
        if "part" in columns:
            given = columns["part"].length > 0
            part = whole(columns["part"])
            numbers["part"] = Parsed(np.where(given, part.values, 0), part.good | ~given)
        else:
            numbers["part"] = Parsed(np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool))
        good = np.logical_and.reduce([each.good for each in numbers.values()])
        if not good.all():
            bad = int(np.count_nonzero(~good))
            counters["truth.bad_number"] = counters.get("truth.bad_number", 0) + bad
        values = {name: each.values for name, each in numbers.items()}
        codes = {name: addresses.codes(columns[name].where(good)) for name in ("src", "dst")}
        codes["request_id"] = ids.codes_but(columns["request_id"].where(good), ("",))
        for name, names in (("protocol", protocols), ("kind", kinds)):
            column = columns[name] if name in columns else columns["ts_ns"].emptied()
            codes[name] = names.codes(column.where(good))
        found.append([codes[name] if name in codes else values[name][good] for name in COLUMNS])
    nothing_read = [[np.empty(0, dtype=np.int64)] * len(COLUMNS)]
    *keys, request_id, parts, protocol, kind = map(np.concatenate, zip(*(found or nothing_read), strict=True))
    capitals = Names()
    capital = np.array([capitals.code(text.upper()) for text in protocols.texts], dtype=np.int64)
    return Truth(
        path=str(path),
        keys=Keys(*keys),
        request_id=request_id,
        part=parts,
        request_ids=ids.texts,
        protocol=capital[protocol],
        protocols=capitals.texts,
        kind=kind,
        kinds=kinds.texts,
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

    Nearly all rows have a partner with the same stamp, as both come from one capture; only those of places
    where one has none are looked at more closely.
    """
    best = _at_the_same_time(wanted, offered)
    rest = best < 0
    if not rest.any():
        return best
    mine, theirs = (np.flatnonzero(_somewhere_in(keys, wanted.rows(rest))) for keys in (wanted, offered))
    found = _match(wanted.rows(mine), offered.rows(theirs))
    best[mine] = np.where(found >= 0, theirs[found], -1) if len(theirs) else -1
    return best


def _at_the_same_time(wanted: Keys, offered: Keys) -> Ints:
    """Partners that have the same stamp, which no other row of either side has, and are the same in all else;
    -1 for the others."""
    order = np.argsort(offered.ts_ns, kind="stable")
    at = offered.ts_ns[order]
    low, high = (np.searchsorted(at, wanted.ts_ns, side=side) for side in ("left", "right"))
    own = np.sort(wanted.ts_ns)
    alone = np.searchsorted(own, wanted.ts_ns, side="right") - np.searchsorted(own, wanted.ts_ns) == 1
    row = np.where((high - low == 1) & alone, np.append(order, -1)[low], -1)
    same = row >= 0
    for mine, theirs in zip(wanted.columns(), offered.columns(), strict=True):
        same &= mine == np.append(theirs, -1)[row]
    return np.where(same, row, -1)


def _somewhere_in(keys: Keys, others: Keys) -> NDArray[np.bool_]:
    """Which rows may be of a place that the others are of: both ports and the sequence number occur there."""
    found = np.isin(keys.tcp_seq, others.tcp_seq)
    return found & np.isin(keys.sport, others.sport) & np.isin(keys.dport, others.dport)


def _match(wanted: Keys, offered: Keys) -> Ints:
    """`match`, row by row of every place in order of time."""
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
