"""Calls inside a node as a step function: sorted once, asked many times.

Calls are stored nearly in order of arrival and leave nearly in order of departure, so that a stable sort,
which looks for runs that are in order, is close to one pass over them. Levels after every step need no walk:
the n-th arrival finds n - 1 arrivals before it, and as many departures as one search tells.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Count = NDArray[np.int32]

SPARSE = 65_536
"""Numbers that lie apart by this and more than there are of them are not looked up in a table."""


def in_order(times: Int) -> bool:
    """Whether times never fall."""
    return bool((times[1:] >= times[:-1]).all())


def sorted_times(times: Int) -> Int:
    """The times in order; the array itself where it is."""
    return times if in_order(times) else np.sort(times, kind="stable")


def level(begin_ns: Int, end_ns: Int, at_ns: Int) -> Int:
    """Calls inside at each time (right-continuous). `begin_ns` and `end_ns` are sorted, each by itself."""
    return np.searchsorted(begin_ns, at_ns, side="right") - np.searchsorted(end_ns, at_ns, side="right")


def by_window(reduce: np.ufunc, values: NDArray[Any], cuts: Int, empty: Any = 0) -> NDArray[Any]:
    """`reduce` (add, maximum, minimum) over values[cuts[k]:cuts[k + 1]] for every k; `empty` where there are
    none."""
    out = np.full(len(cuts) - 1, empty, dtype=np.int64 if values.dtype.kind in "iub" else values.dtype)
    some = cuts[1:] > cuts[:-1]
    if some.any():
        out[some] = reduce.reduceat(values[: cuts[-1]], cuts[:-1][some], dtype=out.dtype)
    return out


class Inside:
    """Calls of a node as arrivals and departures, each in order by itself. Times int64 ns."""

    def __init__(self, begin_ns: Int, end_ns: Int) -> None:
        self.begin_ns = sorted_times(begin_ns)
        self.end_ns = sorted_times(end_ns)

    @property
    def met(self) -> Count:
        """How many were inside right after each arrival, all that arrived or left at that instant counted."""
        begun = np.arange(1, len(self.begin_ns) + 1, dtype=np.int32)
        equal = np.flatnonzero(self.begin_ns[1:] == self.begin_ns[:-1])
        begun[equal] = np.searchsorted(self.begin_ns, self.begin_ns[equal], side="right")
        return begun - self._left_by

    @cached_property
    def _left_by(self) -> Count:
        """Departures up to each arrival."""
        return np.searchsorted(self.end_ns, self.begin_ns, side="right").astype(np.int32)

    @property
    def ended(self) -> Count:
        """Departures before each arrival: of steps at one instant arrivals come first."""
        left = self._left_by
        if not len(left):
            return left
        same = np.flatnonzero((left > 0) & (self.end_ns[np.maximum(left - 1, 0)] == self.begin_ns))
        if len(same):
            left = left.copy()
            left[same] = np.searchsorted(self.end_ns, self.begin_ns[same], side="left")
        return left

    @cached_property
    def begun(self) -> Count:
        """Arrivals up to each departure."""
        before = np.bincount(self.ended, minlength=len(self.end_ns) + 1)
        return np.cumsum(before)[: len(self.end_ns)].astype(np.int32)

    def integral(self, at_ns: Int) -> Int:
        """Call-nanoseconds spent before each time of `at_ns` (in order): the integral of the step function,
        exact in int64.

        Sum over calls of max(0, t - begin) - max(0, t - end), from sorted times. Intermediate products may
        pass 2**63 and wrap; the difference is right modulo 2**64 and itself always fits.
        """
        area: Int = _ramps(self.begin_ns, at_ns) - _ramps(self.end_ns, at_ns)
        return area

    def since(self, first_ns: int, at_ns: Int) -> Int:
        """Call-nanoseconds between a time and each of `at_ns` (in order, none before it), from the steps
        between them alone."""
        reach = (first_ns, int(at_ns[-1]) + 1)
        begin, end = (
            times[slice(*np.searchsorted(times, reach, side="left").tolist())]
            for times in (self.begin_ns, self.end_ns)
        )
        before = np.searchsorted(self.begin_ns, first_ns) - np.searchsorted(self.end_ns, first_ns)
        area: Int = before * (at_ns - first_ns) + _ramps(begin, at_ns) - _ramps(end, at_ns)
        return area

    def mean(self, edges_ns: Int) -> NDArray[np.float64]:
        """Time-weighted mean number of calls inside, per window between neighbouring edges."""
        mean: NDArray[np.float64] = np.diff(self.integral(edges_ns)) / np.diff(edges_ns)
        return mean

    def highest(self, edges_ns: Int) -> Int:
        """Highest number of calls inside in each window between neighbouring edges."""
        # Between edges it can only rise at an arrival.
        cuts = np.searchsorted(self.begin_ns, edges_ns)
        first, last = int(cuts[0]), int(cuts[-1])
        after = np.arange(first + 1, last + 1, dtype=np.int32) - self._left_by[first:last]
        at_edge = level(self.begin_ns, self.end_ns, edges_ns[:-1])
        return np.maximum(at_edge, by_window(np.maximum, after, cuts - first))

    def lowest(self, edges_ns: Int) -> Int:
        """Lowest number of calls inside in each window between neighbouring edges."""
        cuts = np.searchsorted(self.end_ns, edges_ns)  # it can only fall at a departure
        after = self.begun - np.arange(1, len(self.end_ns) + 1, dtype=np.int32)
        at_edge = level(self.begin_ns, self.end_ns, edges_ns[:-1])
        return np.minimum(at_edge, by_window(np.minimum, after, cuts, np.iinfo(np.int64).max))


def _ramps(since: Int, at: Int) -> Int:
    """Sum over `since` of max(0, at - since), modulo 2**64; both are sorted."""
    count = np.searchsorted(since, at, side="right")
    area: Int = count * at - np.cumsum(by_window(np.add, since, np.concatenate([[0], count])))
    return area


def integral(begin_ns: Int, end_ns: Int, at_ns: Int) -> Int:
    """`Inside.integral` of calls in any order."""
    return Inside(begin_ns, end_ns).integral(at_ns)


def mean_inside(begin_ns: Int, end_ns: Int, edges_ns: Int) -> NDArray[np.float64]:
    """Time-weighted mean number of calls inside, per window between neighbouring edges."""
    return Inside(begin_ns, end_ns).mean(edges_ns)


def series(begin_ns: Int, end_ns: Int, edges_ns: Int) -> tuple[NDArray[np.float64], Int]:
    """Time-weighted mean and maximum number of calls inside, per window between neighbouring edges."""
    inside = Inside(begin_ns, end_ns)
    return inside.mean(edges_ns), inside.highest(edges_ns)


def distinct(values: NDArray[Any]) -> Int:
    """The different values of a column of small integers, in order."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    low = int(values.min())
    if int(values.max()) - low > len(values) + SPARSE:
        return np.unique(values).astype(np.int64)
    return np.flatnonzero(np.bincount(values - low)) + low


def place_in(found: Int, values: NDArray[Any]) -> NDArray[Any]:
    """Place of each value in `found` (`distinct` of the values); 16 bits where they will do, which are sorted
    by radix."""
    dtype = np.uint16 if len(found) <= 1 << 16 else np.int32
    if not len(found):
        return np.zeros(0, dtype=dtype)
    low, high = int(found[0]), int(found[-1])
    if high - low > len(values) + SPARSE:
        return np.searchsorted(found, values).astype(dtype)
    place = np.zeros(high - low + 1, dtype=dtype)
    place[found - low] = np.arange(len(found))
    return place[values - low]
