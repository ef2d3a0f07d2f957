"""When the cause of a finding began, which is before its users' harm: a server that is stopped or slowed down
holds calls up for a while before its queue is unusual.

A node that works gives signs of life: it answers, and it calls the nodes below. How many it should have given
by now is known from what is inside it: calls that it works on itself, times the rate at which it usually gets
on with one of them (the compensator of a point process). From the moment at which something slows it down,
signs fall behind what is expected. That moment is the change point of greatest likelihood of two Poisson
rates, and all others have their share of the likelihood: the interval that holds nine tenths of it is given,
too. Real signs vary more than Poisson's, by a factor that is measured in quiet windows (quasi-likelihood).

A burst is the same with the other sign: arrivals run ahead of their usual rate.

Some causes are there before anything can show them, and no likelihood knows: then the interval reaches back
by as much (`Onset.or_earlier`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import Read
from tapscope.analyze.inside import Int
from tapscope.analyze.node_calls import NodeCalls
from tapscope.analyze.pushback import NodeLoad
from tapscope.analyze.service_time import Float
from tapscope.analyze.tcp import syns_to

LEAST = 4.0
"""Log-likelihood by which a change must beat none; below, the moment of the harm is all that is known."""

STEP_NS = 1_000_000
COARSE = 256
"""Moments of all pairs that are tried for a begin and an end; the begin is then looked for among all."""

TAIL = 0.05
"""Of the likelihood, on either side of the interval."""

FROM_LOG = "log"


@dataclass(frozen=True)
class Onset:
    """When a cause began, with its 90 % interval; int64 ns. `signs`: what was counted, or FROM_LOG."""

    at_ns: int
    low_ns: int
    high_ns: int
    signs: str

    def or_earlier(self, by_ns: int) -> Onset:
        """The same, if the cause may have been there for so long before any sign could show it."""
        return replace(self, low_ns=self.low_ns - by_ns)


def change_point(
    events_ns: Int,
    between: tuple[int, int],
    expected: Callable[[Int], Float],
    *,
    ahead: bool = False,
    dispersion: float = 1.0,
) -> Onset | None:
    """When, between two times, events began to fall behind what was expected of them (`ahead`: to run ahead
    of it); None without a change.

    `events_ns` are in order; `expected` gives how many were to come up to each of some moments. `dispersion`:
    variance of usual counts over their mean. The change may be over before the later of the two times.
    """
    first, last = between
    events = _within(events_ns, first, last)
    # A silence is looked at in steps: what was expected in it makes its end an ever less likely begin.
    at = np.union1d(events, np.append(np.arange(first, last, STEP_NS), last))
    come = np.searchsorted(events, at, side="right").astype(np.float64)
    awaited = expected(at)
    # Right behind each moment, and right before the next one.
    seen = np.repeat(come[:-1], 2)
    behind = np.stack([awaited[:-1], awaited[1:]], axis=1).ravel()
    some = np.unique(np.linspace(0, len(seen) - 1, COARSE).astype(np.int64))
    each = _gain(seen[None, some] - seen[some, None], behind[None, some] - behind[some, None], ahead)
    gaps = int(some[np.unravel_index(np.argmax(each), each.shape)[1]]) // 2 + 1
    gain = _gain(seen[2 * gaps - 1] - seen[: 2 * gaps], behind[2 * gaps - 1] - behind[: 2 * gaps], ahead)
    gain /= dispersion
    if gain.max() < LEAST:
        return None
    likely = np.exp(gain - gain.max()).reshape(-1, 2).mean(axis=1) * np.diff(at)[:gaps]
    total = np.cumsum(likely) / likely.sum()
    low, middle, high = (_quantile(total, at, q) for q in (TAIL, 0.5, 1 - TAIL))
    return Onset(middle, low, high, "arrivals" if ahead else "signs of life")


def _gain(seen: Float, expected: Float, ahead: bool) -> Float:
    """Log-likelihood of a rate of its own over the expected one; 0 where it changed the other way."""
    seen, expected = np.maximum(seen, 0.0), np.maximum(expected, 1e-9)
    log = np.log(np.maximum(seen, 1e-9) / expected)
    gain = np.where(seen > 0, seen * log, 0.0) - (seen - expected)
    return np.where((seen > expected) if ahead else (seen < expected), gain, 0.0)


def _quantile(total: Float, at: Int, q: float) -> int:
    row = min(int(np.searchsorted(total, q)), len(total) - 1)
    before = float(total[row - 1]) if row else 0.0
    within = (q - before) / max(float(total[row]) - before, 1e-300)
    return int(at[row]) + int(min(within, 1.0) * int(at[row + 1] - at[row]))


class Pace:
    """How fast a node gets on with the calls that it works on itself, by what it did in quiet windows."""

    def __init__(
        self, read: Read, node: int, load: NodeLoad, edges_ns: Int, quiet: NDArray[np.bool_]
    ) -> None:
        self._at, self._made = read.at(node), list(read.made(node).values())
        self._weight = _rate_of_each(self._at, edges_ns, quiet) if not self._made else None
        self._longest = int((self._at.end_ns - self._at.begin_ns).max(initial=0))
        signs = np.diff(np.searchsorted(self._at.inside.end_ns, edges_ns)).astype(np.float64)
        for made in self._made:
            signs += np.diff(np.searchsorted(made.begin_ns, edges_ns))
        width = int(edges_ns[1] - edges_ns[0])
        worked = float(load.own[quiet].sum()) * width
        self._rate = float(signs[quiet].sum()) / worked if worked > 0 else 0.0
        self._read, self._edges_ns, self._quiet = read, edges_ns, quiet
        self._dispersion = _dispersion(signs[quiet], self._rate * width * load.own[quiet])
        self._slowed: dict[tuple[int, int], Onset | None] = {}

    def slowed(self, first_ns: int, last_ns: int) -> Onset | None:
        """When in [first, last) it began to get on more slowly than usual."""
        if (first_ns, last_ns) not in self._slowed:
            self._slowed[first_ns, last_ns] = self._change(first_ns, last_ns)
        return self._slowed[first_ns, last_ns]

    def _change(self, first_ns: int, last_ns: int) -> Onset | None:
        signs = [_within(self._at.inside.end_ns, first_ns, last_ns)]
        signs += [_within(made.begin_ns, first_ns, last_ns) for made in self._made]
        events = np.sort(np.concatenate(signs))
        return change_point(events, (first_ns, last_ns), self._expected, dispersion=self._dispersion)

    def rushed(self, first_ns: int, last_ns: int, *, connections: bool = False) -> Onset | None:
        """When in [first, last) more calls than usual began to arrive; or more clients than usual asked for
        `connections`, whatever became of them."""
        times = self._asked_ns if connections else self._at.begin_ns
        usual = np.diff(np.searchsorted(times, self._edges_ns))[self._quiet]
        if not len(usual):
            return None
        mean = float(usual.mean())
        per_ns = mean / int(self._edges_ns[1] - self._edges_ns[0])
        return change_point(
            times,
            (first_ns, last_ns),
            lambda at: np.asarray(per_ns * (at - first_ns), dtype=np.float64),
            ahead=True,
            dispersion=_dispersion(usual, np.full(len(usual), mean)),
        )

    @cached_property
    def _asked_ns(self) -> Int:
        table = self._read.connections
        return np.asarray(table["syn_ns"][syns_to(table, self._read.addresses(self._at.node))])

    def _expected(self, times: Int) -> Float:
        if self._weight is not None:
            return _weighted(self._at, self._weight, self._longest, times)
        first = int(times[0])
        own = self._at.inside.since(first, times).astype(np.float64)
        for made in self._made:
            own -= made.since(first, times)
        # A caller of several at once has less than nothing of its own for a while.
        return np.asarray(np.maximum.accumulate(self._rate * own), dtype=np.float64)


def _rate_of_each(at: NodeCalls, edges: Int, quiet: NDArray[np.bool_]) -> Float:
    """By class: how often per ns a call of it is done, over the calls that arrived in quiet windows."""
    window = np.clip(np.searchsorted(edges, at.begin_ns, side="right") - 1, 0, len(quiet) - 1)
    chosen = quiet[window]
    took = (at.end_ns - at.begin_ns)[chosen]
    count = np.bincount(at.column[chosen], minlength=len(at.classes))
    total = np.bincount(at.column[chosen], took, len(at.classes))
    return np.divide(count, total, out=np.zeros(len(count)), where=total > 0)


def _weighted(at: NodeCalls, rate: Float, longest: int, times: Int) -> Float:
    """Expected departures between the first of the times and each of them, from the calls inside."""
    first, last = int(times[0]), int(times[-1])
    part = slice(*np.searchsorted(at.begin_ns, (first - longest, last)).tolist())
    begin, end = np.maximum(at.begin_ns[part], first), at.end_ns[part]
    here = end > first
    weight = rate[at.column[part][here]]
    return _ramp(begin[here], weight, times) - _ramp(end[here], weight, times)


def _ramp(since: Int, weight: Float, times: Int) -> Float:
    """Sum over `since` of weight times max(0, time - since)."""
    order = np.argsort(since, kind="stable")
    since, weight = since[order] - times[0], weight[order]
    count = np.searchsorted(since, times - times[0], side="right")
    total = np.concatenate([np.zeros(1), np.cumsum(weight)])
    moment = np.concatenate([np.zeros(1), np.cumsum(weight * since)])
    return np.asarray(total[count] * (times - times[0]) - moment[count], dtype=np.float64)


def _within(times: Int, first: int, last: int) -> Int:
    low, high = np.searchsorted(times, (first, last)).tolist()
    return times[low:high]


def _dispersion(seen: Float, expected: Float) -> float:
    """Variance of counts around what was expected, over the mean; 1 at least, as nothing is more regular for
    certain."""
    mean = float(expected.mean()) if len(expected) else 0.0
    return max(float(np.mean((seen - expected) ** 2)) / mean, 1.0) if mean > 0 else 1.0
