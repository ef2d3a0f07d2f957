"""Offset of a sampled clock against the tap's: the shift at which counters grow as the tap saw them grow.

A sample says how much a counter grew between two times of the host's clock. The tap knows every message's
time, so that what it saw in the same interval, shifted by any offset, is exact: no grid limits the offset
that is found, which is why its error can be a small part of a sample. Pure functions on series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.samples import Float, Int

SEARCHED_NS = 600_000_000_000
"""Offsets up to ten minutes are looked for."""

NEAR_NS = 2_000_000_000
"""How far from the offset of the whole run that of a part is looked for: most steps of clocks are smaller."""

FEWEST_SAMPLES, MOST_SAMPLES = 30, 400
PARTS = 12
LEAST_R = 0.5
"""Correlation from which a part's offset is believed."""

RIVAL = 0.85
"""Of the highest correlation: where another shift comes so near, nobody can tell which is right."""

SMOOTHED = 20
"""Samples over which the mean is taken off, so that a slow rise is no likeness."""


@dataclass(frozen=True)
class Growth:
    """What was counted up to each moment: `total` has one value more than `at_ns` (sorted), from 0."""

    at_ns: Int
    total: Float

    def between(self, begin_ns: Int, end_ns: Int) -> Float:
        """Counted in each interval [begin, end)."""
        return (
            self.total[np.searchsorted(self.at_ns, end_ns)]
            - self.total[np.searchsorted(self.at_ns, begin_ns)]
        )


def growth(at_ns: Int, amount: NDArray[np.generic]) -> Growth:
    """Running total of amounts at times in any order."""
    order = np.argsort(at_ns, kind="stable")
    return Growth(at_ns[order], np.concatenate([[0.0], np.cumsum(amount[order], dtype=np.float64)]))


@dataclass(frozen=True)
class Offsets:
    """Offset (host minus tap, ns) of each part of a run, at the middle of its samples by the host's clock,
    with the correlation there. `reason` says why there are none."""

    at_ns: Int
    offset_ns: Float
    r: Float
    interval_ns: int
    reason: str = ""


def offsets(
    begin_ns: Int,
    end_ns: Int,
    grown: Sequence[Float],
    seen: Sequence[Growth],
    *,
    search_ns: int = SEARCHED_NS,
) -> Offsets:
    """Offsets of parts of a host's samples [begin, end) (host's clock, in order) against the tap.

    `grown` are one or several counters' increases per sample (of any scale, such as bytes received and sent),
    `seen` the same things as the tap saw them. First the whole run is shifted (cross-correlation by FFT),
    then every part of it by itself, to a sixteenth of a sample and between those by a parabola.
    """
    interval = int(np.median(end_ns - begin_ns)) if len(end_ns) else 0
    nothing = Offsets(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), interval)
    if len(end_ns) < 3 * FEWEST_SAMPLES:
        return _without(nothing, f"{len(end_ns)} samples; {3 * FEWEST_SAMPLES} are needed")
    pairs = [(one, other) for one, other in zip(grown, seen, strict=True) if one.any() and len(other.at_ns)]
    if not pairs:
        return _without(nothing, "nothing was counted, or the tap saw nothing of it")
    whole, reason = _whole(begin_ns, end_ns, pairs, interval, search_ns)
    if reason:
        return _without(nothing, reason)
    first = min(other.at_ns[0] for _, other in pairs) + whole + interval
    last = max(other.at_ns[-1] for _, other in pairs) + whole - interval
    inside = np.flatnonzero((begin_ns >= first) & (end_ns <= last))
    size = int(np.clip(len(inside) // PARTS, FEWEST_SAMPLES, MOST_SAMPLES))
    found = []
    for low in range(0, len(inside) - size + 1, size):
        rows = inside[low : low + size]
        begin, end = begin_ns[rows], end_ns[rows]
        part = [(one[rows], other) for one, other in pairs]
        offset, r = _best(begin, end, part, whole, max(NEAR_NS, 8 * interval), interval / 2)
        offset, r = _best(begin, end, part, offset, interval, interval / 16)
        if r >= LEAST_R:
            found.append(((int(begin[0]) + int(end[-1])) // 2, offset, r))
    if len(found) < 3:
        return _without(
            nothing, f"counters and tap are alike in {len(found)} parts of the run; three are needed"
        )
    at, by, alike = (np.array(column) for column in zip(*found, strict=True))
    return Offsets(at, by, alike, interval)


def _without(nothing: Offsets, reason: str) -> Offsets:
    return Offsets(nothing.at_ns, nothing.offset_ns, nothing.r, nothing.interval_ns, reason)


Pairs = Sequence[tuple[Float, Growth]]


def _whole(begin_ns: Int, end_ns: Int, pairs: Pairs, interval: int, search_ns: int) -> tuple[int, str]:
    """The offset of the run as one, to a sample, ns; and why it is not known."""
    low = min(int(begin_ns[0]), *(int(other.at_ns[0]) for _, other in pairs))
    high = max(int(end_ns[-1]), *(int(other.at_ns[-1]) for _, other in pairs))
    longest = max(int(end_ns[-1] - begin_ns[0]), *(int(o.at_ns[-1] - o.at_ns[0]) for _, o in pairs))
    if high - low > 2 * longest + search_ns:
        return 0, f"samples and capture are more than {search_ns / 1e9:g} s apart"
    cells = (high - low) // interval + 1
    most = min(search_ns // interval, cells - FEWEST_SAMPLES)
    size = 1 << int(2 * cells).bit_length()
    edges = low + np.arange(cells + 1, dtype=np.int64) * interval
    score = np.zeros(size)
    for one, other in pairs:
        counted = np.interp(
            edges, np.concatenate([begin_ns[:1], end_ns]), np.concatenate([[0], np.cumsum(one)])
        )
        host, tap = _without_trend(np.diff(counted)), _without_trend(other.between(edges[:-1], edges[1:]))
        strength = float(np.sqrt((host @ host) * (tap @ tap)))
        if strength > 0:
            score += np.fft.irfft(np.fft.rfft(host, size) * np.conj(np.fft.rfft(tap, size)), size) / strength
    lags = np.arange(-most, most + 1)
    values = score[lags]  # negative lags stand at the end
    best = int(np.argmax(values))
    hump = np.abs(np.arange(len(values)) - best) <= 2
    rival = float(values[~hump].max(initial=0.0))
    if values[best] <= 0 or rival > RIVAL * values[best]:
        return 0, "no shift makes counters and tap alike more than any other"
    return int(lags[best]) * interval, ""


def _without_trend(values: Float) -> Float:
    window = np.ones(SMOOTHED)
    weight = np.convolve(np.ones(len(values)), window, mode="same")
    return values - np.convolve(values, window, mode="same") / weight


def _best(
    begin_ns: Int, end_ns: Int, pairs: Pairs, around: float, reach: float, step: float
) -> tuple[float, float]:
    """The offset within `reach` of `around` at which samples and tap are most alike, and the mean r there."""
    tried = around + np.arange(-np.ceil(reach / step), np.ceil(reach / step) + 1) * step
    shift = tried.astype(np.int64)[:, None]
    total = np.zeros(len(tried))
    for one, other in pairs:
        tap = other.between(begin_ns - shift, end_ns - shift)
        tap -= tap.mean(axis=1, keepdims=True)
        host = one - one.mean()
        strength = np.sqrt((tap * tap).sum(axis=1) * (host @ host))
        total += np.divide(tap @ host, strength, out=np.zeros(len(tried)), where=strength > 0)
    r = total / len(pairs)
    best = int(np.argmax(r))
    found = float(tried[best])
    if 0 < best < len(r) - 1:
        left, middle, right = r[best - 1 : best + 2]
        bend = left - 2 * middle + right
        if bend < 0:
            found += step * float(0.5 * (left - right) / bend)
    return found, float(r[best])
