"""Findings against stops that were caused on purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulator import NODE_NAMES, START_NS, simulate

from tapscope.cli.main import run
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate import faults

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("faults") / "run.db"
    simulate(seed=2, users=60, seconds=9.0, stall_at_s=5.0, stall_ms=300).save(file)
    return file


def record(folder: Path, rows: list[tuple[float, float, str, str]]) -> Path:
    file = folder / "pauses.csv"
    lines = [
        f"{START_NS + int(b * SECOND)},{START_NS + int(e * SECOND)},{host},{why}\n"
        for b, e, host, why in rows
    ]
    file.write_text("begin_ns,end_ns,host,cause\n" + "".join(lines))
    return file


def test_a_stop_that_was_caused_is_found_at_its_node(path, tmp_path, capsys) -> None:
    file = record(tmp_path, [(5.0, 5.3, NODE_NAMES[2], "stop"), (2.0, 2.01, NODE_NAMES[2], "stop")])
    assert run(["validate", str(path), "--stops", str(file), "--json"]) == ExitCode.DONE
    score = json.loads(capsys.readouterr().out)
    assert (score["stops"], score["short_stops"]) == (1, 1)
    assert (score["recall"], score["node_right"], score["cause_right"]) == (1.0, 1.0, 1.0)
    assert score["median_onset_error_ms"] < 100
    assert run(["validate", str(path), "--stops", str(file)]) == ExitCode.DONE
    assert "right node" in capsys.readouterr().out


def test_wrong_claims_are_counted_against_the_findings(path, tmp_path) -> None:
    elsewhere = faults.validate(
        path, record(tmp_path, [(5.0, 5.3, NODE_NAMES[3], "Pause Full (System.gc())")])
    )
    assert [(one.node_right, one.cause_right) for one in elsewhere.faults] == [(False, False)]
    never = faults.validate(path, record(tmp_path, [(2.0, 2.3, NODE_NAMES[2], "stop")]))
    assert never.faults[0].found is None
    assert never.false_findings == never.findings == 1


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "begin_ns,end_ns,host,cause\nx,2,app,stop\n", ""])
def test_what_is_no_record_of_stops_is_refused(path, tmp_path, text) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(TapscopeError, match="record of stops"):
        faults.validate(path, file)
    with pytest.raises(TapscopeError, match="record of stops"):
        faults.validate(path, tmp_path / "missing.csv")
