"""A metric over a whole run: what is usual for it, and where it had risen.

What takes a look at every window is done once. An episode then costs as much as its own windows, so that a
day with a thousand episodes takes a thousand times as long as one with one, and not a million times.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from tapscope.analyze.metrics import METRICS, usual
from tapscope.analyze.service_time import Float

Mask = NDArray[np.bool_]

SLACK = 1
"""Windows by which a sample of a host may lie beside the moment that it speaks of."""


class Track:
    """One metric of one host. `usual` is its median in `quiet` windows and `least` the level from which
    (`falls`: below which) it has risen."""

    def __init__(self, name: str, values: Float, quiet: Mask) -> None:
        self.metric = METRICS[name]
        self.values = values
        self._quiet = quiet
        middle, spread = usual(values, quiet)
        self.usual, self.least = middle, self.metric.limit(middle, spread)
        self._sign = -1.0 if self.metric.falls else 1.0

    def risen(self, first: int, last: int, limit: float) -> Mask:
        """Whether in or beside each window of [first, last) it was at this level or beyond."""
        begin = max(first - SLACK, 0)
        near = self._near(self.values[begin : last + SLACK])
        return np.asarray(near[first - begin : last - begin] >= self._sign * limit)

    def otherwise(self, limit: float) -> float:
        """Share of the quiet windows in or beside which it was at this level, which is `least` or beyond; of
        those in or beside which it is known."""
        quiet = self._known_quietly
        beyond = len(self._risen_quietly) - int(np.searchsorted(self._risen_quietly, self._sign * limit))
        return beyond / quiet if quiet else 0.0

    @cached_property
    def _risen_quietly(self) -> Float:
        """Its extremes in and beside the quiet windows in which it had risen, in order: these are few."""
        near = self._near(self.values)[self._quiet]
        return np.sort(near[near >= self._sign * self.least])

    @cached_property
    def _known_quietly(self) -> int:
        return int(np.isfinite(self._near(self.values)[self._quiet]).sum())

    def _near(self, values: Float) -> Float:
        """Its most extreme value in and beside each window, as one that rises; where it is not known, it is
        not extreme."""
        signed = np.where(np.isfinite(values), self._sign * values, -np.inf)
        return np.asarray(maximum_filter1d(signed, 2 * SLACK + 1, mode="constant", cval=-np.inf))
