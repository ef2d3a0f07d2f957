"""Everything that load and throughput say of one node: window, service times, work units, N*, states,
speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, median_filter

from tapscope.analyze.congestion import DRAWS, CongestionPoint, intervention, plateau
from tapscope.analyze.load import Int, Stays, mean_inside, window_edges
from tapscope.analyze.main_sequence import steps
from tapscope.analyze.service_time import Float, ServiceTimes, service_times
from tapscope.analyze.throughput import work_unit_ns, work_units
from tapscope.analyze.window_length import WindowLength, given, window_length
from tapscope.analyze.windows import (
    FEWEST_WINDOWS,
    SpeedLevels,
    WindowState,
    classify,
    intervals,
    lowest,
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


def node_state(
    calls: Mapping[str, NDArray[Any]],
    stay: Stays,
    intra_node_ns: Int,
    node: int,
    *,
    width_ns: int | None = None,
    states_only: bool = False,
) -> NodeState:
    """Analyse one node; `width_ns` None chooses the window (at most WIDEST_NS, at least FINEST_NS).

    `states_only`: states and speeds of windows of a given width are all that is asked for; the other window
    lengths, the paper's N* and the bootstraps, which take most of the time, are left out.

    `stay` is `load.stays(calls)`, `intra_node_ns` the column of trace_calls in the order of calls.
    """
    here = (calls["server_node"] == node) & stay.inside
    done = here & stay.departed
    service = service_times(calls, stay, intra_node_ns, node)
    begin, end = stay.begin_ns[here], stay.end_ns[here]
    count = np.bincount(
        np.searchsorted(service.classes, calls["class_id"][done]), minlength=len(service.classes)
    )
    unit = work_unit_ns(service.mean_ns(), count) if len(service.classes) else float("nan")
    units = units_done(service, unit, calls["class_id"][here], begin, done[here])
    # What a unit of work keeps a call inside under low load: its own service, and the nodes below.
    whole_stay = service_times(calls, stay, stay.end_ns - stay.begin_ns, node)
    quiet, error = _seconds_per_unit(whole_stay, service, unit, count)
    draws = 0 if states_only else DRAWS
    point = plateau(steps(begin, end, units), quiet, relative_error=error, draws=draws)
    if states_only and width_ns is not None:
        chosen = given(width_ns)
    else:
        chosen = window_length(begin, end, units, point.n_star)
    width = int(np.clip(chosen.width_ns, FINEST_NS, WIDEST_NS)) if width_ns is None else width_ns
    edges = (
        window_edges(int(begin.min()), int(end.max()), width) if len(begin) else np.zeros(1, dtype=np.int64)
    )
    load = mean_inside(begin, end, edges)
    rate = work_units(begin, end, units, edges) * 1e9 / width
    state = classify(load, rate, point.n_star, _usual_rate(point, load, rate))
    if (state == WindowState.STALLED).any():
        # The capacity again, without the time in which the node stood still.
        stopped = intervals(edges, state == WindowState.STALLED)
        point = plateau(steps(begin, end, units, stopped), quiet, relative_error=error, draws=draws)
        state = classify(load, rate, point.n_star, _usual_rate(point, load, rate))
    # Beside a stop a window was full of calls for part of its time only.
    full = (state == WindowState.CONGESTED) & ~binary_dilation(state == WindowState.STALLED)
    if point.reached:
        full &= lowest(begin, end, edges) >= point.n_star - 0.5
    speeds = speed_levels(rate, full)
    if len(speeds.throughput) > 1 and not states_only:
        # The capacity of one speed times the stay of another is no number of calls.
        found = []
        for low, high in _eras(speeds, edges, state):
            era = _outside(low, high, edges)
            only = _inside_any(stay.begin_ns, low, high)
            at_speed = service_times(calls, stay, stay.end_ns - stay.begin_ns, node, only=only)
            quiet, error = _seconds_per_unit(at_speed, service, unit, count)
            worked = np.where(_inside_any(end, low, high), units, 0.0)
            found.append(plateau(steps(begin, end, worked, era), quiet, relative_error=error))
        point = _of_fastest(point, found)
    completions = np.diff(np.searchsorted(np.sort(stay.end_ns[done]), edges))
    normal = state == WindowState.NORMAL
    return NodeState(
        node=node,
        edges_ns=edges,
        window=chosen,
        service=service,
        unit_ns=unit,
        load=load,
        throughput=rate,
        completions=completions,
        point=point,
        paper=intervention(load, rate, draws=draws),
        state=state,
        speeds=speeds,
        follows=(
            _correlation(load[normal], completions[normal].astype(np.float64)),
            _correlation(load[normal], rate[normal]),
        ),
    )


def units_done(
    service: ServiceTimes,
    unit_ns: float,
    class_id: NDArray[Any],
    begin_ns: Int,
    departed: NDArray[np.bool_],
) -> Float:
    """Work units of each call, which it counts where it ends; 0 for one whose end or class is not known."""
    if not np.isfinite(unit_ns):
        return np.zeros(len(begin_ns))
    return np.where(departed, np.nan_to_num(service.of(class_id, begin_ns) / unit_ns), 0.0)


def _seconds_per_unit(
    whole_stay: ServiceTimes, service: ServiceTimes, unit_ns: float, count: NDArray[np.int64]
) -> tuple[float, float]:
    """Mean stay of the mix of classes under low load, per unit of work; s; and its relative standard error.

    NaN where nothing is known. A class whose stay is not known is left out of both sums.
    """
    if not len(service.classes) or not len(whole_stay.classes) or not np.isfinite(unit_ns):
        return float("nan"), 0.0
    column = np.minimum(np.searchsorted(whole_stay.classes, service.classes), len(whole_stay.classes) - 1)
    weight = np.where(whole_stay.classes[column] == service.classes, count, 0).astype(np.float64)
    stays_ns = whole_stay.mean_ns()[column] * weight
    units = float(np.nansum(service.mean_ns() * weight)) / unit_ns
    total = float(np.nansum(stays_ns))
    if units <= 0 or total <= 0:
        return float("nan"), 0.0
    error = float(np.sqrt(np.nansum((stays_ns * whole_stay.relative_error[column]) ** 2))) / total
    return total / units / 1e9, error


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


def _outside(begin: Int, end: Int, edges: Int) -> tuple[Int, Int]:
    """What lies between and around intervals, from the first edge to the last."""
    return np.concatenate([edges[:1], end]), np.concatenate([begin, edges[-1:]])


def _inside_any(at_ns: Int, begin: Int, end: Int) -> NDArray[np.bool_]:
    """Whether each time lies in one of the disjoint intervals, which are in order."""
    row = np.searchsorted(begin, at_ns, side="right") - 1
    return (row >= 0) & (at_ns < end[np.maximum(row, 0)]) if len(begin) else np.zeros(len(at_ns), np.bool_)


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
