"""From a symptom to its cause, on simulated runs with known truth and on series made for each mechanism."""

from __future__ import annotations

import json

import numpy as np
import pytest
from simulator import NODE_NAMES, START_NS, simulate

from tapscope.analyze.candidates import Ranker, Scene, ranked
from tapscope.analyze.evidence import Evidence, rose_most
from tapscope.analyze.findings import DIRECT, findings
from tapscope.analyze.held import Held
from tapscope.analyze.mechanisms import BY_LOGS, Case, Mechanism, Recognised, recognise
from tapscope.analyze.metrics import churned
from tapscope.analyze.track import Track
from tapscope.cli.main import run as tapscope
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile

SECOND = 1_000_000_000
WINDOWS = 400
EVENTS, LONG = (70, 200, 315), 6
"""First windows, and number of windows, in which a made series differs."""
HIT = slice(200, 208)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_stop_of_the_application_is_found_where_and_when_it_was(tmp_path, seed) -> None:
    at_s = 3.0 + seed
    simulate(seed=seed, users=60, seconds=10.0, stall_at_s=at_s, stall_ms=400).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as run:
        found = findings(run)
        names = run.node_names()
    near = [one for one in found if one.episode.begin_ns < START_NS + (at_s + 0.5) * SECOND]
    near = [one for one in near if one.episode.end_ns > START_NS + at_s * SECOND]
    assert len(near) == 1
    assert names[near[0].origin] == NODE_NAMES[2]
    assert near[0].cause == "node stood still"
    assert abs(near[0].episode.begin_ns - (START_NS + at_s * SECOND)) < 0.1 * SECOND
    assert {names[rise.node] for rise in near[0].path} >= set(NODE_NAMES[1:3])
    assert len(found) <= 2, "a quiet system has next to no findings"


def test_a_busy_machine_is_whose_use_rose_most() -> None:
    """Two processors: the node uses 10 % of one, as others do; then 60 beside 140, then 150 beside 50."""
    own = np.array([10.0] * 8 + [60.0, 150.0])
    machine = np.array([10.0] * 8 + [100.0, 100.0])
    assert rose_most(own, machine, 2)[-2:].tolist() == [False, True]
    assert rose_most(own, machine, 0).all(), "nobody knows how much the others used"


def test_a_long_queue_that_hurt_nobody_is_no_finding(tmp_path) -> None:
    """After the stop all users ask at once: eleven calls are inside again, for 50 ms at most."""
    at_ns = START_NS + 4 * SECOND
    simulate(seed=3, users=120, seconds=8.0, stall_at_s=4.0, stall_ms=300).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as run:
        found = findings(run)
        loads = run.read_table("loads")
    assert [one.cause for one in found] == ["node stood still"]
    later = (loads["node"] == 1) & (loads["window_ns"] > found[0].episode.end_ns)
    usual = np.median(loads["load"][(loads["node"] == 1) & (loads["window_ns"] < at_ns)])
    assert loads["load"][later].max() > usual + 7.5


def test_where_nothing_happened_nothing_is_found(tmp_path, capsys) -> None:
    simulate(seed=5, users=20, seconds=8.0).save(tmp_path / "run.db")
    assert tapscope(["findings", str(tmp_path / "run.db")]) == ExitCode.DONE
    assert "No findings" in capsys.readouterr().out


def test_findings_are_told_in_words_and_in_json(tmp_path, capsys) -> None:
    simulate(seed=1, users=60, seconds=8.0, stall_at_s=4.0).save(tmp_path / "run.db")
    assert tapscope(["findings", str(tmp_path / "run.db"), "--json"]) == ExitCode.DONE
    (record,) = json.loads(capsys.readouterr().out)
    assert record["origin"] == NODE_NAMES[2]
    assert record["mechanisms"][0]["evidence"]
    assert record["path"][-1]["node"] == NODE_NAMES[1]
    assert record["path"][-1]["behind_origin_ms"] is not None
    assert record["ruled_out"]
    assert record["ranking"][0]["metric"] == "stalled"
    assert record["ranking"][0]["p"] <= record["ranking"][0]["q"] < 0.2
    assert tapscope(["findings", str(tmp_path / "run.db")]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert f"began at {NODE_NAMES[2]}; cause: node stood still" in out


def test_a_run_whose_services_have_clocks_of_their_own_has_no_findings(tmp_path, capsys) -> None:
    simulate(seed=1, users=60, seconds=8.0, stall_at_s=4.0).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db", write=True) as run:
        run.write_sources([source | {"kind": "spans"} for source in run.sources()])
    assert tapscope(["findings", str(tmp_path / "run.db")]) == ExitCode.DONE
    assert "own clock" in capsys.readouterr().out


def host_log(run: RunFile, host: str, kind: str, column: str, usual: float, hit: float) -> None:
    """Samples every 50 ms for ten seconds; `hit` from 4.0 to 4.4 s, when the simulated application halts."""
    begin = START_NS + np.arange(200, dtype=np.int64) * 50_000_000
    noise = np.random.default_rng(len(host) + int(usual)).normal(0, 1, len(begin))
    values = (
        np.where((begin >= START_NS + 4 * SECOND) & (begin < START_NS + 4.4 * SECOND), hit, usual) + noise
    )
    columns = {"begin_ns": begin, "end_ns": begin + 50_000_000, column: values}
    run.write_dynamic(kind, columns, {}, {"path": f"{host}.{kind}", "host": host, "kind_of_record": kind})


@pytest.mark.parametrize("guilty", [1, 2], ids=["web", "application"])
def test_who_used_the_cpu_is_named_not_who_lacked_it(tmp_path, guilty: int) -> None:
    """Two hosts on one machine that is full: the one whose own use rose did it, wherever the queue is."""
    simulate(seed=1, users=60, seconds=10.0, stall_at_s=4.0, stall_ms=400).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db", write=True) as run:
        for node in (1, 2):
            host_log(run, NODE_NAMES[node], "collectl_cpu", "busy_pct", 30, 99)
            host_log(run, NODE_NAMES[node], "cgroup_cpu", "busy_pct", 20, 150 if node == guilty else 20)
        (found,) = (
            one for one in findings(run) if abs(one.episode.begin_ns / SECOND - START_NS / SECOND - 4) < 1
        )
        assert run.node_names()[found.origin] == NODE_NAMES[guilty]
    assert found.cause == "CPU saturation"
    best = next(one for one in found.ranking if one.metric == "machine_cpu")
    assert best.also_at == (NODE_NAMES[3 - guilty],)


def test_more_windows_than_memory_holds_are_refused(tmp_path) -> None:
    simulate(seed=1, users=60, seconds=8.0, stall_at_s=4.0).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as run, pytest.raises(TapscopeError, match="too many") as error:
        findings(run, width_ns=100)
    assert "--window" in error.value.remedy


def series(usual: float, hit: float | None = None, noise: float = 0.05) -> np.ndarray:
    """A metric, or a queue, that is as usual but for three times in the run, HIT the second of them."""
    values = usual * (1 + noise * np.random.default_rng(1).standard_normal(WINDOWS))
    if hit is not None:
        for at in EVENTS:
            values[at : at + LONG] = hit
    return values


def queue() -> np.ndarray:
    """Rises during the events and stays up a moment longer."""
    values = series(1.0, 20.0)
    for at in EVENTS:
        values[at : at + LONG] = np.linspace(4, 24, LONG)
        values[at + LONG : at + LONG + 3] = (15, 8, 3)
    return values


def recognised(*given: object, **fields: object) -> tuple[list[Mechanism], list[str]]:
    return judged_at(*given, **fields)[:2]


def judged_at(
    at: slice, most_below: dict[str, int] | None = None, held: Held | None = None, **fields: np.ndarray
) -> Recognised:
    quiet = np.ones(WINDOWS, dtype=bool)
    for begin in EVENTS:
        quiet[begin - 4 : begin + LONG + 10] = False
    base = {"arrivals": series(20.0), "stalled": np.zeros(WINDOWS)}
    seen = Evidence(queue(), series(20.0), base | fields, most_below or {})
    ranker = Ranker(seen.series, seen.own_load, quiet)
    scene = Scene(seen.own_load, at.start, at.stop)
    candidates = {name: ranker.candidate(name, scene) for name in seen.series}
    return recognise(Case(seen, scene, candidates, held))


def halted() -> np.ndarray:
    return (series(0.0, 1.0, noise=0.0) > 0).astype(float)


CASES = {
    "garbage collection": {"stalled": halted(), "gc": series(1, 100)},
    "stop of the JVM": {"stalled": halted(), "gc": series(1), "safepoint": series(1, 100)},
    "node stood still": {"stalled": halted(), "gc": series(1)},
    "CPU quota": {"throttled": series(0, 80), "stalled": halted(), "cpu_pressure": series(2, 90)},
    "lower clock speed": {"speed_mhz": series(2200, 1200)},
    "dirty-page recycling": {"own_dirty": series(0.1, 300), "saturated": series(1, 99)},
    "disk writes": {"disk_busy": series(5, 99), "machine_written": series(0.1, 90), "io_wait": series(1)},
    "disk saturation": {"io_pressure": series(2, 100), "machine_written": series(0.1), "stalled": halted()},
    "CPU saturation": {"saturated": series(1, 99)},
    "CPU taken by a neighbour": {"crowded": series(1, 99), "saturated": series(0, noise=0), "gc": series(1)},
    "connection or thread limit": {"pool": series(0.3, 1.0), "most_below": {"db": 8}, "stalled": halted()},
    "network loss": {"resent": series(0.0, 3.0)},
    "workload burst": {"arrivals": series(20, 90), "saturated": series(1, 99), "refused": series(0)},
    "accept queue overflow": {"arrivals": series(20, 90), "attempts": series(5, 90), "refused": series(0, 4)},
    "wait for the nodes below": {"waiting": series(1, 30), "pool": series(0.3)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_mechanism_is_recognised_by_name(name: str) -> None:
    found, _ = recognised(HIT, **CASES[name])
    assert found[0].name == name
    # Elsewhere in the same run there is nothing, and it says what was looked for.
    quiet, ruled_out = recognised(slice(100, 106), **CASES[name])
    assert not quiet
    assert any(text.startswith(name) for text in ruled_out)


def test_a_hypervisor_that_takes_little_is_no_cause() -> None:
    found, _ = recognised(HIT, steal=series(0.1, 12))
    assert not any(one.strength > 0.3 for one in found)
    found, _ = recognised(HIT, steal=series(0.1, 60))
    assert found[0].name == "CPU taken by a neighbour"


def test_what_is_always_so_explains_nothing() -> None:
    """A disk that is busy all the time, and one that was busy at other times."""
    assert not recognised(HIT, disk_busy=series(99), machine_written=series(0.1, 90))[0]
    elsewhere = np.roll(series(5, 99), 60)
    found, ruled_out = recognised(HIT, disk_busy=elsewhere, machine_written=np.roll(series(0.1, 90), 60))
    assert not found
    assert any(text.startswith("disk writes") for text in ruled_out)


def test_calls_that_write_and_wait_point_to_the_disk_and_others_to_a_lock() -> None:
    commits = Held("COMMIT", 19, 20, 1, 60, phi=0.9)
    assert recognised(HIT, held=commits)[0][0].name == "disk writes"
    table = Held("stories", 38, 40, 1, 60, phi=0.9)
    found, _ = recognised(HIT, held=table, stalled=halted())
    assert found[0].name == "lock contention"
    assert "38 of 40 calls that name stories" in found[0].words
    # Where the CPU is short, what takes longest is held up most: that is no lock.
    found, _ = recognised(HIT, held=table, saturated=series(1, 99))
    assert [one.name for one in found] == ["CPU saturation"]


def test_connections_that_were_turned_away_are_a_consequence_not_the_cause() -> None:
    found, _ = recognised(HIT, refused=series(0, 9), stalled=halted())
    assert [one.name for one in found][:2] == ["node stood still", "accept queue overflow"]
    found, _ = recognised(HIT, refused=series(0, 9), stalled=halted(), attempts=series(5))
    assert [one.name for one in found][:2] == ["node stood still", "accept queue overflow"]


def test_a_crowd_that_is_turned_away_overflows_the_queue_however_still_the_node_seems() -> None:
    found, _ = recognised(HIT, refused=series(0, 130), stalled=halted(), attempts=series(5, 200))
    assert [one.name for one in found][:2] == ["accept queue overflow", "node stood still"]


def test_what_no_log_tells_is_neither_found_nor_ruled_out() -> None:
    judged = judged_at(HIT)
    assert not judged.found
    assert not any("disk" in text or "CPU" in text for text in judged.ruled_out)
    assert judged.not_told == list(BY_LOGS)
    assert "garbage collection" not in judged_at(HIT, gc=series(1)).not_told


def test_the_ranking_puts_what_explains_the_queue_first() -> None:
    quiet = np.ones(WINDOWS, dtype=bool)
    for begin in EVENTS:
        quiet[begin - 4 : begin + LONG + 10] = False
    rng = np.random.default_rng(8)
    known = {
        "gc": series(1, 100),
        "machine_cpu": np.roll(series(30, 99), 50),
        "io_wait": 5 + rng.standard_normal(WINDOWS),
        "disk_busy": series(99),
    }
    ranker = Ranker(known, queue(), quiet)
    scene = Scene(queue(), HIT.start, HIT.stop)
    order = ranked([ranker.candidate(name, scene) for name in known])
    assert order[0].metric == "gc"
    assert order[0].covered > 0.9
    assert order[0].q <= 0.05
    assert all(one.score < 0.05 and one.q > 0.1 for one in order[1:])
    everywhere = {"gc": {"web": known["gc"], "db": known["gc"]}}
    same = Ranker(known, queue(), quiet, everywhere).candidate("gc", scene)
    assert same.also_at == ("web", "db")
    assert same.score < order[0].score
    first = ranker.with_lag(order[0], scene).lag
    assert 0 <= first.windows <= LONG


@pytest.mark.parametrize("name", ["arrivals", "speed_mhz", "machine_cpu"])
def test_shares_of_windows_are_those_that_are_counted_one_by_one(name: str) -> None:
    rng = np.random.default_rng(6)
    values = 50 + 30 * rng.standard_normal(WINDOWS)
    values[rng.random(WINDOWS) < 0.1] = np.nan
    quiet = rng.random(WINDOWS) < 0.8
    track = Track(name, values, quiet)
    for limit in (track.least, track.least - 10 if track.metric.falls else track.least + 10):
        risen = track.metric.beyond(values, limit)
        near = [risen[max(at - 1, 0) : at + 2].any() for at in range(WINDOWS)]
        assert track.risen(0, 20, limit).tolist() == near[:20]
        assert track.risen(200, WINDOWS, limit).tolist() == near[200:]
        assert track.otherwise(limit) == np.array(near)[quiet].mean()


def test_what_is_unknown_in_the_episode_is_no_candidate() -> None:
    values = series(30, 99)
    values[HIT] = np.nan
    quiet = np.ones(WINDOWS, dtype=bool)
    ranker = Ranker({"machine_cpu": values}, queue(), quiet)
    assert ranker.candidate("machine_cpu", Scene(queue(), HIT.start, HIT.stop)) is None


def test_levels_that_move_abruptly_stand_out() -> None:
    slow = np.linspace(0, 50, 200)
    assert churned(slow).max() < 1
    slow[120:] -= 30
    assert int(np.argmax(churned(slow))) in (120, 121, 122)
    assert np.isnan(churned(np.array([1.0, np.nan, 3.0]))[1])


def test_a_short_queue_is_a_finding_only_where_its_reason_is_shown(tmp_path) -> None:
    """The application halts for 120 ms, which few users feel; a quiet run has queues as short."""
    simulate(seed=3, users=60, seconds=10.0, stall_at_s=5.0, stall_ms=120).save(tmp_path / "run.db")
    with RunFile.open(tmp_path / "run.db") as run:
        found = findings(run)
    assert all(one.episode.grave or one.mechanisms[0].metric in DIRECT for one in found)
    near = [one for one in found if abs(one.episode.begin_ns - START_NS - 5 * SECOND) < 0.1 * SECOND]
    assert [one.cause for one in near] == ["node stood still"]


def test_a_queue_that_is_hardly_one_is_a_finding_when_a_log_speaks_of_that_moment(tmp_path) -> None:
    halt = {"seed": 3, "users": 60, "seconds": 10.0, "stall_at_s": 5.0, "stall_ms": 60}

    def near(name: str, pauses: list[float]) -> list[str]:
        simulate(**halt).save(tmp_path / name)
        with RunFile.open(tmp_path / name, write=True) as run:
            begin = START_NS + (np.array(pauses) * SECOND).astype(np.int64)
            columns = {"begin_ns": begin, "end_ns": begin + 60_000_000}
            source = {"path": "gc.log", "host": NODE_NAMES[2], "kind_of_record": "jvm_gc"}
            run.write_dynamic("jvm_gc", columns, {}, source)
            found = findings(run)
        return [
            one.cause for one in found if abs(one.episode.begin_ns - START_NS - 5 * SECOND) < 0.1 * SECOND
        ]

    assert near("with.db", [2.0, 5.0]) == ["garbage collection"]
    assert near("without.db", [2.0, 8.0]) == []
