"""`tapscope congestion` on a run whose database is the narrow place."""

from __future__ import annotations

import json

import pytest
from simulator import NODE_NAMES, simulate

from tapscope.cli.main import run
from tapscope.reconstruct.spans import COLUMNS
from tapscope.store.errors import ExitCode


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("congestion") / "run.db"
    simulate(seed=3, users=80, seconds=6.0).save(file)
    return str(file)


def test_every_node_is_described(capsys, path) -> None:
    assert run(["congestion", path, "--json"]) == ExitCode.DONE
    records = json.loads(capsys.readouterr().out)
    assert [record["node"] for record in records] == NODE_NAMES[1:]
    for record in records:
        shares = [record[f"{kind}_pct"] for kind in ("idle", "normal", "congested", "stalled")]
        assert sum(shares) == pytest.approx(100)
        assert 10 <= record["window_ms"] <= 100
        assert record["window_reason"]
        assert record["reason"]
        assert record["reached"] == (record["n_star"] is not None)
        if record["reached"]:
            assert record["n_star_low"] <= record["n_star"] <= record["n_star_high"]
    assert run(["congestion", path]) == ExitCode.DONE
    out = capsys.readouterr()
    assert "N*" in out.out
    assert NODE_NAMES[1] in out.err  # the reasons


def test_what_a_short_run_does_not_tell_is_shown_as_a_dash(capsys, tmp_path) -> None:
    table, out = tmp_path / "one.csv", str(tmp_path / "run.db")
    row = "m,client,web,GET /,,1655759356601971,1655759356602971,"
    table.write_text(",".join(COLUMNS) + f"\n{row}\n")
    assert run(["trace", "--spans", str(table), "-o", out]) == ExitCode.DONE
    capsys.readouterr()
    assert run(["congestion", out]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert "web" in shown
    assert "nan" not in shown


def test_windows_of_one_node_have_states(capsys, path) -> None:
    words = ["congestion", path, "--node", NODE_NAMES[2], "--window", "50ms", "--series", "--json"]
    assert run(words) == ExitCode.DONE
    windows = json.loads(capsys.readouterr().out)
    assert {window["state"] for window in windows} <= {"idle", "normal", "congested", "stalled"}
    assert windows[1]["window_start_ns"] - windows[0]["window_start_ns"] == 50_000_000
    assert sum(window["completions"] for window in windows) > 100
    assert run(["congestion", path, "--series"]) == ExitCode.USAGE
    assert run(["congestion", path, "--node", "mars"]) == ExitCode.USAGE
