"""The congestion point N*: the least load beyond which more load brings no more throughput (Wang, III-C).

Two estimators stand beside each other. `intervention` is the paper's statistical intervention analysis on
windows. `plateau` is the corner of the two asymptotes of the main sequence (Denning and Buzen's operational
bounds): throughput cannot exceed n / S for n calls that take S each, nor the capacity C that is measured
where the node is full, so that N* = C * S. It needs no windows. Both say when the data never reach
congestion, and both have bootstrap intervals over blocks of time, as neighbouring moments are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from tapscope.analyze.main_sequence import FullPeriods, Steps, main_sequence
from tapscope.analyze.service_time import Float

BINS = 100
TOLERANCE = 0.2
"""Of the unsaturated slope: below it an increment is negligible (the paper's example)."""

SAMPLES_PER_BIN = 40
FEWEST_SLOPES = 5
FULL = 1.25
"""Times N*: a node that holds so many calls is full, whatever the exact corner."""

SEEN = 0.05
"""Share of all work that must be done while the node is full, for its capacity to be known."""

COARSE = 8
DRAWS = 200
SEED = 7


@dataclass(frozen=True)
class CongestionPoint:
    """`n_star` calls with its 90 % bootstrap interval [`low`, `high`]; NaN and `reached` False: never
    congested.

    `slope` is throughput per call inside while unsaturated and `capacity` the throughput at N* (both per
    second, in the unit of the throughput given); `reason` says in words what was found.
    """

    n_star: float
    low: float
    high: float
    reached: bool
    slope: float
    capacity: float
    reason: str


def intervention(load: Float, throughput: Float, *, bins: int = BINS, draws: int = DRAWS) -> CongestionPoint:
    """The paper's method (Equations 1 and 2), one value of `load` and `throughput` (per second) per window.

    The load is cut into even bins: `bins`, or fewer where there are less than SAMPLES_PER_BIN windows for
    each, because a slope between two means of few windows is noise, and noise ends the sequence at once.
    Slopes are per unit of load; n0 begins at FEWEST_SLOPES, as the t quantile of one degree of freedom
    rejects anything.
    """
    used = np.isfinite(load) & np.isfinite(throughput) & (load > 0)
    load, throughput = load[used], throughput[used]
    if len(load) < SAMPLES_PER_BIN * FEWEST_SLOPES:
        return not_reached(f"{len(load)} windows with load are too few")
    bins = int(min(bins, max(len(load) // SAMPLES_PER_BIN, FEWEST_SLOPES)))
    found = _intervene(load, throughput, bins)
    if found is None:
        return not_reached("throughput grows with load over the whole range", _slope(load, throughput))
    n_star, slope, capacity = found
    drawn = _block_draws(
        len(load), draws, lambda rows: (_intervene(load[rows], throughput[rows], bins) or (np.nan,))[0]
    )
    low, high = _interval(drawn, n_star)
    return CongestionPoint(
        n_star, low, high, True, slope, capacity, f"slope lost at bin of load {n_star:.3g} of {bins} bins"
    )


def _intervene(load: Float, throughput: Float, bins: int) -> tuple[float, float, float] | None:
    low, high = float(load.min()), float(load.max())
    if high <= low:
        return None
    at = np.minimum(((load - low) / (high - low) * bins).astype(np.int64), bins - 1)
    count = np.bincount(at, minlength=bins)
    some = count > 0
    ld = np.bincount(at, load, bins)[some] / count[some]
    tp = np.bincount(at, throughput, bins)[some] / count[some]
    delta = np.concatenate([tp[:1] / ld[:1], np.diff(tp) / np.diff(ld)])
    n = np.arange(1, len(delta) + 1)
    mean = np.cumsum(delta) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.maximum(np.cumsum(delta**2) - n * mean**2, 0.0) / (n - 1))
        bound = mean - _t_quantiles(len(n)) * spread
    below = np.flatnonzero((n >= FEWEST_SLOPES) & (bound < TOLERANCE * delta[0]))
    if not len(below):
        return None
    return float(ld[below[0]]), float(delta[0]), float(tp[below[0] :].mean())


@lru_cache
def _t_quantiles(samples: int) -> Float:
    """95 % quantile of Student's t for means of 1 to so many samples."""
    return np.asarray(student.ppf(0.95, np.arange(samples)), dtype=np.float64)


def plateau(
    walk: Steps, seconds_per_work: float, *, relative_error: float = 0.0, draws: int = DRAWS
) -> CongestionPoint:
    """N* = capacity * `seconds_per_work` (service time of one unit of work under low load, and its standard
    error).

    Capacity is the work per second of the periods in which more than FULL * N* calls are inside, found
    together with N*. Not reached where there were hardly any, or where throughput still rises by more than
    TOLERANCE of its first slope while the node is full.
    """
    total = float(walk.work.sum())
    if total <= 0 or not seconds_per_work > 0:
        return not_reached("no call that takes measurable time was completed")
    slope = 1 / seconds_per_work
    found = _first_full(walk, seconds_per_work, total)
    if found is None:
        return not_reached("the node was hardly ever full", slope)
    n_star, level, length, work = found
    sequence = main_sequence(walk)
    above = sequence.level >= level
    rising = _rise(sequence.level[above], sequence.seconds[above], sequence.work[above]) / slope
    if rising > TOLERANCE:
        return not_reached(f"throughput still rises by {rising:.0%} of its first slope", slope)
    drawn = _block_sums(work, draws) / _block_sums(length, draws) * seconds_per_work
    drawn *= 1 + relative_error * np.random.default_rng(SEED).standard_normal(len(drawn))
    low, high = _interval(drawn, n_star)
    full, whole = length.sum(), walk.length_ns / 1e9
    reason = f"measured with {level:.3g} calls and more inside, {full:.3g} s of {whole:.3g} s"
    return CongestionPoint(n_star, low, high, True, slope, slope * n_star, reason)


Full = tuple[float, float, Float, Float]
"""N*, the level from which the node is full, and length and work of its full periods."""


def _first_full(walk: Steps, seconds_per_work: float, total: float) -> Full | None:
    """The least level that is FULL times the corner which it gives; None where less than SEEN of the work was
    done above it.

    Every COARSE-th level is tried, and then those before the first that fits or has too little work.
    """
    periods = FullPeriods(walk)
    levels = np.unique(np.geomspace(1.5, max(float(walk.up.max()), 1.5), 200).round(1)).tolist()
    for first in range(0, len(levels), COARSE):
        *before, last = levels[first : first + COARSE]
        found = _at_level(periods, last, seconds_per_work, total)
        if found is not None and found[1] < FULL * found[0]:
            continue
        for level in before:
            earlier = _at_level(periods, level, seconds_per_work, total)
            if earlier is None or earlier[1] >= FULL * earlier[0]:
                return earlier
        return found
    return None


def _at_level(periods: FullPeriods, level: float, seconds_per_work: float, total: float) -> Full | None:
    """The corner by what was done with so many calls inside and more; None for less than SEEN of all work."""
    _, length, work = periods.at(level)
    if work.sum() < SEEN * total or not length.sum() > 0:
        return None
    return float(work.sum() / length.sum()) * seconds_per_work, level, length, work


def _rise(level: Float, seconds: Float, work: Float) -> float:
    """Slope of the rate over the level, weighted by the time spent there."""
    if len(level) < 2:
        return 0.0
    rate = work / seconds
    mean_level, mean_rate = np.average(level, weights=seconds), np.average(rate, weights=seconds)
    spread = np.average((level - mean_level) ** 2, weights=seconds)
    return (
        float(np.average((level - mean_level) * (rate - mean_rate), weights=seconds) / spread)
        if spread
        else 0.0
    )


def _slope(load: Float, throughput: Float) -> float:
    return float(throughput.sum() / load.sum())


def _blocks(n: int, draws: int) -> tuple[NDArray[np.int64], int]:
    """First rows of blocks of n / 50 neighbours, resampled: as many of each draw as make n rows; and their
    length."""
    run = max(n // 50, 1)
    return np.random.default_rng(SEED).integers(0, n, size=(draws, -(-n // run))), run


def _block_draws(n: int, draws: int, estimate: Callable[[np.ndarray], float]) -> Float:
    """Estimates on resampled rows."""
    starts, run = _blocks(n, draws)
    rows = ((start[:, None] + np.arange(run)).ravel()[:n] % n for start in starts)
    return np.array([estimate(row) for row in rows], dtype=np.float64)


def _block_sums(values: Float, draws: int) -> Float:
    """Sums of the values of resampled rows: those of `_block_draws`, told from prefix sums."""
    n = len(values)
    starts, run = _blocks(n, draws)
    before = np.concatenate([np.zeros(1), np.cumsum(np.concatenate([values, values[:run]]))])
    length = np.full(starts.shape[1], run)
    length[-1] = n - run * (len(length) - 1)
    return np.asarray((before[starts + length] - before[starts]).sum(axis=1), dtype=np.float64)


def _interval(drawn: Float, value: float) -> tuple[float, float]:
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < 20:
        return float("nan"), float("nan")
    low, high = np.quantile(drawn, [0.05, 0.95])
    return float(min(low, value)), float(max(high, value))


def not_reached(reason: str, slope: float = float("nan")) -> CongestionPoint:
    nan = float("nan")
    return CongestionPoint(nan, nan, nan, False, slope, nan, reason)
