"""The self-check: what is staged, and that what it expects is near what is true."""

from __future__ import annotations

import json

import numpy as np
import pytest
import span_sets
from cli_program import CAPTURE, tapscope
from simulator import DB, Simulation, simulate

from tapscope.capture._native import slot_of_name
from tapscope.reconstruct import self_check
from tapscope.reconstruct.match.lent import CONNECTION_NAME, lent_connections
from tapscope.reconstruct.match.links import links
from tapscope.reconstruct.match.refusal import Refusal
from tapscope.reconstruct.traces import traces
from tapscope.store.codes import EvidenceMode, LinkKind, Protocol
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table

Matched = tuple[Table, Table, Table]


def _matched(world: Simulation, mode: EvidenceMode, least: float = 0.0) -> Matched:
    found, _ = links(world.tables["calls"], world.tables["evidence"], mode, refusal=Refusal(least))
    return found, *traces(world.tables["calls"], found)


def _expected(
    world: Simulation, mode: EvidenceMode, matched: Matched
) -> tuple[self_check.Expectation, float, float, float]:
    """Expectation; true share of edges and of paths; share of edges that the matcher claims."""
    found, trees, tree_calls = matched
    expected = self_check.expectation(
        world.tables["calls"], found, trees, tree_calls, world.tables["evidence"], mode
    )
    assert expected is not None
    inner = world.true_parent >= 0
    right = found["parent"] == world.true_parent
    top = np.arange(len(right))
    for _ in range(4):
        top = np.where(world.true_parent[top] >= 0, world.true_parent[top], top)
    whole = np.ones(len(right), dtype=bool)
    whole[top[~right]] = False
    joined = found["kind"] == LinkKind.LINKED
    roots = world.true_parent < 0
    return (
        expected,
        float(right[inner].mean()),
        float(whole[roots].mean()),
        float(found["probability"][joined].mean()),
    )


@pytest.fixture(scope="module")
def busy() -> Simulation:
    return simulate(seed=17, users=120, seconds=6.0)


@pytest.fixture(scope="module")
def crowd(busy) -> Matched:
    """The busy system by times alone."""
    return _matched(busy, EvidenceMode.TIMING)


def test_what_is_expected_is_near_what_is_true_in_a_crowd(busy, crowd):
    expected, edges, paths, claimed = _expected(busy, EvidenceMode.TIMING, crowd)
    assert edges < 0.95
    assert expected.edges == pytest.approx(edges, abs=0.05)
    assert expected.paths == pytest.approx(paths, abs=0.15)
    assert abs(expected.edges - edges) < abs(claimed - edges) + 0.02  # both are near the truth
    assert expected.twice_edges is not None
    assert expected.twice_edges < expected.edges


def test_transactions_whose_calls_were_left_unlinked_are_not_expected_to_be_whole(busy):
    matched = _matched(busy, EvidenceMode.TIMING, least=0.9)
    expected, _, paths, _ = _expected(busy, EvidenceMode.TIMING, matched)
    assert paths < 0.6
    assert expected.edges > 0.98, "the links that are left are sure"
    # 0.49 are whole and 0.69 expected to be; of the staged ones, where nothing is left unlinked, 0.93 are.
    assert expected.paths < paths + 0.25


def test_a_quiet_system_is_expected_to_be_right():
    world = simulate(seed=18, users=12, seconds=30.0)
    expected, edges, _, _ = _expected(world, EvidenceMode.ALL, _matched(world, EvidenceMode.ALL))
    assert edges > 0.99
    assert expected.edges > 0.98
    assert expected.paths > 0.95


def test_the_same_run_gives_the_same_expectation(busy, crowd):
    twice = [_expected(busy, EvidenceMode.TIMING, crowd)[0] for _ in range(2)]
    assert twice[0] == twice[1]


def test_nothing_is_expected_of_a_handful_of_transactions():
    world = simulate(seed=19, users=5, seconds=3.0)
    found, trees, tree_calls = _matched(world, EvidenceMode.ALL)
    calls, evidence = world.tables["calls"], world.tables["evidence"]
    assert self_check.expectation(calls, found, trees, tree_calls, evidence, EvidenceMode.ALL) is None


def test_stand_ins_are_others_of_the_same_class_and_used_once(busy, crowd):
    found, trees, tree_calls = crowd
    run = self_check._Run(busy.tables["calls"], None, found, trees, tree_calls)
    places, shift = run.stretches(2_000, 5)
    assert (shift == 0).all()
    actors = run._cast(places)
    played = actors >= 0
    assert played.mean() > 0.5
    assert (actors[played] != places[played]).all()
    assert len(np.unique(actors[played])) == played.sum()
    kind = busy.tables["calls"]["class_id"][trees["root"]]
    assert (kind[actors[played]] == kind[places[played]]).all()
    probability = trees["probability"][actors[played]]
    assert (probability >= self_check.SURE).all()


def test_two_layers_lie_over_each_other(busy, crowd):
    found, trees, tree_calls = crowd
    run = self_check._Run(busy.tables["calls"], None, found, trees, tree_calls)
    places, shift = run.stretches(1_000, 2, layers=2)
    begin = run.begin_ns[places] - shift
    whole = run.begin_ns[places]
    assert len(np.unique(shift)) == 3  # no shift for both first layers, one for each second
    assert begin.max() - begin.min() < whole.max() - whole.min()


def test_connections_that_calls_name_are_given_out_anew_like_others():
    world = simulate(seed=19, users=40, seconds=6.0)
    calls, evidence = dict(world.tables["calls"]), world.tables["evidence"]
    sql = calls["server_node"] == DB
    calls["protocol"] = np.where(sql, np.uint8(Protocol.AVATICA), calls["protocol"])
    names = np.flatnonzero(sql)
    slot = np.full(len(names), slot_of_name(CONNECTION_NAME), dtype=evidence["slot"].dtype)
    told = {"message": calls["request"][names], "slot": slot, "hash": calls["conn"][names] + 1}
    named = {
        name: np.concatenate([values, told.get(name, np.zeros(len(names))).astype(values.dtype)])
        for name, values in evidence.items()
    }
    shared = {**calls, "conn": np.where(sql, 1, calls["conn"])}
    lent = {**calls, "conn": lent_connections(shared, named)}
    made, _ = links(shared, named, EvidenceMode.TIMING)
    for name, values in links(lent, evidence, EvidenceMode.TIMING)[0].items():
        np.testing.assert_array_equal(made[name], values)
    trees = traces(calls, made)
    by_name = self_check.expectation(shared, made, *trees, named, EvidenceMode.TIMING)
    by_number = self_check.expectation(lent, made, *trees, evidence, EvidenceMode.TIMING)
    assert by_name is not None
    assert by_name == by_number


def test_trace_prints_and_stores_what_to_expect_unless_told_not_to(tmp_path):
    world = simulate(seed=20, users=40, seconds=6.0)
    path = span_sets.write(tmp_path / "spans.csv", span_sets.rows(world))
    done = tapscope("trace", "--spans", path, "-o", tmp_path / "a.db")
    assert "Expected right: " in done.stdout
    with RunFile.open(tmp_path / "a.db") as run:
        expected = run.meta("expected")
    assert 0.8 < expected["edges"] <= 1.0
    assert expected["sample"]["calls"] > 1_000
    page = tapscope("report", tmp_path / "a.db", "-o", tmp_path / "a.html")
    assert page.returncode == 0, page.stderr
    assert "Self-check: " in (tmp_path / "a.html").read_text(encoding="utf-8")
    quiet = tapscope("trace", "--spans", path, "-o", tmp_path / "b.db", "--no-self-check", "--json")
    assert json.loads(quiet.stdout)["expected"] is None


def test_a_capture_with_few_transactions_is_traced_without_an_expectation(tmp_path):
    done = tapscope("trace", CAPTURE, "-o", tmp_path / "run.db", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["expected"] is None
    assert "self-check" in record["seconds"]
    # It is said that nothing is known, and not when nobody asked.
    shown = tapscope("trace", CAPTURE, "-o", tmp_path / "run.db", "--force")
    assert "Expected right: not known" in shown.stdout
    shown = tapscope("trace", CAPTURE, "-o", tmp_path / "run.db", "--force", "--no-self-check")
    assert "Expected right" not in shown.stdout
