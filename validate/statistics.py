"""How well two series of one quantity agree. `tap` and `log` are float64 of one length, one value per window.

Every function gives NaN where it is not defined (too few values, no variation) and raises ValueError for
series of different length. Formulae: Pearson, Spearman with mean ranks for ties; Bland and Altman, The Lancet
1986.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import integral

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIMIT_FACTOR = 1.96
"""Limits of agreement hold 95 % of normally distributed differences."""


def _pair(tap: Floats, log: Floats) -> tuple[Floats, Floats]:
    if len(tap) != len(log):
        raise ValueError(f"the series have {len(tap)} and {len(log)} values")
    return np.asarray(tap, dtype=np.float64), np.asarray(log, dtype=np.float64)


def pearson(tap: Floats, log: Floats) -> float:
    """Pearson's correlation coefficient; NaN with fewer than 2 values or when one series is constant."""
    tap, log = _pair(tap, log)
    if len(tap) < 2:
        return float("nan")
    a, b = tap - tap.mean(), log - log.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else float("nan")


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, times = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(times)
    mean_rank = last - (times - 1) / 2
    return np.asarray(mean_rank[group], dtype=np.float64)


def spearman(tap: Floats, log: Floats) -> float:
    """Spearman's rank correlation: Pearson's of the mean ranks."""
    tap, log = _pair(tap, log)
    return pearson(ranks(tap), ranks(log))


def rmse(tap: Floats, log: Floats) -> float:
    """Root of the mean squared difference."""
    tap, log = _pair(tap, log)
    return float(np.sqrt(np.mean((tap - log) ** 2))) if len(tap) else float("nan")


def mean_absolute_error(tap: Floats, log: Floats) -> float:
    """Mean of the absolute differences."""
    tap, log = _pair(tap, log)
    return float(np.mean(np.abs(tap - log))) if len(tap) else float("nan")


def max_error(tap: Floats, log: Floats) -> float:
    """Largest absolute difference."""
    tap, log = _pair(tap, log)
    return float(np.max(np.abs(tap - log))) if len(tap) else float("nan")


@dataclass(frozen=True)
class BlandAltman:
    """Bias of tap against log, and the limits between which 95 % of the differences lie.

    bias, low, high : in the unit of the series; sd : standard deviation of the differences (n - 1)
    percent : bias in percent of the mean of both series
    """

    bias: float
    sd: float
    low: float
    high: float
    percent: float


def bland_altman(tap: Floats, log: Floats) -> BlandAltman:
    """Bland-Altman analysis of tap - log."""
    tap, log = _pair(tap, log)
    if len(tap) < 2:
        nan = float("nan")
        return BlandAltman(nan, nan, nan, nan, nan)
    difference = tap - log
    bias, sd = float(difference.mean()), float(difference.std(ddof=1))
    mean = float(tap.mean() + log.mean()) / 2
    return BlandAltman(
        bias=bias,
        sd=sd,
        low=bias - LIMIT_FACTOR * sd,
        high=bias + LIMIT_FACTOR * sd,
        percent=100 * bias / mean if mean > 0 else float("nan"),
    )


@dataclass(frozen=True)
class Lag:
    """By how much the log runs after the tap. lag_ns > 0: the log is later; correlation at that lag."""

    lag_ns: int
    correlation: float


def best_lag(
    tap: tuple[Ints, Ints],
    log: tuple[Ints, Ints],
    first_ns: int,
    last_ns: int,
    *,
    step_ns: int = 1_000_000,
    reach_ns: int = 60_000_000_000,
) -> Lag | None:
    """The lag that maximises the cross-correlation of two queue lengths, finer than their windows.

    tap, log : (arrive_ns, depart_ns) of the calls, in any order, all departures known
    first_ns, last_ns : time that both cover
    step_ns  : the queue lengths are averaged over this much; the lag is interpolated (parabola) between steps
    reach_ns : largest lag that is looked for, to either side; at most half of the time covered

    None when the time is shorter than 16 steps or a queue length does not vary. The lag holds a clock offset
    of the log's host as well as the log's own way of stamping (later than the wire when a call arrives).
    """
    steps = (last_ns - first_ns) // step_ns
    if steps < 16:
        return None
    while steps > _MAX_STEPS:
        step_ns, steps = step_ns * 2, steps // 2
    edges = first_ns + np.arange(steps + 1, dtype=np.int64) * step_ns
    a, b = (_centred(calls, edges) for calls in (tap, log))
    norm = float(np.sqrt((a @ a) * (b @ b)))
    if norm == 0:
        return None
    reach = int(min(reach_ns // step_ns, steps // 2))
    size = 1 << int(2 * steps - 1).bit_length()
    product = np.fft.irfft(np.conj(np.fft.rfft(a, size)) * np.fft.rfft(b, size), size)
    shifts = np.arange(-reach, reach + 1)
    correlation = product[shifts] / norm
    best = int(np.argmax(correlation))
    lag = float(shifts[best] + _between_steps(correlation, best))
    return Lag(round(lag * step_ns), float(correlation[best]))


@dataclass(frozen=True)
class PieceLag:
    """Lag of one piece of the time: tap time of its middle, and as in Lag."""

    at_ns: int
    lag_ns: int
    correlation: float


def piece_lags(
    tap: tuple[Ints, Ints],
    log: tuple[Ints, Ints],
    first_ns: int,
    last_ns: int,
    *,
    pieces: int = 24,
    least_ns: int = 2_000_000_000,
    step_ns: int = 1_000_000,
    reach_ns: int = 5_000_000_000,
) -> list[PieceLag]:
    """Lags of pieces of the time, each looked for within `reach_ns` of the lag of the whole (best_lag).

    pieces   : so many, each of at least `least_ns`; fewer than three pieces give the lag of the whole
    A piece whose queue length does not vary, or that the log does not cover, is left out. The correlation is
    that of the piece with the part of the log it is laid on.
    """
    whole = best_lag(tap, log, first_ns, last_ns, step_ns=step_ns)
    if whole is None:
        return []
    length = max((last_ns - first_ns) // pieces, least_ns)
    count = (last_ns - first_ns) // length
    if count < 3:
        return [PieceLag((first_ns + last_ns) // 2, whole.lag_ns, whole.correlation)]
    steps, reach = int(length // step_ns), int(reach_ns // step_ns)
    edges = first_ns + np.arange(count * steps + 1, dtype=np.int64) * step_ns
    a = _centred(tap, edges)
    b = _centred(
        log, whole.lag_ns + first_ns + np.arange(-reach, len(a) + reach + 1, dtype=np.int64) * step_ns
    )
    found = []
    for begin in range(0, count * steps, steps):
        laid = _laid(a[begin : begin + steps], b[begin : begin + steps + 2 * reach])
        if laid is not None:
            at = first_ns + begin * step_ns + length // 2
            found.append(PieceLag(at, whole.lag_ns + round((laid[0] - reach) * step_ns), laid[1]))
    return found


def _laid(a: Floats, b: Floats) -> tuple[float, float] | None:
    """Place in the longer b at which a is most like it, between steps, and the correlation there."""
    steps = len(a)
    a = a - a.mean()
    size = 1 << len(b).bit_length()
    product = np.fft.irfft(np.conj(np.fft.rfft(a, size)) * np.fft.rfft(b, size), size)[: len(b) - steps + 1]
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (b, b * b))
    spread = squares[steps:] - squares[:-steps] - (sums[steps:] - sums[:-steps]) ** 2 / steps
    norm = np.sqrt(np.maximum(spread, 0.0) * float(a @ a))
    usable = norm > 1e-9 * float(norm.max())
    if not usable.any():
        return None
    correlation = np.where(usable, product / np.where(usable, norm, 1.0), -1.0)
    best = int(np.argmax(correlation))
    return best + _between_steps(correlation, best), float(correlation[best])


def _between_steps(correlation: Floats, best: int) -> float:
    """Where between the steps the top of a parabola through the three highest values lies."""
    if not 0 < best < len(correlation) - 1:
        return 0.0
    left, top, right = correlation[best - 1 : best + 2]
    bend = left - 2 * top + right
    return float(0.5 * (left - right) / bend) if bend < 0 else 0.0


_MAX_STEPS = 1 << 23
"""Above this (2.3 hours at 1 ms) steps are widened, so that the transform stays under a gigabyte."""


def _centred(calls: tuple[Ints, Ints], edges_ns: Ints) -> Floats:
    arrive, depart = calls
    load = np.diff(integral(arrive, depart, edges_ns)) / np.diff(edges_ns)
    return np.asarray(load - load.mean(), dtype=np.float64)
