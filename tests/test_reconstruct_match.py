"""The matcher on simulated tiers with known truth: regression floors, evidence modes, honesty."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import APP, DB, WEB, Simulation, simulate

from tapscope.reconstruct.match.links import links
from tapscope.reconstruct.match.refusal import Refusal
from tapscope.store.codes import ID_LIKE, EvidenceMode, LinkKind, TokenKind
from tapscope.store.tables import Table


@pytest.fixture(scope="module")
def light() -> Simulation:
    return simulate(seed=21, users=40, seconds=6.0)


@pytest.fixture(scope="module")
def busy() -> Simulation:
    return simulate(seed=22, users=200, seconds=6.0)


def _match(world: Simulation, mode: EvidenceMode, **options: float) -> Table:
    return links(world.tables["calls"], world.tables["evidence"], mode, **options)[0]


def _accuracy(world: Simulation, made: Table, node: int) -> float:
    mine = world.tables["calls"]["server_node"] == node
    return float((made["parent"][mine] == world.true_parent[mine]).mean())


@pytest.mark.parametrize("mode", [EvidenceMode.ALL, EvidenceMode.NOIDS])
def test_content_decides_nearly_every_edge_even_with_ten_requests_in_flight(busy, mode):
    made = _match(busy, mode)
    stay = busy.tables["calls"]["server_node"] == APP
    in_flight = (busy.tables["calls"]["depart_ns"] - busy.tables["calls"]["arrive_ns"])[stay].clip(0).sum()
    assert in_flight / (busy.end_ns - busy.begin_ns) > 5, "the simulation is not busy"
    assert _accuracy(busy, made, APP) >= 0.999
    assert _accuracy(busy, made, DB) >= 0.99


def test_times_and_classes_alone_carry_the_light_load(light):
    made = _match(light, EvidenceMode.TIMING)
    assert _accuracy(light, made, WEB) == 1.0
    assert _accuracy(light, made, APP) >= 0.995
    assert _accuracy(light, made, DB) >= 0.93


def test_probabilities_mean_what_they_say(light):
    made = _match(light, EvidenceMode.TIMING)
    mine = light.tables["calls"]["server_node"] == DB
    right = made["parent"][mine] == light.true_parent[mine]
    probability = made["probability"][mine]
    assert abs(probability.mean() - right.mean()) < 0.03
    sure = probability >= 0.99
    assert sure.sum() > 500
    assert right[sure].mean() >= 0.99
    assert right[~sure].mean() < right[sure].mean(), "uncertain edges must be worse than certain ones"


def test_an_edge_is_never_less_likely_than_its_runner_up_says(light):
    made = _match(light, EvidenceMode.TIMING)
    assert np.all(made["probability"] + made["runner_up_probability"] <= 1 + 1e-9)
    named = made["runner_up"] >= 0
    assert np.all(made["runner_up"][named] != made["parent"][named])


def test_timing_does_not_look_at_content(light):
    """Scrambling every token must not change a single link."""
    evidence = {name: values.copy() for name, values in light.tables["evidence"].items()}
    evidence["hash"] = np.random.default_rng(1).permutation(evidence["hash"])
    plain = _match(light, EvidenceMode.TIMING)
    scrambled = links(light.tables["calls"], evidence, EvidenceMode.TIMING)[0]
    for name in plain:
        np.testing.assert_array_equal(plain[name], scrambled[name], err_msg=name)


def _with_propagated_ids(world: Simulation) -> Table:
    """The evidence, with the id of its transaction added to every request."""
    calls = world.tables["calls"]
    root = np.arange(len(calls["request"]))
    for _ in range(4):
        up = world.true_parent[root]
        root = np.where(up >= 0, up, root)
    ids = {
        "message": calls["request"],
        "slot": np.full(len(root), 99, dtype=np.uint32),
        "kind": np.full(len(root), TokenKind.TEXT | ID_LIKE, dtype=np.uint8),
        "hash": (root.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15),
    }
    return {name: np.concatenate([world.tables["evidence"][name], ids[name]]) for name in ids}


def test_propagated_ids_are_used_with_all_and_ignored_with_noids(busy):
    evidence = _with_propagated_ids(busy)
    calls = busy.tables["calls"]
    with_ids = links(calls, evidence, EvidenceMode.ALL)[0]
    assert _accuracy(busy, with_ids, DB) == 1.0
    without = links(calls, evidence, EvidenceMode.NOIDS)[0]
    plain = links(calls, busy.tables["evidence"], EvidenceMode.NOIDS)[0]
    for name in plain:
        np.testing.assert_array_equal(without[name], plain[name], err_msg=name)


def test_the_same_input_gives_the_same_links(light):
    first, second = _match(light, EvidenceMode.NOIDS), _match(light, EvidenceMode.NOIDS)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_another_salt_gives_the_same_links(busy):
    """Also where every message brings values that nobody else has: counts in bounded memory must not depend
    on the bits of a hash."""
    calls, evidence = busy.tables["calls"], busy.tables["evidence"]
    rng = np.random.default_rng(5)
    message = np.repeat(calls["request"], 5)
    noise = {
        "message": message,
        "slot": np.resize(np.arange(5, dtype=np.uint32) + 1000, len(message)),
        "kind": np.full(len(message), int(TokenKind.NUMBER)),
        "hash": rng.integers(1, 1 << 62, len(message), dtype=np.uint64),
    }
    order = np.argsort(np.concatenate([evidence["message"], message]), kind="stable")
    plain = {
        name: np.concatenate([column, noise[name].astype(column.dtype)])[order]
        for name, column in evidence.items()
        if name in noise
    }
    salted = {**plain, "hash": plain["hash"] * np.uint64(0x9E3779B97F4A7C15)}  # odd: one to one
    first, second = links(calls, plain, EvidenceMode.ALL)[0], links(calls, salted, EvidenceMode.ALL)[0]
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_hard_facts_hold_for_every_link():
    world = simulate(seed=24, users=120, seconds=4.0)
    made = _match(world, EvidenceMode.TIMING)
    calls = world.tables["calls"]
    linked = np.flatnonzero(made["kind"] == LinkKind.LINKED)
    parent = made["parent"][linked]
    assert np.all(calls["client_node"][linked] == calls["server_node"][parent])
    slack = 50_000
    assert np.all(calls["arrive_ns"][linked] + slack >= calls["arrive_ns"][parent])
    both = (calls["depart_ns"][linked] >= 0) & (calls["depart_ns"][parent] >= 0)
    assert np.all(calls["response_begin_ns"][linked][both] <= calls["depart_ns"][parent][both] + slack)


def test_below_the_threshold_nothing_is_guessed(light):
    made = _match(light, EvidenceMode.TIMING, refusal=Refusal(0.99))
    linked = made["kind"] == LinkKind.LINKED
    assert np.all(made["probability"][linked] >= 0.99)
    refused = made["kind"] == LinkKind.UNKNOWN
    assert refused.sum() > 0
    assert np.all(made["parent"][refused] == -1)


def test_calls_of_a_pure_client_are_roots(light):
    made = _match(light, EvidenceMode.ALL)
    entry = light.tables["calls"]["server_node"] == WEB
    assert np.all(made["kind"][entry] == LinkKind.ROOT)
    assert np.all(made["probability"][entry] == 1.0)


def test_a_stall_of_the_application_server_costs_little():
    world = simulate(seed=23, users=60, seconds=6.0, stall_at_s=3.0, stall_ms=500.0)
    made = _match(world, EvidenceMode.NOIDS)
    assert _accuracy(world, made, APP) >= 0.99
    assert _accuracy(world, made, DB) >= 0.97


def test_a_class_for_every_request_costs_bounded_tables_and_no_fact(light):
    """Whoever sends requests chooses their texts; a node that never sees a class twice is still matched."""
    calls = dict(light.tables["calls"])
    calls["class_id"] = np.arange(len(calls["class_id"]), dtype=np.int32)
    children = int((calls["server_node"] == DB).sum())
    assert children > 2048, "more classes than are told apart"
    made, counters = links(calls, light.tables["evidence"], EvidenceMode.NOIDS)
    assert counters["match.classes_shared"] >= children - 2048, "each of which is counted"
    linked = np.flatnonzero(made["kind"] == LinkKind.LINKED)
    assert len(linked) > 0.95 * (len(made["kind"]) - (calls["server_node"] == WEB).sum())
    assert np.all(calls["client_node"][linked] == calls["server_node"][made["parent"][linked]])
