"""Studies and sweeps: what was run is not run again, and the chapter says what was measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapscope.cli.main import run as tapscope
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate import run_figures
from tapscope.validate.run_figures import Figure
from tapscope.validate.testbed import campaign, chapter, markdown, study, sweep

LIGHT = Path(__file__).resolve().parent.parent / "pcaps" / "testbed_light"
SECOND = 1_000_000_000


def recorded(folder: Path, seed: int, took_ms: list[float]) -> None:
    """A finished run directory: one request a second, the run phase holds all of them."""
    (folder / "users").mkdir(parents=True)
    phases = {"run_begin": 0, "run_end": len(took_ms) * SECOND}
    (folder / "manifest.json").write_text(json.dumps({"phases_ns": phases, "options": {"seed": seed}}))
    rows = [f"{at * SECOND},{at * SECOND + int(ms * 1e6)}" for at, ms in enumerate(took_ms)]
    (folder / "users" / "requests.csv").write_text("\n".join(["start_ns,end_ns", *rows]) + "\n")


def planned(users: int) -> dict[str, Any]:
    """What a folder with a study of the mirror says that it is for."""
    run = ["--users", str(users)]
    return {"what": "mirror", "off": ["--no-mirror"], "on": ["--mirror"], "run": run, "seed": 11}


@pytest.fixture
def finished(tmp_path) -> Path:
    """A study of which every run is done; the mirror costs 1 ms, what a pair shares is more."""
    out = tmp_path / "study"
    campaign.keep_plan(out, planned(5), study.PLAN)
    for pair in range(1, 6):
        recorded(out / f"off-{pair:02}", 10 + pair, [10.0 + pair, 12.0 + pair])
        recorded(out / f"on-{pair:02}", 10 + pair, [11.0 + pair, 13.0 + pair + 0.01 * pair])
    return out


def test_a_study_whose_runs_are_done_only_compares_them(finished):
    said: list[str] = []
    found = study.study("mirror", 5, ["--users", "5"], finished, seed=11, say=said.append)
    assert not any("testbed run" in text for text in said)
    mean = next(e for f, e in found.effects.items() if f.what == "response time, mean")
    assert (found.paired, mean.runs_a) == (True, 5)
    assert mean.difference == pytest.approx(1.015)
    assert mean.high - mean.low < 0.05
    kept = json.loads((finished / "comparison.json").read_text())
    assert kept["figures"][1]["difference"] == pytest.approx(1.015)


def test_a_study_without_the_mirror_compares_what_the_load_generator_saw(tmp_path):
    """At saturation the tap takes a part of the processors; the thread recorder is studied without it."""
    out = tmp_path / "threads"
    run = ["--no-mirror", "--users", "5"]
    plan = {"what": "threads", "off": [], "on": ["--record-threads"], "run": run, "seed": 11}
    campaign.keep_plan(out, plan, study.PLAN)
    for pair in range(1, 4):
        recorded(out / f"off-{pair:02}", 10 + pair, [10.0 + pair])
        recorded(out / f"on-{pair:02}", 10 + pair, [10.5 + pair])
    said: list[str] = []
    found = study.study("threads", 3, run, out, seed=11, say=said.append)
    assert {run.observer for run in found.a + found.b} == {"load generator"}
    assert not any("trace" in text for text in said)


def test_another_study_is_not_mixed_into_a_folder(finished):
    with pytest.raises(TapscopeError, match="this folder holds another campaign") as told:
        study.study("monitors", 5, ["--users", "5"], finished, seed=11)
    assert told.value.exit_code == ExitCode.USAGE
    (finished / "study.json").unlink()
    with pytest.raises(TapscopeError, match="the directory is not empty"):
        study.study("mirror", 5, ["--users", "5"], finished, seed=11)


def test_either_side_of_a_pair_goes_first_in_half_of_them_and_the_same_way_each_time():
    drawn = [study.order(seed, pair) for seed in range(40) for pair in range(1, 11)]
    assert drawn == [study.order(seed, pair) for seed in range(40) for pair in range(1, 11)]
    counted = Counter(drawn)
    assert set(counted) == {("off", "on"), ("on", "off")}
    assert 150 < counted["off", "on"] < 250  # five standard deviations around 200


def test_a_run_that_was_broken_off_is_thrown_away_and_a_failure_names_its_log(tmp_path):
    folder = tmp_path / "off-01"
    folder.mkdir()
    (folder / "half.pcap").write_bytes(b"")
    with pytest.raises(TapscopeError, match="ended with status 2") as told:
        campaign.testbed_run(["--users", "0"], folder, tmp_path / "lock", lambda _: None)
    assert "off-01.run.log" in str(told.value)
    assert not (folder / "half.pcap").exists()


def test_a_mistake_in_the_options_of_the_runs_is_told_first(tmp_path, capsys):
    words = ["testbed", "study", "--what", "mirror", "-o", str(tmp_path / "x"), "--", "--userz", "3"]
    assert tapscope(words) == ExitCode.USAGE
    assert "--userz" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("text", ["", "20,", "0,5", "many"])
def test_workloads_are_numbers(text, tmp_path, capsys):
    assert tapscope(["testbed", "sweep", "--users", text, "-o", str(tmp_path / "x")]) == ExitCode.USAGE
    assert "is no list of numbers" in capsys.readouterr().err


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> list[sweep.Workload]:
    """A sweep of one workload, whose run is the recorded one of the repository."""
    out = tmp_path_factory.mktemp("sweep")
    campaign.keep_plan(out, {"seconds": 10.0, "run": [], "seed": 1}, sweep.PLAN)
    (out / "users-00040").symlink_to(LIGHT)
    said: list[str] = []
    found = sweep.sweep([40], 10, [], out, say=said.append)
    assert [text.split()[1] for text in said] == ["trace", "validate"]
    return found


def test_tap_and_load_generator_tell_the_same_of_a_recorded_run(swept):
    by_tap = swept[0].figures
    by_users = run_figures.read(LIGHT)
    assert (by_tap.observer, by_users.observer) == ("tap", "load generator")
    assert by_tap.seconds == by_users.seconds
    for what, unit, apart in (("throughput", "1/s", 0.1), ("response time, mean", "ms", 1.0)):
        name = Figure("entry", what, unit)
        assert by_tap.figures[name] == pytest.approx(by_users.figures[name], abs=apart)
    # The load generator's time has the wire and its own scheduling in it.
    name = Figure("entry", "response time, p50", "ms")
    assert 0 < by_users.figures[name] - by_tap.figures[name] < 1.0
    hosts = {
        figure: value for figure, value in by_tap.figures.items() if figure.what.startswith(("CPU", "disk"))
    }
    assert hosts == {figure: by_users.figures[figure] for figure in hosts}
    assert {("app", "CPU busy"), ("db", "disk written"), ("machine", "CPU IO wait")} <= {f[:2] for f in hosts}
    of_hosts = sum(v for f, v in hosts.items() if f.what == "CPU busy" and f.where != "machine")
    busy = hosts[Figure("machine", "CPU busy", "%")]  # of two processors
    outside = hosts[Figure("machine", "CPU outside the hosts", "% of one core")]
    assert outside == pytest.approx(2 * busy - of_hosts)
    disturbed = (
        [f"other processes took {outside:.0f} % of a core of 2 from the hosts"] if outside > 50 else []
    )
    assert by_tap.flags == by_users.flags == disturbed


def rows_of(page: str, title: str) -> list[dict[str, str]]:
    """The table below a title, as records."""
    lines = [
        line for line in page.partition(f"### {title}")[2].partition("###")[0].splitlines() if line[:1] == "|"
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def test_the_chapter_says_what_run_file_and_validation_say(swept, finished, tmp_path):
    study.study("mirror", 5, ["--users", "5"], finished, seed=11)
    page = chapter.write(swept, [finished], tmp_path / "results.md", ["tapscope testbed sweep --users 40"])
    text = page.read_text()
    with RunFile.open(swept[0].path) as run:
        told = run.meta("validation")
        requests = run.sql("SELECT count(*) FROM call WHERE server_node = 0")[0][0]
    load = rows_of(text, "Workloads")[0]
    assert 0 < float(load["requests/s"]) * swept[0].figures.seconds <= requests
    tiers = {row["tier"]: row for row in rows_of(text, "Queue length, tap against event monitors")}
    for tier in told["tiers"]:
        row = tiers[tier["tier"]]
        assert row["r, server's log"] == f"{tier['readings']['concurrent']['pearson_r']:.5f}"
        assert int(row["windows"]) == tier["windows_compared"]
    assert {row["verdict"] for row in rows_of(text, "Verdicts")} == {told["verdict"]}
    paths = rows_of(text, "Paths against the truth")[0]
    assert paths["completeness %"] == f"{100 * told['paths']['completeness']:.2f}"
    cost = {row["what"]: row for row in rows_of(text, "Cost of the tap itself: mirror port and capture")}
    assert float(cost["response time, mean"]["on - off"]) == pytest.approx(1.015, abs=0.01)


def test_a_sweep_with_thread_logs_has_a_table_of_its_own(swept, tmp_path):
    title = "Queue length, tap against the servers' system calls"
    assert title not in chapter.write(swept, [], tmp_path / "without.md", []).read_text()
    told = swept[0].validation
    page = chapter.write([replace(swept[0], threads=told)], [], tmp_path / "with.md", []).read_text()
    lines = [
        line
        for line in page.partition(title)[2].partition("###")[0].splitlines()
        if line.startswith("| web | 40 |")
    ]
    by_sends = told["tiers"][0]["readings"]["concurrent_by_senders"]
    assert f"| {by_sends['pearson_r']:.5f} |" in lines[0]
    assert len(lines) == 2, "one of queue lengths, one of single requests"


def test_studies_of_one_thing_are_one_table_by_workload(swept, finished, tmp_path):
    study.study("mirror", 5, ["--users", "5"], finished, seed=11)
    heavier = tmp_path / "heavier"
    campaign.keep_plan(heavier, planned(50), study.PLAN)
    for pair in range(1, 4):
        recorded(heavier / f"off-{pair:02}", 10 + pair, [20.0 + pair, 22.0 + pair])
        recorded(heavier / f"on-{pair:02}", 10 + pair, [24.0 + pair, 26.0 + pair + 0.01 * pair])
    study.study("mirror", 3, ["--users", "50"], heavier, seed=11)
    text = chapter.write(swept, [heavier, finished], tmp_path / "results.md", []).read_text()
    title = "Cost of the tap itself: mirror port and capture"
    assert text.count(title) == 1
    assert "5 users: 5 pairs; 50 users: 3 pairs; times by the load generator." in text
    mean = [row for row in rows_of(text, title) if row["what"] == "response time, mean"]
    assert [(row["users"], row["on - off"]) for row in mean] == [("5", "1.01"), ("50", "4.01")]
    drawn = (tmp_path / "results" / "cost-mirror.svg").read_text()
    assert all(f"{users} users" in drawn for users in (5, 50))
    with pytest.raises(TapscopeError, match="are both about mirror with 5 users"):
        chapter.write(swept, [finished, finished], tmp_path / "page.md", [])


def test_every_figure_that_the_page_names_is_drawn(swept, finished, tmp_path):
    study.study("mirror", 5, ["--users", "5"], finished, seed=11)
    text = chapter.write(swept, [finished], tmp_path / "results.md", []).read_text()
    named = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert sorted(named) == sorted(f"results/{p.name}" for p in (tmp_path / "results").iterdir())
    assert len(named) == 4
    queues = (tmp_path / "results" / "queues-40.svg").read_text()
    assert all(word in queues for word in ("web (HTTP", "app (AJP", "db (MYSQL", "server's log"))


def test_what_is_written_by_hand_around_the_measured_part_stays(swept, tmp_path):
    page = tmp_path / "validation.md"
    page.write_text(f"# By hand\n\n{chapter.BEGIN}\nold\n{chapter.END}\n\nWhat did not agree, and why.\n")
    first = chapter.write(swept, [], page, []).read_text()
    assert first.startswith("# By hand\n")
    assert first.endswith("What did not agree, and why.\n")
    assert "old" not in first
    assert chapter.write(swept, [], page, []).read_text() == first
    other = tmp_path / "other.md"
    other.write_text("no marks\n")
    with pytest.raises(TapscopeError, match="this page has no line"):
        chapter.write(swept, [], other, [])


def test_cells_show_three_figures_and_nothing_for_what_is_not_known():
    values = [0.123456, 12345.6, 7, None, float("nan"), "text"]
    assert [markdown.cell(value) for value in values] == ["0.123", "12346", "7", "", "", "text"]


def test_a_folder_without_a_result_is_no_study(swept, tmp_path):
    with pytest.raises(TapscopeError, match="this is no finished study"):
        chapter.write(swept, [tmp_path], tmp_path / "page.md", [])
