"""Response times: point in time, percentiles, modes, very long ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapscope.analyze.response_time import Histogram, concurrent, modes, pit, vlrt

MS = 1_000_000


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=200), st.floats(0.001, 1.0))
def test_percentiles_are_exact_to_the_width_of_a_bucket(values: list[int], share: float) -> None:
    histogram = Histogram()
    histogram.add(np.array(values[::2], dtype=np.int64))
    histogram.add(np.array(values[1::2], dtype=np.int64))
    assert len(histogram) == len(values)
    exact = sorted(values)[max(int(np.ceil(share * len(values))), 1) - 1]
    assert histogram.percentile(share) == pytest.approx(exact, rel=1 / 2048, abs=0.5)


def test_an_empty_histogram_has_no_percentiles_and_takes_no_negative_values() -> None:
    histogram = Histogram()
    histogram.add(np.array([-1, -1], dtype=np.int64))
    assert np.isnan(histogram.percentile(0.5))


def test_pit_response_time_by_end_and_by_start() -> None:
    begin = np.array([0, 10, 60]) * MS
    end = np.array([40, 70, 90]) * MS
    edges = np.arange(3) * 50 * MS
    by_end = pit(begin, end, edges)
    assert by_end.calls.tolist() == [1, 2]
    assert by_end.mean_ns.tolist() == [40 * MS, 45 * MS]
    assert by_end.max_ns.tolist() == [40 * MS, 60 * MS]
    assert pit(begin, end, edges, by_start=True).mean_ns.tolist() == [50 * MS, 30 * MS]
    assert np.isnan(pit(begin[:0], end[:0], edges).mean_ns).all()


def test_the_ladder_of_syn_retransmissions_is_told_from_slow_work() -> None:
    """Most calls take 5 ms, some waited 1 or 3 s for their connection; a class of its own takes 60 ms."""
    rng = np.random.default_rng(1)

    def around(ms: float, n: int) -> np.ndarray:
        return (ms * MS * rng.lognormal(0, 0.2, n)).astype(np.int64)

    took = np.concatenate(
        [around(5, 5000), around(60, 400), 1_000 * MS + around(6, 60), 3_000 * MS + around(6, 30)]
    )
    found = modes(took)
    assert [mode.ladder for mode in found] == ["", "", "1 s", "3 s"]
    assert found[0].peak_ns == pytest.approx(5 * MS, rel=0.2)
    assert found[1].peak_ns == pytest.approx(60 * MS, rel=0.2)
    assert found[0].share == pytest.approx(5000 / 5490, abs=0.01)
    assert sum(mode.share for mode in found) == pytest.approx(1.0)
    assert len(modes(around(5, 5000))) == 1


def test_very_long_response_times_do_not_hide_behind_themselves() -> None:
    took = np.full(1000, 10 * MS)
    took[:100] = 3_000 * MS
    late, threshold = vlrt(took)
    assert late.sum() == 100
    assert threshold == 100 * MS
    assert not vlrt(np.full(1000, 10 * MS))[0].any()
    assert not vlrt(np.full(5, 1000))[0].any()


def test_calls_that_were_inside_together() -> None:
    calls = {
        "server_node": np.array([1, 1, 1, 2, 1]),
        "arrive_ns": np.array([0, 5, 10, 5, 30]),
        "request_end_ns": np.array([0, 5, 10, 5, 30]),
        "depart_ns": np.array([10, 20, -1, 9, 40]),
    }
    assert concurrent(calls, 1).tolist() == [0, 2]
    assert concurrent(calls, 4).tolist() == [2]  # never answered: still there
