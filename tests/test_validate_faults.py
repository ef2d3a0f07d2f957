"""Findings against faults that were caused on purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulator import NODE_NAMES, START_NS, simulate

from tapscope.analyze.findings import findings
from tapscope.cli.main import run
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate import fault_tables, faults, outside

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("faults") / "run.db"
    simulate(seed=2, users=60, seconds=9.0, stall_at_s=5.0, stall_ms=300).save(file)
    return file


def record(folder: Path, rows: list[tuple[float, float, str, str]]) -> Path:
    file = folder / "faults.csv"
    lines = [
        f"{START_NS + int(b * SECOND)},{START_NS + int(e * SECOND)},{host},{why}\n"
        for b, e, host, why in rows
    ]
    file.write_text("begin_ns,end_ns,host,cause\n" + "".join(lines))
    return file


def test_a_stop_that_was_caused_is_found_at_its_node(path, tmp_path, capsys) -> None:
    file = record(tmp_path, [(5.0, 5.3, NODE_NAMES[2], "stop"), (2.0, 2.01, NODE_NAMES[2], "stop")])
    assert run(["validate", str(path), "--faults", str(file), "--json"]) == ExitCode.DONE
    score = json.loads(capsys.readouterr().out)
    assert (score["all"]["caused"], score["short_faults"]) == (1, 1)
    found = score["by_kind"]["stop"]
    assert (found["recall"], found["node_right"], found["cause_right"]) == (1.0, 1, 1)
    assert found["median_onset_error_ms"] < 100
    assert found["cause_onsets"] == found["cause_onset_within_window"] == 1
    assert found["median_cause_error_ms"] < 30
    assert score["confusion"] == {"stop": {"node stood still": 1}}
    assert (score["false_findings"], score["precision"]) == (0, 1.0)
    assert run(["validate", str(path), "--faults", str(file)]) == ExitCode.DONE
    assert "right node" in capsys.readouterr().out


def test_wrong_claims_are_counted_against_the_findings(path, tmp_path) -> None:
    elsewhere = faults.validate(
        path, record(tmp_path, [(5.0, 5.3, NODE_NAMES[3], "Pause Full (System.gc())")])
    )
    assert [(one.node_right, one.cause_right) for one in elsewhere.faults] == [(False, False)]
    never = faults.validate(path, record(tmp_path, [(2.0, 2.3, NODE_NAMES[2], "stop")]))
    assert never.faults[0].found is None
    assert (never.false, never.findings) == (["node stood still"], 1)
    at_two = faults.validate(path, record(tmp_path, [(2.0, 2.3, "web", "stop"), (3.0, 3.3, "db", "stop")]))
    assert set(fault_tables.as_json([at_two])["by_kind"]) == {"stop@web", "stop@db"}
    told = fault_tables.as_json([elsewhere, never])
    assert told["confusion"] == {"gc": {"node stood still": 1}, "stop": {"(missed)": 1}}
    assert (told["all"]["caused"], told["all"]["found"], told["precision"]) == (2, 1, 0.5)
    assert {name: one["caused"] for name, one in told["by_length"].items() if one["caused"]} == {
        "200 to 400 ms": 2
    }


def test_the_record_of_a_crowd_may_be_early_by_its_programs_start(path, tmp_path) -> None:
    def holds(kind: str, before_s: float) -> bool | None:
        caused = record(tmp_path, [(at - before_s, 5.3, NODE_NAMES[2], kind)])
        (judged,) = faults.validate(path, caused).faults
        return judged.cause_interval_holds

    with RunFile.open(path) as opened:
        began = findings(opened)[0].began
    assert began is not None
    at = (began.low_ns - START_NS) / SECOND
    assert [holds(kind, -0.0001) for kind in ("stop", "pool")] == [True, True]
    assert [holds(kind, 0.003) for kind in ("stop", "pool")] == [False, True]
    assert not holds("pool", 0.004)


def test_what_a_fault_leaves_behind_is_neither_found_nor_false(path, tmp_path) -> None:
    before = faults.validate(path, record(tmp_path, [(4.0, 4.2, NODE_NAMES[2], "disk")]))
    assert before.faults[0].found is None
    assert (before.aftermath, before.false) == (1, [])


def test_quiet_time_is_what_faults_and_their_aftermath_leave(path, tmp_path) -> None:
    whole = faults.validate(path, record(tmp_path, [])).quiet_ns
    rows = [(2.0, 2.3, "db", "stop"), (3.0, 3.2, "db", "stop"), (6.0, 6.5, "db", "stop")]
    left = faults.validate(path, record(tmp_path, rows)).quiet_ns
    # Two of them share a second of their aftermaths.
    assert whole - left == int((0.3 + 0.7 + 0.2 + 1.5 + 0.5 + 1.5) * SECOND)


def accounting(file: Path, cores: list[float]) -> None:
    """A control group's record: so many processors used in each quarter of a second, sampled every 50 ms."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines, used = ["time_ns_begin,time_ns_end,usage_ns"], 0.0
    for sample in range(5 * len(cores) + 1):
        at = START_NS + sample * SECOND // 20
        lines.append(f"{at},{at},{round(used)}")
        used += cores[min(sample // 5, len(cores) - 1)] * SECOND / 20
    file.write_text("\n".join(lines) + "\n")


def test_what_others_use_of_the_machine_is_what_no_host_used(tmp_path) -> None:
    accounting(tmp_path / "truth" / "machine.csv", [0.5, 2.0, 2.0, 0.5])
    accounting(tmp_path / "hosts" / "web" / "cgroup_cpu.csv", [0.2, 0.5, 0.2, 0.2])
    accounting(tmp_path / "hosts" / "db" / "cgroup_cpu.csv", [0.2, 1.3, 0.2, 0.2])
    found = outside.read(tmp_path, START_NS, START_NS + SECOND, cpus=2)
    assert found is not None
    assert found.cores == pytest.approx([0.1, 0.2, 1.6, 0.1], abs=1e-6)
    assert found.disturbed.tolist() == [False, False, True, False]
    moments = [START_NS + int(at * SECOND) for at in (0.1, 0.3, 0.6, 0.8)]
    assert [found.during(at, at + 1) for at in moments] == [False, False, True, True]
    assert outside.quiet_ns(found, [(START_NS, START_NS + 1)]) == 2 * outside.BIN_NS


def test_what_ran_besides_is_unknown_without_a_record(path, tmp_path) -> None:
    score = faults.validate(path, record(tmp_path, []))
    assert (score.calm_ns, score.disturbed) == (None, None)
    assert fault_tables.as_json([score])["false_findings_while_calm"] is None


@pytest.mark.parametrize(
    ("good", "of", "low", "high"), [(10, 10, 0.722, 1), (5, 10, 0.237, 0.763), (0, 0, 0, 1)]
)
def test_shares_have_the_interval_of_wilson(good, of, low, high) -> None:
    """All of n: from n / (n + z^2) to 1; half of n: 1/2 -+ z / (2 sqrt(n + z^2)); z = 1.96."""
    assert fault_tables.wilson(good, of) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "begin_ns,end_ns,host,cause\nx,2,app,stop\n", ""])
def test_what_is_no_record_of_faults_is_refused(path, tmp_path, text) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(TapscopeError, match="record of faults"):
        faults.validate(path, file)
    with pytest.raises(TapscopeError, match="record of faults"):
        faults.validate(path, tmp_path / "missing.csv")


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.025, 5.572), (10, 4.795, 18.390)])
def test_a_number_of_events_is_told_with_its_interval(count: int, low: float, high: float) -> None:
    assert fault_tables.poisson(count) == pytest.approx((low, high), abs=1e-3)
