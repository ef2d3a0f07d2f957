"""Everything that load and throughput say of one node: window, service times, work units, N*, states,
speeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from tapscope.analyze.congestion import CongestionPoint, intervention, not_reached
from tapscope.analyze.inside import Int, by_window
from tapscope.analyze.load import window_edges
from tapscope.analyze.node_work import NodeWork
from tapscope.analyze.service_time import Float, ServiceTimes
from tapscope.analyze.speeds import Speeds, two_speeds
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
    if point.reached and not states_only:
        # The capacity of one speed times the stay of another is no number of calls.
        stalled = intervals(edges, state == WindowState.STALLED)
        point = _of_speeds(point, two_speeds(inside, work.units, stalled, point.n_star))
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


def _of_speeds(whole: CongestionPoint, found: Speeds | None) -> CongestionPoint:
    """N* of a node that changes its speed, with the capacity at the higher one; as it was for any other."""
    if found is None:
        return whole
    slow, fast = found.capacity.tolist()
    return CongestionPoint(
        n_star=found.n_star,
        low=found.low,
        high=found.high,
        reached=True,
        slope=fast / found.n_star,
        capacity=fast,
        reason=f"at two speeds, {slow:.3g} units/s in {found.share[0]:.0%} of the time and {fast:.3g}",
    )


def _usual_rate(point: CongestionPoint, load: Float, rate: Float) -> float:
    """Throughput that a node with calls inside is expected to have, for telling a stall from a lull."""
    if point.reached:
        return point.capacity
    at_work = load > 1
    return float(np.median(rate[at_work])) if at_work.any() else 0.0
