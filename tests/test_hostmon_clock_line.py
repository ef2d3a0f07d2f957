"""A clock's offset and drift against the tap's, from measured offsets: lines, steps and error bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapscope.hostmon.clock_line import clock_lines

MINUTE = 60_000_000_000


def test_points_on_a_line_give_its_offset_and_drift_exactly():
    at = np.arange(20) * 3_000_000_000 + 1_795_000_000_000_000_000
    (line,) = clock_lines(at, 5e6 + 2_000 * (at - at[0]) / 1e9)
    assert line.offset_ns == pytest.approx(5e6)
    assert line.drift_ppb == pytest.approx(2_000)
    assert (line.from_ns, line.to_ns, line.points) == (at[0], at[-1], 20)


def test_the_error_bound_holds_for_the_whole_line_in_most_draws():
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        at = np.sort(rng.integers(0, MINUTE, 40))
        true = 3e8 + 40_000 * (at / 1e9)
        found = clock_lines(at, true + rng.normal(0, 1e6, len(at)))
        held += len(found) == 1 and bool((np.abs(found[0].at(at) - true) <= found[0].error_ns).all())
    assert held >= 90


def test_offsets_far_off_do_not_move_the_line():
    rng = np.random.default_rng(3)
    at = np.arange(50) * 1_000_000_000
    offset = rng.normal(0, 1e5, 50)
    offset[[4, 17, 18, 40]] += [9e8, -4e8, 7e8, 2e9]
    (line,) = clock_lines(at, offset)
    assert np.abs(line.at(at)).max() < 2e5


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(8, 52), st.sampled_from([-1, 1]))
@example(129, 8, -1)  # two lines through four points each seemed to be apart
@example(332859, 8, -1)  # eight points that seem to drift, five seconds before the last of them
def test_a_step_of_twenty_times_the_noise_is_found_where_it_is(seed, row, sign):
    rng = np.random.default_rng(seed)
    at = np.sort(rng.choice(MINUTE, 60, replace=False))
    offset = rng.normal(0, 1e6, 60) + 1_000 * at / 1e9
    offset[row:] += sign * 20e6
    before, after = clock_lines(at, offset)
    assert abs(before.points - row) <= 1
    assert before.to_ns < after.from_ns
    jump = after.at(np.array([after.from_ns])) - before.at(np.array([before.to_ns]))
    # A line through eight points may be farther off, and says so.
    off = max(5e6, before.error_ns + after.error_ns)
    assert off < 20e6
    assert jump[0] == pytest.approx(sign * 20e6, abs=off)


def test_noise_alone_is_no_step_and_no_drift():
    cut = drifting = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = clock_lines(np.arange(50) * 1_000_000_000, rng.normal(0, 1e6, 50))
        cut += len(found) > 1
        drifting += found[0].drift_ppb != 0
    assert cut == 0
    assert drifting <= 10


def test_too_few_points_have_no_error_bound():
    assert clock_lines(np.zeros(0, np.int64), np.zeros(0)) == []
    (line,) = clock_lines(np.array([5, 9]), np.array([100.0, 102.0]))
    assert line.offset_ns == 101
    assert np.isinf(line.error_ns)
