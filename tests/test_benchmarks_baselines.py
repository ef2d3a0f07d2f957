"""The matchers to compare with do what their names say, on problems whose answer is plain."""

from __future__ import annotations

import numpy as np
import pytest
from baselines import BASELINES, parents
from baselines.node import Node
from simulator import APP, DB, simulate

MS = 1_000_000


def _node(requests: list[tuple[float, float]], made: list[tuple[float, float, int]]) -> Node:
    """(arrival, departure) and (begin, end, class) in ms."""
    above, below = np.array(requests).reshape(-1, 2), np.array(made).reshape(-1, 3)
    return Node(
        parent_class=np.zeros(len(above), dtype=np.int64),
        arrive_ns=(above[:, 0] * MS).astype(np.int64),
        depart_ns=(above[:, 1] * MS).astype(np.int64),
        child_class=below[:, 2].astype(np.int64),
        begin_ns=(below[:, 0] * MS).astype(np.int64),
        end_ns=(below[:, 1] * MS).astype(np.int64),
    )


@pytest.mark.parametrize("name", BASELINES)
def test_one_request_at_a_time_leaves_no_choice(name):
    requests = [(100 * i, 100 * i + 50) for i in range(30)]
    made = [(100 * i + 10, 100 * i + 20, 0) for i in range(30)]
    assert BASELINES[name](_node(requests, made)).tolist() == list(range(30))


@pytest.mark.parametrize("name", BASELINES)
def test_nobody_calls_when_nobody_was_called(name):
    empty = BASELINES[name](_node([(0, 10)], []))
    assert empty.tolist() == []
    assert BASELINES[name](_node([(0, 10)], [(20, 30, 0)])).tolist() == [-1]


def test_first_come_first_served_lets_the_longest_waiting_request_call():
    node = _node([(0, 100), (5, 100)], [(10, 20, 0), (12, 14, 0), (30, 40, 0)])
    # Both wait; then the second has waited since 14, the first since 20.
    assert BASELINES["FCFS"](node).tolist() == [0, 1, 1]


def test_arrival_order_gives_each_request_one_child_of_a_class():
    node = _node([(0, 100), (5, 100)], [(10, 20, 0), (21, 30, 1), (31, 40, 0), (41, 50, 1)])
    assert BASELINES["arrival order"](node).tolist() == [0, 0, 1, 1]


def test_wap5_prefers_the_latest_request_and_is_not_exclusive():
    quiet = [(1000 * i, 1000 * i + 90) for i in range(1, 30)]
    made = [(1000 * i + 3, 1000 * i + 80, 0) for i in range(1, 30)]
    node = _node([(0, 100), (5, 100), *quiet], [(8, 20, 0), (9, 21, 0), *made])
    assert BASELINES["WAP5-style"](node)[:2].tolist() == [1, 1]


def test_tuples_are_chosen_by_their_gaps_and_exclusively():
    # Requests call 10 ms after they arrive, again 10 ms after the answer: two that overlap cross over.
    requests = [(1000 * i, 1000 * i + 60) for i in range(1, 40)]
    made = []
    for i in range(1, 40):
        made += [(1000 * i + 10 + 0.01 * (i % 3), 1000 * i + 20, 0), (1000 * i + 30, 1000 * i + 40, 1)]
    crossing = [(0, 64), (2, 60)]
    calls = [(10, 24, 0), (12, 20, 0), (30, 40, 1), (34, 44, 1)]
    node = _node([*crossing, *requests], [*calls, *made])
    found = BASELINES["TraceWeaver-style"](node)
    assert found[:4].tolist() == [0, 1, 1, 0]
    assert found[4:].tolist() == [i + 1 for i in range(1, 40) for _ in range(2)]


def test_all_are_worse_than_knowing_and_better_than_guessing():
    world = simulate(seed=3, users=90, seconds=4.0)
    calls = world.tables["calls"]
    rows = np.flatnonzero(calls["server_node"] == DB)
    at_app = calls["server_node"] == APP
    in_flight = (calls["depart_ns"] - calls["arrive_ns"])[at_app].sum() / (world.end_ns - world.begin_ns)
    assert in_flight > 1.5
    for name, baseline in BASELINES.items():
        found = parents(baseline, calls)
        right = float((found == world.true_parent)[rows].mean())
        assert right < 1.0, name
        assert right > (0.1 if name == "TraceWeaver-style" else 0.3), name  # calls that vary have no slot
        at = found[rows]
        known = at >= 0
        assert (calls["server_node"][at[known]] == APP).all(), name
