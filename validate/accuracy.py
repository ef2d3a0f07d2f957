"""Path accuracy: are the links of a reconstruction the true ones?

Edge: the parent of one call. Path: the tree of calls of one transaction; it is correct when every call in it
is there, none is there that does not belong, and every parent is right (METHOD 1). Completeness and accuracy
of paths as vPath 2.1 defines them: correct paths / paths that exist, correct paths / paths reported.
True parent of a call: of the calls with the same request ID that its own requester's address received, and
whose stay holds its arrival, the one that arrived last; a call that belongs to a part of the request (one of
several calls at the same time) has its parent in that part, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import LinkKind
from tapscope.store.runfile import RunFile
from tapscope.validate.csv_files import csv_rows
from tapscope.validate.edges import EdgeAccuracy, Pairs, busy, by_crowd, by_pair, calibration, rate, roots
from tapscope.validate.event_calls import Names, Table
from tapscope.validate.joining import last_before
from tapscope.validate.tap import Tap
from tapscope.validate.truth import ONE_WAY, Keys, Truth, key_of, match

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LINKS_KEY = ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq")
LINKS_NEEDED = tuple(f"child_{c}" for c in _LINKS_KEY) + tuple(f"parent_{c}" for c in _LINKS_KEY) + ("kind",)


@dataclass
class LinkedCalls:
    """Calls and what a reconstruction says about their parents; one row per call, all arrays of one length.

    depart_ns : -1 unknown; parent : row of the reported parent, -1 none; kind : LinkKind; probability : of
        the edge
    """

    keys: Keys
    depart_ns: Ints
    parent: Ints
    kind: Ints
    probability: NDArray[np.float64]
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PathAccuracy:
    """Result of `paths`; every rate is NaN where nothing was there to be judged. sure_wrong of the sure_edges
    (probability from validate.edges.SURE on) are wrong."""

    edges: list[EdgeAccuracy]
    paths_exist: int
    paths_reported: int
    paths_correct: int
    completeness: float
    accuracy: float
    calibration: list[dict[str, float]]
    calibration_error: float
    sure_edges: int
    sure_wrong: int
    concurrency: list[dict[str, Any]]
    counters: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def read_links(run: RunFile) -> Table:
    """What `from_tables` needs of a run's links; the whole numbers by themselves, which is faster."""
    return run.read_table("links", ["child", "parent", "kind"]) | run.read_table("links", ["probability"])


def from_run(tap: Tap, links: Table, addresses: Names) -> LinkedCalls:
    """The links of a run file."""
    return from_tables(tap.calls, tap.connections, tap.addresses, links, addresses)


def from_tables(
    calls: Table, connections: Table, texts: Sequence[str], links: Table, addresses: Names
) -> LinkedCalls:
    """The links of a reconstruction; `texts` is the address list of its connections."""
    codes = np.array([addresses.code(text) for text in texts], dtype=np.int64)
    count = len(calls["conn"])
    parent = np.full(count, -1, dtype=np.int64)
    kind = np.full(count, int(LinkKind.UNKNOWN), dtype=np.int64)
    probability = np.zeros(count)
    parent[links["child"]] = links["parent"]
    kind[links["child"]] = links["kind"]
    probability[links["child"]] = links["probability"]
    return LinkedCalls(
        keys_of(calls, connections, codes), calls["depart_ns"].astype(np.int64), parent, kind, probability
    )


def keys_of(calls: Table, connections: Table, codes: Ints) -> Keys:
    """Keys of calls; `codes` maps the address list of the connections."""
    conn = calls["conn"]
    return Keys(
        calls["arrive_ns"].astype(np.int64),
        codes[connections["client_addr"][conn]],
        connections["client_port"][conn].astype(np.int64),
        codes[connections["server_addr"][conn]],
        connections["server_port"][conn].astype(np.int64),
        calls["tcp_seq"].astype(np.int64),
    )


def from_csv(path: str | Path, addresses: Names) -> LinkedCalls:
    """A `links` export (also of another tool): one row per call, roots included; departures are unknown."""
    path = Path(path)
    counters: dict[str, int] = {}
    child: list[tuple[int, ...]] = []
    parent: list[tuple[int, ...]] = []
    of_child: list[int] = []
    kinds, probabilities = [], []
    kind_codes = {kind.name.lower(): int(kind) for kind in LinkKind}
    for row in csv_rows(path, LINKS_NEEDED, counters, "links"):
        try:
            key = key_of(row, "child_", addresses)
            above = key_of(row, "parent_", addresses) if row["parent_ts_ns"] else None
            kind = kind_codes[row["kind"]]
            probability = float(row.get("probability") or "nan")
        except (KeyError, ValueError):
            counters["links.bad_row"] = counters.get("links.bad_row", 0) + 1
            continue
        if above is not None:
            parent.append(above)
            of_child.append(len(child))
        child.append(key)
        kinds.append(kind)
        probabilities.append(probability)
    keys = _keys(child)
    found = np.empty(0, dtype=np.int64)
    if parent:  # several children share a parent, and match gives a row only once: match distinct keys
        block, distinct = np.unique(np.array(parent, dtype=np.int64), axis=0, return_inverse=True)
        found = match(_keys([tuple(row) for row in block.tolist()]), keys)[distinct.reshape(-1)]
        counters["links.parent_not_in_file"] = int(np.count_nonzero(found < 0))
    rows = np.full(len(child), -1, dtype=np.int64)
    rows[np.array(of_child, dtype=np.int64)] = found
    return LinkedCalls(
        keys=keys,
        depart_ns=np.full(len(child), -1, dtype=np.int64),
        parent=rows,
        kind=np.array(kinds, dtype=np.int64),
        probability=np.array(probabilities, dtype=np.float64),
        counters=counters,
    )


def _keys(rows: list[tuple[int, ...]]) -> Keys:
    block = np.array(rows, dtype=np.int64).reshape(-1, 6)
    return Keys(*(block[:, i] for i in range(6)))


def paths(
    linked: LinkedCalls, truth: Truth, row_of: Ints | None = None, *, begun_from_ns: int | None = None
) -> PathAccuracy:
    """Judge links by a truth file. Calls that the truth does not know, or that belong to no transaction, are
    not judged and are counted; so are truth rows that the tap has no call for.

    row_of : per call the row of the truth file, where the two were matched already
    begun_from_ns : count the paths of transactions that began then or later; of the others nothing but what
        they took from these. Edges and calibration are those of all.
    """
    counters = {**truth.counters, **linked.counters}
    if row_of is None:
        row_of = match(linked.keys, truth.keys)
    ids = np.where(row_of >= 0, truth.request_id[row_of], -1) if len(truth.keys) else row_of
    judged = ids >= 0
    counters["calls_without_truth"] = int(np.count_nonzero(row_of < 0))
    counters["calls_in_no_transaction"] = int(np.count_nonzero((row_of >= 0) & ~judged))
    unseen = np.ones(len(truth.keys), dtype=bool)
    unseen[row_of[row_of >= 0]] = False
    one_way = np.isin(truth.kind, [code for code, kind in enumerate(truth.kinds) if kind in ONE_WAY])
    counters["truth_one_way"] = int(np.count_nonzero(unseen & one_way))
    unseen &= ~one_way
    counters["truth_without_call"] = int(np.count_nonzero(unseen))

    part = (
        np.where(row_of >= 0, truth.part[row_of], 0)
        if len(truth.keys)
        else np.zeros(len(ids), dtype=np.int64)
    )
    true_parent = _true_parents(linked, ids, part)
    entry = _entry_listeners(linked.keys, judged, true_parent)
    is_root = judged & (true_parent < 0) & entry
    stray = judged & (true_parent < 0) & ~entry
    counters["parent_not_captured"] = int(np.count_nonzero(stray))
    edge = judged & (true_parent >= 0)
    right = np.select(
        [edge, is_root, stray],
        [linked.parent == true_parent, linked.kind == LinkKind.ROOT, linked.parent < 0],
        default=False,
    )
    counters["roots_linked_to_a_parent"] = int(np.count_nonzero(is_root & (linked.parent >= 0)))
    counters["roots_unknown"] = int(np.count_nonzero(is_root & (linked.kind == LinkKind.UNKNOWN)))

    true_root = roots(np.where(edge, true_parent, -1))
    reported_root = roots(linked.parent)
    bad = np.zeros(len(ids), dtype=bool)  # indexed by root call
    bad[true_root[judged & ~right]] = True
    extra = judged & (reported_root != true_root)
    bad[reported_root[extra]] = True
    lost_ids = np.unique(truth.request_id[unseen & (truth.request_id >= 0)])
    bad[is_root & np.isin(ids, lost_ids)] = True
    attached = ~judged & (linked.parent >= 0)
    counters["unjudged_calls_in_paths"] = int(np.count_nonzero(attached))
    known_ids = np.unique(ids[is_root])
    unseen_ids = lost_ids[~np.isin(lost_ids, known_ids)]
    asked = np.ones(len(ids), dtype=bool)
    if begun_from_ns is not None:
        asked = linked.keys.ts_ns >= begun_from_ns
        unseen_ids = np.unique(truth.request_id[unseen & (truth.keys.ts_ns >= begun_from_ns)])
        unseen_ids = unseen_ids[(unseen_ids >= 0) & ~np.isin(unseen_ids, known_ids)]
    correct = int(np.count_nonzero(asked & is_root & ~bad & (linked.kind == LinkKind.ROOT)))
    counters["paths_whose_root_was_not_captured"] = len(unseen_ids)
    exist = int(np.count_nonzero(asked & is_root)) + len(unseen_ids)
    reported = int(np.count_nonzero(asked & judged & (linked.kind == LinkKind.ROOT)))
    rows = np.flatnonzero(edge)
    above = true_parent[rows]
    pair = Pairs.of(truth.protocol[row_of[above]], truth.protocol[row_of[rows]], truth.protocols)
    claimed = edge & (linked.kind == LinkKind.LINKED)
    worth = calibration(linked.probability[claimed], right[claimed])
    return PathAccuracy(
        edges=by_pair(pair, right[rows], linked.parent[rows] >= 0),
        paths_exist=exist,
        paths_reported=reported,
        paths_correct=correct,
        completeness=rate(correct, exist),
        accuracy=rate(correct, reported),
        calibration=worth.bins,
        calibration_error=worth.error,
        sure_edges=worth.sure_edges,
        sure_wrong=worth.sure_wrong,
        concurrency=_concurrency(linked, rows, above, pair, right[rows]),
        counters={name: value for name, value in sorted(counters.items()) if value},
    )


def _true_parents(linked: LinkedCalls, ids: Ints, part: Ints) -> Ints:
    """Row of the true parent of every call; -1 for those without ID and those whose parent is not there.

    First of the same part. The call that a part begins with comes from one that was not split yet.
    """
    step = int(part.max(initial=0)) + 1
    known = np.where(ids >= 0, ids * step + part, -1)
    found = _parents_by_id(linked, known, known)
    begins = (ids >= 0) & (part > 0) & (found < 0)
    if begins.any():
        found = np.where(begins, _parents_by_id(linked, known, np.where(begins, ids * step, -1)), found)
    return found


def _parents_by_id(linked: LinkedCalls, ids: Ints, asked: Ints) -> Ints:
    """Row of the parent whose ID a call asks for; -1 for those that ask for none (-1) or find none.

    Listener by listener, so that on one address (loopback) a call is not taken for the parent of its sibling.
    """
    keys = linked.keys
    until = np.where(linked.depart_ns >= 0, linked.depart_ns, np.iinfo(np.int64).max)
    listeners, listener = _listeners(keys)
    best = np.full(len(keys), -1, dtype=np.int64)
    for number, address in enumerate((listeners // PORTS).tolist()):
        above = np.flatnonzero((listener == number) & (ids >= 0))
        below = np.flatnonzero((listener != number) & (keys.src == address) & (asked >= 0))
        if not len(above) or not len(below):
            continue
        at = keys.ts_ns[below]
        found = last_before(ids[above], keys.ts_ns[above], asked[below], at)
        row = np.where(found >= 0, above[found], -1)
        closed = (row >= 0) & (until[row] < at)
        for place in np.flatnonzero(
            closed
        ).tolist():  # an ID that came twice: an older call may still be open
            same = above[ids[above] == asked[below[place]]]
            holds = same[(keys.ts_ns[same] <= at[place]) & (until[same] >= at[place])]
            row[place] = holds[np.argmax(keys.ts_ns[holds])] if len(holds) else -1
        known = best[below]
        later = (row >= 0) & ((known < 0) | (keys.ts_ns[row] > keys.ts_ns[known]))
        best[below[later]] = row[later]
    return best


PORTS = 1 << 16


def _listeners(keys: Keys) -> tuple[Ints, Ints]:
    """Address code * PORTS + port of every listener, and per call the place of its own among them."""
    found, place = np.unique(keys.dst * PORTS + keys.dport, return_inverse=True)
    return found, place.astype(np.int64)


def _entry_listeners(keys: Keys, judged: Bools, true_parent: Ints) -> Bools:
    """Per call: was it made to a listener most of whose calls have no parent? Transactions begin there."""
    _, listener = _listeners(keys)
    size = int(listener.max()) + 1 if len(listener) else 0
    calls = np.bincount(listener[judged], minlength=size)
    parentless = np.bincount(listener[judged & (true_parent < 0)], minlength=size)
    return np.asarray((2 * parentless > calls)[listener], dtype=bool)


def _concurrency(
    linked: LinkedCalls, rows: Ints, above: Ints, pair: Pairs, right: Bools
) -> list[dict[str, Any]]:
    """Edge accuracy by the number of calls in flight at the true parent's listener when the child was
    sent."""
    if not (linked.depart_ns >= 0).any():
        return []
    keys = linked.keys
    _, listener = _listeners(keys)
    in_flight = busy(listener, keys.ts_ns, linked.depart_ns, listener[above], keys.ts_ns[rows])
    return by_crowd(pair, right, in_flight)
