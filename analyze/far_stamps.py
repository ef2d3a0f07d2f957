"""Stamps that lie days away from all others: a clock that was set, a record that is broken.

Analyses lay windows of equal length over the time in which calls were. One wrong stamp would stretch that
time to weeks or decades, and every series with it. So the time goes from the first to the last event of the
stretch that most events lie in, and of those around it that are no more than a pause away from it: a night, a
weekend. What lies behind a pause of more than LONGEST_PAUSE_HOURS is far, and so is a handful of calls behind
half a day of silence.
"""

from __future__ import annotations

import numpy as np

from tapscope.analyze.inside import Int

HOUR_NS = 3_600_000_000_000
PAUSE_HOURS = 12
"""Shorter pauses part nothing."""
LONGEST_PAUSE_HOURS = 7 * 24
FEW, FEW_SHARE = 20, 0.001
"""So many events, or this share of all, are a handful,"""
BESIDE = 0.1
"""where they are not more than this share of those in the busiest stretch."""


def near(at_ns: Int) -> tuple[int, int]:
    """The first and the last of the times that are not far from the others. There must be one."""
    first, last = int(at_ns.min()), int(at_ns.max())
    if last - first <= PAUSE_HOURS * HOUR_NS:
        return first, last
    hour = (at_ns - first) // HOUR_NS
    counts = np.bincount(hour)  # since 1970 there were half a million
    busy = np.flatnonzero(counts)
    cuts = np.flatnonzero(np.diff(busy) > PAUSE_HOURS) + 1
    if not len(cuts):
        return first, last
    events = np.add.reduceat(counts[busy], np.append(0, cuts))
    pauses = np.diff(busy)[cuts - 1]
    low = high = main = int(np.argmax(events))
    few = min(max(FEW, FEW_SHARE * len(at_ns)), BESIDE * int(events[main]))
    while low > 0 and pauses[low - 1] <= LONGEST_PAUSE_HOURS and events[:low].sum() > few:
        low -= 1
    while high < len(cuts) and pauses[high] <= LONGEST_PAUSE_HOURS and events[high + 1 :].sum() > few:
        high += 1
    borders = np.append(0, np.append(busy[cuts], busy[-1] + 1))
    kept = at_ns[(hour >= borders[low]) & (hour < borders[high + 1])]
    return int(kept.min()), int(kept.max())
