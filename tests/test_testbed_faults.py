"""Faults of the testbed: the plan that a seed gives, what a kind needs, and the programs that cause them."""

from __future__ import annotations

import csv
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tapscope.store.errors import TapscopeError
from tapscope.validate import faults as judged
from tapscope.validate.testbed import burdens, fault_campaign, faults
from tapscope.validate.testbed.injectors import Fault
from tapscope.validate.testbed.scenarios import SCENARIOS

SECOND = 1_000_000_000
BOARD = SCENARIOS["board"]


def planned(seed: int, *specs: str, **given: Any) -> list[faults.Moment]:
    return faults.plan(faults.options(BOARD, fault=specs, seed=seed, **given), 100 * SECOND, 400 * SECOND)


@pytest.mark.parametrize("seed", range(5))
def test_planned_faults_keep_their_distance_and_their_length(seed: int) -> None:
    moments = planned(seed, "stop", "cpu@web", fault_every_s=3.0, fault_ms=(200, 700))
    ends = [100 * SECOND, *(m.begin_ns + m.length_ns for m in moments)]
    assert ends[-1] <= 400 * SECOND
    assert all(m.begin_ns - end >= 1.5 * SECOND for m, end in zip(moments, ends, strict=False))
    assert all(200 <= m.length_ns / 1e6 <= 700 for m in moments)
    # 300 s with a fault every 3.45 s in the mean; the exponential parts add up to some spread.
    assert 60 < len(moments) < 120


def test_kinds_come_in_turns() -> None:
    moments = planned(7, "stop", "cpu@web", "dirty@app")
    turns = [moments[i : i + 3] for i in range(0, len(moments) - 2, 3)]
    assert all({(m.kind, m.host) for m in turn} == {("stop", "app"), ("cpu", "web"), ("dirty", "app")}
               for turn in turns)  # fmt: skip
    assert len({tuple(m.kind for m in turn) for turn in turns}) > 1


def test_the_same_seed_plans_the_same_faults() -> None:
    assert planned(3, "stop", "disk") == planned(3, "stop", "disk")
    assert planned(3, "stop", "disk") != planned(4, "stop", "disk")


@pytest.mark.parametrize("spec", ["none", "gc"])
def test_nothing_is_planned_for_what_needs_no_injector(spec: str) -> None:
    assert planned(1, spec) == []


def test_a_kind_brings_the_settings_without_which_it_hurts_nobody() -> None:
    assert faults.options(BOARD, fault=("gc",), fault_every_s=3.0).collect_every_s == 3.0
    assert faults.options(BOARD, fault=("pool",)).pool_size == 4
    assert faults.options(BOARD, fault=("pool",), pool_size=9).pool_size == 9
    assert faults.options(BOARD) == BOARD.options()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("flood", "no kind of fault 'flood'"),
        ("stop@client", "no server on host 'client'"),
        ("lock@app", "hit by 'lock'"),
    ],
)
def test_a_fault_that_could_hit_nothing_is_refused(spec: str, words: str) -> None:
    servers = BOARD.servers(BOARD.options())
    with pytest.raises(TapscopeError, match=words):
        faults.check([spec], servers)


def test_every_kind_but_none_has_a_cause_that_is_right() -> None:
    assert set(judged.RIGHT) == set(faults.KINDS) - {"none"}


def test_the_record_is_written_in_order_of_time_and_read_again(tmp_path: Path) -> None:
    later, sooner = Fault(5, 9, "app", "stop"), Fault(2, 3, "db", "Pause Full (System.gc())")
    faults.write([later, sooner], tmp_path / faults.RECORD)
    assert judged.read(tmp_path / faults.RECORD) == [(2, 3, "db", "gc"), (5, 9, "app", "stop")]


def burden_command(
    folder: Path, program: str, begin_ns: int, moments: list[tuple[int, int]], **settings: Any
) -> dict[str, Any]:
    """What starts a program for its moments (in ms from begin_ns, and ms)."""
    config = {
        "program": program,
        "moments": [(begin_ns + at * 1_000_000, length * 1_000_000) for at, length in moments],
        "record": str(folder / "record.csv"),
        "folder": str(folder),
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(config))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return {"args": [sys.executable, "-m", burdens.__name__, str(folder / "config.json")], "env": env}


def burden(folder: Path, program: str, moments: list[tuple[int, int]], **settings: Any) -> list[list[int]]:
    """Rows that a program wrote down for its moments."""
    # A busy machine takes two seconds to start a program and its workers.
    begin_ns = time.time_ns() + 4_000_000_000
    subprocess.run(**burden_command(folder, program, begin_ns, moments, **settings), check=True, timeout=60)
    with (folder / "record.csv").open(newline="") as file:
        return [[int(cell) - begin_ns for cell in row] for row in csv.reader(file)]


@pytest.mark.parametrize("program", ["spin", "dirty", "write"])
def test_a_burden_does_what_was_planned_and_leaves_nothing(tmp_path: Path, program: str) -> None:
    settings = {"workers": 3, "block_kib": 64, "most_mib": 1}
    found = burden(
        tmp_path, program, [(100, 1000), (3000, 1000)], **settings
    )  # a busy disk takes most of a second
    assert len(found) == 2
    for (begin, end), at in zip(found, (100, 3000), strict=True):
        assert at * 1_000_000 <= begin
        assert begin + 20_000_000 < end
    assert sum(file.stat().st_size for file in tmp_path.glob("block-*")) == 0


ONE_IS_LATE = """
import json, sys, time
from tapscope.validate.testbed import burdens
begin_ns = time.time_ns() + 500_000_000
plan = [(begin_ns, 100_000_000), (begin_ns + 500_000_000, 100_000_000)]
def worker(number):
    def work(until_ns):
        time.sleep(2.0 if number == 0 and until_ns < plan[1][0] else 0.1)
    return work
rows = []
burdens._forked({"workers": 3, "moments": plan}, lambda *times: rows.append(times), worker)
print(json.dumps([[time_ns - begin_ns for time_ns in row] for row in rows]))
"""


def test_who_ends_a_fault_late_is_not_counted_in_the_next_one() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", ONE_IS_LATE], env=env, capture_output=True, check=True, timeout=60
    )
    (first_begin, first_end), (second_begin, second_end) = json.loads(done.stdout)
    assert 0 <= first_begin < 1_000_000_000
    assert first_end >= 2_000_000_000
    assert second_begin >= 500_000_000
    assert first_end <= second_end


def gone(group: int, patience_s: float) -> bool:
    """Whether no process of a group lives any more."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_a_burden_that_is_ended_takes_its_workers_with_it(tmp_path: Path) -> None:
    settings = {"workers": 3, "block_kib": 64, "most_mib": 1}
    command = burden_command(tmp_path, "dirty", time.time_ns(), [(0, 60_000)], **settings)
    process = subprocess.Popen(**command, start_new_session=True)
    while len(list(tmp_path.glob("block-*"))) < 3:
        time.sleep(0.02)
    process.terminate()
    process.wait(10)
    assert gone(process.pid, 10)


def test_everybody_in_a_crowd_asks_for_the_page(tmp_path: Path) -> None:
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(4):
                with server.accept()[0] as visitor:
                    asked.append(visitor.recv(4096).split(b"\r\n")[0])

        thread = threading.Thread(target=serve)
        thread.start()
        where = {"address": "127.0.0.1", "port": server.getsockname()[1], "target": "/report?ms=80"}
        found = burden(tmp_path, "crowd", [(0, 300)], workers=4, insist=False, **where)
        thread.join(10)
    assert asked == [b"GET /report?ms=80 HTTP/1.1"] * 4
    assert [end - begin for begin, end in found] == [300_000_000]


def test_a_campaign_asks_for_new_seeds_whatever_else_it_runs(tmp_path: Path) -> None:
    whole = list(fault_campaign.FaultCampaign(tmp_path, tuple(faults.KINDS), 3, 40, 20.0).runs())
    seeds = [words[words.index("--seed") + 1] for _, words in whole]
    assert len(set(seeds)) == len(seeds) == 3 * len(faults.KINDS)
    part = list(fault_campaign.FaultCampaign(tmp_path, ("clock",), 3, 40, 20.0).runs())
    assert part == [one for one in whole if one[0].name.startswith("clock-")]


def test_kinds_that_are_joined_share_their_runs(tmp_path: Path) -> None:
    [(folder, words)] = fault_campaign.FaultCampaign(tmp_path, ("stop+dirty+cpu@web",), 1, 40, 20.0).runs()
    assert folder.name == "stop+dirty+cpu@web-1"
    specs = [word for before, word in itertools.pairwise(words) if before == "--fault"]
    assert specs == ["stop", "dirty@web", "dirty@app", "cpu@web"]


def test_a_campaign_without_runs_judges_nothing(tmp_path: Path) -> None:
    plan = fault_campaign.FaultCampaign(tmp_path, ("clock",), 3, 40, 20.0)
    assert fault_campaign.conduct(plan, judge_only=True, say=print) == []
