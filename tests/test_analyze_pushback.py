"""Where a queue began and how it travelled up: three tiers in a row, the lowest of which stops."""

from __future__ import annotations

import numpy as np
import pytest
from queueing import read_of

from tapscope.analyze.pushback import episodes, node_loads, rises, travel, usual

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
        loads = node_loads(read_of(calls), edges)
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
    loads = node_loads(read_of(calls), np.arange(0, 4001, 50, dtype=np.int64) * MS)
    assert all(episodes(one.load, usual(one.load)[1]) == [] for one in loads)


def test_episodes_join_over_short_dips() -> None:
    values = np.array([0, 9, 9, 0, 9, 0, 0, 0, 9, 0.0])
    assert episodes(values, 5) == [(1, 5), (8, 9)]
    assert episodes(values, 10) == []


def test_an_episode_reaches_to_where_its_queue_came_from() -> None:
    values = np.array([1, 1, 3, 4, 9, 4, 1, 1, 1, 1, 4, 4, 1.0])
    assert episodes(values, 8) == [(4, 5)]
    assert episodes(values, 8, 2) == [(2, 6)]  # the second hump never was one


def test_how_far_a_queue_is_behind_the_origin_is_told_in_parts_of_a_window() -> None:
    calls = three_tiers((2000, 2300), 3)
    # The upper tiers hear of everything 20 ms later.
    later = np.where(calls["server_node"] < 3, 20 * MS, 0)
    calls["arrive_ns"], calls["depart_ns"] = calls["arrive_ns"] + later, calls["depart_ns"] + later
    edges = np.arange(0, 4151, 50, dtype=np.int64) * MS
    loads = node_loads(read_of(calls), edges)
    assert loads[0].fine.reshape(-1, loads[0].parts).mean(axis=1) == pytest.approx(loads[0].load)
    found = {one.node: one for one in travel(loads, 3, 40, 46, 50 * MS, around=36)}
    assert set(found) == {1, 2}
    assert found[2].lag_ms == pytest.approx(20, abs=10)
    assert found[2].low_ms <= 20 <= found[2].high_ms
