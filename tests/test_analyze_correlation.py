"""Correlation beyond chance: p-values that are uniform where there is nothing, and lags that are right."""

from __future__ import annotations

import numpy as np
import pytest

from tapscope.analyze.correlation import chance, false_discovery_rate, lag
from tapscope.analyze.evidence import _shared
from tapscope.analyze.track import Track


def autocorrelated(rng: np.random.Generator, n: int, memory: float) -> np.ndarray:
    """First-order autoregressive series with standard normal values."""
    steps = rng.standard_normal(n) * np.sqrt(1 - memory**2)
    values = np.empty(n)
    values[0] = rng.standard_normal()
    for i in range(1, n):
        values[i] = memory * values[i - 1] + steps[i]
    return values


@pytest.mark.parametrize("memory", [0.0, 0.8, 0.95])
def test_p_values_of_unrelated_series_are_uniform(memory: float) -> None:
    """Also for series whose neighbours are alike, of which a t-test finds far too many significant."""
    rng = np.random.default_rng(3)
    p = np.sort(
        [chance(autocorrelated(rng, 400, memory), autocorrelated(rng, 400, memory)).p for _ in range(400)]
    )
    for level in (0.01, 0.05, 0.1, 0.25, 0.5):
        share = float((p <= level).mean())
        assert abs(share - level) < 3 * np.sqrt(level * (1 - level) / len(p)) + 0.005, (level, share)


def test_a_usual_test_would_have_been_wrong() -> None:
    rng = np.random.default_rng(4)
    n, found = 400, 0
    for _ in range(100):
        r = np.corrcoef(autocorrelated(rng, n, 0.95), autocorrelated(rng, n, 0.95))[0, 1]
        found += abs(r) * np.sqrt((n - 2) / (1 - r**2)) > 1.96
    assert found > 40, "one in twenty is what it promises"


def test_what_moves_with_the_queue_is_told_from_what_does_not() -> None:
    rng = np.random.default_rng(5)
    queue = autocorrelated(rng, 600, 0.7)
    events = np.zeros(600)
    for at in (50, 210, 333, 480):
        queue[at : at + 6] += 8
        events[at - 1 : at + 4] = 100
    assert chance(events, queue).p < 0.01
    assert chance(np.roll(events, 80), queue).p > 0.05
    assert chance(-events, queue).p > 0.5, "one-sided"
    holes = np.where(np.arange(600) % 7 == 3, np.nan, events)
    assert chance(holes, queue).p < 0.02
    assert chance(np.ones(600), queue).p == 1.0
    assert chance(events[:10], queue[:10]).p == 1.0
    assert chance(np.where(np.arange(600) % 3 > 0, np.nan, events), queue).p == 1.0, "hardly known"


def test_false_discoveries_are_controlled() -> None:
    """Benjamini and Hochberg (1995), table 1: 15 p-values of which 4 are discoveries at 0.05."""
    few = (0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344)
    p = np.array([*few, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    assert int((false_discovery_rate(p) <= 0.05).sum()) == 4
    assert len(false_discovery_rate(np.zeros(0))) == 0


@pytest.mark.parametrize("shift", [-4, 0, 3])
def test_lags_are_found_with_their_interval(shift: int) -> None:
    rng = np.random.default_rng(6)
    first = np.convolve(rng.poisson(1, 2000), np.ones(5), "same")
    second = np.roll(first, shift) + rng.normal(0, 0.3, 2000)
    found = lag(first, second)
    assert found.windows == shift
    assert found.low <= shift <= found.high
    assert found.high - found.low < 3
    assert found.r > 0.5


def test_the_interval_of_a_lag_covers_it() -> None:
    """Nine of ten times, or more often, also where the noise is as strong as what binds the series."""
    rng = np.random.default_rng(7)
    hit = 0
    for _ in range(60):
        first = np.convolve(rng.standard_normal(700), np.ones(6), "same")
        second = np.roll(first, 2) + 2.0 * rng.standard_normal(700)
        found = lag(first, second)
        hit += found.low <= 2 <= found.high
    assert hit >= 54 - 6


def test_short_series_have_a_lag_but_no_interval() -> None:
    found = lag(np.array([0.0, 0, 5, 0, 0, 0]), np.array([0.0, 0, 0, 5, 0, 0]), most=2)
    assert found.windows == 1
    assert np.isnan(found.low)
    assert lag(np.zeros(3), np.zeros(3)).windows == 0


def test_a_metric_that_is_known_for_a_part_of_the_run_is_judged_by_that_part() -> None:
    """A log of a tenth of the run, in which the queue rose with it."""
    rng = np.random.default_rng(8)
    part = slice(3000, 3400)
    queue = rng.random(4000)
    metric = np.full(4000, np.nan)
    metric[part] = rng.random(400)
    for at in (3100, 3250):
        queue[at : at + 12] += 20
        metric[at : at + 12] += 90
    found, alone = chance(metric, queue), chance(metric[part], queue[part])
    assert (found.r, found.p) == (alone.r, alone.p)
    assert found.p < 0.05
    assert chance(np.full(4000, np.nan), queue).p == 1


def test_quiet_windows_count_where_the_metric_is_known() -> None:
    values = np.full(1000, np.nan)
    values[600:800] = 0.0
    values[600:650] = 100.0
    track = Track("disk_busy", values, np.ones(1000, dtype=bool))
    assert track.otherwise(90.0) == pytest.approx(51 / 202, abs=0.01)


def test_where_no_log_knows_the_machine_it_is_neither_busy_nor_idle() -> None:
    unknown = np.full(50, np.nan)
    machine, own = (np.concatenate([unknown, level]) for level in (np.full(50, 95.0), np.full(50, 10.0)))
    found = {"machine_cpu": machine, "own_cpu": own}
    _shared(found, 2)
    for name in ("saturated", "crowded"):
        assert np.isnan(found[name][:50]).all()
        assert np.isfinite(found[name][50:]).all()
