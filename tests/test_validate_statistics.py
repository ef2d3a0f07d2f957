"""Agreement statistics against twins that are plainly right."""

from __future__ import annotations

import math
import statistics as standard

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapscope.validate import statistics

PAIRS = st.lists(
    st.tuples(st.integers(-50, 50), st.integers(-50, 50)).map(lambda pair: (pair[0] / 4, pair[1] / 4)),
    min_size=2,
    max_size=40,
)


def _arrays(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    block = np.array(pairs, dtype=float)
    return block[:, 0], block[:, 1]


def _rank(values: list[float], value: float) -> float:
    """Mean of the places that equal values take in the sorted list, from 1."""
    places = [place for place, other in enumerate(sorted(values), start=1) if other == value]
    return sum(places) / len(places)


@given(PAIRS)
def test_pearson_is_that_of_the_standard_library(pairs):
    a, b = _arrays(pairs)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert math.isnan(statistics.pearson(a, b))
    else:
        assert statistics.pearson(a, b) == pytest.approx(standard.correlation(list(a), list(b)), abs=1e-9)


@given(PAIRS)
def test_spearman_is_pearson_of_mean_ranks(pairs):
    a, b = _arrays(pairs)
    ranks = [[_rank(list(side), value) for value in side] for side in (a, b)]
    assert statistics.ranks(a).tolist() == ranks[0]
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert statistics.spearman(a, b) == pytest.approx(standard.correlation(*ranks), abs=1e-9)


@given(PAIRS)
def test_errors_and_limits_are_their_definitions(pairs):
    a, b = _arrays(pairs)
    differences = [x - y for x, y in pairs]
    count = len(differences)
    assert statistics.rmse(a, b) == pytest.approx(math.sqrt(sum(d * d for d in differences) / count))
    assert statistics.mean_absolute_error(a, b) == pytest.approx(sum(map(abs, differences)) / count)
    assert statistics.max_error(a, b) == max(map(abs, differences))
    limits = statistics.bland_altman(a, b)
    bias, sd = standard.fmean(differences), standard.stdev(differences)
    assert limits.bias == pytest.approx(bias, abs=1e-12)
    assert (limits.low, limits.high) == pytest.approx((bias - 1.96 * sd, bias + 1.96 * sd), abs=1e-9)
    mean = standard.fmean(x + y for x, y in pairs) / 2
    if mean > 1e-9:
        assert limits.percent == pytest.approx(100 * bias / mean, rel=1e-6, abs=1e-9)


def test_what_is_not_defined_is_nan_and_different_lengths_are_refused():
    nothing, one = np.empty(0), np.ones(1)
    assert math.isnan(statistics.pearson(one, one))
    assert math.isnan(statistics.rmse(nothing, nothing))
    assert math.isnan(statistics.bland_altman(one, one).bias)
    with pytest.raises(ValueError, match="2 and 3 values"):
        statistics.pearson(np.ones(2), np.ones(3))


def _stays(seed: int, count: int = 4_000, seconds: int = 20) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    arrive = np.sort(random.integers(0, seconds * 10**9, count)) + 1_790_000_000 * 10**9
    return arrive, arrive + random.exponential(8e6, count).astype(np.int64)


@pytest.mark.parametrize("shift_ns", [0, 230_000, -1_700_000, 37_400_000, -412_000_000])
def test_the_lag_is_found_to_a_tenth_of_a_millisecond(shift_ns):
    arrive, depart = _stays(5)
    first, last = int(arrive.min()), int(depart.max())
    lag = statistics.best_lag((arrive, depart), (arrive + shift_ns, depart + shift_ns), first, last)
    assert lag is not None
    assert lag.lag_ns == pytest.approx(shift_ns, abs=100_000)
    assert lag.correlation > 0.9


def test_the_lag_is_the_shift_with_the_highest_correlation_of_an_obvious_search():
    arrive, depart = _stays(6, count=600, seconds=2)
    first, last = int(arrive.min()), int(depart.max())
    step = 1_000_000
    edges = first + np.arange((last - first) // step + 1) * step

    def loads(shift: int) -> np.ndarray:
        spans = zip(arrive + shift, depart + shift, strict=True)
        total = np.zeros(len(edges) - 1)
        for begin, end in spans:
            total += np.clip(np.minimum(end, edges[1:]) - np.maximum(begin, edges[:-1]), 0, None)
        return total / step

    tap, log = loads(0), loads(9_000_000)
    tap, log = tap - tap.mean(), log - log.mean()
    scores = {}
    for lag in range(-30, 31):
        overlap = slice(max(lag, 0), len(log) + min(lag, 0))
        scores[lag] = float(tap[slice(max(-lag, 0), len(tap) - max(lag, 0))] @ log[overlap])
    best = max(scores, key=lambda lag: scores[lag])
    found = statistics.best_lag((arrive, depart), (arrive + 9_000_000, depart + 9_000_000), first, last)
    assert found is not None
    assert best == 9
    assert found.lag_ns == pytest.approx(best * step, abs=step / 2)


def test_no_lag_without_variation_or_time():
    arrive, depart = _stays(7)
    nothing = np.empty(0, dtype=np.int64)
    first = int(arrive[0])
    assert statistics.best_lag((nothing, nothing), (arrive, depart), first, first + 10**9) is None
    assert statistics.best_lag((arrive, depart), (arrive, depart), first, first + 10**6) is None
