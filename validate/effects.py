"""How much repeated runs of one kind differ from those of another, and how small a change would have been
seen.

The unit is the run, or a turn of a run in which something was off and on in turns: a figure is one value
per run, so that requests of one run, which are anything but independent, are never counted as a sample.
Runs that come in pairs (same seed, one after the other) are compared by their differences, which takes out
what both met; else Welch's test (Biometrika 1947) is used, which needs no equal scatter. Effect size:
Hedges (Journal of Educational Statistics 1981). Power: that of Student's t. Every function is pure; what is
not defined (fewer than two runs) is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
POWER = 0.8
"""The usual bar for "would have been seen": in four of five such studies."""
SMALL_PERCENT = 1.0
"""Change that the power statement is about, in percent of the mean of A."""

_LEGENDRE = np.polynomial.legendre.leggauss(200)
_NODES, _WEIGHTS = (_LEGENDRE[0] + 1) / 2, _LEGENDRE[1] / 2
"""To integrate over quantiles. scipy's noncentral t is the same integral, but NaN at many arguments."""


@dataclass(frozen=True)
class Effect:
    """B minus A of one figure.

    paired          : how it was compared; standard_error and freedom belong to that test
    low, high       : confidence interval of the difference, in the unit of the figure
    percent ...     : difference and interval in percent of the mean of A (taken as known), NaN when it is 0
    hedges_g        : difference in standard deviations of a run (pooled over both kinds), corrected for few
        runs
    p               : of no difference, two-sided
    power_of_small  : probability that a change by SMALL_PERCENT would have been significant
    smallest_percent: the change that would have been seen with probability POWER
    at_most_percent : the largest change, up or down, that the interval still allows
    """

    paired: bool
    runs_a: int
    runs_b: int
    mean_a: float
    mean_b: float
    sd_a: float
    sd_b: float
    difference: float
    low: float
    high: float
    percent: float
    percent_low: float
    percent_high: float
    hedges_g: float
    p: float
    standard_error: float
    freedom: float
    power_of_small: float
    smallest_percent: float
    at_most_percent: float


def compare(a: Floats, b: Floats, *, paired: bool, confidence: float = CONFIDENCE) -> Effect:
    """Compare the runs of A with those of B; paired: a[i] and b[i] are a pair. ValueError for pairs of
    different number."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if paired and len(a) != len(b):
        raise ValueError(f"{len(a)} runs of A and {len(b)} of B are no pairs")
    mean_a, mean_b = _mean(a), _mean(b)
    difference = mean_b - mean_a
    error, freedom = _paired_error(b - a) if paired else _welch_error(a, b)
    reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    low, high = difference - reach, difference + reach
    if error > 0:
        p = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    else:
        p = float("nan") if math.isnan(error) else float(difference == 0)
    base = abs(mean_a) if mean_a else float("nan")
    return Effect(
        paired=paired,
        runs_a=len(a),
        runs_b=len(b),
        mean_a=mean_a,
        mean_b=mean_b,
        sd_a=_sd(a),
        sd_b=_sd(b),
        difference=difference,
        low=low,
        high=high,
        percent=100 * difference / base,
        percent_low=100 * low / base,
        percent_high=100 * high / base,
        hedges_g=hedges_g(a, b),
        p=p,
        standard_error=error,
        freedom=freedom,
        power_of_small=power(SMALL_PERCENT / 100 * base, error, freedom, confidence),
        smallest_percent=100 * smallest_change(error, freedom, confidence=confidence) / base,
        at_most_percent=100 * max(abs(low), abs(high)) / base,
    )


def hedges_g(a: Floats, b: Floats) -> float:
    """Hedges' g of b - a: the difference in pooled standard deviations, without the bias of small samples."""
    freedom = len(a) + len(b) - 2
    if len(a) < 2 or len(b) < 2:
        return float("nan")
    pooled = math.sqrt(((len(a) - 1) * _sd(a) ** 2 + (len(b) - 1) * _sd(b) ** 2) / freedom)
    if pooled == 0:
        return float("nan") if _mean(a) != _mean(b) else 0.0
    correction = math.exp(special.gammaln(freedom / 2) - special.gammaln((freedom - 1) / 2))
    return (_mean(b) - _mean(a)) / pooled * correction / math.sqrt(freedom / 2)


def power(change: float, standard_error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Probability that a true change of this size is found significant. `standard_error` of the difference is
    taken as it was observed."""
    if not standard_error > 0 or math.isnan(change):
        return float("nan")
    return _seen(change / standard_error, _bounds(freedom, confidence))


def smallest_change(
    standard_error: float, freedom: float, probability: float = POWER, confidence: float = CONFIDENCE
) -> float:
    """The true change that is found significant with this probability, in the unit of the standard error."""
    if not standard_error > 0:
        return float("nan")
    bounds = _bounds(freedom, confidence)
    above = 1.0
    while _seen(above, bounds) < probability:
        above *= 2
    found = optimize.brentq(lambda change: _seen(change, bounds) - probability, 0.0, above, xtol=1e-9)
    return float(found) * standard_error


def _bounds(freedom: float, confidence: float) -> Floats:
    """What a difference must exceed to be significant, in true standard errors, at each quantile of the
    scatter that a study happens to see."""
    scatter = np.sqrt(stats.chi2.ppf(_NODES, freedom) / freedom)
    return np.asarray(stats.t.ppf((1 + confidence) / 2, freedom) * scatter)


def _seen(change: float, bounds: Floats) -> float:
    """Probability that a change (in standard errors) exceeds the bounds, up or down."""
    return float(_WEIGHTS @ (special.ndtr(change - bounds) + special.ndtr(-change - bounds)))


def adjusted(p: Floats) -> Floats:
    """p-values corrected for asking many questions at once (Benjamini and Hochberg, false discovery rate);
    NaN stays."""
    p = np.asarray(p, dtype=np.float64)
    out = np.full(len(p), np.nan)
    known = ~np.isnan(p)
    if np.any(known):
        out[known] = stats.false_discovery_control(p[known])
    return out


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _sd(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def _paired_error(differences: Floats) -> tuple[float, float]:
    """Standard error of the mean difference, degrees of freedom."""
    if len(differences) < 2:
        return float("nan"), float("nan")
    return _sd(differences) / math.sqrt(len(differences)), float(len(differences) - 1)


def _welch_error(a: Floats, b: Floats) -> tuple[float, float]:
    """The same of independent runs; degrees of freedom after Satterthwaite."""
    if len(a) < 2 or len(b) < 2:
        return float("nan"), float("nan")
    parts = _sd(a) ** 2 / len(a), _sd(b) ** 2 / len(b)
    total = parts[0] + parts[1]
    if total == 0:
        return 0.0, float(len(a) + len(b) - 2)
    freedom = total**2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    return math.sqrt(total), freedom
