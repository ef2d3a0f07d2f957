"""What the calls of one node are worth, and what the node can do: service times, work units, capacity.

None of it depends on a length of windows, so that all analyses of a node share it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tapscope.analyze.congestion import DRAWS, CongestionPoint, plateau
from tapscope.analyze.inside import Int
from tapscope.analyze.main_sequence import steps
from tapscope.analyze.node_calls import NodeCalls
from tapscope.analyze.service_time import Float, Quiet, ServiceTimes, service_times
from tapscope.analyze.throughput import work_unit_ns


class NodeWork:
    """Of the calls `at` a node."""

    def __init__(self, at: NodeCalls) -> None:
        self.at = at
        delay_ns = at.delay_ns
        known = at.departed & (delay_ns >= 0)
        quiet = Quiet(at, known)
        self.service: ServiceTimes = service_times(quiet, delay_ns)
        del delay_ns
        known_classes = np.searchsorted(self.service.classes, at.classes)
        self._count = np.zeros(len(self.service.classes), dtype=np.int64)
        departed = np.bincount(at.column[at.departed], minlength=len(at.classes))
        found = np.isin(at.classes, self.service.classes)
        self._count[known_classes[found]] = departed[found]
        self.unit_ns = (
            work_unit_ns(self.service.mean_ns(), self._count) if len(self.service.classes) else float("nan")
        )
        # What a unit of work keeps a call inside under low load: its own service, and the nodes below.
        if not (known == at.departed).all():
            quiet = Quiet(at, at.departed)
        self.seconds_per_unit, self.relative_error = self._per_unit(quiet)

    @cached_property
    def units(self) -> Float:
        """Work units of each call, in order of departure, where it counts them; 0 for one whose departure was
        not seen, or whose class is not known."""
        at = self.at
        if not np.isfinite(self.unit_ns):
            return np.zeros(len(at))
        worth = self.service.per_call(at)
        worth /= self.unit_ns
        worth[~at.departed | np.isnan(worth)] = 0.0
        return worth[at.by_end]

    @cached_property
    def point(self) -> CongestionPoint:
        """N* by the main sequence of the whole run."""
        return self.plateau(None)

    def plateau(self, left_out: tuple[Int, Int] | None, draws: int = DRAWS) -> CongestionPoint:
        """N* by the main sequence of the run without some intervals."""
        walk = steps(self.at.inside, self.units, left_out)
        return plateau(walk, self.seconds_per_unit, relative_error=self.relative_error, draws=draws)

    def _per_unit(self, quiet: Quiet) -> tuple[float, float]:
        """Mean stay of the mix of classes under low load, per unit of work; s; and its relative standard
        error.

        NaN where nothing is known. A class whose stay is not known is left out of both sums.
        """
        service, unit_ns = self.service, self.unit_ns
        whole_stay = service_times(quiet, self.at.end_ns - self.at.begin_ns)
        if not len(service.classes) or not len(whole_stay.classes) or not np.isfinite(unit_ns):
            return float("nan"), 0.0
        column = np.minimum(np.searchsorted(whole_stay.classes, service.classes), len(whole_stay.classes) - 1)
        weight = np.where(whole_stay.classes[column] == service.classes, self._count, 0).astype(np.float64)
        stays_ns = whole_stay.mean_ns()[column] * weight
        units = float(np.nansum(service.mean_ns() * weight)) / unit_ns
        total = float(np.nansum(stays_ns))
        if units <= 0 or total <= 0:
            return float("nan"), 0.0
        error = float(np.sqrt(np.nansum((stays_ns * whole_stay.relative_error[column]) ** 2))) / total
        return total / units / 1e9, error
