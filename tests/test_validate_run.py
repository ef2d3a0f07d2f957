"""One validation from run file and logs to verdict, stored tables, JSON and plot."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from event_logs import HOSTS, true_links, write_logs, write_run, write_truth
from simulator import DB, HOP_NS, WEB, Simulation, simulate

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate import plot, reading
from tapscope.validate.validation import Validation, validate
from tapscope.validate.verdict import Thresholds

OFFSET_NS = 3_400_000


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=51, users=90, seconds=6.0)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_run(world, folder / "run.db")
    write_logs(world, folder / "events", offset_ns=OFFSET_NS, db_zone_hours=2)
    write_truth(world, folder / "truth" / "calls.csv.gz")
    (folder / "manifest.json").write_text(json.dumps({"hosts": HOSTS}))
    return folder


@pytest.fixture(scope="module")
def result(folder) -> Validation:
    return validate(folder / "run.db", folder / "events")


def test_a_true_run_passes_in_every_tier(result):
    assert (result.verdict, result.exit_code, result.failures) == ("passed", ExitCode.DONE, [])
    assert [tier.tier for tier in result.tiers] == ["web", "app", "db"]
    for tier in result.tiers:
        assert tier.reading("concurrent").pearson_r > 0.999
        assert tier.lag_ns == pytest.approx(OFFSET_NS, abs=200_000)
        assert tier.calls["tap"] == pytest.approx(tier.calls["log"], abs=1)  # one arrived at the edge
    assert result.paths.completeness == result.paths.accuracy == 1.0


def test_a_log_in_whole_seconds_gives_no_verdict_on_its_tier(world, tmp_path):
    run = write_run(world, tmp_path / "run.db")
    folder = write_logs(world, tmp_path / "events")
    (folder / "mariadb" / "slow_log.tsv").unlink()
    calls = world.tables["calls"]
    at = calls["arrive_ns"][(calls["server_node"] == DB) & (calls["depart_ns"] >= 0)]
    (folder / "mariadb" / "slow.log").write_text(
        "".join(
            "# User@Host: u[u] @  [10.77.0.12]\n# Query_time: 0.000700  Lock_time: 0.0\n"
            f"SET timestamp={second};\nSELECT 1;\n"
            for second in (at // 10**9).tolist()
        )
    )
    (tmp_path / "manifest.json").write_text(json.dumps({"hosts": HOSTS}))
    found = validate(run, folder)
    db = next(tier for tier in found.tiers if tier.tier == "db")
    assert any("known to 500 ms, windows are 50 ms" in why for why in db.undecided)
    assert (found.verdict, found.failures) == ("undecided", [])


def test_the_bias_is_the_way_between_tap_and_server(result, world):
    # The tap sees every call one hop earlier and one hop longer on each side than its server (Little's law).
    tier = result.tiers[2]
    seconds = (world.end_ns - world.begin_ns) / 1e9
    expected = tier.calls["tap"] / seconds * 2 * HOP_NS / 1e9
    assert tier.reading("concurrent").bias == pytest.approx(expected, rel=0.1)


def test_each_request_s_stamps_are_compared_with_the_wire(result, world):
    by_tier = {each.tier: each for each in result.requests}
    db = by_tier["db"]
    calls = world.tables["calls"]
    answered = (calls["server_node"] == DB) & (calls["depart_ns"] >= 0)
    # Calls of the one transaction whose last statement was still running may go without.
    assert db.matched == pytest.approx(int(answered.sum()), abs=5)
    assert db.arrive.median_ns == pytest.approx(HOP_NS, abs=1_000)
    assert db.depart.p99_ns == pytest.approx(-HOP_NS, abs=1_000)
    assert (
        by_tier["app"].arrive.p99_ns - by_tier["app"].arrive.p1_ns < 1_000_000
    )  # its log knows milliseconds


def test_what_was_found_is_in_the_run_file(result, folder):
    with RunFile.open(folder / "run.db") as run:
        loads = run.read_columns("event_load")
        calls = run.read_columns("event_call")
        figures = run.read_columns("agreement")
        assert run.meta("validation")["verdict"] == "passed"
        kinds = [source["format"] for source in run.sources() if source["kind"] == "events"]
    assert kinds == ["apache access log", "tomcat access log", "mariadb slow log table"]
    tier = result.tiers[1]
    chosen = [row for row, name in enumerate(loads["tier"]) if name == "app"]
    assert [loads["load"][row] for row in chosen] == tier.windows["log_load"].tolist()
    assert [loads["tap_load"][row] for row in chosen] == tier.windows["tap_load"].tolist()
    assert {loads["tap_node"][row] for row in chosen} == {2}
    assert len(calls["tier"]) == sum(source["calls"] for source in result.sources)
    r = [
        value
        for name, subject, measure, value in zip(
            *(figures[c] for c in ("tier", "subject", "measure", "value")), strict=True
        )
        if (name, subject, measure) == ("app", "concurrent", "pearson_r")
    ]
    assert r == [tier.reading("concurrent").pearson_r]


def test_a_run_directory_stands_for_its_events_folder(folder, result):
    again = validate(folder / "run.db", folder)
    assert again.as_json() == result.as_json()


def test_large_logs_are_read_by_another_process_with_the_same_result(folder, result, monkeypatch, tmp_path):
    monkeypatch.setattr(reading, "LARGE_BYTES", 0)
    assert validate(folder / "run.db", folder / "events").as_json() == result.as_json()
    (tmp_path / "events").mkdir()
    with pytest.raises(TapscopeError, match="no event-monitor log found") as failure:
        validate(folder / "run.db", tmp_path / "events")
    assert failure.value.exit_code == ExitCode.ERROR
    assert "at least one of" in failure.value.remedy


def test_no_process_goes_on_reading_logs_when_something_else_failed(folder, monkeypatch, tmp_path):
    started = []

    class Noted(subprocess.Popen):
        def __init__(self, *args, **options):
            started.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(reading, "LARGE_BYTES", 0)
    monkeypatch.setattr(subprocess, "Popen", Noted)
    (tmp_path / "calls.csv").write_text("no,truth\n1,2\n")
    with pytest.raises(TapscopeError, match="column"):
        validate(folder / "run.db", folder / "events", tmp_path / "calls.csv")
    (process,) = started
    assert process.returncode is not None


def test_validating_again_replaces_what_was_stored(folder, result):
    with RunFile.open(folder / "run.db") as run:
        before = [run.count(name) for name in ("event_call", "event_load", "agreement", "source")]
    validate(folder / "run.db", folder / "events")
    with RunFile.open(folder / "run.db") as run:
        assert [run.count(name) for name in ("event_call", "event_load", "agreement", "source")] == before


def test_the_json_is_complete_and_has_no_nan(result):
    document = result.as_json()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert list(document) == [
        "format", "run", "events", "truth", "window_ns", "thresholds", "verdict", "failures", "undecided",
        "tiers", "requests", "clocks", "paths", "sources", "counters",
    ]  # fmt: skip
    assert set(document["tiers"][0]["readings"]) == {"concurrent", "concurrent_as_stamped", "started"}
    assert document["paths"]["edges"][0].keys() >= {"pair", "edges", "right", "wrong", "unlinked", "accuracy"}
    for title, head, rows in result.tables():
        assert rows, title
        assert all(len(row) == len(head) for row in rows), title


def test_the_plot_is_one_self_contained_page_with_both_curves_of_every_tier(result, tmp_path):
    figure = plot.draw(result)
    names = [trace.name for trace in figure.data if trace.name]
    assert names.count("tap") == names.count("event monitor") == 3
    app = [trace for trace in figure.data if trace.name == "tap"][1]
    assert np.array_equal(app.y, result.tiers[1].windows["tap_load"])
    page = plot.write(result, tmp_path / "plot.html").read_text()
    assert "<script" in page
    assert 'src="http' not in page
    with pytest.raises(TapscopeError, match="cannot be written"):
        plot.write(result, tmp_path / "none" / "plot.html")


def test_a_run_that_missed_calls_fails_with_exit_code_4(world, tmp_path):
    lost = simulate(seed=51, users=90, seconds=6.0)
    mine = np.flatnonzero(lost.tables["calls"]["server_node"] == DB)
    keep = np.setdiff1d(np.arange(len(lost.tables["calls"]["conn"])), mine[::3])
    lost.tables["calls"] = {name: values[keep] for name, values in lost.tables["calls"].items()}
    links = {name: values[:0] for name, values in true_links(lost).items()}
    write_run(lost, tmp_path / "run.db", links)
    write_logs(world, tmp_path / "events")
    write_truth(world, tmp_path / "truth" / "calls.csv.gz")
    found = validate(tmp_path / "run.db", tmp_path / "events")
    assert (found.verdict, found.exit_code) == ("failed", ExitCode.VALIDATION_FAILED)
    assert {why.partition(":")[0] for why in found.failures} == {"db"}
    assert found.paths.completeness == 0
    assert found.paths.counters["truth_without_call"] == len(mine[::3])


def test_logs_of_another_run_do_not_pass(world, folder, tmp_path):
    write_run(world, tmp_path / "run.db")
    other = simulate(seed=99, users=90, seconds=6.0)
    found = validate(tmp_path / "run.db", write_logs(other, tmp_path / "events"))
    assert found.verdict == "failed"
    assert found.paths is None


def test_logs_of_another_day_are_undecided(world, tmp_path):
    write_run(world, tmp_path / "run.db")
    write_logs(world, tmp_path / "events", offset_ns=86_400 * 10**9)
    found = validate(tmp_path / "run.db", tmp_path / "events")
    assert (found.verdict, found.exit_code) == ("undecided", ExitCode.LOW_QUALITY)
    assert found.undecided


def test_a_broken_manifest_and_a_missing_run_are_errors(folder, tmp_path, world):
    write_logs(world, tmp_path / "events")
    with pytest.raises(TapscopeError, match="no such file"):
        validate(tmp_path / "run.db", tmp_path / "events")
    write_run(world, tmp_path / "run.db")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(TapscopeError, match="the manifest is not JSON"):
        validate(tmp_path / "run.db", tmp_path / "events")


def test_thresholds_and_evidence_decide(folder, result):
    strict = validate(folder / "run.db", folder, thresholds=Thresholds(pearson_r=0.999999))
    assert (strict.verdict, strict.exit_code) == ("failed", ExitCode.VALIDATION_FAILED)
    assert all("Pearson r is" in why for why in strict.failures)
    assert strict.as_json()["thresholds"]["pearson_r"] == 0.999999
    paths = validate(folder / "run.db", folder, thresholds=Thresholds(paths_percent=100.0))
    assert paths.verdict == "passed", "every link of this run is right"
    none = validate(folder / "run.db", folder, thresholds=Thresholds(by=("caller",)))
    assert none.verdict == "undecided"
    assert none.undecided[0] == "web: there is nothing to judge by of caller"
    validate(folder / "run.db", folder)


def test_paths_below_the_least_share_fail(world, folder, tmp_path):
    links = true_links(world)
    linked = np.flatnonzero(links["parent"] >= 0)
    links["parent"][linked[:40]] = links["parent"][linked[40:80]]
    write_run(world, tmp_path / "run.db", links)
    found = validate(tmp_path / "run.db", folder, thresholds=Thresholds(paths_percent=99.9))
    assert found.exit_code == ExitCode.VALIDATION_FAILED
    assert [why[:21] for why in found.failures] == ["paths: completeness o", "paths: accuracy of pa"]


def test_the_load_generator_s_record_is_the_caller_of_the_web_tier(world, folder, tmp_path):
    calls = world.tables["calls"]
    web = np.flatnonzero((calls["server_node"] == WEB) & (calls["depart_ns"] >= 0))
    start, end = calls["arrive_ns"][web] - HOP_NS, calls["depart_ns"][web] + HOP_NS
    rows = "".join(f"x{i},{a},{b}\n" for i, (a, b) in enumerate(zip(start, end, strict=True)))
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "requests.csv.gz").write_bytes(
        gzip.compress(f"request_id,start_ns,end_ns\n{rows}".encode())
    )
    write_run(world, tmp_path / "run.db")
    write_logs(world, tmp_path / "events")
    found = validate(tmp_path / "run.db", tmp_path)
    tier = found.tiers[0]
    assert tier.reading("concurrent_by_caller").pearson_r > 0.9999
    assert tier.between.inside == 1.0
    assert tier.between.server_mean < tier.between.tap_mean < tier.between.caller_mean
    assert [found.tiers[1].between, found.tiers[2].between] == [None, None]
