"""Do two series of windows move together beyond chance, and which one first?

Neighbouring windows are alike, so that a usual test of a correlation finds everything significant. Here one
series is turned against the other in a circle: every turn keeps the autocorrelation of both and destroys
what binds them, and the share of turns that correlate as well is the p-value (a permutation test over the
group of shifts). Whoever tries many metrics controls the share of false discoveries among them (Benjamini and
Hochberg 1995). Lead and lag have a bootstrap interval over blocks of windows (Kuensch 1989).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import maximum_filter1d
from scipy.stats import false_discovery_control

from tapscope.analyze.service_time import Float

REACH = 2
"""Windows by which one series may be before or behind the other and still be the same event: host logs are
sampled in steps of about a window, and by another clock."""

FEWEST_WINDOWS = 20
LAGS = 20
DRAWS = 200
SEED = 11


@dataclass(frozen=True)
class Chance:
    """Pearson's `r` at the best of the shifts within REACH, and the share `p` of all turns that do as well.

    NaN and 1 where a series is constant, or hardly known.
    """

    r: float
    p: float


NOTHING = Chance(float("nan"), 1.0)


def chance(metric: Float, queue: Float, *, reach: int = REACH) -> Chance:
    """Whether `metric` rises with `queue` (one value each per window; NaN: not known, taken for the mean).

    One-sided. Under the null, p is uniform on 1/n, 2/n ... 1 for series that are stationary, however
    autocorrelated; ties make it larger, never smaller. Of a metric that is known for a part of the run (a log
    that began later) that part is the whole. O(n log n).
    """
    at = np.flatnonzero(np.isfinite(metric) & np.isfinite(queue))
    if not len(at):
        return NOTHING
    metric, queue = (values[at[0] : at[-1] + 1] for values in (metric, queue))
    n = len(metric)
    known = np.isfinite(metric) & np.isfinite(queue)
    if n < FEWEST_WINDOWS or known.sum() < n / 2:
        return NOTHING
    x, y = _standard(metric, known), _standard(queue, known)
    if x is None or y is None:
        return NOTHING
    turned = fft.irfft(np.conj(fft.rfft(x)) * fft.rfft(y), n) / n
    best = maximum_filter1d(turned, 2 * reach + 1, mode="wrap")
    return Chance(float(best[0]), float((best >= best[0] - 1e-12).mean()))


def _standard(values: Float, known: NDArray[np.bool_]) -> Float | None:
    middle, spread = float(values[known].mean()), float(values[known].std())
    if spread <= 1e-12 * max(abs(middle), 1e-300):
        return None
    return np.where(known, (np.where(known, values, middle) - middle) / spread, 0.0)


def false_discovery_rate(p: Float) -> Float:
    """For each p-value the least rate of false discoveries at which it counts as one (Benjamini-Hochberg)."""
    if not len(p):
        return np.zeros(0)
    return np.asarray(false_discovery_control(p, method="bh"), dtype=np.float64)


@dataclass(frozen=True)
class Lag:
    """By how many windows a series follows another (negative: it leads), the 90 % bootstrap interval, and r
    there."""

    windows: int
    low: float
    high: float
    r: float


def lag(first: Float, second: Float, *, most: int = LAGS, draws: int = DRAWS) -> Lag:
    """The shift of at most `most` windows at which the changes of both series correlate best.

    The interval is NaN where the series are shorter than eight blocks of two times `most` windows.
    """
    a, b = np.diff(np.nan_to_num(first)), np.diff(np.nan_to_num(second))
    run = 2 * most
    blocks = max(len(a) // run, 1)
    # Sums of products of each block, for every shift: a bootstrap draw is then a sum over blocks.
    shifts = np.arange(-most, most + 1)
    products = np.zeros((3, blocks, len(shifts)))
    edges = np.arange(blocks) * run
    for column, shift in enumerate(shifts.tolist()):
        if len(a) <= abs(shift):
            continue
        x, y = (a[: len(a) - shift], b[shift:]) if shift >= 0 else (a[-shift:], b[:shift])
        for row, product in enumerate((x * y, x * x, y * y)):
            products[row, :, column] = np.add.reduceat(product, edges)
    best, r = _peak(products.sum(axis=1)[:, None, :], shifts)
    low = high = float("nan")
    if blocks >= 8:
        counts = np.random.default_rng(SEED).multinomial(blocks, np.full(blocks, 1 / blocks), size=draws)
        drawn, _ = _peak(np.einsum("db,kbs->kds", counts.astype(np.float64), products), shifts)
        low, high = (float(value) for value in np.quantile(drawn, [0.05, 0.95]))
    return Lag(int(best[0]), low, high, float(r[0]))


def _peak(sums: Float, shifts: NDArray[np.int64]) -> tuple[NDArray[np.int64], Float]:
    """Shift of the highest correlation of each row of `sums` (3, rows, shifts): the one nearest to 0 of
    equals."""
    scale = np.sqrt(np.maximum(sums[1] * sums[2], 0.0))
    r = np.divide(sums[0], scale, out=np.zeros_like(scale), where=scale > 0)
    ranked = np.round(r, 12) - 1e-13 * np.abs(shifts)
    at = np.argmax(ranked, axis=1)
    return shifts[at], r[np.arange(len(at)), at]
