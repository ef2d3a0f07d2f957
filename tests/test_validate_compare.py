"""Comparing runs: what one run says is right, pairs are found, and what cannot be compared is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from simulator import START_NS, Simulation, simulate

from tapscope.cli.main import run as tapscope
from tapscope.hostmon.load import load_host_files
from tapscope.store.codes import CallFlag
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate import comparison, run_figures
from tapscope.validate.run_figures import Figure

SECOND = 1_000_000_000
PHASE = (START_NS + SECOND, START_NS + 3 * SECOND)


def recorded(folder: Path, name: str, world: Simulation, seed: int, slower_ms: float = 0.0) -> Path:
    """A run file of the testbed; every answer of the entry tier comes `slower_ms` later than it did."""
    path = folder / name
    entry = world.tables["calls"]["server_node"] == world.tables["calls"]["server_node"][0]
    world.tables["calls"]["depart_ns"][entry] += int(slower_ms * 1e6)
    world.save(path)
    world.tables["calls"]["depart_ns"][entry] -= int(slower_ms * 1e6)
    with RunFile.open(path, write=True) as run:
        phases = {"run_begin": PHASE[0], "run_end": PHASE[1]}
        options = {"seed": seed, "monitors": slower_ms > 0}
        run.set_meta("manifest", {"phases_ns": phases, "options": options})
    return path


@pytest.fixture(scope="module")
def worlds() -> list[Simulation]:
    return [simulate(seed=seed, users=40, seconds=4.0) for seed in range(1, 6)]


@pytest.fixture(scope="module")
def sides(worlds, tmp_path_factory) -> tuple[list[Path], list[Path]]:
    folder = tmp_path_factory.mktemp("runs")
    a = [recorded(folder, f"a{n}.db", world, n) for n, world in enumerate(worlds)]
    b = [recorded(folder, f"b{n}.db", world, n, slower_ms=2.0) for n, world in enumerate(worlds)]
    return a, b


def test_times_are_those_of_the_requests_answered_in_the_phase(worlds, sides):
    calls = worlds[0].tables["calls"]
    entry = calls["server_node"] == calls["server_node"][0]
    answered = entry & (calls["depart_ns"] >= PHASE[0]) & (calls["depart_ns"] < PHASE[1])
    took = (calls["depart_ns"] - calls["arrive_ns"])[answered] / 1e6
    got = run_figures.read(sides[0][0])
    assert got.seconds == 2.0
    assert got.figures[Figure("entry", "throughput", "1/s")] == np.count_nonzero(answered) / 2
    assert got.figures[Figure("entry", "response time, mean", "ms")] == pytest.approx(took.mean(), abs=1e-9)
    assert got.figures[Figure("entry", "response time, p90", "ms")] == pytest.approx(np.percentile(took, 90))
    assert got.flags == []


def test_more_can_be_left_out_and_not_all(sides):
    shorter = run_figures.read(sides[0][0], lead_ns=SECOND // 2, tail_ns=SECOND)
    assert shorter.seconds == 0.5
    with pytest.raises(TapscopeError, match="no request was answered in the time that is left"):
        run_figures.read(sides[0][0], lead_ns=3 * SECOND)


def host_log(folder: Path, host: str, lines: list[str]) -> None:
    (folder / "hosts" / host).mkdir(parents=True)
    (folder / "hosts" / host / "cgroup_cpu.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("ahead_ns", [0, 3 * SECOND // 4])
def test_cpu_and_disk_are_those_of_the_phase(worlds, tmp_path, ahead_ns):
    # CPU: 40 % of a core in the phase, all of it before and after. Disk: two processes, one of which ends
    # in the middle of the phase. The host's clock may be ahead of the tap's.
    path = recorded(tmp_path, "run.db", worlds[0], 1)
    lines, used = ["time_ns_begin,time_ns_end,usage_ns"], 0
    for at in range(START_NS, START_NS + 4 * SECOND, SECOND // 20):
        lines.append(f"{at + ahead_ns},{at + ahead_ns},{used}")
        used += SECOND // 20 * 4 // 10 if PHASE[0] <= at < PHASE[1] else SECOND // 20
    host_log(tmp_path, "db", lines)
    begin = np.array([0, 1, 2, 0, 1]) * SECOND + START_NS + ahead_ns
    with RunFile.open(path, write=True) as run:
        load_host_files(run, tmp_path / "hosts")
        columns = {
            "begin_ns": begin,
            "end_ns": begin + SECOND,
            "pid": np.array([7, 7, 7, 8, 8]),
            "read_bytes_per_s": np.zeros(5),
            "write_bytes_per_s": np.array([9e6, 1000.0, 3000.0, 9e6, 500.0]),
        }
        run.write_dynamic(
            "collectl_process_db",
            columns,
            {},
            {"path": "x", "host": "db", "kind_of_record": "collectl_process"},
        )
        clock = {
            "host": ["db"],
            "from_ns": [START_NS],
            "offset_ns": [ahead_ns],
            "points": [9],
            "applied": [1],
        }
        run.write_columns("host_clock", {"host": ["db"], **clock})
    read = run_figures.read(path)
    got = read.figures
    assert [flag for flag in read.flags if "cover" in flag] == []
    assert got[Figure("db", "CPU busy", "% of one core")] == pytest.approx(40.0, abs=0.1)
    assert got[Figure("db", "disk written", "kB/s")] == pytest.approx((1000 + 3000 + 500) / 2 / 1000)


def test_runs_with_the_same_seeds_are_pairs_in_any_order(sides):
    a, b = sides
    found = comparison.compare(a, [b[3], b[0], b[4], b[1], b[2]])
    assert found.paired
    assert found.differs == {"monitors": (False, True)}
    mean = found.effects[Figure("entry", "response time, mean", "ms")]
    assert mean.difference == pytest.approx(2.0, abs=0.05)
    assert mean.low <= 2.0 <= mean.high
    assert mean.high - mean.low < 0.5
    assert Figure("entry", "response time, mean", "ms") in found.changed()
    assert found.adjusted_p[Figure("entry", "throughput", "1/s")] > 0.05


def test_runs_of_other_seeds_are_not_taken_for_pairs(sides):
    a, b = sides
    found = comparison.compare(a[:3], b[1:])
    assert not found.paired
    mean = found.effects[Figure("entry", "response time, mean", "ms")]
    assert (mean.runs_a, mean.runs_b) == (3, 4)
    assert mean.low <= 2.0 <= mean.high


def test_lossy_and_unlike_runs_are_named(sides, worlds, tmp_path):
    a, b = sides
    lossy = recorded(tmp_path, "lossy.db", worlds[1], 1, slower_ms=2.0)
    with RunFile.open(lossy, write=True) as run:
        run.write_sources([{"path": "x.pcap", "kind": "capture", "dropped_by_kernel": 17}])
        with run.transaction() as connection:
            connection.execute(
                "UPDATE call SET flags = flags | ? WHERE id < 3", (int(CallFlag.LOST_RESPONSE),)
            )
        manifest = run.meta("manifest")
        run.set_meta("manifest", manifest | {"options": manifest["options"] | {"monitors": None, "new": 1}})
    found = comparison.compare(a[:3], [b[0], lossy, b[2]])
    assert "B lossy.db: 17 packets dropped by the recorder" in found.notes
    assert "B lossy.db: 3 responses lost" in found.notes
    assert "the runs of B differ in monitors" in found.notes


def asked(folder: Path, rows: list[tuple[float, float]]) -> Path:
    """A run directory without a tap: (start, end) of requests in seconds, end -1: no answer."""
    (folder / "users").mkdir(parents=True)
    phases = {"run_begin": START_NS + SECOND, "run_end": START_NS + 3 * SECOND}
    (folder / "manifest.json").write_text(json.dumps({"phases_ns": phases, "options": {"seed": 5}}))
    lines = [
        f"{START_NS + int(start * SECOND)},{START_NS + int(end * SECOND) if end >= 0 else -1}"
        for start, end in rows
    ]
    (folder / "users" / "requests.csv").write_text("\n".join(["start_ns,end_ns", *lines]) + "\n")
    return folder


def test_without_a_tap_the_load_generator_s_log_is_read(tmp_path):
    rows = [(0.2, 0.9), (0.9, 1.1), (1.5, 1.6), (2.0, 2.3), (2.9, 3.1), (2.5, -1)]
    got = run_figures.read(asked(tmp_path, rows))
    assert got.figures[Figure("entry", "throughput", "1/s")] == 3 / 2
    assert got.figures[Figure("entry", "response time, mean", "ms")] == pytest.approx(200)
    assert (got.seed, got.flags) == (5, ["1 requests without an answer"])


def test_tap_and_load_generator_are_never_mixed(sides, tmp_path):
    with pytest.raises(TapscopeError, match=r"different observers \(load generator and tap\)"):
        comparison.compare(sides[0][:1], [asked(tmp_path, [(1.0, 1.1)])])


def test_the_command_prints_differences_power_and_json(sides, capsys):
    a, b = ([str(path) for path in side] for side in sides)
    assert tapscope(["compare", *a, "--", *b]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert "monitors: False in A, True in B" in said
    assert "throughput: a 1 % change would have been seen with probability" in said
    assert tapscope(["compare", *a, "--", *b, "--json"]) == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    assert (document["paired"], len(document["a"]), len(document["b"])) == (True, 5, 5)
    mean = next(
        f for f in document["figures"] if f["what"] == "response time, mean" and f["where"] == "entry"
    )
    assert mean["difference"] == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("words", [["a.db", "b.db"], ["a.db", "--"], ["a.db", "--", "b.db", "--", "c.db"]])
def test_two_sides_are_asked_for(words, capsys):
    assert tapscope(["compare", *words]) == ExitCode.USAGE
    assert "A" in capsys.readouterr().err


def test_what_is_no_run_is_told_with_its_name(sides, tmp_path, capsys):
    assert tapscope(["compare", str(tmp_path), "--", str(sides[0][0])]) == ExitCode.ERROR
    message = capsys.readouterr().err
    assert f"{tmp_path}: this is no finished run directory of the testbed" in message
