"""Everything that load and throughput say of one node: window, service times, work units, N*, states,
speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.congestion import CongestionPoint, intervention, plateau
from tapscope.analyze.load import Int, Stays, series, window_edges
from tapscope.analyze.main_sequence import steps
from tapscope.analyze.service_time import Float, ServiceTimes, service_times
from tapscope.analyze.throughput import work_unit_ns, work_units
from tapscope.analyze.window_length import WindowLength, window_length
from tapscope.analyze.windows import SpeedLevels, WindowState, classify, intervals, lowest, speed_levels

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
) -> NodeState:
    """Analyse one node; `width_ns` None chooses the window (at most WIDEST_NS, at least FINEST_NS).

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
    inside_per_unit = _seconds_per_unit(whole_stay, service, unit, count)
    point = plateau(steps(begin, end, units), inside_per_unit)
    chosen = window_length(begin, end, units, point.n_star)
    width = int(np.clip(chosen.width_ns, FINEST_NS, WIDEST_NS)) if width_ns is None else width_ns
    edges = (
        window_edges(int(begin.min()), int(end.max()), width) if len(begin) else np.zeros(1, dtype=np.int64)
    )
    load, _ = series(begin, end, edges)
    rate = work_units(begin, end, units, edges) * 1e9 / width
    state = classify(load, rate, point.n_star, _usual_rate(point, load, rate))
    if (state == WindowState.STALLED).any():
        # The capacity again, without the time in which the node stood still.
        stopped = intervals(edges, state == WindowState.STALLED)
        point = plateau(steps(begin, end, units, stopped), inside_per_unit)
        state = classify(load, rate, point.n_star, _usual_rate(point, load, rate))
    full = state == WindowState.CONGESTED
    if point.reached:
        full &= lowest(begin, end, edges) >= point.n_star - 0.5
    return NodeState(
        node=node,
        edges_ns=edges,
        window=chosen,
        service=service,
        unit_ns=unit,
        load=load,
        throughput=rate,
        completions=np.diff(np.searchsorted(np.sort(stay.end_ns[done]), edges)),
        point=point,
        paper=intervention(load, rate),
        state=state,
        speeds=speed_levels(rate, full),
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
) -> float:
    """Mean stay of the mix of classes under low load, per unit of work; s. NaN where nothing is known."""
    if not len(service.classes) or not np.isfinite(unit_ns):
        return float("nan")
    column = np.searchsorted(whole_stay.classes, service.classes)
    stay_ns = whole_stay.mean_ns()[np.minimum(column, len(whole_stay.classes) - 1)]
    units = float(service.mean_ns() @ count) / unit_ns
    return float(stay_ns @ count) / units / 1e9 if units > 0 else float("nan")


def _usual_rate(point: CongestionPoint, load: Float, rate: Float) -> float:
    """Throughput that a node with calls inside is expected to have, for telling a stall from a lull."""
    if point.reached:
        return point.capacity
    at_work = load > 1
    return float(np.median(rate[at_work])) if at_work.any() else 0.0
