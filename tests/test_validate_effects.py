"""Comparison of repeated runs: against scipy's tests, and against what simulated studies really do."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tapscope.validate import effects

RUNS = st.lists(st.integers(1, 400).map(lambda value: value / 4), min_size=2, max_size=12)


def simulated(seed: int, studies: int, runs: int, change: float) -> tuple[np.ndarray, np.ndarray]:
    """Studies x runs of a figure around 100: what a pair shares scatters by 3, what each run adds by 2."""
    random = np.random.default_rng(seed)
    shared = random.normal(0, 3, (studies, runs))
    a, b = (100 + shared + random.normal(0, 2, (studies, runs)) for _ in range(2))
    return a, b + change


@settings(max_examples=40)
@given(RUNS, RUNS)
def test_independent_runs_are_compared_by_welchs_test(a, b):
    ours = effects.compare(np.array(a), np.array(b), paired=False)
    if len(set(a)) == 1 and len(set(b)) == 1:
        assert ours.p == float(a[0] == b[0])
        assert ours.low == ours.high == ours.difference
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one constant side: scipy doubts its own precision
        theirs = stats.ttest_ind(b, a, equal_var=False)
        interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, abs=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-7)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=2, max_size=12))
def test_pairs_are_compared_by_their_differences(pairs):
    a, b = np.array(pairs, dtype=float).T
    ours = effects.compare(a, b, paired=True)
    if len(set((b - a).tolist())) == 1:
        assert ours.p == float(a[0] == b[0])
        return
    theirs = stats.ttest_rel(b, a)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, abs=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-7)
    assert ours.percent == pytest.approx(100 * (b.mean() - a.mean()) / a.mean(), abs=1e-9)
    assert ours.at_most_percent == pytest.approx(max(abs(ours.percent_low), abs(ours.percent_high)))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("runs", [3, 6])
def test_intervals_hold_the_true_change_in_95_of_100_studies(paired, runs):
    studies, change = 500, 1.7
    a, b = simulated(runs, studies, runs, change)
    if not paired:  # pairs broken up: the next study's runs, so that nothing is shared
        b = np.roll(b, 1, axis=0)
    held = 0
    for one, other in zip(a, b, strict=True):
        effect = effects.compare(one, other, paired=paired)
        held += effect.low <= change <= effect.high
    # Four standard deviations of a share of 500 at 0.95 are 0.039. Welch's test is known to be somewhat
    # cautious with three runs a side.
    assert 0.95 - 0.039 <= held / studies <= 0.95 + 0.039


def test_the_power_that_is_promised_is_the_share_of_studies_that_see_the_change():
    runs, studies = 5, 500
    error = math.sqrt(2 * 2**2 / runs)  # of the difference of a pair, known here
    for change in (1.0, 3.0, 5.0):
        a, b = simulated(int(change), studies, runs, change)
        seen = np.mean([effects.compare(x, y, paired=True).p < 0.05 for x, y in zip(a, b, strict=True)])
        assert effects.power(change, error, runs - 1) == pytest.approx(seen, abs=0.07)


def test_the_smallest_change_is_the_one_with_the_power_asked_for():
    for freedom in (1.0, 4.0, 7.3, 40.0):
        change = effects.smallest_change(0.31, freedom)
        assert effects.power(change, 0.31, freedom) == pytest.approx(0.8, abs=1e-6)
    assert effects.smallest_change(0.31, 9.0) < effects.smallest_change(0.31, 4.0)


def test_the_power_is_that_of_the_noncentral_t_distribution():
    for freedom, shift in ((2.0, 1.5), (4.0, 3.0), (9.0, 2.0), (30.0, 3.5)):
        bound = stats.t.ppf(0.975, freedom)
        exact = stats.nct.sf(bound, freedom, shift) + stats.nct.cdf(-bound, freedom, shift)
        assert effects.power(shift, 1.0, freedom) == pytest.approx(exact, abs=1e-4)


def test_pairs_see_smaller_changes_than_the_same_runs_taken_apart():
    a, b = simulated(9, 100, 6, 1.0)
    smallest = {
        paired: np.mean(
            [effects.compare(x, y, paired=paired).smallest_percent for x, y in zip(a, b, strict=True)]
        )
        for paired in (True, False)
    }
    assert smallest[True] < 0.85 * smallest[False]


def test_hedges_g_is_unbiased_where_the_plain_ratio_is_not():
    a, b = simulated(4, 4000, 4, 3.0)
    b = np.roll(b, 1, axis=0)
    truth = 3.0 / math.hypot(3, 2)
    g = np.mean([effects.hedges_g(x, y) for x, y in zip(a, b, strict=True)])
    plain = np.mean(
        [
            (y.mean() - x.mean()) / math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)
            for x, y in zip(a, b, strict=True)
        ]
    )
    assert g == pytest.approx(truth, abs=0.06)
    assert plain > truth + 0.06


def test_many_questions_are_not_answered_as_if_each_were_the_only_one():
    p = np.array([0.001, 0.03, np.nan, 0.04, 0.5])
    assert effects.adjusted(p) == pytest.approx(
        [0.004, 0.0533333, np.nan, 0.0533333, 0.5], nan_ok=True, abs=1e-6
    )


def test_what_one_run_cannot_tell_is_nan():
    effect = effects.compare(np.array([3.0]), np.array([4.0]), paired=True)
    assert (effect.difference, effect.percent) == pytest.approx((1.0, 100 / 3))
    undefined = (effect.low, effect.p, effect.hedges_g, effect.power_of_small, effect.smallest_percent)
    assert all(map(math.isnan, undefined))
    with pytest.raises(ValueError, match="2 runs of A and 3 of B"):
        effects.compare(np.ones(2), np.ones(3), paired=True)


def test_a_figure_that_is_nothing_has_no_percent():
    effect = effects.compare(np.zeros(4), np.array([0.0, 1.0, 2.0, 1.0]), paired=True)
    assert effect.difference == 1.0
    assert math.isnan(effect.percent)
