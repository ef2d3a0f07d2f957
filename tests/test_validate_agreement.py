"""Queue length by the tap against queue length by event monitors: windows, edges, losses, lag, verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from event_logs import write_logs, write_run
from queueing import read_of
from simulator import APP, DB, WEB, simulate

from tapscope.analyze.load import loads, window_edges
from tapscope.store.codes import Protocol
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table
from tapscope.validate import agreement, events, tap, tiers
from tapscope.validate.agreement import TierAgreement
from tapscope.validate.aligned import align
from tapscope.validate.senders import callers_of
from tapscope.validate.tiers import Compared
from tapscope.validate.verdict import Thresholds, judge

Pair = tuple[np.ndarray, np.ndarray]

MS = 1_000_000
START = 1_790_000_000_000_000_000
NOTHING: Table = {name: np.empty(0, dtype=np.int64) for name in ("begin_ns", "end_ns")}


def _compared(
    tap_calls: list[tuple[float, float]],
    log_calls: list[tuple[float, float]],
    caller_calls: list[tuple[float, float]] = (),
) -> Compared:
    """Calls in milliseconds after START."""
    sides = [
        (np.array(calls, dtype=np.float64).reshape(-1, 2) * MS).astype(np.int64) + START
        for calls in (tap_calls, log_calls, caller_calls)
    ]
    (arrive, depart), log, caller = (side.T for side in sides)
    return _of_calls("web", 0, (arrive, depart), log, caller)


def _of_calls(tier: str, node: int, tap: Pair, log: Pair, caller: Pair) -> Compared:
    """All three sides of the same calls, in order, each with a key of its own."""
    tap_rows, log_rows, caller_rows = (np.arange(len(side[0])) for side in (tap, log, caller))
    return Compared(
        tier=tier,
        nodes=[node],
        what="calls",
        tap_rows=tap_rows,
        log_rows=log_rows,
        tap_arrive=tap[0],
        tap_depart=tap[1],
        tap_open=tap[1] < 0,
        log_arrive=log[0],
        log_depart=log[1],
        caller_arrive=caller[0],
        caller_depart=caller[1],
        caller_rows=caller_rows,
        log_owner=np.zeros(len(log_rows), dtype=np.int64),
        caller_owner=np.ones(len(caller_rows), dtype=np.int64),
        log_key=log_rows,
        caller_key=caller_rows,
        log_coarse_ns=1_000,
        left_out={},
    )


def _agree(
    compared: Compared, seconds: float = 2.0, limits: Thresholds | None = None, **tables: Table
) -> TierAgreement:
    capture = (START, START + int(seconds * 1e9))
    holes, gaps = tables.get("holes", NOTHING), tables.get("gaps", NOTHING)
    found = agreement.agree(align(compared, capture, {}), capture, holes, gaps, ["web"])
    judge(found, None, limits or Thresholds())
    return found


def _steady(seed: int, seconds: float, mean_ms: float = 30.0) -> list[tuple[int, int]]:
    random = np.random.default_rng(seed)
    count = int(seconds * 200)
    begin = np.sort(random.integers(0, int(seconds * 1000), count))
    return [(int(b), int(b + s)) for b, s in zip(begin, random.exponential(mean_ms, count) + 1, strict=True)]


def test_equal_calls_agree_in_every_reading():
    calls = _steady(1, 2.0)
    found = _agree(_compared(calls, calls))
    assert found.failures == found.undecided == []
    for reading in found.readings:
        assert (reading.pearson_r, reading.bias, reading.max_error) == (pytest.approx(1.0), 0.0, 0.0)
    assert [reading.name for reading in found.readings] == ["concurrent", "concurrent_as_stamped", "started"]
    assert found.lag_ns == pytest.approx(0, abs=50_000)


def test_both_readings_are_what_they_say():
    # One call of 120 ms that starts 40 ms into the first window (the example of milliScope 3.3).
    found = _agree(_compared([(40, 160)], [(40, 160)]), seconds=0.3)
    windows = found.windows
    at = int(np.flatnonzero(windows["tap_arrivals"])[0])
    assert windows["log_load"][at : at + 4].tolist() == pytest.approx([0.2, 1.0, 1.0, 0.2])
    assert windows["log_arrivals"][at : at + 4].tolist() == [1, 0, 0, 0]


def test_the_load_is_that_of_analyze():
    world = simulate(seed=41, users=50, seconds=2.0)
    calls, nodes = world.tables["calls"], world.tables["nodes"]
    mine = calls["server_node"] == APP
    arrive, depart = calls["arrive_ns"][mine], calls["depart_ns"][mine]
    none = np.empty(0, dtype=np.int64)
    pair = _of_calls("app", APP, (arrive, depart), (arrive, depart), (none, none))
    capture = (world.begin_ns, world.end_ns)
    found = agreement.agree(align(pair, capture, {}), capture, NOTHING, NOTHING, ["", "", "app", ""])
    answered = {name: values[calls["depart_ns"] >= 0] for name, values in calls.items()}
    table = loads(read_of(answered), nodes, first_ns=world.begin_ns, last_ns=world.end_ns)
    assert found.windows["tap_load"].tolist() == table["load"][table["node"] == APP].tolist()
    assert found.windows["tap_max"].tolist() == table["max"][table["node"] == APP].tolist()


@pytest.mark.parametrize("offset_ms", [0.7, -13.0, 2_500.0])
def test_a_clock_offset_of_the_log_is_found_and_not_read_as_disagreement(offset_ms):
    calls = _steady(2, 12.0)
    pair = _compared(calls, calls)
    offset = int(offset_ms * MS)
    moved = Compared(
        **(vars(pair) | {"log_arrive": pair.log_arrive + offset, "log_depart": pair.log_depart + offset})
    )
    found = _agree(moved, seconds=12.0)
    assert found.lag_ns == pytest.approx(offset, abs=100_000)
    assert found.failures == []
    stamped, aligned = found.reading("concurrent_as_stamped"), found.reading("concurrent")
    assert stamped.pearson_r < aligned.pearson_r
    assert aligned.pearson_r > 0.999


def test_a_log_of_other_calls_fails():
    found = _agree(_compared(_steady(3, 4.0), _steady(4, 4.0)), seconds=4.0)
    assert found.lag_ns is None
    assert any("Pearson r is" in why for why in found.failures)


def test_calls_that_the_log_shows_longer_fail_by_bias():
    calls = _steady(5, 6.0)
    found = _agree(_compared(calls, [(begin, end + 4) for begin, end in calls]), seconds=6.0)
    concurrent = found.reading("concurrent")
    assert concurrent.bias == pytest.approx(-200 * 0.004, rel=0.05)  # rate times 4 ms (Little)
    assert [why for why in found.failures if why.startswith("bias is -")]
    assert found.stay_ns["log_mean"] - found.stay_ns["tap_mean"] == pytest.approx(4 * MS, rel=0.01)


def test_calls_that_wait_in_the_server_agree_with_their_caller_s_log():
    # 60 ms pass before a thread takes a call up: the server's log begins only then, its caller's does not.
    wire = [(begin, end + 60) for begin, end in _steady(11, 6.0)]
    server = [(begin + 60, end) for begin, end in wire]
    caller = [(begin - 0.2, end + 0.2) for begin, end in wire]
    assert _agree(_compared(wire, server), seconds=6.0).failures
    found = _agree(_compared(wire, server, caller), seconds=6.0)
    assert (found.agrees_with, found.failures) == ("caller", [])
    assert found.reading("concurrent_by_caller").pearson_r > 0.999
    assert found.stay_ns["caller_mean"] - found.stay_ns["tap_mean"] == pytest.approx(0.4 * MS, rel=0.3)


def test_a_caller_s_log_with_a_part_of_the_calls_is_not_compared_and_its_share_is_named():
    wire = [(begin, end + 60) for begin, end in _steady(11, 6.0)]
    server = [(begin + 60, end) for begin, end in wire]
    caller = [(begin - 0.2, end + 0.2) for begin, end in wire]
    found = _agree(_compared(wire, server, caller[::3]), seconds=6.0)
    assert found.caller_share == pytest.approx(1 / 3, abs=0.01)
    assert [each.name for each in found.readings if "caller" in each.name or "sender" in each.name] == []
    assert (found.between, found.agrees_with, found.failures) == (None, "", [])
    assert found.undecided[0].startswith("the caller's log has 33 % of the calls and is not compared")
    # That a tap sees calls stay shorter than their server says is no matter of the caller.
    shorter = _agree(_compared(server, wire, caller[::3]), seconds=6.0)
    assert (bool(shorter.failures), shorter.undecided) == (True, [])
    whole = _agree(_compared(wire, server, caller[: len(caller) * 39 // 40]), seconds=6.0)
    assert (whole.caller_is_partial, whole.agrees_with) == (False, "caller")


def _nested(mean_ms: float, way_ms: float):
    """Stays at the server, on the wire and for the caller, each `way_ms` on either side around the last."""
    random = np.random.default_rng(12)
    server = _steady(12, 6.0, mean_ms=mean_ms)
    sides = random.exponential(way_ms, (4, len(server)))
    wire = [(b - e, d + f) for (b, d), e, f in zip(server, sides[0], sides[1], strict=True)]
    caller = [(b - e, d + f) for (b, d), e, f in zip(wire, sides[2], sides[3], strict=True)]
    return wire, server, caller


def _strangers(compared: Compared) -> Compared:
    """The same without anything by which a call and its caller's record could be told to be one."""
    return replace(compared, caller_key=np.full(len(compared.caller_key), -1))


def test_stamps_of_the_senders_agree_where_both_logs_are_far_away():
    # Threads wait 8 ms for a processor before they stamp what they received; senders stamp at once.
    random = np.random.default_rng(21)
    wire = _steady(13, 6.0, mean_ms=10.0)
    waits = random.exponential(8.0, (2, len(wire)))
    server = [(b + min(w, d - b), d - 0.02) for (b, d), w in zip(wire, waits[0], strict=True)]
    caller = [(b - 0.02, d + w) for (b, d), w in zip(wire, waits[1], strict=True)]
    found = _agree(_compared(wire, server, caller), seconds=6.0)
    assert (found.agrees_with, found.failures) == ("senders", [])
    senders = found.reading("concurrent_by_senders")
    assert senders.pearson_r > 0.999
    assert abs(senders.bias_percent) < 1
    assert min(found.reading(f"concurrent{log}").pearson_r for log in ("", "_by_caller")) < 0.99


def test_a_call_s_caller_is_found_by_key_and_time_and_no_record_twice():
    key, arrive = np.array([7, 7, 7, 8, -1]), np.array([11, 21, 31, 12, 13])
    caller_key, send, receive = np.array([7, 7, 8]), np.array([10, 30, 11]), np.array([16, 40, 19])
    found = callers_of(key, arrive, caller_key, send, receive, 2)
    assert found.tolist() == [0, -1, 1, 2, -1]  # the second of connection 7 was logged by nobody
    late = callers_of(key, arrive - 2, caller_key, send, receive, 2)  # a clock 2 behind
    assert late.tolist() == [0, -1, 1, 2, -1]


def test_logs_that_are_far_apart_cannot_confirm_the_tap_between_them():
    found = _agree(_compared(*_nested(mean_ms=3.0, way_ms=8.0)), seconds=6.0)
    assert found.between.inside > 0.98
    assert (found.agrees_with, found.failures) == ("", [])
    assert "apart" in found.undecided[0]


def test_a_tap_between_both_logs_agrees_and_one_outside_or_with_calls_missing_does_not():
    wire, server, caller = _nested(mean_ms=60.0, way_ms=2.5)
    found = _agree(_strangers(_compared(wire, server, caller)), seconds=6.0)
    assert (found.agrees_with, found.failures, found.undecided) == ("between", [], [])
    assert found.between.inside > 0.98
    assert found.between.server_mean < found.between.tap_mean < found.between.caller_mean
    half = len(wire) // 2
    missing = _agree(_strangers(_compared(wire[:half] + wire[half::2], server, caller)), seconds=6.0)
    assert (missing.agrees_with, bool(missing.failures)) == ("", True)
    outside = _agree(_strangers(_compared([(b - 90, d + 90) for b, d in wire], server, caller)), seconds=6.0)
    assert outside.between.above > 0.5
    assert (outside.agrees_with, bool(outside.failures)) == ("", True)


def test_logs_that_contradict_each_other_say_nothing_against_a_tap_between_them():
    wire, server, caller = _nested(mean_ms=3.0, way_ms=8.0)
    late = [(b, d + 60) if 2_000 < b < 2_600 else (b, d) for b, d in server]  # stamped after the wire
    found = _agree(_strangers(_compared(wire, late, caller)), seconds=6.0)
    assert found.between.inside < 0.98
    assert (found.agrees_with, found.failures) == ("", [])
    assert "apart" in found.undecided[0]


def test_too_few_windows_and_logs_without_departures_are_undecided():
    calls = _steady(6, 0.5)
    assert "windows could be compared" in _agree(_compared(calls, calls), seconds=0.5).undecided[0]
    pair = _compared(calls, calls)
    arrivals_only = Compared(**(vars(pair) | {"log_depart": np.full(len(calls), -1)}))
    found = _agree(arrivals_only, seconds=0.5)
    assert [reading.name for reading in found.readings] == ["started"]
    assert found.undecided == ["the log has no departures, so it gives no queue length"]


def test_windows_touched_by_losses_are_left_out_by_name():
    calls = _steady(7, 3.0)
    lost = [call for call in calls if not 1_000 <= call[0] < 1_200]
    hole = {"begin_ns": np.array([START + 1_000 * MS]), "end_ns": np.array([START + 1_450 * MS])}
    without = _agree(_compared(lost, calls), seconds=3.0)
    assert without.failures
    found = _agree(_compared(lost, calls), seconds=3.0, holes=hole)
    assert found.failures == []
    assert found.windows_left_out["capture_loss"] == 10
    gap = {"begin_ns": np.array([START + 1_000 * MS]), "end_ns": np.array([START + 1_450 * MS])}
    found = _agree(_compared(calls, lost), seconds=3.0, gaps=gap)
    assert found.failures == []
    assert found.windows_left_out["log_loss"] == 10


def test_a_log_without_lines_for_a_while_is_silent_and_a_server_that_stood_still_is_not():
    calls = _steady(14, 6.0)
    gone = [call for call in calls if not 2_000 <= call[1] < 2_600]
    found = _agree(_compared(calls, gone), seconds=6.0)
    assert found.failures == []
    assert found.windows_left_out["log_silent"] >= 12
    # Nothing runs from 2.0 to 2.6 s: what comes then is taken up afterwards, and is in the log.
    held = [(b, max(d, 2_600 + (d - b))) if d > 2_000 and b < 2_600 else (b, d) for b, d in calls]
    taken_up = [(2_600 if 2_000 < b < 2_600 else b, d) for b, d in held]
    still = _agree(_compared(held, taken_up), seconds=6.0)
    assert "log_silent" not in still.windows_left_out
    assert still.reading("concurrent").max_error > 50


def test_edges_are_left_out_until_both_sides_know_every_call():
    calls = _steady(8, 6.0)
    begun_before = [(-400, 900), *calls]  # the capture began while a long call was inside
    ended_early = [call for call in begun_before if call[1] < 5_000]  # the log stops at 5 s
    seen = [call for call in begun_before if call[0] >= 0]
    found = _agree(_compared(seen, ended_early), seconds=6.0)
    used = found.windows["left_out"] == ""
    first, last = found.windows["window_ns"][used][[0, -1]] - START
    assert first >= 900 * MS
    assert last + 50 * MS <= min(begin for begin, end in seen if end >= 5_000) * MS
    assert found.reading("concurrent_as_stamped").max_error == pytest.approx(0.0)
    assert found.windows_left_out == {"edge": int((~used).sum())}


def test_touched_windows_against_a_twin():
    random = np.random.default_rng(9)
    edges = window_edges(START, START + 2_000 * MS, 50 * MS)
    for _ in range(30):
        begin = START + random.integers(-300 * MS, 2_300 * MS, 3)
        end = begin + random.integers(0, 200 * MS, 3)
        twin = [
            any(b < high and e >= low for b, e in zip(begin, end, strict=True))
            for low, high in pairwise(edges)
        ]
        assert agreement.touched(edges, begin, end).tolist() == twin


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agreement")
    world = simulate(seed=43, users=80, seconds=5.0, lose=3)
    write_run(world, folder / "run.db")
    logs = events.load(write_logs(world, folder / "events"))
    with RunFile.open(folder / "run.db") as file:
        return world, tap.read(file), logs


def test_tiers_are_found_by_likeness_and_by_manifest(run):
    _, seen, logs = run
    assert tiers.nodes_of_tiers(seen, logs, {}) == {"web": [WEB], "app": [APP], "db": [DB]}
    manifest = {"hosts": {"web": seen.node_names[WEB], "db": seen.node_names[DB]}, "ports": {"web": 80}}
    assert tiers.nodes_of_tiers(seen, logs, manifest) == {"web": [WEB], "db": [DB], "app": [APP]}
    several = {"tiers": {"web": [seen.node_names[WEB]], "db": [seen.node_names[node] for node in (APP, DB)]}}
    assert tiers.nodes_of_tiers(seen, logs, several)["db"] == [APP, DB]


def test_calls_of_a_last_tier_without_sql_are_all_compared(run):
    _, seen, logs = run
    spoken = seen.calls["protocol"].copy()
    seen.calls["protocol"] = np.where(spoken == Protocol.MYSQL, int(Protocol.HTTP), spoken)
    pair = tiers.compared(seen, logs, "db", [DB])
    seen.calls["protocol"] = spoken
    assert "tap_calls_without_statement" not in pair.left_out
    assert len(pair.tap_rows) == np.count_nonzero(seen.calls["server_node"] == DB)


def test_the_part_that_a_log_lacks_does_not_decide_whose_log_it_is(run):
    _, seen, logs = run
    begin, end = seen.capture_ns
    cut = begin + (end - begin) // 3
    kept = logs.calls["arrive_ns"] < cut
    calls = {name: values[kept] for name, values in logs.calls.items()}
    lost = {"tier": np.arange(4), "begin_ns": np.full(4, cut), "end_ns": np.full(4, 1 << 62)}
    short = replace(logs, calls=calls, gaps=lost | {"source": np.zeros(4, dtype=np.int64)})
    whole = {(tier, node): like for like, tier, _, node in tiers._likeness(seen, logs, "app", set())}
    part = {(tier, node): like for like, tier, _, node in tiers._likeness(seen, short, "app", set())}
    assert part.keys() == whole.keys()
    assert part["app", APP] > 0.99
    assert part["app", APP] - part["app", WEB] > 0.5 * (whole["app", APP] - whole["app", WEB])


def test_only_statements_are_compared_at_the_database(run):
    _, seen, logs = run
    prepare = len(seen.classes)
    seen.classes += [(int(Protocol.MYSQL), "PREPARE SELECT ?"), (int(Protocol.MYSQL), "PING")]
    mine = np.flatnonzero(seen.calls["server_node"] == DB)
    before = seen.calls["class_id"].copy()
    seen.calls["class_id"][mine[:4]] = [prepare, prepare, prepare + 1, -1]
    pair = tiers.compared(seen, logs, "db", [DB])
    seen.calls["class_id"] = before
    assert pair.left_out == {"tap_calls_without_statement": 4}
    assert len(pair.tap_rows) == len(mine) - 4
    assert pair.what == f"MYSQL SQL statements at {seen.node_names[DB]}"


def test_responses_lost_by_the_tap_are_holes_until_the_next_call_of_the_connection(run):
    world, seen, _ = run
    calls = world.tables["calls"]
    lost = np.flatnonzero(calls["flags"] & 2)
    assert len(lost) == 3
    assert set(calls["arrive_ns"][lost]) <= set(seen.holes["begin_ns"].tolist())
    for row in lost:
        later = calls["arrive_ns"][
            (calls["conn"] == calls["conn"][row]) & (calls["arrive_ns"] > calls["arrive_ns"][row])
        ]
        ends = seen.holes["end_ns"][seen.holes["begin_ns"] == calls["arrive_ns"][row]]
        assert not len(later) or later.min() in ends
    assert {name: value for name, value, _ in seen.counters}["tap.lost_responses"] == 3


def test_thresholds_decide():
    calls = _steady(10, 3.0)
    pair = _compared(calls, [(begin, end + 1) for begin, end in calls])
    assert _agree(pair, 3.0, Thresholds(bias_percent=0.1)).failures
    assert not _agree(pair, 3.0, Thresholds(bias_percent=20.0)).failures


def test_a_server_with_two_listeners_and_one_log_is_both_nodes(run):
    _, seen, logs = run
    names, node = list(seen.node_names), seen.calls["server_node"].copy()
    try:
        web = np.flatnonzero(node == WEB)
        seen.node_names[WEB] = f"{names[WEB]}:80"
        seen.node_names.append(f"{names[WEB]}:8080")
        seen.calls["server_node"][web[::3]] = len(names)
        assert tiers.nodes_of_tiers(seen, logs, {})["web"] == [WEB, len(names)]
    finally:
        seen.node_names[:], seen.calls["server_node"][:] = names, node
