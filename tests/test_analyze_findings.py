"""From a symptom to its cause, on simulated runs with known truth and on series made for each mechanism."""

from __future__ import annotations

import json

import numpy as np
import pytest
from simulator import NODE_NAMES, START_NS, simulate

from tapscope.analyze.findings import findings
from tapscope.analyze.mechanisms import Evidence, recognise
from tapscope.cli.main import run as tapscope
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

SECOND = 1_000_000_000
WINDOWS = 400
HIT = slice(200, 206)
"""Windows in which a made series differs."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_stop_of_the_application_is_found_where_and_when_it_was(tmp_path, seed) -> None:
    at_s = 3.0 + seed
    simulate(seed=seed, users=60, seconds=10.0, stall_at_s=at_s, stall_ms=400).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as run:
        found = findings(run)
        names = run.node_names()
    near = [one for one in found if one.episode.begin_ns < START_NS + (at_s + 0.5) * SECOND]
    near = [one for one in near if one.episode.end_ns > START_NS + at_s * SECOND]
    assert len(near) == 1
    assert names[near[0].origin] == NODE_NAMES[2]
    assert near[0].cause == "node stood still"
    assert abs(near[0].episode.begin_ns - (START_NS + at_s * SECOND)) < 0.1 * SECOND
    assert {names[rise.node] for rise in near[0].path} >= set(NODE_NAMES[1:3])
    assert len(found) <= 2, "a quiet system has next to no findings"


def test_where_nothing_happened_nothing_is_found(tmp_path, capsys) -> None:
    simulate(seed=5, users=20, seconds=8.0).save(tmp_path / "run.db")
    assert tapscope(["findings", str(tmp_path / "run.db")]) == ExitCode.DONE
    assert "No findings" in capsys.readouterr().out


def test_findings_are_told_in_words_and_in_json(tmp_path, capsys) -> None:
    simulate(seed=1, users=60, seconds=8.0, stall_at_s=4.0).save(tmp_path / "run.db")
    assert tapscope(["findings", str(tmp_path / "run.db"), "--json"]) == ExitCode.DONE
    (record,) = json.loads(capsys.readouterr().out)
    assert record["origin"] == NODE_NAMES[2]
    assert record["mechanisms"][0]["evidence"]
    assert record["path"][-1]["node"] == NODE_NAMES[1]
    assert record["ruled_out"]
    assert tapscope(["findings", str(tmp_path / "run.db")]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert f"began at {NODE_NAMES[2]}; cause: node stood still" in out


def series(usual: float, hit: float | None = None, noise: float = 0.05) -> np.ndarray:
    values = usual * (1 + noise * np.random.default_rng(1).standard_normal(WINDOWS))
    if hit is not None:
        values[HIT] = hit
    return values


def evidence(**fields) -> Evidence:
    base = {
        "own_load": series(1.0, 20.0),
        "throughput": series(20.0),
        "arrivals": series(20.0),
        "stalled": np.zeros(WINDOWS, dtype=bool),
        "open_below": {},
        "most_below": {},
    }
    return Evidence(**(base | fields))


def halted() -> np.ndarray:
    out = np.zeros(WINDOWS, dtype=bool)
    out[HIT] = True
    return out


CASES = {
    "garbage collection": {"stalled": halted(), "gc": series(0.01, 1.0)},
    "stop of the JVM": {"stalled": halted(), "gc": series(0.01), "safepoint": series(0.01, 1.0)},
    "node stood still": {"stalled": halted(), "gc": series(0.01)},
    "CPU saturation": {"machine_cpu": series(40, 99), "cpu": series(50, 150)},
    "CPU taken by a neighbour": {"machine_cpu": series(40, 99), "cpu": series(50, 20)},
    "disk writes": {"disk_busy": series(5, 99), "written": series(100, 90_000), "io_wait": series(1)},
    "lower clock speed": {"speed_mhz": series(2200, 1200)},
    "connection or thread limit": {
        "open_below": {"db": series(2.0, 8.0)},
        "most_below": {"db": 8},
    },
    "workload burst": {"arrivals": series(20, 90), "throughput": series(20, 40)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_mechanism_is_recognised_by_name(name: str) -> None:
    found, _ = recognise(evidence(**CASES[name]), HIT.start, HIT.stop)
    assert found[0].name == name
    # Elsewhere in the same run there is nothing, and it says what was looked for.
    quiet, ruled_out = recognise(evidence(**CASES[name]), 40, 46)
    assert not quiet
    assert any(text.startswith(name) for text in ruled_out)


def test_dirty_pages_that_are_written_back_are_noticed() -> None:
    dirty = np.concatenate([np.linspace(0, 400_000, 203), np.linspace(20_000, 60_000, WINDOWS - 203)])
    found, _ = recognise(evidence(dirty=dirty), HIT.start, HIT.stop)
    assert [one.name for one in found] == ["dirty-page recycling"]


def test_connections_that_were_turned_away_are_a_consequence_not_the_cause() -> None:
    refused = np.zeros(WINDOWS, dtype=np.int64)
    refused[203] = 9
    found, _ = recognise(evidence(refused=refused, stalled=halted()), HIT.start, HIT.stop)
    assert [one.name for one in found] == ["node stood still", "accept queue overflow"]


def test_what_no_log_tells_is_neither_found_nor_ruled_out() -> None:
    found, ruled_out = recognise(evidence(), HIT.start, HIT.stop)
    assert not found
    assert not any("disk" in text or "CPU" in text for text in ruled_out)
