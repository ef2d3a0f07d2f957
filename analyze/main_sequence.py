"""What a node gets done, as a function of how many calls are inside it: the main sequence (Wang, Fig. 5c).

Windows blur it: a call works in one window and counts in another, and windows of high throughput empty the
queue, which biases every mean taken at a given load. Here the rate at each level is taken without windows, by
occurrence and exposure: the work that was completed while n calls were inside, over the time that n calls
were inside. `FullPeriods` goes further for the capacity, see there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Count, Inside, Int
from tapscope.analyze.service_time import Float

EXACT_LEVELS = 128
"""Levels that have a bin of their own; above, 16 bins per octave."""

LIMB = 24
"""Bits of a time that are summed at once: sums of float64 stay exact."""


@dataclass(frozen=True)
class Steps:
    """Arrivals and departures of a node, each in order of time: int64 ns since the first arrival, on a clock
    that stands still in what is left out.

    `ended` are the departures before each arrival, `begun` the arrivals up to each departure; at one instant
    arrivals come first, so that a call of no length is never at a level of -1. `work` is what each departure
    completed.
    """

    begin_ns: Int
    end_ns: Int
    ended: Count
    begun: Count
    work: Float

    @cached_property
    def up(self) -> Count:
        """Calls inside right after each arrival."""
        return np.asarray(np.arange(1, len(self.ended) + 1) - self.ended, dtype=np.int32)

    @cached_property
    def down(self) -> Count:
        """Calls inside right after each departure."""
        return np.asarray(self.begun - np.arange(1, len(self.begun) + 1), dtype=np.int32)

    @property
    def length_ns(self) -> int:
        """From the first arrival to the last departure."""
        return int(self.end_ns[-1]) if len(self.end_ns) else 0


@dataclass(frozen=True)
class MainSequence:
    """Per bin of levels that was entered: mean `level`, `seconds` spent there, `work` completed there."""

    level: Float
    seconds: Float
    work: Float

    def rate(self) -> Float:
        """Work per second at each level."""
        return self.work / self.seconds


def steps(inside: Inside, work: Float, left_out: tuple[Int, Int] | None = None) -> Steps:
    """Steps of the calls of a node.

    `work` is what the calls count when they complete, in order of departure (1, or work units; 0: the
    departure was not seen). `left_out` are begins and ends of disjoint intervals, in order: the clock does
    not run in them.
    """
    begin, end, ended, begun = inside.begin_ns, inside.end_ns, inside.ended, inside.begun
    if left_out is not None and len(left_out[0]):
        begin, within_begin = _without(begin, *left_out)
        end, within_end = _without(end, *left_out)
        # What happened in an interval happens at one instant now.
        ended, begun = ended.copy(), begun.copy()
        ended[within_begin] = np.searchsorted(end, begin[within_begin], side="left")
        begun[within_end] = np.searchsorted(begin, end[within_end], side="right")
    first = begin[:1] if len(begin) else np.zeros(1, dtype=np.int64)
    return Steps(begin - first, end - first, ended, begun, work)


def _without(at: Int, begin: Int, end: Int) -> tuple[Int, Int]:
    """Times (sorted) on a clock that stands still in the intervals, and the places of those inside one."""
    length = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(end - begin)])
    first, last = np.searchsorted(at, begin, side="left"), np.searchsorted(at, end, side="right")
    behind = np.diff(last, prepend=0, append=len(at))
    out = at - np.repeat(length, behind)
    count = last - first
    within = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
    out[within] = np.repeat(begin - length[:-1], count)
    return out, within


def main_sequence(walk: Steps) -> MainSequence:
    """Time and work by level. A completion belongs to the level that it ends."""
    levels = int(walk.up.max(initial=0)) + 2
    entered_up = _sums(walk.up, walk.begin_ns, levels)
    entered_down = _sums(walk.down, walk.end_ns, levels)
    # A level is left where its neighbours are entered.
    time = np.roll(entered_up, -1) + np.roll(entered_down, 1) - entered_up - entered_down
    work = np.bincount(walk.down + 1, walk.work, levels)
    level = np.arange(1, levels - 1)  # nothing is done where nobody is inside
    seconds, work = time[1:-1] / 1e9, work[1:-1]
    beyond = np.log2(np.maximum(level, EXACT_LEVELS) / EXACT_LEVELS) * 16
    bins = np.where(level < EXACT_LEVELS, level, EXACT_LEVELS + beyond.astype(np.int64))
    total = np.bincount(bins, seconds)
    used = total > 0
    return MainSequence(
        np.asarray(np.bincount(bins, seconds * level)[used] / total[used], dtype=np.float64),
        np.asarray(total[used], dtype=np.float64),
        np.asarray(np.bincount(bins, work)[used], dtype=np.float64),
    )


def _sums(group: NDArray[np.int32], values: Int, groups: int) -> Int:
    """Sum of the values of each group, exact modulo 2**64."""
    high = np.bincount(group, values >> LIMB, groups).astype(np.int64)
    low = np.bincount(group, values & ((1 << LIMB) - 1), groups).astype(np.int64)
    return (high << LIMB) + low


class FullPeriods:
    """Periods in which at least so many calls were inside, for any level: steps are sorted by level once.

    A period counts from its first completion to its last, without the work of the first: between completions
    lie whole services. From the edge on, the first one would be seen in part only, which makes a node look
    faster the less its service times vary.
    """

    def __init__(self, walk: Steps) -> None:
        self._end_ns = walk.end_ns
        rows, begin = _by_level(walk.up)
        self._opens = walk.ended[rows], begin
        # A step down leaves the level above; it is itself a completion that counts.
        rows, begin = _by_level(walk.down + 1)
        self._closes = rows + 1, begin
        self._done = np.concatenate([np.zeros(1), np.cumsum(walk.work)])
        completes = walk.work > 0
        self._ended = np.flatnonzero(completes)
        self._completions = np.zeros(len(completes) + 1, dtype=np.int32)
        np.cumsum(completes, out=self._completions[1:])

    def at(self, level: float) -> tuple[Float, Float, Float]:
        """Begin (s), length (s) and work of the periods with at least `level` (above 0) calls inside."""
        least = int(np.ceil(level))
        opens, closes = _of_level(*self._opens, least), _of_level(*self._closes, least)
        entered, left = self._completions[opens], self._completions[closes] - 1
        some = entered < left
        first, last = self._ended[entered[some]], self._ended[left[some]]
        begin, end = self._end_ns[first], self._end_ns[last]
        return begin / 1e9, (end - begin) / 1e9, self._done[last + 1] - self._done[first + 1]


def _by_level(levels: Count) -> tuple[Count, Int]:
    """Steps sorted by level, in order of time within one, and where each level begins."""
    count = np.bincount(levels)
    small = levels.astype(np.uint16) if len(count) <= 1 << 16 else levels  # 16 bits are sorted by radix
    rows = np.argsort(small, kind="stable").astype(np.int32)
    return rows, np.concatenate([[0], np.cumsum(count)])


def _of_level(rows: Count, begin: Int, level: int) -> Count:
    return rows[begin[level] : begin[level + 1]] if level + 1 < len(begin) else rows[:0]
