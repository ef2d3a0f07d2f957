"""Throughput in work units, which makes windows with different mixes of classes comparable (Wang, III-B).

A work unit is a common measure of the classes' service times; a call counts as many units as its class takes.
The paper counts a call in the window in which it completes. With windows as short as a call, most of its work
was done before: `spread` shares it evenly over its stay instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int
from tapscope.analyze.service_time import Float

FINEST = 32
"""A unit is at least this part of the shortest service time: a finer one measures noise."""

MISFIT = 0.05
"""Mean relative error of whole units that is taken for exact."""


def work_unit_ns(service_ns: Float, calls: NDArray[Any]) -> float:
    """The largest unit of which the classes' service times are whole multiples, within `MISFIT`; ns.

    Both arguments have one value per class: service time and number of calls. NaN when no class is known.
    Where no unit fits, the finest: units are a scale, and what is counted (service time over unit) is not
    rounded.
    """
    known = np.isfinite(service_ns) & (service_ns > 0) & (calls > 0)
    if not known.any():
        return float("nan")
    service, weight = service_ns[known], calls[known] / calls[known].sum()
    for part in range(1, FINEST + 1):
        unit = float(service.min()) / part
        whole = np.maximum(np.round(service / unit), 1)
        if float((np.abs(whole * unit - service) / service) @ weight) <= MISFIT:
            # The unit that serves all classes best, not only the shortest.
            return float((service / whole) @ weight)
    return float(service.min()) / FINEST


def work_units(begin_ns: Int, end_ns: Int, units: Float, edges_ns: Int, *, spread: bool = False) -> Float:
    """Work units of each window between neighbouring edges.

    `begin_ns`, `end_ns` and `units` have one value per completed call. With `spread` a call's units are
    shared evenly over [begin, end); else they count where it ends. O(n log n), O(windows) in memory.
    """
    if not spread:
        window = np.searchsorted(edges_ns, end_ns, side="right") - 1
        seen = (window >= 0) & (window < len(edges_ns) - 1)
        done = np.bincount(window[seen], units[seen], len(edges_ns) - 1)
        return np.asarray(done, dtype=np.float64)
    origin = int(edges_ns[0])
    begin, end, at = begin_ns - origin, end_ns - origin, (edges_ns - origin).astype(np.float64)
    length = end - begin
    rate = np.divide(units, length, out=np.zeros(len(units)), where=length > 0)
    at_once = length <= 0
    out: Float = np.diff(_ramps(begin, rate, at) - _ramps(end, rate, at))
    if at_once.any():
        out += work_units(begin_ns[at_once], end_ns[at_once], units[at_once], edges_ns)
    return out


def _ramps(since: Int, rate: Float, at: Float) -> Float:
    """Sum of rate * max(0, at - since)."""
    order = np.argsort(since, kind="stable")
    sorted_since = since[order].astype(np.float64)
    zero = np.zeros(1)
    rates = np.concatenate([zero, np.cumsum(rate[order])])
    moments = np.concatenate([zero, np.cumsum(rate[order] * sorted_since)])
    count = np.searchsorted(sorted_since, at, side="right")
    return rates[count] * at - moments[count]
