"""Logs as they come: other clocks, clocks that were set, lost, cut and repeated lines, missing IDs. Each is
named and counted, and none makes a tap that is right wrong. The run is a real one (pcaps/testbed_light)."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from changed_logs import copy_of, edit, lines_of, set_clock
from damaged_captures import records, write

from tapscope.cli import pipeline
from tapscope.store.errors import ExitCode
from tapscope.validate import blocks
from tapscope.validate.validation import Validation, validate

LIGHT = Path(__file__).resolve().parent.parent / "pcaps" / "testbed_light"
MS, SECOND = 1_000_000, 1_000_000_000


@pytest.fixture(scope="module")
def traced(traced_light, tmp_path_factory) -> Path:
    return Path(shutil.copyfile(traced_light, tmp_path_factory.mktemp("bad") / "run.db"))


@pytest.fixture(scope="module")
def whole(traced) -> Validation:
    return validate(traced, LIGHT)


@pytest.fixture
def logs(tmp_path) -> Path:
    return copy_of(LIGHT, tmp_path / "run") / "events"


def _counters(found: Validation) -> dict[str, int]:
    return {name: value for name, value, _ in found.counters}


def _middle(found: Validation) -> int:
    windows = found.tiers[0].windows["window_ns"]
    return int(windows[0] + windows[-1]) // 2


def test_clocks_that_are_wrong_and_drift_are_found_and_taken_off(traced, whole, logs):
    begin = int(whole.tiers[0].windows["window_ns"][0])
    clocks = {"apache": (1.7e9, 40_000), "tomcat": (-0.35e9, -60_000), "mariadb": (12e9, 25_000)}
    for server, (offset, ppb) in clocks.items():
        set_clock(logs / server, lambda at, o=offset, d=ppb: round(at + o + d * 1e-9 * (at - begin)))
    found = validate(traced, logs)
    assert (found.verdict, found.exit_code) == ("passed", ExitCode.DONE)
    by_host = {clock["host"]: clock for clock in found.clocks}
    for server, (offset, ppb) in clocks.items():
        (line,) = by_host[server]["lines"]
        true = offset + ppb * 1e-9 * (line["from_ns"] - begin)
        assert line["offset_ns"] == pytest.approx(true, abs=by_host[server]["error_ns"] + 50_000), server
        assert line["drift_ppb"] == pytest.approx(ppb, abs=5_000), server
    for tier, before in zip(found.tiers, whole.tiers, strict=True):
        now, then = (each.reading("concurrent_at_wire") for each in (tier, before))
        if now is not None and then is not None:
            assert now.pearson_r == pytest.approx(then.pearson_r, abs=0.002), tier.tier
        stamped = tier.reading("concurrent_as_stamped")
        assert stamped.windows == 0 or stamped.pearson_r < 0.9, tier.tier


@pytest.mark.parametrize("size_ns", [-120 * MS, 2 * SECOND])
def test_a_clock_that_is_set_during_the_run_is_two_clocks(traced, whole, logs, size_ns):
    middle = _middle(whole)
    set_clock(logs / "tomcat", lambda at: at + (size_ns if at >= middle else 0))
    found = validate(traced, logs)
    assert found.verdict == "passed"
    clock = next(clock for clock in found.clocks if clock["of"] == "app")
    (step,) = clock["steps"]
    assert step["by_ns"] == pytest.approx(size_ns, abs=MS)
    assert step["begin_ns"] < middle < step["end_ns"]
    assert _counters(found)["clock.app.steps"] == 1
    app = found.tiers[1]
    assert app.windows_left_out["clock_step"] > 5
    assert app.reading("concurrent").pearson_r == pytest.approx(
        whole.tiers[1].reading("concurrent").pearson_r, abs=0.01
    )


def test_without_ids_clocks_come_from_the_likeness_of_the_queues(traced, whole, logs):
    begin = int(whole.tiers[0].windows["window_ns"][0])
    (logs.parent / "truth" / "calls.csv.gz").unlink()
    set_clock(logs / "apache", lambda at: round(at + 80 * MS + 100e-6 * (at - begin)))
    found = validate(traced, logs)
    web = next(clock for clock in found.clocks if clock["of"] == "web")
    assert web["method"] == "cross-correlation"
    (line,) = web["lines"]
    assert line["drift_ppb"] == pytest.approx(100_000, abs=40_000)
    assert line["offset_ns"] == pytest.approx(80 * MS, abs=2 * MS)
    assert found.tiers[0].agrees_with == "server"


def test_a_wrong_time_zone_is_named(traced, logs):
    set_clock(logs / "mariadb", lambda at: at + 2 * 3600 * SECOND)
    found = validate(traced, logs)
    assert found.verdict == "passed"
    zones = {source["host"]: source["zone"] for source in found.sources}
    assert zones["mariadb"] == "UTC+2 h (found by IDs)"
    told = validate(traced, logs, zone="Asia/Kolkata")  # wrong, and wrong for Apache's error log, too
    assert told.verdict == "passed"
    assert _counters(told)["clock.db.zone_wrong"] == 1


def test_a_log_that_is_cut_off_is_compared_up_to_there(traced, whole, logs):
    path = logs / "mariadb" / "slow_log.tsv"
    text = path.read_bytes()
    path.write_bytes(text[: len(text) * 2 // 3])
    found = validate(traced, logs)
    assert found.failures == []
    assert _counters(found)["events.truncated_last_line"] == 1
    db, before = found.tiers[2], whole.tiers[2]
    assert db.windows_left_out["edge"] > 100
    assert db.windows_compared < 0.75 * before.windows_compared
    assert db.agrees_with


def test_a_cut_table_that_is_not_in_order_of_time_decides_nothing(traced, logs):
    """An export thread by thread: what is behind the cut may be of any time."""

    def by_thread(lines: list[str]) -> list[str]:
        names = lines[0].rstrip("\n").split("\t")
        thread = names.index("thread_id")
        return [lines[0], *sorted(lines[1:], key=lambda line: line.split("\t")[thread])]

    path = logs / "mariadb" / "slow_log.tsv"
    edit(path, by_thread)
    assert validate(traced, logs).failures == [], "the order alone changes nothing"
    text = path.read_bytes()
    path.write_bytes(text[: len(text) * 2 // 3])
    found = validate(traced, logs)
    assert (found.verdict, found.failures) == ("undecided", [])
    (why,) = found.undecided
    assert why.startswith("db: only 0 windows could be compared, 20 are needed; left out: ")
    assert "log loss" in why
    assert found.tiers[2].windows_left_out["log_loss"] > 300


def test_a_log_of_another_time_is_named(traced, logs):
    """An epoch has no zone: the host's clock was an hour off, and no truth has the requests' IDs."""
    shutil.rmtree(logs.parent / "truth")
    set_clock(logs / "apache", lambda at: at + 3600 * SECOND)
    found = validate(traced, logs)
    assert (found.verdict, found.failures) == ("undecided", [])
    assert any("web: the log has no call during the capture" in why for why in found.undecided)


def test_an_empty_log_is_named_and_its_tier_is_not_passed_over(traced, whole, logs):
    (logs / "apache" / "error.log").write_text("")
    assert validate(traced, logs).verdict == whole.verdict, "no errors are no loss"
    (logs / "apache" / "access.log").write_text("")
    found = validate(traced, logs)
    assert found.verdict == "undecided"
    assert found.undecided == [f"web or app: {logs / 'apache' / 'access.log'} is empty"]


def test_what_was_odd_is_said_where_people_read(traced, logs):
    edit(logs / "apache" / "access.log", lambda lines: [*lines, *lines[10:30]])
    (title, _, rows) = validate(traced, logs).tables()[-1]
    assert title == "What was odd, and was counted"
    assert ["events.duplicate_line", 20, ""] in rows


def test_a_rotated_log_is_one_log_and_a_line_in_both_parts_is_one_line(traced, whole, logs):
    path = logs / "apache" / "access.log"
    lines = lines_of(path)
    half = len(lines) // 2
    path.write_text("".join(lines[half:]))
    path.with_name("access.log.1").write_text("".join(lines[: half + 1]))
    found = validate(traced, logs)
    assert _counters(found)["events.duplicate_line"] == 1
    assert found.verdict == whole.verdict
    now, then = (each.tiers[0].reading("concurrent") for each in (found, whole))
    assert vars(now) == pytest.approx(vars(then)) or now == then


def test_a_rotated_part_that_is_gone_is_a_silence_and_no_disagreement(traced, logs):
    def gap(lines: list[str]) -> list[str]:
        return lines[: len(lines) * 2 // 5] + lines[len(lines) * 3 // 5 :]

    edit(logs / "mariadb" / "slow_log.tsv", gap)
    found = validate(traced, logs)
    assert found.failures == []
    assert found.tiers[2].windows_left_out["log_silent"] > 50
    assert found.tiers[2].agrees_with


def test_garbled_lines_are_counted_and_their_windows_left_out(traced, logs):
    pick = random.Random(5)

    def garble(lines: list[str]) -> list[str]:
        return [line if pick.random() < 0.99 else line[: len(line) // 3] + "\n" for line in lines]

    for name in ("apache/access.log", "tomcat/access.log", "mariadb/slow_log.tsv"):
        edit(logs / name, lambda lines: [*lines[:1], *garble(lines[1:])])
    found = validate(traced, logs)
    assert _counters(found)["events.unreadable_line"] > 20
    assert found.failures == []
    assert all(tier.windows_left_out["log_loss"] > 5 for tier in found.tiers)


def test_a_line_that_is_too_long_is_a_lost_line(traced, logs, monkeypatch):
    monkeypatch.setattr(blocks, "LONGEST_LINE", 1 << 20)
    for name in ("apache/access.log", "mariadb/slow_log.tsv"):
        edit(
            logs / name,
            lambda lines: [*lines[:200], lines[200].rstrip("\n") + "x" * (3 << 20) + "\n", *lines[201:]],
        )
    found = validate(traced, logs)
    counters = _counters(found)
    assert (counters["events.overlong_line"], counters["events.unreadable_line"]) == (2, 2)
    assert [tier.tier for tier in found.tiers if tier.windows_left_out.get("log_loss")] == [
        "web",
        "app",
        "db",
    ]
    assert found.verdict == "passed"


def test_an_application_that_logs_a_third_of_its_statements_decides_nothing(traced, whole, logs):
    edit(logs / "tomcat" / "statements.tsv", lambda lines: [lines[0], *lines[1::3]])
    found = validate(traced, logs)
    db, before = found.tiers[2], whole.tiers[2]
    assert before.caller_share > 0.98
    assert db.caller_share == pytest.approx(1 / 3, abs=0.02)
    assert db.stay_ns["log_mean"] < db.stay_ns["tap_mean"], "the slow log lacks what the wire sees"
    assert (found.verdict, found.exit_code, found.failures) == ("undecided", ExitCode.LOW_QUALITY, [])
    (why,) = found.undecided
    assert why.startswith(f"db: the caller's log has {100 * db.caller_share:.0f} % of the calls")
    assert [tier.caller_is_partial for tier in found.tiers] == [False, False, True]


def test_missing_and_repeated_ids_are_counted(traced, whole, logs):
    pick = random.Random(6)

    def change(lines: list[str]) -> list[str]:
        changed, last = [], ""
        for line in lines:
            own = line.partition(" ")[0]
            draw = pick.random()
            said = "id=-" if draw < 0.1 else last if draw < 0.13 and last else own
            changed.append(line.replace(own, said, 1))
            last = own
        return changed

    edit(logs / "apache" / "access.log", change)
    found = validate(traced, logs)
    counters = _counters(found)
    assert counters["events.web.missing_id"] > 50
    assert counters["events.web.duplicate_id"] > 10
    assert found.failures == []
    assert found.tiers[0].agrees_with
    # Times are compared, not IDs: the queue is that of the whole log.
    assert found.tiers[0].reading("started").log_mean == whole.tiers[0].reading("started").log_mean


@pytest.mark.skipif(not shutil.which("zstd"), reason="the recording is packed with zstd")
def test_a_thinned_capture_is_no_disagreement(tmp_path):
    source = tmp_path / "whole.pcap"
    subprocess.run(["zstd", "-dq", LIGHT / "capture" / "tap.pcap.zst", "-o", source], check=True)
    link, packets = records(source)
    pick = random.Random(7)
    kept = [packet for packet in packets[: len(packets) // 3] if pick.random() > 0.0015]
    folder = copy_of(LIGHT, tmp_path / "run")
    (folder / "capture").mkdir()
    write(folder / "capture" / "tap.pcap", link, kept)
    found = validate(pipeline.trace([folder], tmp_path / "run.db"), folder)
    assert _counters(found)["tap.missing_bytes"] > 0
    assert sum(tier.windows_left_out.get("capture_loss", 0) for tier in found.tiers) > 0
    assert found.failures == []


def test_a_tap_and_a_log_of_different_calls_do_not_pass(traced, whole, logs):
    """None of this leniency: every third line is gone without a trace, and the clock is wrong as well."""
    begin = int(whole.tiers[0].windows["window_ns"][0])
    set_clock(logs / "mariadb", lambda at: round(at + 3e8 + 50e-6 * (at - begin)))
    edit(logs / "mariadb" / "slow_log.tsv", lambda lines: [*lines[:1], *lines[1::3], *lines[2::3]])
    found = validate(traced, logs)
    assert found.tiers[2].agrees_with == ""
    assert found.exit_code == ExitCode.VALIDATION_FAILED
    assert {why.partition(":")[0] for why in found.failures} == {"db"}
