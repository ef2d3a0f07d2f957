"""Links to traces while links come in: a trace is handed on when nothing can become a part of it any more.

Traces that touch each other go together: a call of unknown parent is held against the trace of its runner-up
(traces.traces), which must still be there. A trace is numbered by its root's place among all roots, so that
its number is the one that it has when all calls are there at once; it waits until every call before its root
is decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct import traces
from tapscope.reconstruct.live.held import Ids
from tapscope.reconstruct.live.matching import Matching
from tapscope.reconstruct.match.cycles import circling
from tapscope.reconstruct.match.refusal import unlink
from tapscope.reconstruct.topology import SLACK_NS
from tapscope.reconstruct.unseen import PATIENCE_NS
from tapscope.store.codes import LinkKind
from tapscope.store.tables import TABLES, Table, empty

Flags = NDArray[np.bool_]

LOOK_SHARE = 8
"""Without links from the kernel it is looked for traces that are over when so much more calls came (1/8)."""

_CALL = ("arrive_ns", "depart_ns", "flags", "server_node")
_LINK = tuple(column.name for column in TABLES["links"])


@dataclass
class Done:
    """Traces that are over, by number, with their calls and links by the calls' numbers."""

    links: Table
    traces: Table
    trace_ids: Ids
    trace_calls: Table


class Trees:
    """Calls that may still get children, or wait for others of their trace."""

    def __init__(self, min_probability: float) -> None:
        self._min_probability = min_probability
        self._ids: Ids = np.zeros(0, dtype=np.int64)
        self._calls: Table = {name: empty("calls")[name] for name in _CALL}
        self._gone: Ids = np.zeros(0, dtype=np.int64)
        self._links = empty("links")
        self._decided: Flags = np.zeros(0, dtype=np.bool_)
        self._clear: Flags = np.zeros(0, dtype=np.bool_)
        """Parents are what they stay: no circle, and not below the least probability."""
        self._number: Ids = np.zeros(0, dtype=np.int64)
        self._roots = 0
        self._added = 0
        self._moved = False
        self.circles = self.refused = 0

    def __len__(self) -> int:
        return len(self._ids)

    def waiting_since_ns(self, frontier_ns: int) -> int:
        """When the first call began that waits; none: `frontier_ns`, when the next one may begin."""
        return int(self._calls["arrive_ns"][0]) if len(self._ids) else frontier_ns

    def add(self, calls: Table, ids: Ids, gone_ns: Ids, links: Table) -> None:
        """More calls, and links that were decided, of these calls and earlier ones."""
        count = len(ids)
        self._ids = np.concatenate([self._ids, ids])
        self._calls = {name: np.concatenate([self._calls[name], calls[name]]) for name in _CALL}
        self._gone = np.concatenate([self._gone, gone_ns])
        fresh = {name: np.zeros(count, dtype=values.dtype) for name, values in self._links.items()}
        fresh["parent"] -= 1
        fresh["runner_up"] -= 1
        self._links = {name: np.concatenate([self._links[name], fresh[name]]) for name in _LINK}
        more = np.zeros(count, dtype=np.bool_)
        self._decided = np.concatenate([self._decided, more])
        self._clear = np.concatenate([self._clear, more])
        self._number = np.concatenate([self._number, np.full(count, -1, dtype=np.int64)])
        self._added += count
        self._moved |= bool((links["kind"] != LinkKind.ROOT).any())
        at = np.searchsorted(self._ids, links["child"])
        for name in _LINK:
            self._links[name][at] = links[name]
        self._decided[at] = True

    def take(self, matching: Matching, *, finished: bool = False) -> Done:
        """Traces that are over, or none yet: where many calls wait, looking is worth it only now and then."""
        if not (finished or self._moved or self._added * LOOK_SHARE >= len(self._ids)):
            return self._traces(np.zeros(len(self._ids), dtype=np.bool_))
        self._added, self._moved = 0, False
        self._clear_up(self._above(self._links["parent"]))
        self._number_roots()
        over = self._over(matching) | finished
        parent = self._above(self._links["parent"])
        held_back = (self._links["kind"] == LinkKind.UNKNOWN) & (self._links["runner_up"] >= 0)
        group = np.where(parent >= 0, parent, np.where(held_back, self._above(self._links["runner_up"]), -1))
        group[circling(group, np.ones(len(group)))] = -1
        top = _tops(group)
        waits = np.zeros(len(top), dtype=np.bool_)
        waits[top[~over | ~self._clear | ((self._links["parent"] < 0) & (self._number < 0))]] = True
        leaving = ~waits[top]
        done = self._traces(leaving)
        stays = ~leaving
        self._ids, self._gone = self._ids[stays], self._gone[stays]
        self._calls = {name: values[stays] for name, values in self._calls.items()}
        self._links = {name: values[stays] for name, values in self._links.items()}
        self._decided, self._clear = self._decided[stays], self._clear[stays]
        self._number = self._number[stays]
        return done

    def _above(self, ids: Ids) -> Ids:
        """Place of each id; -1 for none, and for one that was handed on."""
        at = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        if not len(self._ids):
            return np.full(len(ids), -1, dtype=np.int64)
        return np.where((ids >= 0) & (self._ids[at] == ids), at, -1)

    def _clear_up(self, parent: Ids) -> None:
        """Breaks circles that are complete, and takes back what is too unlikely."""
        parent = np.where(self._decided, parent, -1)
        circles = circling(parent, self._links["probability"])
        circles = circles[~self._clear[circles]]
        self.circles += len(circles)
        broken = parent.copy()
        broken[circles] = -1
        # Where the chain of parents ends at a call that is not decided, it may still become a circle.
        known = self._decided[_tops(broken)] & self._decided & ~self._clear
        links = self._links
        weak = known & (links["kind"] == LinkKind.LINKED) & (links["probability"] < self._min_probability)
        weak[circles] = False
        self.refused += int(weak.sum())
        weak[circles] = True
        unlink(links, weak)
        self._clear |= known

    def _number_roots(self) -> None:
        """Roots get their numbers as far as everything before them is clear."""
        clear = len(self._clear) if self._clear.all() else int(np.argmin(self._clear))
        fresh = (self._number[:clear] < 0) & (self._links["parent"][:clear] < 0)
        places = np.flatnonzero(fresh)
        self._number[places] = self._roots + np.arange(len(places))
        self._roots += len(places)

    def _over(self, matching: Matching) -> Flags:
        """Calls that get no more children."""
        depart = self._calls["depart_ns"]
        until = np.where(depart >= 0, depart, np.where(self._gone >= 0, self._gone, -1))
        until = np.where(until >= 0, until + 2 * SLACK_NS, self._calls["arrive_ns"] + PATIENCE_NS)
        return np.asarray(matching.frontier(self._calls["server_node"].astype(np.int64)) > until)

    def _traces(self, rows: Flags) -> Done:
        ids = self._ids[rows]
        links = {name: values[rows] for name, values in self._links.items()}
        if not len(ids):
            return Done(links, empty("traces"), np.zeros(0, dtype=np.int64), empty("trace_calls"))
        calls = {name: values[rows] for name, values in self._calls.items()}
        place = {name: _places(ids, links[name]) for name in ("parent", "runner_up")}
        trees, members = traces.traces(calls, links | place)
        number = self._number[rows][trees["root"]]
        trees["root"] = ids[trees["root"]]
        members["call"] = ids[members["call"]]
        members["trace"] = number[members["trace"]]
        return Done(links, trees, number, members)


def _places(ids: Ids, wanted: Ids) -> Ids:
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where((wanted >= 0) & (ids[at] == wanted), at, -1)


def _tops(parent: Ids) -> Ids:
    """Where each chain of parents ends; circles end anywhere in themselves."""
    up = np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(max(len(parent), 1).bit_length()):
        further = up[up]
        if np.array_equal(further, up):
            break
        up = further
    return up
