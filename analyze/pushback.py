"""Where a queue began, how it travelled up the tiers, and where it overflowed (Wang IV; Pu, slides;
milliScope 3).

A caller's queue holds the calls that it works on itself and those that wait for the tiers below. Only the
first kind is its own: `own_load` takes the second away, so that a slow database does not make its callers
look guilty. The node whose own load rises is where the congestion is; the nodes above it whose load rises
while their own does not are pushed back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import Int, Stays, series
from tapscope.analyze.service_time import Float

DEVIATIONS = 6.0
"""Scaled median deviations above the median from which a queue is an excess."""

LEAST_EXCESS = 3.0
"""Calls above the median, at least: a queue of two is no congestion."""

LAGS = 20
DRAWS = 200
SEED = 11


@dataclass(frozen=True)
class NodeLoad:
    """Load of one node per window: all calls inside, and those that it works on itself."""

    node: int
    load: Float
    own: Float


def node_loads(calls: Mapping[str, NDArray[Any]], stay: Stays, edges_ns: Int) -> list[NodeLoad]:
    """Load and own load of every called node in the windows between `edges_ns`.

    A synchronous caller has one call open per call that waits; where it makes several at once, own load would
    be too low, so that it is bounded below by zero in every window.
    """
    out = []
    for node in np.unique(calls["server_node"]):
        inside = (calls["server_node"] == node) & stay.inside
        load, _ = series(stay.begin_ns[inside], stay.end_ns[inside], edges_ns)
        below = (calls["client_node"] == node) & stay.inside
        waiting = np.zeros(len(load))
        if below.any():
            waiting, _ = series(stay.begin_ns[below], stay.end_ns[below], edges_ns)
        out.append(NodeLoad(int(node), load, np.maximum(load - waiting, 0.0)))
    return out


def usual(values: Float) -> tuple[float, float]:
    """Median, and the level from which a value is an excess."""
    middle = float(np.median(values)) if len(values) else 0.0
    spread = 1.4826 * float(np.median(np.abs(values - middle))) if len(values) else 0.0
    return middle, middle + max(DEVIATIONS * spread, LEAST_EXCESS)


def episodes(values: Float, threshold: float, *, join: int = 2) -> list[tuple[int, int]]:
    """Runs of windows [first, last) above `threshold`; runs that are at most `join` windows apart are one."""
    above = np.flatnonzero(values > threshold)
    if not len(above):
        return []
    cut = np.flatnonzero(np.diff(above) > join + 1)
    first = above[np.concatenate([[0], cut + 1])]
    last = above[np.concatenate([cut, [len(above) - 1]])] + 1
    return list(zip(first.tolist(), last.tolist(), strict=True))


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
        middle, limit = usual(one.load)
        own_middle, _ = usual(one.own)
        part = one.load[begin:last]
        above = np.flatnonzero(part > limit)
        found.append(
            Rise(
                node=one.node,
                onset=begin + int(above[0]) if len(above) else -1,
                peak=begin + int(np.argmax(part)),
                peak_load=float(part.max()),
                usual_load=middle,
                excess=float(np.maximum(part - middle, 0).sum()),
                own_excess=float(np.maximum(one.own[begin:last] - own_middle, 0).sum()),
            )
        )
    return sorted(found, key=lambda rise: -rise.own_excess)


@dataclass(frozen=True)
class Lag:
    """By how many windows `upper` follows `lower` (negative: leads), with the 90 % bootstrap interval and r
    there."""

    lower: int
    upper: int
    windows: int
    low: float
    high: float
    r: float


def lag(lower: Float, upper: Float, nodes: tuple[int, int]) -> Lag:
    """The shift of at most LAGS windows at which the changes of both queues correlate best."""
    a, b = np.diff(lower), np.diff(upper)
    best, r = _best_lag(a, b)
    random = np.random.default_rng(SEED)
    run = max(4 * LAGS, 1)
    drawn = []
    if len(a) > 2 * run:
        for _ in range(DRAWS):
            starts = random.integers(0, len(a) - run, size=-(-len(a) // run))
            rows = [slice(s, s + run) for s in starts]
            drawn.append(_best_lag_of([(a[s], b[s]) for s in rows])[0])
    low, high = np.quantile(drawn, [0.05, 0.95]) if drawn else (float("nan"), float("nan"))
    return Lag(*nodes, best, float(low), float(high), r)


def _best_lag(a: Float, b: Float) -> tuple[int, float]:
    return _best_lag_of([(a, b)])


def _best_lag_of(parts: list[tuple[Float, Float]]) -> tuple[int, float]:
    best, at = -np.inf, 0
    for shift in range(-LAGS, LAGS + 1):
        ab = aa = bb = 0.0
        for a, b in parts:
            x, y = (a[: len(a) - shift], b[shift:]) if shift >= 0 else (a[-shift:], b[:shift])
            ab, aa, bb = ab + float(x @ y), aa + float(x @ x), bb + float(y @ y)
        r = ab / np.sqrt(aa * bb) if aa > 0 and bb > 0 else 0.0
        if r > best + 1e-12 or (abs(r - best) <= 1e-12 and abs(shift) < abs(at)):
            best, at = r, shift
    return at, float(best)
