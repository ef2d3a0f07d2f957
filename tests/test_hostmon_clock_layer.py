"""Clocks of hosts: one real run with one clock, skewed by known amounts; measured, taken off on reading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tapscope.cli.main import run as main
from tapscope.cli.pipeline import TraceOptions, trace
from tapscope.hostmon.clock_layer import forget_clocks, measure_clocks, read_clocks, tap_times
from tapscope.hostmon.fuse import by_window, host_addresses
from tapscope.store.runfile import RunFile

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
MS = 1_000_000
INTERVAL = 50 * MS


@pytest.fixture(scope="module")
def same_clock(tmp_path_factory):
    """A run of the testbed: all hosts, and the tap, share one kernel and so one clock."""
    return trace(
        [PCAPS / "testbed_light"], tmp_path_factory.mktemp("light") / "run.db", TraceOptions(self_check=False)
    )


@pytest.fixture
def run(same_clock, tmp_path):
    path = tmp_path / "run.db"
    shutil.copy(same_clock, path)
    with RunFile.open(path, write=True) as opened:
        yield opened


def skew(run: RunFile, host: str, offset_ns: int, drift_ppb: float, from_ns: int = 0) -> None:
    """Rewrite a host's logs as a clock would have stamped them that is so much ahead (from a time on)."""
    start = run.sql("SELECT min(first_ns) FROM connection")[0][0]
    with run.transaction() as connection:
        for table in run.dynamic_tables():
            for column in ("begin_ns", "end_ns") if table.host == host else ():
                connection.execute(
                    f"UPDATE {table.table} SET {column} = {column} + ? + CAST(({column} - ?) * ? AS INTEGER) "
                    f"WHERE {column} >= ?",
                    (offset_ns, start, drift_ppb / 1e9, max(from_ns, 0)),
                )


def clocks_of(run: RunFile, host: str) -> list:
    return [one for one in measure_clocks(run, host_addresses(run)) if one.host == host]


def test_clocks_that_are_the_same_are_left_alone(run):
    measured = {one.host: one for one in read_clocks(run)}  # as loading the logs stored it
    for host in ("web", "app", "db"):
        assert not measured[host].applied
        assert abs(measured[host].offset_ns) < 3 * MS
        assert measured[host].drift_ppb == 0
        assert measured[host].reason == "the offset is within its error"
    assert measured["client"].reason == "no counters of network bytes or connections"


@pytest.mark.parametrize(
    ("host", "offset_ns", "drift_ppb"),
    [("db", 35 * MS, 0.0), ("web", -1_234 * MS, 0.0), ("app", 60_000 * MS, 300_000.0)],
)
def test_a_skew_is_found_within_a_fifth_of_a_sample_and_taken_off(run, host, offset_ns, drift_ppb):
    edges = np.arange(*(run.sql("SELECT min(first_ns), max(last_ns) FROM connection")[0]), 200 * MS)
    before = by_window(run, host, "cgroup_cpu", "busy_pct", edges)
    skew(run, host, offset_ns, drift_ppb)
    (clock,) = clocks_of(run, host)
    assert clock.applied
    assert clock.method == "network bytes"
    assert abs(clock.drift_ppb - drift_ppb) <= clock.drift_error_ppb
    start = run.sql("SELECT min(first_ns) FROM connection")[0][0]
    at = np.array([clock.from_ns, clock.to_ns])
    true = offset_ns + (at - offset_ns - start) * drift_ppb / 1e9
    assert np.abs(at - tap_times(run, host, at)[0] - true).max() < INTERVAL / 5
    after = by_window(run, host, "cgroup_cpu", "busy_pct", edges)
    known = np.isfinite(before) & np.isfinite(after)
    assert (
        np.corrcoef(before[known], after[known])[0, 1] > 0.98
    )  # other tables of the host are read right, too


def test_a_clock_that_steps_during_the_run_has_a_row_per_stretch(run):
    first, last = run.sql("SELECT min(first_ns), max(last_ns) FROM connection")[0]
    skew(run, "app", 500 * MS, 0.0, from_ns=(first + last) // 2)
    before, after = clocks_of(run, "app")
    assert not before.applied
    assert after.applied
    assert after.offset_ns == pytest.approx(500 * MS, abs=INTERVAL / 5)
    assert abs(after.from_ns - (first + last) // 2) < 6_000 * MS


def test_logged_times_are_not_changed_and_the_layer_can_be_left_off(run):
    skew(run, "db", 80 * MS, 0.0)
    logged = run.sql("SELECT sum(end_ns % 1000000007) FROM host_cgroup_cpu_db")
    clocks_of(run, "db")
    assert run.sql("SELECT sum(end_ns % 1000000007) FROM host_cgroup_cpu_db") == logged
    at = np.array([-1, 1_795_000_000_000_000_000])
    corrected = tap_times(run, "db", at)[0]
    assert corrected[0] == -1
    assert corrected[1] != at[1]
    run.raw_clocks = True
    assert tap_times(run, "db", at)[0].tolist() == at.tolist()
    run.raw_clocks = False
    forget_clocks(run)
    assert tap_times(run, "db", at)[0].tolist() == at.tolist()


def test_hosts_of_unknown_address_and_logs_of_another_day_say_so(run):
    skew(run, "db", 86_400_000 * MS, 0.0)
    found = {one.host: one for one in measure_clocks(run, {"db": {"10.77.0.40"}})}
    assert found["web"].reason == "no address of this host is known"
    assert found["db"].points == 0
    assert found["db"].reason.startswith("network bytes: samples and capture are more than 600 s apart; ")


def test_the_command_shows_measures_and_forgets(run, capsys):
    def tapscope(*arguments) -> str:
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    skew(run, "web", 120 * MS, 0.0)
    run.close()
    shown = json.loads(tapscope("hosts", "clocks", run.path, "--measure", "--json"))
    (web,) = [one for one in shown if one["host"] == "web"]
    assert web["offset_ns"] == pytest.approx(120 * MS, abs=INTERVAL / 5)
    assert "taken off" in tapscope("hosts", "clocks", run.path)
    assert "Clocks of hosts" in tapscope("stats", run.path)
    tapscope("hosts", "clocks", run.path, "--forget")
    assert tapscope("hosts", "clocks", run.path).startswith("No clock was measured")
