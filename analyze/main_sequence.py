"""What a node gets done, as a function of how many calls are inside it: the main sequence (Wang, Fig. 5c).

Windows blur it: a call works in one window and counts in another, and windows of high throughput empty the
queue, which biases every mean taken at a given load. Here the rate at each level is taken without windows, by
occurrence and exposure: the work that was completed while n calls were inside, over the time that n calls
were inside. `FullPeriods` goes further for the capacity, see there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import Int
from tapscope.analyze.service_time import Float

EXACT_LEVELS = 128
"""Levels that have a bin of their own; above, 16 bins per octave."""


@dataclass(frozen=True)
class Steps:
    """Arrivals and departures of a node in order of time: `inside` calls right after `seconds` (since the
    first).

    `work` is what was completed there. Before the first step nobody is inside.
    """

    seconds: Float
    inside: NDArray[np.int64]
    work: Float


@dataclass(frozen=True)
class MainSequence:
    """Per bin of levels that was entered: mean `level`, `seconds` spent there, `work` completed there."""

    level: Float
    seconds: Float
    work: Float

    def rate(self) -> Float:
        """Work per second at each level."""
        return self.work / self.seconds


def steps(begin_ns: Int, end_ns: Int, work: Float, left_out: tuple[Int, Int] | None = None) -> Steps:
    """Steps of calls that were inside from `begin_ns` to `end_ns`.

    `work` is what each counts when it completes (1, or work units; 0: its departure was not seen). `left_out`
    are begins and ends of disjoint intervals, in order: the clock does not run in them.
    """
    at = np.concatenate([begin_ns, end_ns])
    step = np.concatenate([np.ones(len(begin_ns), dtype=np.int64), -np.ones(len(end_ns), dtype=np.int64)])
    done = np.concatenate([np.zeros(len(begin_ns)), work])
    if left_out is not None and len(left_out[0]):
        at = at - _left_out_before(at, *left_out)
    order = np.argsort(at, kind="stable")  # begins before ends: a call of no length is never at a level of -1
    seconds = (at[order] - at.min(initial=np.iinfo(np.int64).max)) / 1e9
    return Steps(seconds, np.cumsum(step[order]), done[order])


def _left_out_before(at: Int, begin: Int, end: Int) -> Int:
    whole = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(end - begin)])
    last = np.searchsorted(begin, at, side="right")
    inside = np.where(last > 0, np.maximum(end[np.maximum(last - 1, 0)] - at, 0), 0)
    return whole[last] - inside


def main_sequence(walk: Steps) -> MainSequence:
    """Time and work by level. A completion belongs to the level that it ends."""
    before = np.concatenate([np.zeros(1, dtype=np.int64), walk.inside[:-1]])
    stay = np.diff(walk.seconds, prepend=walk.seconds[:1])
    beyond = np.log2(np.maximum(before, EXACT_LEVELS) / EXACT_LEVELS) * 16
    bins = np.where(before < EXACT_LEVELS, before, EXACT_LEVELS + beyond.astype(np.int64))
    seconds = np.bincount(bins, stay)
    used = (seconds > 0) & (np.arange(len(seconds)) > 0)  # nothing is done where nobody is inside
    return MainSequence(
        np.asarray(np.bincount(bins, stay * before)[used] / seconds[used], dtype=np.float64),
        np.asarray(seconds[used], dtype=np.float64),
        np.asarray(np.bincount(bins, walk.work)[used], dtype=np.float64),
    )


class FullPeriods:
    """Periods in which at least so many calls were inside, for any level: steps are sorted by level once.

    A period counts from its first completion to its last, without the work of the first: between completions
    lie whole services. From the edge on, the first one would be seen in part only, which makes a node look
    faster the less its service times vary.
    """

    def __init__(self, walk: Steps) -> None:
        self._seconds = walk.seconds
        up = np.diff(walk.inside, prepend=0) > 0
        self._opens = _by_level(np.flatnonzero(up), walk.inside[up])
        # A step down leaves the level above; it is itself a completion that counts.
        self._closes = _by_level(np.flatnonzero(~up), walk.inside[~up] + 1)
        self._done = np.concatenate([np.zeros(1), np.cumsum(walk.work)])
        self._ended = np.flatnonzero(walk.work > 0)
        self._completions = np.cumsum(walk.work > 0)

    def at(self, level: float) -> tuple[Float, Float, Float]:
        """Begin (s), length (s) and work of the periods with at least `level` (above 0) calls inside."""
        least = int(np.ceil(level))
        opens, closes = _of_level(*self._opens, least), _of_level(*self._closes, least)
        entered, left = self._completions[opens], self._completions[closes] - 1
        some = entered < left
        first, last = self._ended[entered[some]], self._ended[left[some]]
        begin = self._seconds[first]
        return begin, self._seconds[last] - begin, self._done[last + 1] - self._done[first + 1]


def _by_level(rows: Int, inside: NDArray[np.int64]) -> tuple[Int, NDArray[np.int64]]:
    """Rows sorted by level, in order of time within one, and where each level begins."""
    count = np.bincount(inside)
    levels = inside.astype(np.uint16) if len(count) <= 1 << 16 else inside  # 16 bits are sorted by radix
    return rows[np.argsort(levels, kind="stable")], np.concatenate([[0], np.cumsum(count)])


def _of_level(rows: Int, begin: NDArray[np.int64], level: int) -> Int:
    return rows[begin[level] : begin[level + 1]] if level + 1 < len(begin) else rows[:0]
