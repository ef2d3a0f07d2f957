"""Messages to calls, calls to nodes, links to traces: each against the simulator or an obvious twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator import simulate

from tapscope.reconstruct import pair, topology, traces
from tapscope.store.codes import CallFlag, LinkKind, MessageFlag, MessageKind, Protocol
from tapscope.store.tables import Table, empty, rows


@pytest.fixture(scope="module")
def three_tiers():
    return simulate(seed=5, users=30, seconds=4.0, lose=5)


def test_every_request_becomes_one_call_with_its_response(three_tiers):
    tables = three_tiers.tables
    calls = pair.calls(tables["connections"], tables["messages"])
    expected = tables["calls"]
    for column in (
        "arrive_ns",
        "request_end_ns",
        "response_begin_ns",
        "depart_ns",
        "class_id",
        "tcp_seq",
        "conn",
    ):
        np.testing.assert_array_equal(calls[column], expected[column], err_msg=column)


def test_a_request_without_response_is_kept_and_says_why(three_tiers):
    tables = three_tiers.tables
    messages = {name: values.copy() for name, values in tables["messages"].items()}
    gone = int(np.flatnonzero(messages["kind"] == MessageKind.RESPONSE)[7])
    asked = int(messages["request"][gone])
    messages["request"][gone] = -1
    connections = {name: values.copy() for name, values in tables["connections"].items()}
    connections["missing_to_client"][messages["conn"][asked]] = 100  # of other answers
    why = CallFlag.UNANSWERED | CallFlag.LOST_RESPONSE
    calls = pair.calls(connections, messages)
    call = int(np.flatnonzero(calls["request"] == asked)[0])
    assert calls["depart_ns"][call] == -1
    assert calls["flags"][call] & why == CallFlag.UNANSWERED
    messages["flags"][asked] |= MessageFlag.ANSWER_LOST
    assert pair.calls(connections, messages)["flags"][call] & why == CallFlag.LOST_RESPONSE


def test_no_messages_give_no_calls(three_tiers):
    assert rows(pair.calls(three_tiers.tables["connections"], empty("messages"))) == 0


def test_hosts_become_nodes_in_the_order_of_the_tiers(three_tiers):
    found = topology.find(
        three_tiers.tables["calls"], three_tiers.tables["connections"], three_tiers.addresses
    )
    named = {found.names[n]: int(found.nodes["depth"][n]) for n in range(len(found.names))}
    assert named == {"10.77.0.1": 0, "10.77.0.11": 1, "10.77.0.12": 2, "10.77.0.13": 3}
    truth = three_tiers.tables["calls"]
    for side in ("client_node", "server_node"):
        seen = [found.names[n] for n in found.calls[side]]
        assert seen == [three_tiers.addresses[n] for n in truth[side]]


def test_addresses_of_one_server_are_one_node_where_that_is_said(three_tiers):
    """The application server calls the database by another address than the one it is called by."""
    connections = {name: values.copy() for name, values in three_tiers.tables["connections"].items()}
    back = connections["server_addr"] == 3
    connections["client_addr"][back] = 4
    addresses = [*three_tiers.addresses, "10.78.0.12"]
    calls, truth = three_tiers.tables["calls"], three_tiers.tables["calls"]
    apart = topology.find(calls, connections, addresses)
    assert len(apart.names) == 5
    assert not np.isin(
        apart.calls["client_node"][truth["server_node"] == 3], apart.calls["server_node"]
    ).any()
    same = [("10.77.0.12", "10.78.0.12"), ("10.1.1.1", "10.1.1.2")]
    found = topology.find(calls, connections, addresses, same)
    for side in ("client_node", "server_node"):
        assert [found.names[n] for n in found.calls[side]] == [addresses[n] for n in truth[side]]
    # The node is called like the first address that is there.
    found = topology.find(calls, connections, addresses, [("10.1.1.1", "10.78.0.12", "10.77.0.12")])
    assert {found.names[n] for n in found.calls["client_node"][truth["server_node"] == 3]} == {"10.78.0.12"}


def test_on_loopback_listeners_become_nodes_and_nesting_tells_who_calls(three_tiers):
    connections = {name: values.copy() for name, values in three_tiers.tables["connections"].items()}
    connections["client_addr"][:] = 0
    connections["server_addr"][:] = 0
    found = topology.find(three_tiers.tables["calls"], connections, ["127.0.0.1"])
    port_of = {0: 0, 1: 80, 2: 8009, 3: 3306}
    truth = three_tiers.tables["calls"]
    assert [int(found.nodes["port"][n]) for n in found.calls["server_node"]] == [
        port_of[int(n)] for n in truth["server_node"]
    ]
    caller = np.array([found.nodes["port"][n] for n in found.calls["client_node"]])
    expected = np.array([port_of[int(n)] for n in truth["client_node"]])
    # Connections with a single call may lie inside two tiers by chance; nearly all must be right.
    assert (caller == expected).mean() > 0.99
    entry = found.nodes["protocol"] == Protocol.HTTP
    assert found.nodes["depth"][entry].tolist() == [1]


@st.composite
def forests(draw):
    """Random calls with a random parent among those that began before; children may overlap and overhang."""
    n = draw(st.integers(1, 12))
    calls = []
    for i in range(n):
        begin = draw(st.integers(0, 50))
        calls.append(
            (begin, begin + draw(st.integers(0, 40)), draw(st.integers(-1, i - 1)), draw(st.booleans()))
        )
    return calls


def _tables_of(forest) -> tuple[Table, Table]:
    calls = empty("calls")
    n = len(forest)
    calls = {name: np.zeros(n, dtype=values.dtype) for name, values in calls.items()}
    calls["arrive_ns"][:] = [begin for begin, *_ in forest]
    calls["depart_ns"][:] = [end if answered else -1 for _, end, _, answered in forest]
    links = {name: np.zeros(n, dtype=values.dtype) for name, values in empty("links").items()}
    links["child"][:] = np.arange(n)
    links["parent"][:] = [parent for _, _, parent, _ in forest]
    links["kind"][:] = np.where(links["parent"] >= 0, LinkKind.LINKED, LinkKind.ROOT)
    links["probability"][:] = np.linspace(1.0, 0.5, n)
    return calls, links


@given(forests())
def test_intra_node_delay_is_the_stay_that_no_child_covers(forest):
    calls, links = _tables_of(forest)
    delay = traces.intra_node_delay(calls, links["parent"])
    for i, (begin, end, _, answered) in enumerate(forest):
        if not answered:
            assert delay[i] == -1
            continue
        children = [c for c in forest if c[2] == i and c[3]]
        covered: set[int] = set()
        for child_begin, child_end, _, _ in children:
            covered |= set(range(child_begin, child_end))
        assert delay[i] == len(set(range(begin, end)) - covered)  # children may overhang


def test_intra_node_delays_are_exact_however_long_a_run_lasts_and_how_many_parents_there_are():
    """Parents times length of the run, in ns, are far more than int64 holds."""
    random = np.random.default_rng(5)
    parents, children, month_ns = 20_000, 4, 30 * 86_400 * 10**9
    begin = 1_795_223_629 * 10**9 + np.sort(random.integers(0, month_ns, parents))
    stay = random.integers(1, 50_000_000, parents)
    parent = np.concatenate([np.full(parents, -1), np.repeat(np.arange(parents), children)])
    made = begin[parent[parents:]] + random.integers(0, 50_000_000, parents * children)
    calls = {
        "arrive_ns": np.concatenate([begin, made]),
        "depart_ns": np.concatenate([begin + stay, made + random.integers(0, 30_000_000, len(made))]),
    }
    calls["depart_ns"][parents::7] = -1  # not answered
    delay = traces.intra_node_delay(calls, parent)
    inside: list[list[tuple[int, int]]] = [[] for _ in range(parents)]
    for row in range(parents, len(parent)):
        if calls["depart_ns"][row] >= 0:
            inside[parent[row]].append((int(calls["arrive_ns"][row]), int(calls["depart_ns"][row])))
    wanted = []
    for came, spent, calls_made in zip(begin.tolist(), stay.tolist(), inside, strict=True):
        covered, reached = 0, came
        for low, high in sorted(calls_made):
            covered += max(min(high, came + spent) - max(low, reached), 0)
            reached = max(reached, high)
        wanted.append(spent - covered)
    assert delay[:parents].tolist() == wanted


@given(forests())
def test_every_call_is_in_the_trace_of_its_root(forest):
    calls, links = _tables_of(forest)
    table, members = traces.traces(calls, links)

    def root_and_depth(i: int) -> tuple[int, int]:
        depth = 0
        while forest[i][2] >= 0:
            i, depth = forest[i][2], depth + 1
        return i, depth

    for i in range(len(forest)):
        root, depth = root_and_depth(i)
        assert (table["root"][members["trace"][i]], members["depth"][i]) == (root, depth)
    assert table["calls"].sum() == len(forest)


def test_a_trace_is_as_likely_as_the_least_certain_child_of_each_parent():
    #    0 -> 1 (0.9), 0 -> 2 (0.8), 1 -> 3 (0.7)
    calls, links = _tables_of([(0, 9, -1, True), (1, 4, 0, True), (5, 8, 0, True), (2, 3, 1, True)])
    links["probability"][:] = [1.0, 0.9, 0.8, 0.7]
    table, _ = traces.traces(calls, links)
    assert table["probability"].tolist() == pytest.approx([0.8 * 0.7])
    assert table["complete"].tolist() == [True]
