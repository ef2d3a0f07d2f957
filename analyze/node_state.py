"""Everything that load and throughput say of one node: window, service times, work units, N*, states,
speeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, median_filter

from tapscope.analyze.congestion import CongestionPoint, intervention, not_reached
from tapscope.analyze.inside import Int, by_window
from tapscope.analyze.load import window_edges
from tapscope.analyze.node_work import NodeWork
from tapscope.analyze.service_time import Float, ServiceTimes
from tapscope.analyze.window_length import WindowLength, given, window_length
from tapscope.analyze.windows import (
    FEWEST_WINDOWS,
    SpeedLevels,
    WindowState,
    classify,
    intervals,
    speed_levels,
)

WIDEST_NS = 100_000_000
"""A window chosen by itself is at most this wide: longer ones hide what this looks for."""

FINEST_NS = 10_000_000
"""And at least this: below, one call more or less decides what a window was."""

LASTS = 7
"""Full windows over which a speed is told by their majority."""

NEAR_NS = 250_000_000
"""A quiet window has the speed of the nearest full one, if that is no further away."""


@dataclass(frozen=True)
class NodeState:
    """Of one node. Series have one value per window between neighbouring `edges_ns`; throughput in work
    units/s."""

    node: int
    edges_ns: Int
    window: WindowLength
    service: ServiceTimes
    unit_ns: float
    load: Float
    throughput: Float
    completions: Int
    point: CongestionPoint
    paper: CongestionPoint
    state: NDArray[np.uint8]
    speeds: SpeedLevels
    follows: tuple[float, float]
    """Correlation with load, over normal windows, of completions and of work units (Wang, III-B: in mixed
    traffic only the latter follow the load); NaN with too few windows."""

    def share(self, state: WindowState) -> float:
        """Share of the windows in a state."""
        return float((self.state == state).mean()) if len(self.state) else 0.0


def node_state(work: NodeWork, *, width_ns: int | None = None, states_only: bool = False) -> NodeState:
    """Analyse one node; `width_ns` None chooses the window (at most WIDEST_NS, at least FINEST_NS).

    `states_only`: states and speeds of windows of a given width are all that is asked for; the other window
    lengths, the paper's N* and its bootstrap are left out.
    """
    at = work.at
    inside, point = at.inside, work.point
    if states_only and width_ns is not None:
        chosen = given(width_ns)
    else:
        chosen = window_length(inside, work.units, point.n_star)
    width = int(np.clip(chosen.width_ns, FINEST_NS, WIDEST_NS)) if width_ns is None else width_ns
    edges = np.zeros(1, dtype=np.int64)
    if len(at):
        edges = window_edges(int(inside.begin_ns[0]), int(inside.end_ns[-1]), width)
    load = inside.mean(edges)
    left = np.searchsorted(inside.end_ns, edges)
    rate = by_window(np.add, work.units, left) * 1e9 / width
    state = classify(load, rate, point.n_star, _usual_rate(point, load, rate))
    if (state == WindowState.STALLED).any():
        # The capacity again, without the time in which the node stood still.
        point = work.plateau(intervals(edges, state == WindowState.STALLED))
        state = classify(load, rate, point.n_star, _usual_rate(point, load, rate))
    # Beside a stop a window was full of calls for part of its time only.
    full = (state == WindowState.CONGESTED) & ~binary_dilation(state == WindowState.STALLED)
    if point.reached:
        full &= inside.lowest(edges) >= point.n_star - 0.5
    speeds = speed_levels(rate, full)
    if len(speeds.throughput) > 1 and not states_only:
        # The capacity of one speed times the stay of another is no number of calls.
        found = [work.plateau_within(low, high, edges) for low, high in _eras(speeds, edges, state)]
        point = _of_fastest(point, found)
    completions = by_window(np.add, at.departed[at.by_end], left)
    normal = state == WindowState.NORMAL
    return NodeState(
        node=at.node,
        edges_ns=edges,
        window=chosen,
        service=work.service,
        unit_ns=work.unit_ns,
        load=load,
        throughput=rate,
        completions=completions,
        point=point,
        paper=not_reached("not asked for") if states_only else intervention(load, rate),
        state=state,
        speeds=speeds,
        follows=(
            _correlation(load[normal], completions[normal].astype(np.float64)),
            _correlation(load[normal], rate[normal]),
        ),
    )


def _correlation(a: Float, b: Float) -> float:
    if len(a) < FEWEST_WINDOWS or not (a.std() > 0 and b.std() > 0):
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def _eras(speeds: SpeedLevels, edges: Int, state: NDArray[np.uint8]) -> list[tuple[Int, Int]]:
    """Begins and ends of the stretches of each speed: windows whose nearest full window had it, as far as
    NEAR_NS."""
    width = int(edges[1] - edges[0])
    full = np.flatnonzero(speeds.of_window >= 0)
    # One window has few completions; a speed lasts for several.
    speed = median_filter(speeds.of_window[full], LASTS, mode="nearest")
    windows = np.arange(len(state))
    behind = np.clip(np.searchsorted(full, windows), 0, len(full) - 1)
    before = np.maximum(behind - 1, 0)
    nearer = np.abs(full[before] - windows) <= np.abs(full[behind] - windows)
    nearest = np.where(nearer, before, behind)
    # A moment before and after another speed could be either.
    sure = (speed[before] == speed[behind]) | (full[behind] == windows)
    sure &= (np.abs(full[nearest] - windows) * width <= NEAR_NS) & (state != WindowState.STALLED)
    return [intervals(edges, sure & (speed[nearest] == level)) for level in range(len(speeds.throughput))]


def _of_fastest(whole: CongestionPoint, found: list[CongestionPoint]) -> CongestionPoint:
    """The estimate at the highest speed that has one, for all speeds: servers do not change in number.

    At its highest throughput a node ran at its highest speed for sure. A lower one may be a mixture: between
    full windows nothing tells the speed, and a quiet node may have been faster.
    """
    known = [one for one in found if one.reached]
    if not known:
        return whole
    each = ", ".join(f"{one.n_star:.3g} at {one.capacity:.3g} units/s" for one in known)
    return replace(known[-1], reason=f"at the highest of {len(found)} speeds (N* at each: {each})")


def _usual_rate(point: CongestionPoint, load: Float, rate: Float) -> float:
    """Throughput that a node with calls inside is expected to have, for telling a stall from a lull."""
    if point.reached:
        return point.capacity
    at_work = load > 1
    return float(np.median(rate[at_work])) if at_work.any() else 0.0
