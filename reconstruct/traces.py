"""Links to traces: the tree of calls of each transaction, with intra-node delays (Wang et al., Fig. 4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import CallFlag, LinkKind
from tapscope.store.tables import Table

TOUCHED = CallFlag.UNANSWERED | CallFlag.LOST_RESPONSE | CallFlag.INCOMPLETE | CallFlag.CLIPPED


def traces(
    calls: Table, links: Table, made: Table | None = None, *, lacking: NDArray[np.bool_] | None = None
) -> tuple[Table, Table]:
    """Traces (one per root call of an entry tier, and per call whose parent is unknown) and their calls.

    The probability of a trace is the product over its parents of their least certain child: the children of
    one parent are right or wrong together more often than not, those of different parents are taken as
    independent. A call of unknown parent is a child, too, of its runner-up: a parent that was not given it is
    right as far as it is not that one's.

    `made`: times of the calls by their callers' clocks, where those are not the one of `calls`. `lacking`:
    calls that may have made one that the tap lost.
    """
    n = len(calls["arrive_ns"])
    parent = links["parent"]
    root, depth = _roots(parent)
    is_root = parent < 0
    root_rows = np.flatnonzero(is_root)
    trace_of_root = np.full(n, -1, dtype=np.int64)
    trace_of_root[root_rows] = np.arange(len(root_rows))
    trace = trace_of_root[root]

    least = np.ones(n)
    linked = ~is_root
    np.minimum.at(least, parent[linked], links["probability"][linked])
    held_back = (links["kind"] == LinkKind.UNKNOWN) & (links["runner_up"] >= 0)
    likely = links["runner_up_probability"]
    np.minimum.at(least, links["runner_up"][held_back], 1.0 - likely[held_back])
    log_probability = np.bincount(trace, weights=np.log(np.maximum(least, 1e-300)), minlength=len(root_rows))
    own = np.where(links["kind"][root_rows] == LinkKind.ROOT, 1.0, 0.0)
    touches = (calls["flags"] & TOUCHED) != 0
    touches[links["runner_up"][held_back & (likely >= 0.5)]] = True
    if lacking is not None:
        touches |= lacking
    touched = np.bincount(trace, weights=touches, minlength=len(root_rows)) > 0

    return (
        {
            "root": root_rows.astype(np.int64),
            "calls": np.bincount(trace, minlength=len(root_rows)).astype(np.int32),
            "begin_ns": calls["arrive_ns"][root_rows],
            "end_ns": calls["depart_ns"][root_rows],
            "complete": ~touched & (own > 0),
            "probability": np.exp(log_probability),
        },
        {
            "call": np.arange(n, dtype=np.int64),
            "trace": trace,
            "depth": depth,
            "intra_node_ns": intra_node_delay(calls, parent, made),
        },
    )


def _roots(parent: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Root and depth of every call, by pointer doubling: log2(depth) rounds."""
    n = len(parent)
    up = np.where(parent < 0, np.arange(n), parent)
    steps = (parent >= 0).astype(np.int32)
    while True:
        further = steps[up]
        if not further.any():
            return up, steps
        steps = steps + further
        up = up[up]


def intra_node_delay(calls: Table, parent: NDArray[np.int64], made: Table | None = None) -> NDArray[np.int64]:
    """Time that each node itself spent on each call, ns: what the union of its child calls does not cover of
    its stay; -1 unanswered."""
    made = calls if made is None else made
    stay = calls["depart_ns"] - calls["arrive_ns"]
    rows = np.flatnonzero((parent >= 0) & (made["depart_ns"] >= 0))
    rows = rows[np.lexsort((made["arrive_ns"][rows], parent[rows]))]
    covered = np.zeros(len(stay), dtype=np.int64)
    if len(rows):
        group = parent[rows]
        first = np.concatenate([[True], group[1:] != group[:-1]])
        # Running maximum of departure within each group: every group is lifted above the one before it. What
        # is lifted are places in the order of departures: times, lifted for every parent, pass 2**63.
        # A child may outlast its parent, as where an answer is streamed on.
        begin = np.maximum(made["arrive_ns"][rows], calls["arrive_ns"][group])
        end = np.minimum(made["depart_ns"][rows], calls["depart_ns"][group])
        order = np.argsort(end, kind="stable")
        place = np.empty(len(rows), dtype=np.int64)
        place[order] = np.arange(len(rows))
        lift = (np.cumsum(first) - 1) * len(rows)
        reached = end[order[np.maximum.accumulate(place + lift) - lift]]
        before = np.concatenate([begin[:1], reached[:-1]])
        begin = np.where(first, begin, np.maximum(begin, before))
        np.add.at(covered, group, np.maximum(end - begin, 0))
    return np.where(calls["depart_ns"] < 0, -1, np.maximum(stay - covered, 0))
