"""Offset of a sampled clock: counters against what the tap saw, shifted by known amounts."""

from __future__ import annotations

import numpy as np
import pytest

from tapscope.hostmon.clock_line import clock_lines
from tapscope.hostmon.clock_offset import growth, offsets

MS = 1_000_000
START = 1_795_000_000_000_000_000
INTERVAL = 50 * MS


def traffic(seconds: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Times and sizes of messages that come in bursts, as those of users do."""
    rng = np.random.default_rng(seed)
    begin = np.cumsum(rng.exponential(40 * MS, int(seconds * 25)))
    burst = np.repeat(begin, rng.integers(1, 9, len(begin)))
    at = START + (burst + rng.exponential(15 * MS, len(burst))).astype(np.int64)
    return at, rng.lognormal(7, 1, len(at))


def sampled(at: np.ndarray, amount: np.ndarray, seconds: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A counter read about every INTERVAL by a clock that is right: begin, end and growth of each sample."""
    rng = np.random.default_rng(5)
    edges = START + np.arange(int(seconds * 1e9 // INTERVAL)) * INTERVAL
    edges += rng.integers(0, 2 * MS, len(edges))
    return edges[:-1], edges[1:], growth(at, amount).between(edges[:-1], edges[1:])


@pytest.mark.parametrize(
    ("offset_ns", "drift_ppb"), [(0, 0), (7 * MS, 0), (-3_456 * MS, 40_000), (95_000 * MS, -200_000)]
)
def test_a_skewed_clock_is_measured_within_a_fifth_of_a_sample(offset_ns, drift_ppb):
    at, amount = traffic(120)
    begin, end, grown = sampled(at, amount, 120)
    skewed = [t + offset_ns + ((t - START) * (drift_ppb / 1e9)).astype(np.int64) for t in (begin, end)]
    rng = np.random.default_rng(2)
    noisy = grown * rng.normal(1, 0.1, len(grown)) + rng.exponential(2_000, len(grown))  # other traffic
    found = offsets(*skewed, [noisy], [growth(at, amount)])
    assert not found.reason
    (line,) = clock_lines(found.at_ns, found.offset_ns)
    true = offset_ns + (skewed[0] - skewed[0][0]) * (drift_ppb / 1e9)
    worst = np.abs(line.at(skewed[0]) - true).max()
    assert worst < INTERVAL / 5
    assert worst < line.error_ns + MS  # this draw is not one of the twenty that may be outside
    assert abs(line.drift_ppb - drift_ppb) < 3 * line.drift_error_ppb + 1


def test_a_clock_that_steps_gives_two_lines():
    at, amount = traffic(120)
    begin, end, grown = sampled(at, amount, 120)
    late = begin > START + 70_000 * MS
    found = offsets(begin + late * 400 * MS, end + late * 400 * MS, [grown], [growth(at, amount)])
    before, after = clock_lines(found.at_ns, found.offset_ns)
    assert before.offset_ns == pytest.approx(0, abs=INTERVAL / 5)
    assert after.offset_ns == pytest.approx(400 * MS, abs=INTERVAL / 5)


def test_a_counter_of_other_things_gives_no_offset_and_a_reason():
    at, amount = traffic(120)
    begin, end, grown = sampled(*traffic(120, seed=9), 120)
    found = offsets(begin, end, [grown], [growth(at, amount)])
    assert not len(found.at_ns)
    assert "alike" in found.reason


def test_a_clockwork_load_could_be_shifted_by_any_period_and_gives_no_offset():
    at = START + np.arange(1_200) * 100 * MS
    begin, end, grown = sampled(at, np.full(len(at), 500.0), 120)
    found = offsets(begin, end, [grown], [growth(at, np.full(len(at), 500.0))])
    assert found.reason == "no shift makes counters and tap alike more than any other"


def test_few_samples_and_an_idle_counter_say_so():
    at, amount = traffic(120)
    begin, end, grown = sampled(at, amount, 120)
    few = offsets(begin[:50], end[:50], [grown[:50]], [growth(at, amount)])
    assert few.reason == "50 samples; 90 are needed"
    idle = offsets(begin, end, [np.zeros(len(end))], [growth(at, amount)])
    assert "nothing was counted" in idle.reason
