"""A baseline after Ashok et al., TraceWeaver (SIGCOMM 2024): whole tuples of children, chosen exclusively.

Every request of a class makes the same calls (slots), which quiet requests show. For each request the best
few tuples of children, one per slot, are enumerated by Gaussian densities of the gaps; of all tuples of all
requests those are chosen that share no child and weigh most; the densities are fitted to the choice, and all
is done again. What quiet requests do not show (optional calls, many repeated ones) has no slot and stays
without a parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from .node import Node

Ints = NDArray[np.int64]
Tuple = tuple[int, ...]

TUPLES = 5  # of each request that take part in the choice (K in the paper)
BEAM = 20  # partial tuples that are carried on
BRANCH = 12  # children tried per slot, the nearest by time
SLOTS = 8
QUIET = 20  # requests that slots are learned from at least
BATCH = 40  # requests that are decided at once
ROUNDS = 4
LEAST_SPREAD_NS = 1_000.0


@dataclass
class _Slots:
    """Calls that a request of one class makes, in order. before[i]: slot whose end the gap is measured from,
    -1 the arrival. mean, spread in ns; one more for the end of the request."""

    kind: list[int]
    before: list[int]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


def exclusive_tuples(node: Node) -> Ints:
    """Top tuples per request, exclusive choice, Gaussian gaps that are fitted again."""
    found = np.full(len(node.begin_ns), -1, dtype=np.int64)
    held = _held(node)
    slots = _learn_slots(node, held)
    for _ in range(ROUNDS):
        chosen: dict[int, Tuple] = {}
        taken: set[int] = set()
        for batch in _batches(node):
            offers = {p: _tuples(node, slots[k], p, held[p], taken) for p, k in batch if k in slots}
            for parent, children in _choose(offers):
                chosen[parent] = children
                taken.update(children)
        _fit(node, slots, chosen)
    for parent, children in chosen.items():
        found[list(children)] = parent
    return found


def _held(node: Node) -> list[list[int]]:
    """Of every parent the children that its stay holds, by beginning."""
    held: list[list[int]] = [[] for _ in node.arrive_ns]
    for child, parents in enumerate(node.candidates()):
        for parent in parents:
            held[parent].append(child)
    return held


def _learn_slots(node: Node, held: list[list[int]]) -> dict[int, _Slots]:
    """Slots of each parent class: the calls that its quietest requests show, or, where all requests are of
    one class, as many of each kind as there are per request."""
    overlap = np.searchsorted(node.arrive_ns, node.depart_ns) - np.searchsorted(
        np.sort(node.depart_ns), node.arrive_ns
    )
    of_kind = np.bincount(node.child_class) / len(node.arrive_ns) if len(node.child_class) else np.empty(0)
    kinds_of_node = np.repeat(np.arange(len(of_kind)), np.round(of_kind).astype(int)).tolist()
    classes = np.unique(node.parent_class).tolist()
    slots: dict[int, _Slots] = {}
    for kind in classes:
        rows = np.flatnonzero(node.parent_class == kind)
        quiet = rows[overlap[rows] <= 1]
        if len(quiet) < QUIET:
            quiet = rows[np.argsort(overlap[rows], kind="stable")[:QUIET]]
        shown = [(row, held[row]) for row in quiet.tolist()]
        usual = [tuple(sorted(node.child_class[some].tolist())) for _, some in shown]
        kinds = kinds_of_node if len(classes) == 1 else list(max(sorted(usual), key=usual.count))
        picked = [(row, _first_of(node, some, kinds[:SLOTS])) for row, some in shown]
        whole = [(row, some) for row, some in picked if some]
        if kinds and whole:
            slots[kind] = _ordered(node, whole)
    return slots


def _first_of(node: Node, held: list[int], kinds: list[int]) -> list[int]:
    """The first children of these kinds, by beginning; empty when one is not there."""
    wanted = list(kinds)
    chosen = []
    for child in held:
        if (kind := int(node.child_class[child])) in wanted:
            wanted.remove(kind)
            chosen.append(child)
    return [] if wanted else chosen


def _ordered(node: Node, shown: list[tuple[int, list[int]]]) -> _Slots:
    """Order of the calls as most of the requests show it, and which waits for the end of which."""
    orders = [tuple(node.child_class[children].tolist()) for _, children in shown]
    order = max(sorted(orders), key=orders.count)
    same = {row: tuple(children) for (row, children), as_ in zip(shown, orders, strict=True) if as_ == order}
    before = []
    for place in range(len(order)):
        votes = []
        for children in same.values():
            ended = [i for i in range(place) if node.end_ns[children[i]] <= node.begin_ns[children[place]]]
            votes.append(max(ended, key=lambda i, c=children: node.end_ns[c[i]]) if ended else -1)
        before.append(max(sorted(votes), key=votes.count))
    made = _Slots([int(kind) for kind in order], before, np.zeros(len(order) + 1), np.zeros(len(order) + 1))
    _fit_one(node, made, same)
    return made


def _gaps(node: Node, slots: _Slots, parent: int, children: Tuple) -> list[int]:
    since = [node.arrive_ns[parent] if b < 0 else node.end_ns[children[b]] for b in slots.before]
    gaps = [int(node.begin_ns[child] - at) for child, at in zip(children, since, strict=True)]
    return [*gaps, int(node.depart_ns[parent] - max(node.end_ns[child] for child in children))]


def _fit_one(node: Node, slots: _Slots, chosen: dict[int, Tuple]) -> None:
    gaps = np.array([_gaps(node, slots, parent, some) for parent, some in chosen.items()], dtype=float)
    slots.mean = gaps.mean(axis=0)
    slots.spread = np.maximum(gaps.std(axis=0), LEAST_SPREAD_NS)


def _fit(node: Node, slots: dict[int, _Slots], chosen: dict[int, Tuple]) -> None:
    for kind, of_kind in slots.items():
        mine = {parent: some for parent, some in chosen.items() if node.parent_class[parent] == kind}
        if len(mine) > 2:
            _fit_one(node, of_kind, mine)


def _tuples(
    node: Node, slots: _Slots, parent: int, held: list[int], taken: set[int]
) -> list[tuple[float, Tuple]]:
    """The best tuples of a request with their log densities, best first."""
    partial: list[tuple[float, Tuple]] = [(0.0, ())]
    of_kind: dict[int, list[int]] = {}
    for child in held:
        if child not in taken:
            of_kind.setdefault(int(node.child_class[child]), []).append(child)
    for place, kind in enumerate(slots.kind):
        longer: list[tuple[float, Tuple]] = []
        for score, children in partial:
            back = slots.before[place]
            since = int(node.arrive_ns[parent] if back < 0 else node.end_ns[children[back]])
            fitting = [
                child
                for child in of_kind.get(kind, ())
                if child not in children and node.begin_ns[child] >= since - 50_000
            ]
            for child in fitting[:BRANCH]:
                z = (node.begin_ns[child] - since - slots.mean[place]) / slots.spread[place]
                longer.append((score - 0.5 * float(z) ** 2, (*children, child)))
        longer.sort(key=lambda each: -each[0])
        partial = longer[:BEAM]
    whole = []
    for score, children in partial:
        end = node.depart_ns[parent] - max(node.end_ns[child] for child in children)
        z = (end - slots.mean[-1]) / slots.spread[-1]
        whole.append((score - 0.5 * float(z) ** 2, children))
    whole.sort(key=lambda each: -each[0])
    return whole[:TUPLES]


def _batches(node: Node) -> Iterator[list[tuple[int, int]]]:
    """Requests with their class, cut where nobody is in flight or a batch is full."""
    batch: list[tuple[int, int]] = []
    until = -1
    for parent, (arrive, depart) in enumerate(
        zip(node.arrive_ns.tolist(), node.depart_ns.tolist(), strict=True)
    ):
        if batch and (arrive > until or len(batch) >= BATCH):
            yield batch
            batch = []
        batch.append((parent, int(node.parent_class[parent])))
        until = max(until, depart)
    if batch:
        yield batch


def _choose(offers: dict[int, list[tuple[float, Tuple]]]) -> Iterator[tuple[int, Tuple]]:
    """At most one tuple per request and no child twice: the choice of the largest number, then weight."""
    listed = [(parent, score, children) for parent, some in offers.items() for score, children in some]
    if not listed:
        return
    row_of: dict[tuple[str, int], int] = {}
    rows, columns = [], []
    for column, (parent, _, children) in enumerate(listed):
        for thing in [("parent", parent), *(("child", child) for child in children)]:
            rows.append(row_of.setdefault(thing, len(row_of)))
            columns.append(column)
    # A tuple that fits badly is still better than none: every one is worth more than the worst is bad.
    worth = np.array([1000.0 + max(score, -900.0) for _, score, _ in listed])
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(row_of), len(listed)))
    solved = milp(
        -worth,
        constraints=LinearConstraint(matrix, ub=1),
        integrality=np.ones(len(listed)),
        bounds=Bounds(0, 1),
        options={"time_limit": 5.0, "mip_rel_gap": 0.0},
    )
    if solved.x is None:
        return
    for column in np.flatnonzero(solved.x > 0.5).tolist():
        yield listed[column][0], listed[column][2]
