"""How a clock runs against another: robust lines through measured offsets, one per stretch between two steps.

Pure functions, used for host monitors (offsets from series, `clock_offset`) and for logs (offsets from
matched events). An offset is what the clock shows minus what the tap's clock shows at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.samples import Float, Int

CONFIDENCE = 0.95
OUTLIER = 5.0
"""Scaled median deviations from which a point does not take part in the final fit."""

MOST_POINTS = 200
"""Points that the pairwise slopes are taken of; more are thinned evenly."""

FEWEST = 4
"""Points on either side of a step."""

STEP = 6.0
"""Noise deviations that a step must be high, at least."""

BETTER = 0.5
"""Share of the absolute residuals that may be left when a step is taken out."""


@dataclass(frozen=True)
class ClockLine:
    """One stretch of a clock without a step: [from_ns, to_ns] by that clock itself.

    At time t of the clock its offset is `offset_ns` + `drift_ppb` * (t - from_ns) / 1e9. `error_ns` bounds
    the offset anywhere in the stretch (95 %), `drift_error_ppb` the drift. `drift_ppb` is 0 where it is not
    significant. The errors are of the fit: what shifts all points alike is not in them.
    """

    from_ns: int
    to_ns: int
    offset_ns: float
    drift_ppb: float
    error_ns: float
    drift_error_ppb: float
    points: int

    def at(self, time_ns: Int) -> Float:
        """Offset at times of the clock, ns."""
        return self.offset_ns + self.drift_ppb * ((time_ns - self.from_ns) / 1e9)


def clock_lines(at_ns: Int, offset_ns: NDArray[np.generic]) -> list[ClockLine]:
    """Lines through `offset_ns` (ns) measured at `at_ns` (int64 ns of the clock), in order of time.

    A stretch is cut where two robust lines leave at most half of the residuals of one, and differ there by
    more than STEP times the noise between neighbours, and STEP times what that noise makes of the two lines
    there. Without points: no line; of fewer than three points the error is infinite. O(n log n).
    """
    order = np.argsort(at_ns, kind="stable")
    at, offset = np.asarray(at_ns)[order], np.asarray(offset_ns, dtype=np.float64)[order]
    if not len(at):
        return []
    noise = _noise(offset)
    cuts = [0, *sorted(_cuts(at, offset, noise, 0, len(at))), len(at)]
    return [_line(at[low:high], offset[low:high]) for low, high in pairwise(cuts)]


def _noise(offset: Float) -> float:
    """Deviation of single points, from second differences: no line and few steps change it."""
    if len(offset) < 3:
        return 0.0
    bends = offset[2:] - 2 * offset[1:-1] + offset[:-2]
    return 1.4826 * float(np.median(np.abs(bends))) / np.sqrt(6.0)


def _cuts(at: Int, offset: Float, noise: float, low: int, high: int) -> list[int]:
    """Rows at which a new stretch begins, in rows [low, high)."""
    if high - low < 2 * FEWEST:
        return []
    seconds, part = (at[low:high] - at[low]) / 1e9, offset[low:high]
    whole = _left_over(seconds, part)
    tried = np.unique(np.linspace(FEWEST, len(part) - FEWEST, 50).astype(np.int64))
    best = min(tried, key=lambda k: _left_over(seconds[:k], part[:k]) + _left_over(seconds[k:], part[k:]))
    close = np.arange(max(best - len(part) // 50 - 1, FEWEST), best + len(part) // 50 + 2)
    close = close[close <= len(part) - FEWEST]
    best = min(close, key=lambda k: _left_over(seconds[:k], part[:k]) + _left_over(seconds[k:], part[k:]))
    left = _left_over(seconds[:best], part[:best]) + _left_over(seconds[best:], part[best:])
    middle = (seconds[best - 1] + seconds[best]) / 2
    before, after = _robust(seconds[:best], part[:best]), _robust(seconds[best:], part[best:])
    height = abs((after[0] + after[1] * middle) - (before[0] + before[1] * middle))
    # Two lines through few points differ for that alone where they are carried on to the middle.
    unsure = np.hypot(_spread_at(middle, seconds[:best]), _spread_at(middle, seconds[best:]))
    if left > BETTER * whole or height <= STEP * max(noise, 1.0) * max(unsure, 1.0):
        return []
    cut = low + int(best)
    return [*_cuts(at, offset, noise, low, cut), cut, *_cuts(at, offset, noise, cut, high)]


def _spread_at(second: float, seconds: Float) -> float:
    """Deviation at a second of a line through points at `seconds`, by that of single points."""
    away = seconds - seconds.mean()
    square = float((away**2).sum())
    return float(np.sqrt(1 / len(seconds) + (second - seconds.mean()) ** 2 / square)) if square else np.inf


def _left_over(seconds: Float, offset: Float) -> float:
    middle, slope = _robust(seconds, offset)
    return float(np.abs(offset - middle - slope * seconds).sum())


def _robust(seconds: Float, offset: Float) -> tuple[float, float]:
    """Offset at second 0 and slope (ns per s): medians of pairwise slopes and of the rest (Theil, Sen)."""
    thin = np.unique(np.linspace(0, len(seconds) - 1, min(len(seconds), MOST_POINTS)).astype(np.int64))
    x, y = seconds[thin], offset[thin]
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    usable = apart > 0
    slopes = (y[second] - y[first])[usable] / apart[usable]
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    return float(np.median(offset - slope * seconds)), slope


def _line(at: Int, offset: Float) -> ClockLine:
    """Least squares through the points near the robust line, and the width of its confidence band."""
    seconds = (at - at[0]) / 1e9
    start, slope = _robust(seconds, offset)
    away = np.abs(offset - start - slope * seconds)
    # Of few points, two of which the line may go through, the median is too small.
    scale = 1.4826 * float(np.median(away)) * len(at) / max(len(at) - 2, 1)
    kept = away <= OUTLIER * max(scale, 1.0)
    x, y = seconds[kept], offset[kept]
    length = float(seconds[-1])
    if len(x) < 3 or np.ptp(x) == 0:
        return ClockLine(int(at[0]), int(at[-1]), float(np.median(offset)), 0.0, np.inf, np.inf, len(at))
    from scipy.special import fdtri, stdtrit  # who aligns no clock need not wait until it is loaded

    mean, spread = float(x.mean()), float(((x - x.mean()) ** 2).sum())
    slope = float((x - mean) @ (y - y.mean())) / spread
    deviation = float(np.sqrt(((y - y.mean() - slope * (x - mean)) ** 2).sum() / (len(x) - 2)))
    times = float(stdtrit(len(x) - 2, 0.5 + CONFIDENCE / 2))
    slope_error = times * deviation / np.sqrt(spread)
    # The band for the whole line at once (Working and Hotelling), widest at the end farther from the middle.
    reach = max(mean, length - mean)
    wide = np.sqrt(2 * fdtri(2, len(x) - 2, CONFIDENCE))
    error = wide * deviation * np.sqrt(1 / len(x) + reach**2 / spread)
    drift = slope if abs(slope) > slope_error else 0.0
    return ClockLine(
        from_ns=int(at[0]),
        to_ns=int(at[-1]),
        offset_ns=float(y.mean()) - drift * mean,
        drift_ppb=drift,
        error_ns=float(error),
        drift_error_ppb=float(slope_error),
        points=len(at),
    )
