"""Off and on in turns within a run: small differences that runs of two kinds would not show."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from testbed_tables import Finished

from tapscope.cli.main import run as tapscope
from tapscope.reconstruct.threads import log
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate import comparison, run_figures
from tapscope.validate.run_figures import SETTLE_NS, Figure
from tapscope.validate.testbed import campaign, packages, study, turns
from tapscope.validate.testbed.options import Options
from tapscope.validate.testbed.scenarios import SCENARIOS
from tapscope.validate.testbed.turns import Turn, Turns
from tapscope.validate.threads import record

SECOND = 1_000_000_000
MEAN = Figure("entry", "response time, mean", "ms")


def drifting(folder: Path, planned: list[Turn], seed: int, costs_ms: float) -> Path:
    """A finished run without a tap, 50 requests a second, that gets slower by 1 ms a second; what is on in
    its turns costs more."""
    chance = np.random.default_rng(seed)
    (folder / "users").mkdir(parents=True)
    end = planned[-1].end_ns
    lines = ["start_ns,end_ns"]
    for start in range(0, end, SECOND // 50):
        on = any(turn.begin_ns <= start < turn.end_ns and turn.on for turn in planned)
        took_ms = 20 + start / SECOND + chance.exponential(1.0) + costs_ms * on
        lines.append(f"{start},{start + int(took_ms * 1e6)}")
    (folder / "users" / "requests.csv").write_text("\n".join(lines) + "\n")
    options = {"seed": seed, "record_threads": True}
    phases = {"run_begin": 0, "run_end": end}
    manifest = {"phases_ns": phases, "options": options, "turns_ns": planned}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_turns_come_in_whole_pairs_whose_order_is_drawn():
    planned = turns.plan(7, 7 + 101 * SECOND, SECOND, seed=3)
    assert (
        planned
        == turns.plan(7, 7 + 101 * SECOND, SECOND, seed=3)
        != turns.plan(7, 7 + 101 * SECOND, SECOND, 4)
    )
    assert (len(planned), planned[0].begin_ns) == (100, 7)
    assert all(one.end_ns == other.begin_ns for one, other in pairwise(planned))
    pairs = list(zip(planned[::2], planned[1::2], strict=True))
    assert all(one.on != other.on for one, other in pairs)
    assert 10 < Counter(one.on for one, _ in pairs)[True] < 40
    assert turns.plan(0, SECOND, SECOND, 1) == []


def test_the_switch_is_told_in_time_and_is_on_in_the_end():
    now = time.time_ns()
    planned = [
        Turn(now + at * 50_000_000, now + (at + 1) * 50_000_000, on)
        for at, on in enumerate((False, True, False))
    ]
    told: list[tuple[int, bool]] = []
    with Turns(planned, lambda on: told.append((time.time_ns(), on))):
        time.sleep(0.2)
    assert [on for _, on in told] == [False, True, False, True]
    assert all(0 <= at - turn.begin_ns < 40_000_000 for (at, _), turn in zip(told, planned, strict=False))


def test_a_difference_is_seen_through_a_drift_that_is_larger(tmp_path):
    runs = [
        drifting(tmp_path / f"turns-{seed}", turns.plan(0, 80 * SECOND, 4 * SECOND, seed), seed, costs_ms=0.5)
        for seed in (1, 2)
    ]
    off, on, flags = run_figures.read_turns(runs[0])
    assert (len(off), len(on), flags) == (10, 10, [])
    assert off[0].seconds == 4 - SETTLE_NS / SECOND
    found = comparison.compare_turns(runs)
    effect = found.effects[MEAN]
    assert (found.paired, effect.runs_a, found.differs) == (True, 20, {"turn": ("off", "on")})
    assert effect.low < 0.5 < effect.high
    # A turn is 4 s and 4 ms after the one before; either is first.
    assert effect.sd_a > 20
    assert effect.standard_error < 1.5


def test_a_study_by_turns_compares_what_its_runs_hold(tmp_path):
    out, words = tmp_path / "study", ["--no-mirror", "--users", "5"]
    plan = {"what": "threads", "turns": ["--record-threads", "--thread-turns", "4"], "run": words, "seed": 11}
    campaign.keep_plan(out, plan, study.PLAN)
    for run in (1, 2):
        drifting(out / f"turns-{run:02}", turns.plan(0, 40 * SECOND, 4 * SECOND, run), run, costs_ms=0.0)
    found = study.study("threads", 2, words, out, seed=11, turns_s=4)
    assert (len(found.a), found.effects[MEAN].runs_b) == (10, 10)
    assert json.loads((out / study.RESULT).read_text())["observer"] == "load generator"


def test_a_turn_in_which_nothing_was_answered_has_a_throughput_of_zero(tmp_path):
    folder = drifting(tmp_path / "run", turns.plan(0, 16 * SECOND, 4 * SECOND, 1), 1, costs_ms=0.0)
    lines = (folder / "users" / "requests.csv").read_text().splitlines()
    kept = [line for line in lines[1:] if not 4 * SECOND <= int(line.split(",")[0]) < 9 * SECOND]
    (folder / "users" / "requests.csv").write_text("\n".join([lines[0], *kept]) + "\n")
    found = comparison.compare_turns([folder])
    assert min(run.figures[Figure("entry", "throughput", "1/s")] for run in found.a + found.b) == 0
    assert "left out, because not every run has it: entry response time, mean" in " ".join(found.notes)


def test_what_has_no_turns_or_no_switch_is_refused(tmp_path, capsys):
    folder = drifting(tmp_path / "run", turns.plan(0, 8 * SECOND, 4 * SECOND, 1), 1, costs_ms=0.0)
    assert tapscope(["compare", "--turns", str(folder)]) == ExitCode.DONE
    assert "turn: off in A, on in B" in capsys.readouterr().out
    assert tapscope(["compare", "--turns", str(folder), "--", str(folder)]) == ExitCode.USAGE
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"turns_ns": []}))
    assert tapscope(["compare", "--turns", str(folder)]) == ExitCode.ERROR
    assert "nothing was off and on in turns in this run" in capsys.readouterr().err
    with pytest.raises(TapscopeError, match="monitors cannot be off and on within a run"):
        study.study("monitors", 1, [], tmp_path / "study", turns_s=4)
    with pytest.raises(TapscopeError, match="no thread recorder that could take turns"):
        Options(thread_turns_s=4).check()


LACKING = packages.missing(SCENARIOS["random"].needs)


@pytest.mark.testbed
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.skipif(bool(LACKING), reason=f"packages are missing: {', '.join(LACKING)}")
def test_the_recorders_of_all_servers_take_turns(tmp_path):
    options = SCENARIOS["random"].options(
        users=10, seconds=4, warmup_s=1, rampdown_s=0.5, think_s=0.05, record_threads=True, thread_turns_s=1
    )
    ran = Finished(tmp_path / "run", options, requests=1)
    planned = [Turn(*one) for one in json.loads((ran.folder / "manifest.json").read_text())["turns_ns"]]
    assert len(planned) == 4
    logs = log.read([ran.folder / "threads"])
    breaks = sum(one.on and not other.on for one, other in pairwise([Turn(0, 0, True), *planned]))
    assert logs.counters["threads.pauses"] == breaks * len(logs.processes)
    begins = logs.events["begin_ns"]
    heard_ns = int(record.HEARD_S * SECOND)
    for turn in planned:
        inside = (begins > turn.begin_ns + heard_ns) & (begins < turn.end_ns)
        assert inside.any() == turn.on
