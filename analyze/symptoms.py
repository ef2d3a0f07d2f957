"""When users were hurt: episodes of long queues at the entry, and transactions that took very long.

An episode is a stretch of windows in which an entry node held many more calls than it usually does, or in
which very long transactions were under way. Setting a connection up belongs to a transaction: a client whose
SYN was dropped waits a second before the server hears of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import Int
from tapscope.analyze.pushback import NodeLoad, episodes, usual
from tapscope.analyze.response_time import vlrt
from tapscope.analyze.tcp import set_up_ns

JOIN_NS = 150_000_000
"""Stretches that are no further apart are one episode."""


@dataclass(frozen=True)
class Episode:
    """A stretch of time in which users were hurt. `roots` are rows of calls: very long transactions under way
    in it."""

    begin_ns: int
    end_ns: int
    entry: int
    peak_load: float
    usual_load: float
    roots: NDArray[np.int64]
    longest_ns: int


@dataclass(frozen=True)
class Transactions:
    """Transactions as their users met them: rows of calls, when they asked (SYN included), when they were
    answered."""

    rows: NDArray[np.int64]
    begin_ns: Int
    end_ns: Int


def entry_nodes(nodes: Mapping[str, NDArray[Any]], calls: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Called nodes that are nearest to the clients, as rows of nodes."""
    served = np.unique(calls["server_node"])
    depth = nodes["depth"][served]
    return served[depth == depth.min()].astype(np.int64)


def transactions(
    calls: Mapping[str, NDArray[Any]], connections: Mapping[str, NDArray[Any]], entries: NDArray[Any]
) -> Transactions:
    """Answered calls at the entry nodes, which are called by clients only."""
    rows = np.flatnonzero(np.isin(calls["server_node"], entries) & (calls["depart_ns"] >= 0))
    waited = set_up_ns(calls, connections)[rows]
    return Transactions(rows, calls["arrive_ns"][rows] - waited, calls["depart_ns"][rows])


def find_episodes(
    seen: Transactions, loads: list[NodeLoad], edges_ns: Int, entries: NDArray[Any]
) -> list[Episode]:
    """Episodes in order of time. `loads` is `pushback.node_loads` for the windows between `edges_ns`."""
    late, _ = vlrt(seen.end_ns - seen.begin_ns)
    stretches = [(int(b), int(e)) for b, e in zip(seen.begin_ns[late], seen.end_ns[late], strict=True)]
    by_node = {one.node: one.load for one in loads}
    for entry in entries:
        load = by_node[int(entry)]
        for first, last in episodes(load, usual(load)[1]):
            stretches.append((int(edges_ns[first]), int(edges_ns[last])))
    return [_episode(begin, end, seen, late, by_node, edges_ns, entries) for begin, end in _joined(stretches)]


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
    late: NDArray[np.bool_],
    by_node: dict[int, Any],
    edges_ns: Int,
    entries: NDArray[Any],
) -> Episode:
    first = max(int(np.searchsorted(edges_ns, begin, side="right")) - 1, 0)
    last = max(int(np.searchsorted(edges_ns, end, side="left")), first + 1)
    peaks = {int(entry): float(by_node[int(entry)][first:last].max(initial=0.0)) for entry in entries}
    entry = max(peaks, key=lambda node: peaks[node])
    under_way = late & (seen.begin_ns < end) & (seen.end_ns > begin)
    took = (seen.end_ns - seen.begin_ns)[(seen.begin_ns < end) & (seen.end_ns > begin)]
    return Episode(
        begin_ns=begin,
        end_ns=end,
        entry=entry,
        peak_load=peaks[entry],
        usual_load=usual(by_node[entry])[0],
        roots=seen.rows[under_way],
        longest_ns=int(took.max(initial=0)),
    )
