"""Where a queue began and how it travelled up: three tiers in a row, the lowest of which stops."""

from __future__ import annotations

import numpy as np

from tapscope.analyze.load import stays
from tapscope.analyze.pushback import episodes, lag, node_loads, rises, usual

MS = 1_000_000


def three_tiers(stop_ms: tuple[int, int], guilty: int) -> dict[str, np.ndarray]:
    """A transaction every 2 ms through nodes 1 -> 2 -> 3. While `guilty` stops, nothing leaves it."""
    rows = []
    for begin in range(0, 4000, 2):
        at, inside = begin, [0, 0, 0]
        ends = [0, 0, 0]
        for tier in (1, 2, 3):
            inside[tier - 1] = at
            at += 1
            if tier == guilty and stop_ms[0] <= at < stop_ms[1]:
                at = stop_ms[1]
        for tier in (3, 2, 1):
            at += 1
            ends[tier - 1] = at
        rows += [(tier, inside[tier - 1], ends[tier - 1]) for tier in (1, 2, 3)]
    tier, arrive, depart = np.array(rows).T
    return {
        "server_node": tier,
        "client_node": tier - 1,
        "arrive_ns": arrive * MS,
        "depart_ns": depart * MS,
        "flags": np.zeros(len(tier), dtype=np.int64),
        "conn": np.arange(len(tier)),
    }


def test_the_node_that_stopped_is_told_from_those_that_wait_for_it() -> None:
    for guilty in (1, 2, 3):
        calls = three_tiers((2000, 2300), guilty)
        edges = np.arange(0, 4101, 50, dtype=np.int64) * MS
        loads = node_loads(calls, stays(calls), edges)
        entry = next(one for one in loads if one.node == 1)
        _, limit = usual(entry.load)
        ((first, last),) = episodes(entry.load, limit)
        assert edges[first] == 2000 * MS
        assert 2300 * MS <= edges[last] <= 2350 * MS  # what waited leaves in its first moments
        found = rises(loads, first, last)
        assert found[0].node == guilty
        assert found[0].own_excess > 10 * found[1].own_excess
        # What is released at the end rushes down as a burst; what is pushed back rose with the first window.
        pushed_back = {rise.node for rise in found if 0 <= rise.onset <= first + 1}
        assert pushed_back == set(range(1, guilty + 1))


def test_quiet_nodes_have_no_episodes() -> None:
    calls = three_tiers((9000, 9000), 1)
    loads = node_loads(calls, stays(calls), np.arange(0, 4001, 50, dtype=np.int64) * MS)
    assert all(episodes(one.load, usual(one.load)[1]) == [] for one in loads)


def test_episodes_join_over_short_dips() -> None:
    values = np.array([0, 9, 9, 0, 9, 0, 0, 0, 9, 0.0])
    assert episodes(values, 5) == [(1, 5), (8, 9)]
    assert episodes(values, 10) == []


def test_a_queue_that_follows_another_is_found_to_lag() -> None:
    rng = np.random.default_rng(3)
    lower = np.convolve(rng.poisson(1, 2000), np.ones(5), "same")
    upper = np.roll(lower, 3) + rng.normal(0, 0.3, 2000)
    found = lag(lower, upper, (3, 2))
    assert found.windows == 3
    assert found.low <= 3 <= found.high
    assert found.r > 0.5
