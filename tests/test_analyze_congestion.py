"""N* and what a node does in each window, on queues whose number of servers, stops and speeds are known."""

from __future__ import annotations

import numpy as np
import pytest
from queueing import Queue, closed_loop

from tapscope.analyze.congestion import CongestionPoint, intervention, plateau
from tapscope.analyze.inside import Inside, mean_inside
from tapscope.analyze.load import window_edges
from tapscope.analyze.main_sequence import FullPeriods, Steps, main_sequence, steps
from tapscope.analyze.node_state import node_state
from tapscope.analyze.service_time import ServiceTimes
from tapscope.analyze.speeds import two_speeds
from tapscope.analyze.throughput import work_unit_ns, work_units
from tapscope.analyze.window_length import window_length
from tapscope.analyze.windows import WindowState, classify, intervals, speed_levels


def service_of(queue: Queue) -> ServiceTimes:
    return queue.work().service


def congestion_point(queue: Queue) -> CongestionPoint:
    return plateau(walk_of(queue), float(service_of(queue).mean_ns().mean()) / 1e9)


def walk_of(queue: Queue) -> Steps:
    """Every call counts one."""
    return steps(Inside(queue.begin_ns, queue.end_ns), np.ones(len(queue.begin_ns)))


@pytest.mark.parametrize("shape", [1.0, 4.0], ids=["exponential", "gamma"])
@pytest.mark.parametrize("servers", [1, 2, 4, 8, 16, 40])
def test_n_star_is_the_number_of_servers(servers: int, shape: float) -> None:
    queue = closed_loop(servers, (0.004 if servers < 40 else 0.008,), 50, seed=40 + servers, shape=shape)
    found = congestion_point(queue)
    assert found.reached, found.reason
    # Regular service times in a closed loop bias the capacity upwards by up to 5 %.
    assert found.n_star == pytest.approx(servers, rel=0.05 if shape == 1 else 0.09)
    assert found.low <= found.n_star <= found.high < 1.2 * found.low


@pytest.mark.parametrize("kind", ["stops", "two classes", "two speeds"])
def test_n_star_is_the_number_of_servers_whatever_the_node_does_besides(kind: str) -> None:
    """With all steps of `node_state`: stops left out, classes in work units, two speeds told apart."""
    tolerance = 0.05
    how = {
        "stops": {"stops": tuple((5.0 + 4 * k, 0.3) for k in range(9))},
        "two classes": {"service_s": (0.002, 0.008)},
        "two speeds": {"speeds": (1.0, 0.55)},
    }[kind]
    queue = closed_loop(8, seconds=40, seed=8, **({"service_s": (0.004,)} | how))
    found = node_state(queue.work())
    assert found.point.n_star == pytest.approx(8, rel=tolerance), found.point.reason
    assert found.point.low <= 8 * (1 + tolerance)
    assert found.point.high >= 8 * (1 - tolerance)
    assert len(found.speeds.throughput) == (2 if kind == "two speeds" else 1)
    calls_follow, units_follow = found.follows
    assert units_follow > calls_follow if kind == "two classes" else units_follow > 0.5


@pytest.mark.parametrize("servers", [1, 4, 16])
@pytest.mark.parametrize("stops", [(), tuple((3.0 + 4 * k, 0.3) for k in range(9))], ids=["", "stops"])
def test_two_speeds_have_one_n_star_and_two_capacities(
    servers: int, stops: tuple[tuple[float, float]]
) -> None:
    queue = closed_loop(servers, (0.004,), 40, seed=5, speeds=(1.0, 0.55), stops=stops)
    found = node_state(queue.work()).point
    assert found.n_star == pytest.approx(servers, rel=0.07), found.reason
    assert found.reason.startswith("at two speeds")
    assert found.capacity == pytest.approx(servers / 0.004, rel=0.07)
    assert 0.93 * found.low <= servers <= 1.07 * found.high
    slow, _, fast = found.reason.removeprefix("at two speeds, ").partition(" of the time and ")
    assert float(slow.split()[0]) / float(fast) == pytest.approx(0.55, abs=0.05)


@pytest.mark.parametrize("how", [{}, {"shape": 20.0}, {"service_s": (0.002, 0.008)}], ids=str)
@pytest.mark.parametrize("servers", [1, 8])
def test_one_speed_is_not_taken_for_two(servers: int, how: dict[str, float]) -> None:
    work = closed_loop(servers, seconds=40, seed=6, **({"service_s": (0.004,)} | how)).work()
    none = np.zeros(0, dtype=np.int64)
    assert two_speeds(work.at.inside, work.units, (none, none), work.point.n_star) is None


def test_a_node_that_is_never_full_has_no_n_star() -> None:
    found = congestion_point(closed_loop(16, (0.004,), 30, users=16, busy=False))
    assert not found.reached
    assert np.isnan(found.n_star)
    assert found.slope == pytest.approx(250, rel=0.05)  # calls per second for each call inside


def test_n_star_without_calls_is_not_reached() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert not plateau(steps(Inside(none, none), np.zeros(0)), 0.01).reached
    assert not intervention(np.zeros(0), np.zeros(0)).reached


def test_the_papers_method_finds_the_corner_of_a_clean_main_sequence() -> None:
    """Equations 1 and 2 on windows that lie on the main sequence: the corner is at 8."""
    rng = np.random.default_rng(5)
    load = rng.uniform(0.2, 20, 20_000)
    throughput = 100 * np.minimum(load, 8) + rng.normal(0, 5, len(load))
    found = intervention(load, throughput)
    assert found.reached
    assert 8 <= found.n_star < 20
    assert found.slope == pytest.approx(100, rel=0.1)
    straight = intervention(load, 100 * load + rng.normal(0, 1, len(load)))
    assert not straight.reached


def test_rates_by_level_are_those_of_the_queue() -> None:
    queue = closed_loop(4, (0.004,), 120, seed=3)
    sequence = main_sequence(walk_of(queue))
    rate = dict(zip(sequence.level.round().astype(int).tolist(), sequence.rate().tolist(), strict=True))
    for level in range(1, 9):
        assert rate[level] == pytest.approx(250 * min(level, 4), rel=0.06), level
    assert sequence.work.sum() == len(queue.begin_ns)


def test_full_periods_count_between_completions() -> None:
    """Two calls wait behind a third; the node is full (2 and more inside) from 1 s to 5 s."""
    second = 1_000_000_000
    walk = steps(Inside(np.array([0, 1, 2]) * second, np.array([3, 5, 6]) * second), np.ones(3))
    begin, length, work = FullPeriods(walk).at(2)
    assert begin.tolist() == [3.0]
    assert length.tolist() == [2.0]
    assert work.tolist() == [1.0]


def test_the_clock_stands_still_in_what_is_left_out() -> None:
    second = 1_000_000_000
    out = (np.array([1, 5]) * second, np.array([2, 8]) * second)
    walk = steps(Inside(np.array([0, 6]) * second, np.array([4, 9]) * second), np.ones(2), out)
    assert (walk.begin_ns / second).tolist() == [0.0, 4.0]
    assert (walk.end_ns / second).tolist() == [3.0, 5.0]


def test_work_units_make_mixed_classes_comparable() -> None:
    """Wang III-B: classes of 30 and 10 ms, a unit of 10 ms; units follow load better than plain counts."""
    queue = closed_loop(8, (0.030, 0.010), 60, seed=9, shape=20, busy=True)
    work = queue.work()
    service = work.service
    assert service.mean_ns() == pytest.approx([30e6, 10e6], rel=0.05)
    unit = work_unit_ns(service.mean_ns(), np.bincount(queue.cls))
    assert unit == pytest.approx(10e6, rel=0.1)
    units = service.per_call(work.at) / unit
    edges = window_edges(int(queue.begin_ns.min()), int(queue.end_ns.max()), 50_000_000)
    load = mean_inside(queue.begin_ns, queue.end_ns, edges)
    low = (load > 0) & (load < 7)
    plain = np.diff(np.searchsorted(np.sort(queue.end_ns), edges))
    done = work_units(queue.begin_ns, queue.end_ns, units, edges)
    spread = work_units(queue.begin_ns, queue.end_ns, units, edges, spread=True)
    r = [float(np.corrcoef(load[low], x[low])[0, 1]) for x in (plain, done, spread)]
    assert r[0] < r[1] < r[2]
    assert done.sum() == pytest.approx(units.sum())
    assert spread.sum() == pytest.approx(units.sum(), rel=1e-6)


def test_service_times_follow_a_drift_and_leave_pauses_out() -> None:
    rng = np.random.default_rng(2)
    begin = np.arange(0, 300, 0.05)
    took = rng.gamma(9, np.where(begin < 150, 0.010, 0.015) / 9)
    took[::200] = 0.9  # a pause now and then
    queue = Queue(
        (begin * 1e9).astype(np.int64), ((begin + took) * 1e9).astype(np.int64), np.zeros(len(begin), int)
    )
    service = service_of(queue)
    assert service.ns[0, 0] == pytest.approx(10e6, rel=0.1)
    assert service.ns[-1, 0] == pytest.approx(15e6, rel=0.1)
    queue.cls[:] = 7
    assert np.isnan(service.per_call(queue.work().at)).all()


def states_of(queue: Queue, width_ms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    edges = window_edges(int(queue.begin_ns.min()), int(queue.end_ns.max()), width_ms * 1_000_000)
    load = mean_inside(queue.begin_ns, queue.end_ns, edges)
    per_s = np.diff(np.searchsorted(np.sort(queue.end_ns), edges)) * 1e3 / width_ms
    found = congestion_point(queue)
    state = classify(load, per_s, found.n_star, found.capacity)
    full = (Inside(queue.begin_ns, queue.end_ns).lowest(edges) >= found.n_star - 0.5) & (
        state != WindowState.STALLED
    )
    return edges, per_s, state, full


def test_stops_are_windows_of_load_without_throughput() -> None:
    stops = ((10.0, 0.4), (25.2, 0.3), (41.0, 0.6))
    queue = closed_loop(8, (0.004,), 60, seed=6, stops=stops)
    edges, _, state, _ = states_of(queue, 50)
    begin, end = intervals(edges, state == WindowState.STALLED)
    assert len(begin) == len(stops)
    for (at, length), b, e in zip(stops, begin, end, strict=True):
        assert b / 1e9 == pytest.approx(at, abs=0.1)
        assert e / 1e9 == pytest.approx(at + length, abs=0.1)


def test_a_steady_node_has_one_speed_and_one_that_changes_has_several() -> None:
    _, per_s, _, full = states_of(closed_loop(8, (0.004,), 40, seed=7), 50)
    assert len(speed_levels(per_s, full).throughput) == 1
    _, per_s, _, full = states_of(closed_loop(8, (0.004,), 60, seed=8, speeds=(1.0, 0.55)), 50)
    levels = speed_levels(per_s, full)
    assert len(levels.throughput) == 2
    assert levels.throughput[0] / levels.throughput[1] == pytest.approx(0.55, rel=0.1)


def test_windows_are_as_short_as_the_traffic_allows() -> None:
    fast, slow = closed_loop(16, (0.002,), 20, seed=3), closed_loop(2, (0.02,), 60, seed=3)
    chosen = [window_length(q.work().at.inside, np.ones(len(q.begin_ns))) for q in (fast, slow)]
    assert chosen[0].width_ns <= 20_000_000
    assert chosen[1].width_ns >= 50_000_000
    assert "tracks load" in chosen[0].reason
    few = window_length(Inside(fast.begin_ns[:3], fast.end_ns[:3]), np.ones(3))
    assert few.width_ns == 50_000_000


def test_the_lowest_load_of_a_window_is_that_of_a_walk_over_it() -> None:
    rng = np.random.default_rng(4)
    begin = np.sort(rng.integers(0, 1000, 300))
    end = begin + rng.integers(0, 60, 300)
    edges = np.arange(0, 1101, 50)
    expected = [
        min(int(((begin <= t) & (end > t)).sum()) for t in range(low, low + 50))
        for low in edges[:-1].tolist()
    ]
    assert Inside(begin, end).lowest(edges).tolist() == expected
