"""Calls that the tap lost whole: the transactions that may be theirs are not called complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from capture_packets import Packet, read_pcap, write_pcap
from simulator import simulate

from tapscope import capture
from tapscope.reconstruct import run, traces, unseen
from tapscope.reconstruct.match.links import links
from tapscope.reconstruct.run import Reconstruction
from tapscope.store.codes import CallFlag, EvidenceMode, LinkKind, Protocol
from tapscope.store.tables import Table, empty

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
DATABASE = 3316
Key = tuple[int, int]
"""Client's port and sequence number of a call: the same in every part of a capture."""


@pytest.fixture(scope="module")
def packets() -> list[Packet]:
    return read_pcap(PCAPS / "http_ajp_mysql_groundtruth.pcap")


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> Callable[[list[Packet]], tuple[Reconstruction, dict[Key, set[Key]]]]:
    path = tmp_path_factory.mktemp("unseen") / "a.pcap"

    def trace(some: list[Packet]) -> tuple[Reconstruction, dict[Key, set[Key]]]:
        tables = capture.read_files([write_pcap(path, some)], salt=bytes(16))
        made = run.trace(tables)
        port = tables.connections["client_port"][made.calls["conn"]]
        keys = list(zip(port.tolist(), made.calls["tcp_seq"].tolist(), strict=True))
        members = defaultdict(set)
        for call, tree in zip(made.trace_calls["call"], made.trace_calls["trace"], strict=True):
            members[keys[made.traces["root"][tree]]].add(keys[call])
        return made, members

    return trace


def _statements(packets: Sequence[Packet]) -> dict[int, list[list[int]]]:
    """By client's port: places of the packets with data of each command and its answer, without the first,
    which nothing tells from those before the capture."""
    found: dict[int, list[list[int]]] = defaultdict(list)
    for place, (_, frame) in enumerate(packets):
        source, target = (int.from_bytes(frame[at : at + 2], "big") for at in (34, 36))
        if DATABASE not in (source, target) or len(frame) <= 66:
            continue
        if target == DATABASE:
            found[source].append([])
        if found[target if source == DATABASE else source]:
            found[target if source == DATABASE else source][-1].append(place)
    return {port: exchanges[1:] for port, exchanges in found.items()}


def _complete(made: Reconstruction, members: dict[Key, set[Key]]) -> dict[Key, set[Key]]:
    """Traces that are called complete."""
    whole = np.flatnonzero(made.traces["complete"]).tolist()
    return {key: calls for row, (key, calls) in enumerate(members.items()) if row in whole}


@pytest.mark.parametrize(("part", "most"), [("request", 3), ("request and answer", 10)])
def test_who_may_have_made_a_lost_call_is_not_complete(part, most, packets, traced):
    _, whole = traced(packets)
    exchanges = [one for each in _statements(packets).values() for one in each]
    assert len(exchanges) > 20
    for exchange in exchanges[::2]:
        gone = set(exchange[:1] if part == "request" else exchange)
        made, members = traced([each for place, each in enumerate(packets) if place not in gone])
        assert made.counters["match.calls_not_seen"] == 1, exchange
        assert len(members) == len(whole)
        changed = {key for key, calls in members.items() if calls != whole[key]}
        assert len(changed) == 1, exchange
        complete = _complete(made, members)
        assert not changed & complete.keys(), exchange
        # Hardly more than two are in flight; without the answer, all that came while the connection was idle.
        assert len(complete) >= len(whole) - most


def test_nothing_is_missed_where_nothing_is_lost(packets, traced):
    made, members = traced(packets)
    assert made.counters["match.calls_not_seen"] == 0
    assert _complete(made, members) == members
    # Nor where the capture begins in the middle of connections and of calls.
    made, _ = traced(packets[len(packets) // 2 :])
    assert made.counters["match.calls_not_seen"] == 0


def _calls(*rows: tuple[int, int, int, int, int]) -> Table:
    """connection, client's node, server's node, begin and end in ms."""
    calls = {name: np.zeros(len(rows), dtype=values.dtype) for name, values in empty("calls").items()}
    for name, values in zip(("conn", "client_node", "server_node"), zip(*rows, strict=True), strict=False):
        calls[name][:] = values
    calls["arrive_ns"][:] = [begin * 1_000_000 for *_, begin, _ in rows]
    calls["depart_ns"][:] = [end * 1_000_000 for *_, end in rows]
    return calls


def _links(*parent: int) -> Table:
    links = {name: np.zeros(len(parent), dtype=values.dtype) for name, values in empty("links").items()}
    links["parent"][:] = parent
    links["kind"][:] = np.where(np.array(parent) >= 0, LinkKind.LINKED, LinkKind.ROOT)
    links["probability"][:] = 1.0
    links["runner_up"][:] = -1
    return links


def _lost(conn: int, after: int, answer: int, before: int) -> unseen.Unseen:
    times = [np.array([at if at < 0 else at * 1_000_000]) for at in (after, before, answer)]
    return unseen.Unseen(np.array([conn]), *times, *(np.array([at]) for at in (-1, 0, -1, 1, 2)))


# Three requests to node 1 at once. On connection 10 it calls for the first, 20 ms long, then for the second.
CALLS = _calls(
    (1, 0, 1, 0, 100),
    (2, 0, 1, 10, 110),
    (3, 0, 1, 20, 120),
    (10, 1, 2, 30, 50),
    (10, 1, 2, 80, 90),
    (11, 1, 2, 60, 70),
)


def test_who_waits_for_an_answer_does_not_wait_for_the_one_that_was_lost():
    lacking = unseen.may_lack(_lost(12, 35, 40, 41), CALLS, _links(-1, -1, -1, 0, 1, 2))
    assert np.flatnonzero(lacking).tolist() == [1, 2]
    # Where the answer was not seen, either, nobody waited all the time.
    lacking = unseen.may_lack(_lost(12, 35, -1, 41), CALLS, _links(-1, -1, -1, 0, 1, 2))
    assert np.flatnonzero(lacking).tolist() == [0, 1, 2]


def test_between_two_calls_of_one_request_the_connection_was_its_own():
    lacking = unseen.may_lack(_lost(10, 50, 60, 61), CALLS, _links(-1, -1, -1, 1, 1, 2))
    assert np.flatnonzero(lacking).tolist() == [1]


def test_a_call_inside_one_that_was_lost_is_no_root():
    links = _links(-1, -1, -1, -1, -1, -1)
    inside = unseen.Unseen(
        *(np.array([at]) for at in (1, 28_000_000, 95_000_000, 95_000_000, -1, 0, -1, 0, 1))
    )
    alone = unseen.without_parent(inside, CALLS, links)
    assert np.flatnonzero(alone).tolist() == [3, 4, 5]
    ends_earlier = unseen.Unseen(
        *(np.array([at]) for at in (1, 28_000_000, 72_000_000, 72_000_000, -1, 0, -1, 0, 1))
    )
    assert np.flatnonzero(unseen.without_parent(ends_earlier, CALLS, links)).tolist() == [3, 5]


def test_a_parent_that_was_refused_lacks_the_call():
    links = _links(-1, -1, -1, 0, -1, 2)
    links["kind"][4] = LinkKind.UNKNOWN
    links["runner_up"][4], links["runner_up_probability"][4] = 1, 0.8
    table, _ = traces.traces(CALLS, links)
    assert table["root"].tolist() == [0, 1, 2, 4]
    assert table["complete"].tolist() == [True, False, True, False]
    assert table["probability"].tolist() == pytest.approx([1.0, 0.2, 1.0, 1.0])
    links["runner_up_probability"][4] = 0.1
    table, _ = traces.traces(CALLS, links)
    assert table["complete"].tolist() == [True, True, True, False]
    assert table["probability"].tolist() == pytest.approx([1.0, 0.9, 1.0, 1.0])


def test_who_lost_an_answer_makes_no_calls_behind_the_next_request_on_the_connection():
    world = simulate(seed=24, users=60, seconds=8.0, lose=400)
    calls = world.tables["calls"]
    gone = unseen.gone_by(calls, world.tables["connections"])
    bounded = gone >= 0
    assert bounded.sum() > 300
    assert (calls["depart_ns"][bounded] < 0).all()
    known, _ = links(calls, world.tables["evidence"], EvidenceMode.TIMING, gone_ns=gone)
    to = np.where(known["parent"] >= 0, gone[known["parent"]], -1)
    assert (calls["arrive_ns"][to >= 0] <= to[to >= 0] + 50_000).all()
    plain, _ = links(calls, world.tables["evidence"], EvidenceMode.TIMING)
    inner = world.true_parent >= 0
    right, before = ((made["parent"][inner] == world.true_parent[inner]).mean() for made in (known, plain))
    assert right > before - 0.01, "other links change by chance"


def test_where_calls_run_side_by_side_the_next_one_ends_none():
    calls = _calls((1, 0, 1, 0, 50), (1, 0, 1, 10, 20), (1, 0, 1, 60, 70), (2, 0, 1, 0, 5), (2, 0, 1, 7, 8))
    calls["depart_ns"][[2, 3]] = -1
    calls["flags"][2] = CallFlag.LOST_RESPONSE
    calls["gone_ns"][:] = -1
    connections = {"closed_ns": np.array([-1, 90_000_000, 6_000_000]), "protocol": np.full(3, Protocol.HTTP)}
    assert unseen.gone_by(calls, connections).tolist() == [-1, -1, 90_000_000, 7_000_000, -1]
    connections["protocol"][2] = Protocol.HTTP2  # nothing was seen side by side, but might have been
    assert unseen.gone_by(calls, connections).tolist() == [-1, -1, 90_000_000, -1, -1]
    calls["gone_ns"][[2, 3]] = 61_000_000, 3_000_000  # their clients gave them up
    assert unseen.gone_by(calls, connections).tolist() == [-1, -1, 61_000_000, 3_000_000, -1]
