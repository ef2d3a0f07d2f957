"""Where a queue began, how it travelled up the tiers, and where it overflowed (Wang IV; Pu, slides;
milliScope 3).

A caller's queue holds the calls that it works on itself and those that wait for the tiers below. Only the
first kind is its own: `own_load` takes the second away, so that a slow database does not make its callers
look guilty. The node whose own load rises is where the congestion is; the nodes above it whose load rises
while their own does not are pushed back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapscope.analyze.calls import Read
from tapscope.analyze.correlation import lag
from tapscope.analyze.inside import Int
from tapscope.analyze.service_time import Float

PARTS = 5
"""Fine windows in a window: who rose first is told in steps shorter than what is looked for."""

DEVIATIONS = 6.0
"""Scaled median deviations above the median from which a queue is an excess."""

LEAST_EXCESS = 3.0
"""Calls above the median, at least: a queue of two is no congestion."""

AROUND = 80
"""Windows on both sides of an episode that take part in lead and lag."""

MOST_FINE = 4_000_000
"""Fine windows of all nodes, at most; a longer run has its lags in whole windows."""


@dataclass(frozen=True)
class NodeLoad:
    """Load of one node per window: all calls inside, and those that it works on itself.

    `fine` is the load in windows of 1/`parts` the width; `usual_load` and `usual_own` are the medians.
    """

    node: int
    load: Float
    own: Float
    fine: Float
    parts: int
    usual_load: float
    usual_own: float
    limit: float
    """Of the load: the level from which it is an excess."""


def node_loads(read: Read, edges_ns: Int) -> list[NodeLoad]:
    """Load and own load of every called node in the windows between `edges_ns`.

    A synchronous caller has one call open per call that waits; where it makes several at once, own load would
    be too low, so that it is bounded below by zero in every window.
    """
    windows = len(edges_ns) - 1
    parts = PARTS if windows * PARTS * len(read.nodes) <= MOST_FINE else 1
    width = int(edges_ns[1] - edges_ns[0])
    fine_edges = edges_ns
    if parts > 1:
        fine_edges = np.append(
            (edges_ns[:-1, None] + np.arange(parts) * width // parts).ravel(), edges_ns[-1]
        )

    def of(node: int) -> NodeLoad:
        fine = read.at(node).inside.mean(fine_edges)
        load = fine.reshape(windows, parts).mean(axis=1)
        waiting = np.zeros(windows)
        for made in read.made(node).values():
            waiting += made.mean(edges_ns)
        own = np.maximum(load - waiting, 0.0)
        middle, limit = usual(load)
        return NodeLoad(node, load, own, fine, parts, middle, usual(own)[0], limit)

    return list(read.of_each(of).values())


def usual(values: Float) -> tuple[float, float]:
    """Median, and the level from which a value is an excess."""
    middle = float(np.median(values)) if len(values) else 0.0
    spread = 1.4826 * float(np.median(np.abs(values - middle))) if len(values) else 0.0
    return middle, middle + max(DEVIATIONS * spread, LEAST_EXCESS)


def lower_limit(values: Float) -> float:
    """Level down to which a stretch that went over the limit reaches: half way back, and a call at least."""
    middle, limit = usual(values)
    return middle + max((limit - middle) / 3, 1.0)


def episodes(
    values: Float, threshold: float, lower: float | None = None, *, join: int = 2
) -> list[tuple[int, int]]:
    """Runs of windows [first, last) above `lower` (None: `threshold`) that are somewhere above `threshold`.

    Runs that are at most `join` windows apart are one.
    """
    above = np.flatnonzero(values > (threshold if lower is None else lower))
    if not len(above):
        return []
    cut = np.flatnonzero(np.diff(above) > join + 1)
    first = above[np.concatenate([[0], cut + 1])]
    last = above[np.concatenate([cut, [len(above) - 1]])] + 1
    over = np.concatenate([[0], np.cumsum(values > threshold)])
    high = over[last] > over[first]
    return list(zip(first[high].tolist(), last[high].tolist(), strict=True))


@dataclass(frozen=True)
class Rise:
    """What a node's queue did around an episode. `onset` and `peak` are windows; excess in call-windows above
    usual."""

    node: int
    onset: int
    """First window above the usual level; -1: it did not rise."""
    peak: int
    peak_load: float
    usual_load: float
    excess: float
    own_excess: float


def rises(loads: list[NodeLoad], first: int, last: int, *, before: int = 10) -> list[Rise]:
    """How each node's queue rose in windows [first - before, last), most own excess first."""
    begin = max(first - before, 0)
    found = []
    for one in loads:
        part = one.load[begin:last]
        above = np.flatnonzero(part > one.limit)
        found.append(
            Rise(
                node=one.node,
                onset=begin + int(above[0]) if len(above) else -1,
                peak=begin + int(np.argmax(part)),
                peak_load=float(part.max()),
                usual_load=one.usual_load,
                excess=float(np.maximum(part - one.usual_load, 0).sum()),
                own_excess=float(np.maximum(one.own[begin:last] - one.usual_own, 0).sum()),
            )
        )
    return sorted(found, key=lambda rise: -rise.own_excess)


@dataclass(frozen=True)
class Travel:
    """How far behind the origin's queue the queue of another node moved, around an episode; ms.

    Negative: before it. `low` and `high` are the 90 % bootstrap interval (NaN: too short a run), `r` the
    correlation of the changes of both queues at that lag.
    """

    node: int
    lag_ms: float
    low_ms: float
    high_ms: float
    r: float


def travel(
    loads: list[NodeLoad], origin: int, first: int, last: int, width_ns: int, *, around: int = AROUND
) -> list[Travel]:
    """Lead or lag of every other node's queue against the origin's in windows [first, last) and `around` more
    on both sides."""
    by_node = {one.node: one for one in loads}
    here = by_node[origin]
    part = slice(max(first - around, 0) * here.parts, (last + around) * here.parts)
    step_ms = width_ns / here.parts / 1e6
    found = []
    for one in loads:
        if one.node == origin:
            continue
        best = lag(here.fine[part], one.fine[part])
        found.append(
            Travel(one.node, best.windows * step_ms, best.low * step_ms, best.high * step_ms, best.r)
        )
    return found
