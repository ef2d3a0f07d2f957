"""When a cause began: on a made sequence of events, and in simulated runs in which a node stops."""

from __future__ import annotations

import numpy as np
import pytest
from queueing import NO_CONNECTIONS, Queue, closed_loop
from simulator import START_NS, simulate

from tapscope.analyze.calls import Read
from tapscope.analyze.findings import findings
from tapscope.analyze.inside import Inside
from tapscope.analyze.load import window_edges
from tapscope.analyze.onset import Onset, Pace, change_point
from tapscope.analyze.pushback import node_loads
from tapscope.store.runfile import RunFile

MS = 1_000_000
SECOND = 1000 * MS


def poisson(rng: np.random.Generator, parts: list[tuple[float, float, float]]) -> np.ndarray:
    """Events at a rate per ms in each (begin, end, rate) of the parts, in ms."""
    times = [rng.uniform(low, high, rng.poisson(rate * (high - low))) for low, high, rate in parts]
    return np.sort((np.concatenate(times) * MS).astype(np.int64))


def expected(at_ns: np.ndarray) -> np.ndarray:
    """One event per ms."""
    return at_ns / MS


@pytest.mark.parametrize(("rate", "within_ms"), [(0.0, 5), (0.3, 15)])
def test_a_change_of_pace_is_found_to_some_events(rate: float, within_ms: float) -> None:
    rng = np.random.default_rng(3)
    errors, held = [], 0
    for _ in range(40):
        events = poisson(rng, [(0, 300, 1), (300, 500, rate), (500, 600, 1.5)])
        found = change_point(events, (0, 600 * MS), expected)
        assert found is not None
        errors.append(abs(found.at_ns - 300 * MS) / MS)
        held += found.low_ns <= 300 * MS <= found.high_ns
    assert np.median(errors) < within_ms
    assert held >= 32, "an interval of 90 % holds the truth in most cases"


def test_events_that_run_ahead_are_a_change_only_when_that_is_asked_for() -> None:
    events = poisson(np.random.default_rng(1), [(0, 300, 1), (300, 400, 4)])
    found = change_point(events, (0, 400 * MS), expected, ahead=True)
    assert found is not None
    assert abs(found.at_ns - 300 * MS) < 15 * MS
    slower = change_point(events, (0, 400 * MS), expected)
    assert slower is None or slower.high_ns < 300 * MS


def test_without_a_change_nothing_is_told() -> None:
    rng = np.random.default_rng(7)
    told = [
        change_point(poisson(rng, [(0, 600, 1)]), (0, 600 * MS), expected, dispersion=2) for _ in range(20)
    ]
    assert sum(one is not None for one in told) <= 4
    assert change_point(np.zeros(0, dtype=np.int64), (0, MS), lambda at: np.zeros(len(at))) is None


@pytest.mark.parametrize("how", [{"stops": ((6.0, 0.4),)}, {"stops": ((6.013, 0.15),)}])
def test_a_stop_of_a_queue_began_at_its_last_sign_of_life(how) -> None:
    queue = closed_loop(8, (0.004,), 12, seed=5, users=10, **how)
    found = slowed(Read(queue.calls(), NO_CONNECTIONS, queue.end_ns - queue.begin_ns), how["stops"][0][0])
    assert found is not None
    assert abs(found.at_ns / SECOND - how["stops"][0][0]) < 0.01
    assert found.signs == "signs of life"


def slowed(read: Read, at_s: float) -> Onset | None:
    edges = window_edges(0, 12 * SECOND, 50 * MS)
    quiet = np.abs(edges[:-1] / SECOND - at_s) > 1
    return Pace(read, 0, node_loads(read, edges)[0], edges, quiet).slowed(
        int((at_s - 0.3) * SECOND), int((at_s + 0.1) * SECOND)
    )


def test_a_crowd_began_with_its_first_connections_not_with_the_requests_that_got_through() -> None:
    """Two hundred clients ask at 6 s; the node takes one every millisecond from 6.05 s on."""
    rng = np.random.default_rng(2)
    usual = np.sort(rng.integers(0, 12 * SECOND, 1200))
    crowd = 6 * SECOND + rng.integers(0, 5 * MS, 200)
    taken = 6 * SECOND + 50 * MS + np.arange(200) * MS
    asked, begin = np.concatenate([usual, crowd]), np.concatenate([usual, taken])
    count = len(asked)
    queue = Queue(begin, begin + 3 * MS, np.zeros(count, dtype=np.int64))
    zero = np.zeros(count, dtype=np.int64)
    connections = {"closed_ns": zero - 1, "syn_ns": asked, "server_addr": zero, "server_port": zero + 80}
    read = Read(queue.calls(), connections, zero)
    edges = window_edges(0, 12 * SECOND, 50 * MS)
    pace = Pace(read, 0, node_loads(read, edges)[0], edges, np.abs(edges[:-1] / SECOND - 6) > 1)
    around = int(5.8 * SECOND), int(6.2 * SECOND)
    connected, arrived = pace.rushed(*around, connections=True), pace.rushed(*around)
    assert connected is not None
    assert arrived is not None
    assert abs(connected.at_ns - 6 * SECOND) < 5 * MS
    assert abs(arrived.at_ns - 6 * SECOND - 50 * MS) < 10 * MS


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_finding_says_when_its_cause_began(tmp_path, seed: int) -> None:
    at_s = 3.0 + seed * 1.013
    simulate(seed=seed, users=60, seconds=10.0, stall_at_s=at_s, stall_ms=400).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as run:
        found = min(findings(run), key=lambda one: abs(one.episode.begin_ns - START_NS - at_s * SECOND))
    assert found.began is not None
    assert abs(found.began.at_ns - START_NS - at_s * SECOND) < 30 * MS
    assert found.began.low_ns <= found.began.at_ns <= found.began.high_ns


def test_a_run_without_a_quiet_moment_tells_no_begin() -> None:
    queue = closed_loop(4, (0.004,), 12, seed=5)
    read = Read(queue.calls(), NO_CONNECTIONS, queue.end_ns - queue.begin_ns)
    edges = window_edges(0, 12 * SECOND, 50 * MS)
    pace = Pace(read, 0, node_loads(read, edges)[0], edges, np.zeros(len(edges) - 1, dtype=np.bool_))
    assert pace.slowed(5 * SECOND, 6 * SECOND) is None
    assert pace.rushed(5 * SECOND, 6 * SECOND) is None


def test_the_integral_from_a_moment_on_is_that_of_the_whole() -> None:
    rng = np.random.default_rng(4)
    begin = np.sort(rng.integers(0, 1000, 300))
    inside = Inside(begin, begin + rng.integers(0, 60, 300))
    for first in (0, 117, 560):
        at = np.unique(np.concatenate([[first], rng.integers(first, 1100, 40)]))
        whole = inside.integral(at) - inside.integral(at[:1])
        assert inside.since(first, at).tolist() == whole.tolist()
