"""Figures of a node over the whole run: what they hold is what the analysis found, and they stay small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_page import run_with_hosts
from simulator import APP, DB, NODE_NAMES, WEB, Simulation, simulate

from tapscope.cli.main import run as command
from tapscope.report import analysis
from tapscope.report.run import read
from tapscope.store.runfile import RunFile


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(seed=3, users=80, seconds=6.0, stall_at_s=3.0, stall_ms=300.0)


@pytest.fixture(scope="module")
def path(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_with_hosts(simulation, tmp_path_factory.mktemp("analysis"))


@pytest.fixture(scope="module")
def figures(path: Path) -> dict[int, dict[str, Any]]:
    with RunFile.open(path) as file:
        run = read(file)
        return {each["node"]: each for each in analysis.figures(run, analysis.analyse(run))}


def decoded(column: dict[str, Any]) -> np.ndarray:
    return np.cumsum(column["delta"]) / column["scale"]


def windows(capsys: Any, path: Path, node: int, width: str) -> list[dict[str, Any]]:
    """The windows as `tapscope congestion` lists them, without idle ones, in order of load."""
    words = ["congestion", str(path), "--node", NODE_NAMES[node], "--window", width, "--series", "--json"]
    assert command(words) == 0
    listed = [each for each in json.loads(capsys.readouterr().out) if each["state"] != "idle"]
    return sorted(listed, key=lambda each: each["load"])


@pytest.mark.parametrize("node", [APP, DB])
def test_points_are_the_windows_that_the_command_lists(capsys, path, figures, node) -> None:
    listed = windows(capsys, path, node, "50ms")
    drawn = figures[node]["widths"][1]
    assert (drawn["ms"], drawn["of"], drawn["most"]) == (50, len(listed), 0)
    np.testing.assert_allclose(decoded(drawn["x"]), [each["load"] for each in listed], atol=0.0051)
    np.testing.assert_allclose(decoded(drawn["y"]), [each["units_per_s"] for each in listed], atol=0.051)
    states = ["idle", "normal", "congested", "stalled"]
    assert [states[kind] for kind in drawn["kind"]] == [each["state"] for each in listed]
    assert "stalled" in {each["state"] for each in windows(capsys, path, APP, "50ms")}


def test_every_interval_length_has_the_same_work(figures: dict[int, dict[str, Any]]) -> None:
    for node in figures.values():
        work = [decoded(each["y"]).sum() * each["ms"] / 1e3 for each in node["widths"]]
        assert [each["ms"] for each in node["widths"]] == [20, 50, 1000]
        assert work[0] == pytest.approx(work[2], rel=0.002)
        assert work[1] == pytest.approx(work[2], rel=0.002)


def test_calls_that_are_not_normalised_are_all_there(figures, simulation) -> None:
    calls = simulation.tables["calls"]
    for node, figure in figures.items():
        raw = figure["raw"]
        assert raw["ms"] == 50
        served = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
        assert decoded(raw["y"]).sum() * raw["ms"] / 1e3 == pytest.approx(served.sum(), rel=0.002)
        assert all(r is None or -1 <= r <= 1 for r in (raw["r"], raw["r_units"]))
    assert any(figure["raw"]["r"] is not None for figure in figures.values())


def test_response_times_are_counted_once_and_their_modes_lie_among_them(figures, simulation) -> None:
    calls = simulation.tables["calls"]
    for node, figure in figures.items():
        mine = (calls["server_node"] == node) & (calls["depart_ns"] > calls["arrive_ns"])
        took = (calls["depart_ns"] - calls["arrive_ns"])[mine]
        times = figure["times"]
        edges = 2.0 ** ((times["first"] + np.arange(len(times["count"]) + 1)) / times["per_octave"])
        np.testing.assert_array_equal(times["count"], np.histogram(took, edges)[0])
        assert times["modes"]
        assert all(took.min() <= mode["ns"] <= took.max() for mode in times["modes"])


def test_transactions_are_as_long_as_clients_waited(tmp_path: Path) -> None:
    """Of the clients of the entry every third waited a second until its SYN was answered."""
    waiting = simulate(seed=6, users=30, seconds=3.0)
    calls, connections = waiting.tables["calls"], waiting.tables["connections"]
    entry = np.unique(calls["conn"][calls["server_node"] == WEB])
    first = np.array([calls["arrive_ns"][calls["conn"] == conn].min() for conn in entry])
    connections["established_ns"][entry] = first
    connections["syn_ns"][entry] = first - np.where(np.arange(len(entry)) % 3 == 0, 1_000_000_000, 50_000)
    waiting.save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as file:
        run = read(file)
        web, app, _ = analysis.figures(run, analysis.analyse(run))
    assert (web["entry"], app["entry"]) == (True, False)
    second = (np.log2(1e9) * web["times"]["per_octave"]) - web["times"]["first"]
    assert sum(web["times"]["count"][int(second) :]) == -(-len(entry) // 3)
    assert [mode["ladder"] for mode in web["times"]["modes"]][-1] == "1 s"
    assert "1 s" not in [mode["ladder"] for mode in app["times"]["modes"]]


def test_processor_use_is_related_to_load_and_said_in_words(path, figures) -> None:
    for figure in figures.values():
        (cpu,) = figure["host"]
        assert cpu["unit"] == "% of one core"
        assert len(cpu["x"]["delta"]) == cpu["of"] > 100
    with RunFile.open(path) as file:
        run = read(file)
        text = analysis.section(run, analysis.analyse(run))
    assert all(name in text for name in NODE_NAMES[1:])
    assert "% of one core" in text
    assert "coordinated omission" in text


@settings(max_examples=30)
@given(st.integers(1, 20_000), st.floats(0.0, 1.0), st.integers(0, 2**32 - 1))
def test_thinned_points_are_few_and_leave_no_part_of_the_plane_empty(
    number: int, spread: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x = np.where(generator.random(number) < spread, generator.random(number), 0.5)
    y = x + spread * generator.standard_normal(number)
    rows, most = analysis.thinned(x, y, analysis.MOST_POINTS)
    assert (np.diff(rows) > 0).all()
    if number <= analysis.MOST_POINTS:
        assert (len(rows), most) == (number, 0)
        return
    assert len(rows) <= analysis.MOST_POINTS

    def cells(at: np.ndarray) -> np.ndarray:
        scaled = [(v - v.min()) / max(float(np.ptp(v)), 1e-300) * analysis.CELLS for v in (x, y)]
        column, row = (np.minimum(v, analysis.CELLS - 1).astype(int)[at] for v in scaled)
        return column * analysis.CELLS + row

    kept, counts = np.unique(cells(rows), return_counts=True)
    assert set(kept) == set(cells(np.arange(number)))
    assert counts.max() <= most


def test_a_run_without_calls_has_no_figures(tmp_path: Path) -> None:
    empty = simulate(seed=1, users=1, seconds=0.1)
    for name in ("calls", "links", "traces", "trace_calls", "loads", "messages", "evidence"):
        empty.tables[name] = {column: values[:0] for column, values in empty.tables[name].items()}
    empty.save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as file:
        run = read(file)
        known = analysis.analyse(run)
        assert analysis.figures(run, known) == []
        assert "no calls" in analysis.section(run, known)
