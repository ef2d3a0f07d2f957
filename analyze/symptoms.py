"""When users were hurt: episodes of long queues at the entry, and transactions that took very long.

An episode is a stretch of windows in which an entry node held many more calls than it usually does, or in
which very long transactions were under way. Setting a connection up belongs to a transaction: a client whose
SYN was dropped waits a second before the server hears of it. That wait is the client's timer, though, and no
stretch of trouble: the moment of the drop is. One stretch in which several nodes' own queues rose one after
the other is as many episodes, because each rise has a cause of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int, distinct
from tapscope.analyze.pushback import LEAST_EXCESS, NodeLoad, episodes, lower_limit, usual
from tapscope.analyze.response_time import VLRT_FACTOR, vlrt
from tapscope.analyze.tcp import RETRY_NS, set_up_ns

JOIN_NS = 150_000_000
"""Stretches that are no further apart are one episode."""

SECONDS_NS = 1_000_000_000
"""A single transaction without any queue is an episode from here on: "seconds instead of milliseconds"."""

MINOR = 0.2
"""Own rises with less than this share of the largest excess of an episode do not split it: aftermath."""


SLIGHT = 0.5
"""Of the least excess of an episode, from which a queue is looked at when a log says that something happened
at that very moment."""

GRAVE, MANY_LATE = 2.5, 3
"""Times the least excess in calls, or so many very long transactions, from which users were hurt whatever the
reason. Below, a queue of a few calls is what a busy system has now and then: it takes a reason
that is shown directly to make it a finding."""


@dataclass(frozen=True)
class Episode:
    """A stretch of time in which users were hurt. `roots` are rows of calls: very long transactions under way
    in it, `reconnected` those of them whose connection was set up only after a SYN was sent again. `grave`:
    users were hurt beyond doubt."""

    begin_ns: int
    end_ns: int
    entry: int
    peak_load: float
    usual_load: float
    roots: NDArray[np.int64]
    reconnected: int
    longest_ns: int
    grave: bool


@dataclass(frozen=True)
class Transactions:
    """Transactions as their users met them, in order of asking: rows of calls, when they asked (SYN
    included), when the request arrived, when they were answered; `late`: very long, also for their class."""

    rows: NDArray[np.int64]
    begin_ns: Int
    arrive_ns: Int
    end_ns: Int
    late: NDArray[np.bool_]

    @cached_property
    def _longest_ns(self) -> int:
        return int((self.end_ns - self.begin_ns).max(initial=0))

    def under_way(self, begin_ns: int, end_ns: int) -> NDArray[np.int64]:
        """Places of the transactions that were under way in [begin, end)."""
        low, high = np.searchsorted(self.begin_ns, (begin_ns - self._longest_ns, end_ns)).tolist()
        return low + np.flatnonzero(self.end_ns[low:high] > begin_ns)


def entry_nodes(nodes: Mapping[str, NDArray[Any]], calls: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Called nodes that are nearest to the clients, as rows of nodes."""
    served = distinct(calls["server_node"])
    depth = nodes["depth"][served]
    return served[depth == depth.min()].astype(np.int64)


def transactions(
    calls: Mapping[str, NDArray[Any]],
    connections: Mapping[str, NDArray[Any]],
    entries: NDArray[Any],
    counted: NDArray[np.bool_] | None = None,
) -> Transactions:
    """Answered calls at the entry nodes, which are called by clients only; `counted`: of these calls."""
    chosen = np.isin(calls["server_node"], entries) & (calls["depart_ns"] >= 0)
    rows = np.flatnonzero(chosen if counted is None else chosen & counted)
    waited = set_up_ns(calls, connections)[rows]
    arrive, end = calls["arrive_ns"][rows], calls["depart_ns"][rows]
    took = end - arrive + waited
    late, _ = vlrt(took)
    if late.any():
        # A class that always takes long is not late when it does.
        column = calls["class_id"][rows]
        for kind in np.unique(column[late]):
            mine = np.flatnonzero(column == kind)
            late[mine] &= took[mine] >= VLRT_FACTOR * np.median(took[mine]) if len(mine) > 2 else True
    asked = arrive - waited
    order = np.argsort(asked, kind="stable")
    return Transactions(rows[order], asked[order], arrive[order], end[order], late[order])


def find_episodes(
    seen: Transactions,
    loads: list[NodeLoad],
    edges_ns: Int,
    entries: NDArray[Any],
    logged: NDArray[np.bool_] | None = None,
) -> list[Episode]:
    """Episodes in order of time. `loads` is `pushback.node_loads` for the windows between `edges_ns`.

    `logged`: windows in which the log of some host says that a node stopped or was held back; there a queue
    of SLIGHT times the usual excess will do.
    """
    by_node = {one.node: one for one in loads}
    width = int(edges_ns[1] - edges_ns[0])
    queues = []
    for entry in entries:
        one = by_node[int(entry)]
        found_here = episodes(one.load, one.limit, lower_limit(one.load))
        if logged is not None:
            slight = one.usual_load + SLIGHT * (one.limit - one.usual_load)
            found_here += episodes(np.where(logged, one.load, 0.0), slight)
        queues += [(int(edges_ns[first]), int(edges_ns[last])) for first, last in found_here]
    own = _Stretches(_own_rises(loads, edges_ns))
    hurts = _Stretches(sorted((begin, end, 0.0) for begin, end in queues))
    found = []
    for begin, end in _joined(queues + _troubles(seen, width)):
        inside = own.between(begin, end)
        slow = seen.under_way(begin, end)
        slow = slow[seen.late[slow]]
        longest = int((seen.end_ns[slow] - seen.begin_ns[slow]).max(initial=0))
        if hurts.between(begin, end) or inside or len(slow) > 1 or longest >= SECONDS_NS:
            for low, high in _split(begin, end, inside):
                found.append(_episode(low, high, seen, by_node, edges_ns, entries))
    return found


def _troubles(seen: Transactions, width_ns: int) -> list[tuple[int, int]]:
    """Where very long transactions met trouble: their stay, and the moment when a first SYN was dropped."""
    late = np.flatnonzero(seen.late)
    dropped = late[seen.arrive_ns[late] - seen.begin_ns[late] > RETRY_NS]
    at = np.concatenate([seen.begin_ns[dropped], seen.arrive_ns[late]])
    until = np.concatenate([seen.begin_ns[dropped] + width_ns, seen.end_ns[late]])
    # What was served at once after a drop met no trouble any more.
    stays = np.concatenate([np.ones(len(dropped), dtype=np.bool_), ~np.isin(late, dropped)])
    stays[len(dropped) :] |= seen.end_ns[late] - seen.arrive_ns[late] > RETRY_NS
    return list(zip(at[stays].tolist(), until[stays].tolist(), strict=True))


def _own_rises(loads: list[NodeLoad], edges_ns: Int) -> list[tuple[int, int, float]]:
    """Begin, end and excess (call-windows) of every rise of a node's own queue."""
    found = []
    for one in loads:
        middle, limit = usual(one.own)
        for first, last in episodes(one.own, limit, lower_limit(one.own)):
            excess = float(np.maximum(one.own[first:last] - middle, 0).sum())
            found.append((int(edges_ns[first]), int(edges_ns[last]), excess))
    return sorted(found)


class _Stretches:
    """Stretches of time in order of their begins, with a value each; asked for those that reach into
    others."""

    def __init__(self, rows: list[tuple[int, int, float]]) -> None:
        self._rows = rows
        self._begin = [begin for begin, *_ in rows]
        self._ended = list(accumulate((end for _, end, _ in rows), max))

    def between(self, begin: int, end: int) -> list[tuple[int, int, float]]:
        """Those that overlap [begin, end)."""
        first, last = bisect_right(self._ended, begin), bisect_left(self._begin, end)
        return [row for row in self._rows[first:last] if row[1] > begin]


def _split(begin: int, end: int, rises: list[tuple[int, int, float]]) -> list[tuple[int, int]]:
    """Cut a stretch where own queues rise anew; without a rise it stays whole.

    It begins with the first rise: what was under way before, and met it, had begun in peace.
    """
    largest = max((excess for *_, excess in rises), default=0.0)
    cores = _joined([(b, e) for b, e, excess in rises if excess >= MINOR * largest])
    if not cores:
        return [(begin, end)]
    starts = [max(begin, cores[0][0]), *(b for b, _ in cores[1:])]
    ends = [*starts[1:], end]
    return [(low, high) for low, high in zip(starts, ends, strict=True) if high > low]


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if out and begin <= out[-1][1] + JOIN_NS:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((begin, end))
    return out


def _episode(
    begin: int,
    end: int,
    seen: Transactions,
    by_node: dict[int, NodeLoad],
    edges_ns: Int,
    entries: NDArray[Any],
) -> Episode:
    first = max(int(np.searchsorted(edges_ns, begin, side="right")) - 1, 0)
    last = max(int(np.searchsorted(edges_ns, end, side="left")), first + 1)
    peaks = {int(entry): float(by_node[int(entry)].load[first:last].max(initial=0.0)) for entry in entries}
    entry = max(peaks, key=lambda node: peaks[node])
    under_way = seen.under_way(begin, end)
    late = under_way[seen.late[under_way]]
    longest = int((seen.end_ns[under_way] - seen.begin_ns[under_way]).max(initial=0))
    middle, limit = by_node[entry].usual_load, by_node[entry].limit
    return Episode(
        begin_ns=begin,
        end_ns=end,
        entry=entry,
        peak_load=peaks[entry],
        usual_load=middle,
        roots=np.sort(seen.rows[late]),
        reconnected=int((seen.arrive_ns[late] - seen.begin_ns[late] > RETRY_NS).sum()),
        longest_ns=longest,
        grave=peaks[entry] > max(limit, middle + GRAVE * LEAST_EXCESS)
        or len(late) >= MANY_LATE
        or longest >= SECONDS_NS,
    )
