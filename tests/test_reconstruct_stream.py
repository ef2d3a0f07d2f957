"""The matcher as a stream: the same links whatever the chunks, in bounded memory, a bounded time later."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray
from one_node import NODE
from simulator import APP, DB, Simulation, simulate
from waiting_worlds import held

from tapscope.reconstruct import _kernel
from tapscope.reconstruct.match.node import Matched, TokenIndex, match_node
from tapscope.store.codes import EvidenceMode

SHORT = {"first_stretch": 1500, "stretch": 600, "ahead": 200}


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=31, users=90, seconds=8.0)


def _match(world: Simulation, mode: EvidenceMode = EvidenceMode.NOIDS, **options: int) -> Matched:
    calls = world.tables["calls"]
    parents = np.flatnonzero(calls["server_node"] == APP)
    children = np.flatnonzero(calls["server_node"] == DB)
    return match_node(calls, parents, children, *TokenIndex.build(world.tables["evidence"], mode), **options)


@pytest.fixture(scope="module", params=[EvidenceMode.NOIDS, EvidenceMode.TIMING])
def mode(request: pytest.FixtureRequest) -> EvidenceMode:
    return EvidenceMode(request.param)


@pytest.fixture(scope="module")
def in_stretches(world: Simulation, mode: EvidenceMode) -> Matched:
    return _match(world, mode, **SHORT)


def _accuracy(world: Simulation, made: Matched) -> float:
    return float((made.parent == world.true_parent[made.child]).mean())


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_links_do_not_depend_on_the_chunks(world, mode, in_stretches, chunk):
    whole = in_stretches
    assert whole.counters["stretches"] > 3
    chunked = _match(world, mode, chunk=chunk, **SHORT)
    assert chunked.counters["stretches"] == whole.counters["stretches"]
    for name in ("child", "parent", "probability", "runner_up", "runner_up_probability"):
        np.testing.assert_array_equal(getattr(chunked, name), getattr(whole, name), err_msg=name)


def test_borders_cost_little(world, mode, in_stretches):
    whole = _match(world, mode)
    assert whole.counters["stretches"] == 1
    assert _accuracy(world, in_stretches) >= _accuracy(world, whole) - 0.01


def test_requests_that_wait_in_order_are_told_in_later_stretches_as_in_the_first():
    """Who has no call yet, or another one's, moves all behind it in the orders of arrivals and first calls: a
    forward pass leaves many such. Before places were told from what is usual nearby, 94.9, 94.1 and 73.2 % of
    the links of later stretches were right. Before attempts came first, where they move many calls, and the
    model was taught by what they find, 99.5, 98.4 and 83.4 %; 99.5, 94.5 and 97.9 are. A single one moves by
    some points with the course of the search."""
    later = []
    for seed in (1, 2, 3):
        calls, evidence, truth = held(random.Random(seed), 2000, callers=45, in_order=True).tables()
        parents = np.flatnonzero(calls["server_node"] == NODE)
        children = np.flatnonzero(calls["client_node"] == NODE)
        tokens = TokenIndex.build(evidence, EvidenceMode.TIMING)
        made = match_node(calls, parents, children, *tokens, first_stretch=3000, stretch=1500, ahead=800)
        assert made.counters["stretches"] > 3
        right = made.parent == truth[made.child]
        assert right[:3000].mean() > 0.98
        later.append(right[3000:].mean())
    assert np.mean(later) > 0.95
    assert min(later) > 0.9


def test_what_waits_does_not_grow_with_the_capture():
    short, long = (simulate(seed=32, users=60, seconds=seconds) for seconds in (6.0, 18.0))
    options = {"chunk": 100, **SHORT}
    kept = [_match(each, **options).counters["most_kept_bytes"] for each in (short, long)]
    assert len(long.true_parent) > 2.5 * len(short.true_parent)
    assert kept[1] < 1.3 * kept[0]


def _rows(times: list[int], ends: list[int]) -> dict[str, NDArray[np.generic]]:
    count = len(times)
    begin, end = np.array(times, dtype=np.int64), np.array(ends, dtype=np.int64)
    return {
        "cls": np.zeros(count, dtype=np.int64),
        "conn": np.zeros(count, dtype=np.int64),
        "arrive": begin,
        "begin": begin,
        "request_end": begin,
        "response_begin": end,
        "depart": end,
        "end": end,
        "token_offset": np.zeros(count + 1, dtype=np.int64),
        "token_slot": np.zeros(0, dtype=np.uint32),
        "token_hash": np.zeros(0, dtype=np.uint64),
        "result_offset": np.zeros(count + 1, dtype=np.int64),
        "result_slot": np.zeros(0, dtype=np.uint32),
        "result_hash": np.zeros(0, dtype=np.uint64),
    }


def test_links_come_before_the_stream_has_ended():
    """One call a second, each with one child: no link waits longer than the stretch and its look ahead."""
    stream = _kernel.NodeStream(first_stretch=20, stretch=20, ahead=5)
    second = 1_000_000_000
    decided = 0
    for i in range(100):
        at = i * second
        stream.push(_rows([at], [at + 9_000_000]), _rows([at + 2_000_000], [at + 6_000_000]))
        stream.advance(at + second)
        answer = stream.take()
        assert list(answer["parent"]) == list(range(decided, decided + len(answer["parent"])))
        decided += len(answer["parent"])
        assert i - decided < 20 + 5 + 5 + 2
    stream.finish()
    assert decided + len(stream.take()["parent"]) == 100


def test_a_parent_that_is_open_across_borders_keeps_its_children():
    """A request that lasts for the whole capture, with a child each second, next to short ones with one."""
    second = 1_000_000_000
    parents = [(0, 200 * second)] + [(i * second + 300_000_000, i * second + 310_000_000) for i in range(190)]
    children = []
    for i in range(190):
        children.append((i * second + 302_000_000, i * second + 306_000_000, i + 1))
        children.append((i * second + 700_000_000, i * second + 704_000_000, 0))
    stream = _kernel.NodeStream(first_stretch=60, stretch=60, ahead=10)
    stream.push(
        _rows([a for a, _ in parents], [b for _, b in parents]),
        _rows([c[0] for c in children], [c[1] for c in children]),
    )
    stream.finish()
    assert stream.counters()["stretches"] > 4
    assert list(stream.take()["parent"]) == [c[2] for c in children]


def test_who_is_not_answered_makes_no_calls_for_much_longer_than_those_who_are():
    """An answer that was lost, and short requests: nobody is there for what comes between them, but the one
    whose end was not seen. It would be given all of that."""
    second = 1_000_000_000
    short = [(i * second + 300_000_000, i * second + 310_000_000) for i in range(190)]
    children = [
        (i * second + at, i * second + at + 4_000_000)
        for i in range(190)
        for at in (302_000_000, 700_000_000)
    ]
    for ends, most in ((-1, 3), (200 * second, 190)):
        parents = [(0, ends), *short]
        stream = _kernel.NodeStream(first_stretch=60, stretch=60, ahead=10)
        stream.push(
            _rows([a for a, _ in parents], [b for _, b in parents]),
            _rows([c[0] for c in children], [c[1] for c in children]),
        )
        stream.finish()
        parent = stream.take()["parent"]
        assert parent[::2].tolist() == list(range(1, 191))
        assert set(parent[1::2].tolist()) <= {0, -1}
        assert (parent == 0).sum() <= most
        assert ends < 0 or (parent == 0).sum() == most


def test_an_unanswered_parent_is_given_up_in_the_end():
    """It may make children for a while; a node whose requests are never answered must not fill the memory."""
    second = 1_000_000_000
    stream = _kernel.NodeStream(first_stretch=50, stretch=50, ahead=5)
    for i in range(400):
        unanswered = _rows([i * second], [-1])
        child = _rows([i * second + 1_000_000], [i * second + 2_000_000])
        stream.push(unanswered, child)
        stream.advance((i + 1) * second)
    counted = stream.counters()
    assert counted["parents_given_up"] > 150
    assert counted["most_kept_bytes"] < 200_000


def test_more_classes_than_there_is_room_for_are_learned_anew_and_counted():
    """One class of calls at first, then up to sixty, a few of which there was room for."""
    second = 1_000_000_000
    for classes, anew in ((1, False), (5, False), (60, True)):
        parents = _rows([i * second for i in range(400)], [i * second + 9_000_000 for i in range(400)])
        children = _rows(
            [i * second + 2_000_000 for i in range(400)], [i * second + 6_000_000 for i in range(400)]
        )
        children["cls"] = np.array([0] * 200 + [i % classes for i in range(200)])
        stream = _kernel.NodeStream(first_stretch=100, stretch=100, ahead=5)
        stream.push(parents, children)
        stream.finish()
        assert (stream.counters()["learned_anew"] >= 1) == anew
        assert stream.take()["parent"].tolist() == list(range(400))


def test_rows_out_of_order_are_refused():
    stream = _kernel.NodeStream()
    stream.push(_rows([5, 9], [7, 11]), _rows([], []))
    with pytest.raises(ValueError, match="parents are not in the order of time"):
        stream.push(_rows([8], [9]), _rows([], []))
