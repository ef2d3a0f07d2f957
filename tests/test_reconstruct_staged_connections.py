"""Connections of moved transactions: held as before, never two calls at once, and each with its process."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import Simulation, simulate

from tapscope.reconstruct.staged_connections import GivenBack, connections, given_back, processes
from tapscope.store.tables import Table

WEB, APP, DB = 0, 1, 2


@pytest.fixture(scope="module")
def busy() -> Simulation:
    return simulate(seed=17, users=120, seconds=6.0)


def test_moved_calls_hold_their_connections_as_before_and_share_none(busy):
    calls = busy.tables["calls"]
    parent = busy.true_parent
    rows = np.flatnonzero(calls["depart_ns"] >= 0)
    parent = np.where(parent[rows] >= 0, np.searchsorted(rows, parent[rows]), -1)
    some = {name: values[rows] for name, values in calls.items()}
    back = given_back(some, parent)
    conn = connections(some, parent, np.zeros(len(rows), dtype=np.int64), back, np.zeros(len(rows)))
    for each in np.unique(conn).tolist():
        here = np.flatnonzero(conn == each)
        here = here[np.argsort(some["arrive_ns"][here], kind="stable")]
        assert len(np.unique(some["server_node"][here])) == 1
        assert (some["arrive_ns"][here][1:] >= some["depart_ns"][here][:-1]).all()
    order = np.lexsort((some["arrive_ns"], some["server_node"], parent))
    follows = (parent[order[1:]] == parent[order[:-1]]) & (parent[order[1:]] >= 0)
    follows &= some["conn"][order[1:]] == some["conn"][order[:-1]]
    follows &= some["server_node"][order[1:]] == some["server_node"][order[:-1]]
    assert follows.any()
    assert (conn[order[1:]] == conn[order[:-1]])[follows].all()


def _one_request(until: int, conn: int, other: int | None) -> tuple[Table, np.ndarray]:
    """A request that is answered at `until` with a call on `conn` from 20 to 30, and a later one with a call
    on `conn` that begins at `other`; and their parents."""
    rows = [(0, until, 1, 0, 1), (20, 30, conn, 1, 2)]
    parent = [-1, 0]
    if other is not None:
        rows += [(1, 200, 2, 0, 1), (other, other + 5, conn, 1, 2)]
        parent += [-1, 2]
    names = ("arrive_ns", "depart_ns", "conn", "client_node", "server_node")
    calls = {name: np.array([row[at] for row in rows]) for at, name in enumerate(names)}
    calls["request_end_ns"] = calls["arrive_ns"]
    return calls, np.array(parent)


@pytest.mark.parametrize(
    ("other", "kind", "shared"),
    [
        (None, GivenBack.NEVER, False),
        (40, GivenBack.AT_ITS_END, True),
        (110, GivenBack.AT_THE_ANSWER, False),
    ],
)
def test_a_connection_is_held_as_long_as_it_was(other, kind, shared):
    calls, parent = _one_request(until=100, conn=7, other=other)
    back = given_back(calls, parent)
    assert back[1] == kind
    # The same request twice, 60 later: its first connection is free by then, or is not.
    twice = {name: np.concatenate([calls[name][:2]] * 2) for name in calls}
    for name in ("arrive_ns", "depart_ns", "request_end_ns"):
        twice[name][2:] += 60
    again = np.array([-1, 0, -1, 2])
    conn = connections(twice, again, np.array([0, 0, 1, 1]), np.tile(back[:2], 2), np.zeros(4))
    assert (conn[1] == conn[3]) == shared


def _forked(requests: int, count: int, seed: int) -> tuple[Table, np.ndarray, np.ndarray]:
    """Requests to APP, served by `count` processes with four connections on either side, three calls each; a
    tenth come on connections of about three requests. Calls, parents, and the process of each call."""
    random = np.random.default_rng(seed)
    process = random.integers(0, count, requests)
    rare = random.random(requests) < 0.1
    ahead = np.where(rare, 1000 + np.arange(requests) // (3 * count) * count + process, 10 * process)
    ahead = np.where(rare, ahead, ahead + random.integers(0, 4, requests))
    behind = 500 + 10 * np.repeat(process, 3) + random.integers(0, 4, 3 * requests)
    first = np.arange(requests) * 1000
    begin = np.repeat(first, 3) + np.tile([100, 200, 300], requests)
    calls = {
        "arrive_ns": np.concatenate([first, begin]),
        "request_end_ns": np.concatenate([first, begin]),
        "depart_ns": np.concatenate([first + 900, begin + 50]),
        "conn": np.concatenate([ahead, behind]),
        "client_node": np.repeat([WEB, APP], [requests, 3 * requests]),
        "server_node": np.repeat([APP, DB], [requests, 3 * requests]),
    }
    parent = np.concatenate([np.full(requests, -1), np.repeat(np.arange(requests), 3)])
    return calls, parent, np.concatenate([process, np.repeat(process, 3)])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_processes_are_told_by_sure_links_and_not_confused_by_a_few_wrong_ones(count):
    calls, parent, process = _forked(3000, count, seed=count)
    random = np.random.default_rng(7)
    wrong = np.flatnonzero((parent >= 0) & (random.random(len(parent)) < 0.003))
    found = parent.copy()
    found[wrong] = random.integers(0, 3000, len(wrong))
    told = processes(calls, found, np.ones(len(parent), dtype=bool))
    for side in (calls["server_node"] == APP, calls["client_node"] == APP):
        right = 0
        for number in np.unique(told[side]).tolist():
            right += np.bincount(process[side & (told == number)]).max()
        assert right / side.sum() > 0.995, "connections of one number are of one process"
        often = side & (calls["conn"] < 1000)
        assert len(np.unique(told[often])) == count, "and those of one process have one number"


def test_nothing_is_told_of_a_handful_of_calls():
    calls, parent, _ = _forked(5, 2, seed=1)
    told = processes(calls, parent, np.ones(len(parent), dtype=bool))
    assert len(np.unique(told)) == 1


def test_a_connection_stays_with_its_process():
    calls, parent, process = _forked(500, 2, seed=3)
    back = given_back(calls, parent)
    conn = connections(calls, parent, np.zeros(len(parent), dtype=np.int64), back, process)
    for each in np.unique(conn).tolist():
        assert len(np.unique(process[conn == each])) == 1
