"""Matchers to compare with, written for that purpose after what their papers say.

All have one interface: a function from a `Node` (the calls that it served and the calls that it made, with
classes and times, nothing else) to the parent of every child. `parents` runs one over all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tapscope.store.tables import Table

from .node import Node
from .simple import arrival_order, first_come_first_served, wap5
from .tuples import exclusive_tuples

Ints = NDArray[np.int64]
Baseline = Callable[[Node], Ints]

BASELINES: dict[str, Baseline] = {
    "FCFS": first_come_first_served,
    "arrival order": arrival_order,
    "WAP5-style": wap5,
    "TraceWeaver-style": exclusive_tuples,
}


def nodes(calls: Table, made: Table | None = None) -> Iterator[tuple[Node, Ints, Ints]]:
    """Every node that served and made calls, with the rows of both in `calls`.

    `made`: times of the calls by their callers' clocks where these differ (arrive_ns, depart_ns); rows whose
    sending was not observed (-1) are nobody's children.
    """
    made = calls if made is None else made
    sent = made["arrive_ns"] >= 0
    for number in np.intersect1d(calls["server_node"], calls["client_node"][sent]):
        parents = np.flatnonzero(calls["server_node"] == number)
        parents = parents[np.argsort(calls["arrive_ns"][parents], kind="stable")]
        children = np.flatnonzero((calls["client_node"] == number) & sent)
        children = children[np.argsort(made["arrive_ns"][children], kind="stable")]
        end = int(max(calls["depart_ns"][parents].max(), made["depart_ns"][children].max())) + 1

        def until(depart: NDArray[np.int64], end: int = end) -> NDArray[np.int64]:
            return np.where(depart < 0, end, depart)

        kind = calls["server_node"].astype(np.int64) << 32 | calls["class_id"].astype(np.int64) + 1
        node = Node(
            parent_class=np.unique(calls["class_id"][parents], return_inverse=True)[1],
            arrive_ns=calls["arrive_ns"][parents],
            depart_ns=until(calls["depart_ns"][parents]),
            child_class=np.unique(kind[children], return_inverse=True)[1],
            begin_ns=made["arrive_ns"][children],
            end_ns=until(made["depart_ns"][children]),
        )
        yield node, parents, children


def parents(baseline: Baseline, calls: Table, made: Table | None = None) -> Ints:
    """Parent of every call (row of `calls`), -1 none, as a baseline has it."""
    found = np.full(len(calls["conn"]), -1, dtype=np.int64)
    for node, above, below in nodes(calls, made):
        chosen = baseline(node)
        found[below] = np.where(chosen >= 0, above[chosen], -1)
    return found
