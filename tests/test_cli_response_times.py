"""`tapscope response-times` and `listeners` on a run in which some clients waited for a connection."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import span_sets
from capture_packets import CLIENT, Dialogue, write_pcap
from simulator import NODE_NAMES, WEB, Simulation, simulate

from tapscope.cli.main import run
from tapscope.store.errors import ExitCode

SECOND = 1_000_000_000
LATE = {0: 1, 1: 3, 2: 7}  # entry connection -> seconds until a SYN was answered
NEVER = 3


@pytest.fixture(scope="module")
def world() -> Simulation:
    """Of the entry tier's connections three were set up late and one never; the others within 50 us."""
    made = simulate(seed=5, users=60, seconds=12.0)
    calls, connections = made.tables["calls"], made.tables["connections"]
    entry = np.unique(calls["conn"][calls["server_node"] == WEB])
    first = np.array([calls["arrive_ns"][calls["conn"] == conn].min() for conn in entry])
    connections["syn_ns"][entry] = first - 60_000
    connections["established_ns"][entry] = first - 10_000
    for place, seconds in LATE.items():
        connections["syn_ns"][entry[place]] = first[place] - 10_000 - seconds * SECOND
        connections["syn_retransmits"][entry[place]] = seconds.bit_length()
    connections["established_ns"][entry[NEVER]] = -1
    connections["syn_retransmits"][entry[NEVER]] = 4
    return made


@pytest.fixture(scope="module")
def path(world: Simulation, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("response") / "run.db"
    world.save(file)
    return str(file)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(words) == ExitCode.DONE
    return capsys.readouterr().out


def test_percentiles_of_each_node_are_those_of_its_sorted_response_times(capsys, path, world) -> None:
    found = json.loads(printed(capsys, "response-times", path, "--json"))
    assert [record["node"] for record in found["nodes"]] == NODE_NAMES[1:]
    calls = world.tables["calls"]
    for node, record in enumerate(found["nodes"], start=1):
        mine = calls["server_node"] == node
        took = np.sort((calls["depart_ns"] - calls["arrive_ns"])[mine & (calls["depart_ns"] >= 0)]) / 1e6
        assert record["count"] == len(took)
        assert record["unanswered"] == mine.sum() - len(took)
        assert record["mean_ms"] == pytest.approx(took.mean())
        assert record["max_ms"] == took[-1]
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999)):
            exact = took[int(np.ceil(share * len(took))) - 1]
            assert record[name] == pytest.approx(exact, rel=1 / 2048)
        assert record["vlrt"] == (took >= record["vlrt_from_ms"]).sum()
        assert sum(mode["share_pct"] for mode in record["modes"]) <= 100.001
    assert "coordinated omission" in found["omission"]


def test_transactions_count_the_wait_for_their_connection(capsys, path, world) -> None:
    document = json.loads(printed(capsys, "response-times", path, "--json"))
    found, (entry,) = document["transactions"], document["entries"]
    assert entry["count"] == sum(record["count"] for record in found)
    assert entry["max_ms"] == max(record["max_ms"] for record in found)
    assert entry["mean_ms"] - document["nodes"][0]["mean_ms"] > sum(LATE.values()) * 1e3 / entry["count"]
    calls = world.tables["calls"]
    assert (
        sum(record["count"] for record in found)
        == ((calls["server_node"] == WEB) & (calls["depart_ns"] >= 0)).sum()
    )
    longest = sorted(record["max_ms"] for record in found)[-1]
    assert 7_000 < longest < 8_000
    assert max(record["vlrt"] for record in found) >= 1
    table = printed(capsys, "response-times", path, "--limit", "1")
    assert found[0]["class"] in table
    assert found[-1]["class"] not in table


def test_a_run_in_which_nothing_was_answered_has_no_transactions(capsys, tmp_path) -> None:
    dialogue = Dialogue().open().send(CLIENT, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    capture, out = write_pcap(tmp_path / "a.pcap", dialogue.packets), tmp_path / "run.db"
    run(["trace", str(capture), "-o", str(out)])
    capsys.readouterr()
    assert run(["response-times", str(out), "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["transactions"] == []


def test_csv_has_a_row_per_node_and_class(capsys, path) -> None:
    found = json.loads(printed(capsys, "response-times", path, "--json"))
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "response-times", path, "--csv"))))
    assert [row["node"] for row in rows[:3]] == NODE_NAMES[1:]
    assert rows[3]["class"] == "(all)"
    assert [row["class"] for row in rows[4:]] == [record["class"] for record in found["transactions"]]
    assert [float(row["p99_ms"]) for row in rows[:3]] == [record["p99_ms"] for record in found["nodes"]]
    assert all("ms" in row["modes"] for row in rows[:3])


def test_point_in_time_response_time_has_every_call_once(capsys, path, world) -> None:
    calls = world.tables["calls"]
    done = calls["depart_ns"] >= 0
    for by_start in (False, True):
        words = ["response-times", path, "--pit", "--window", "250ms", "--node", NODE_NAMES[2], "--json"]
        windows = json.loads(printed(capsys, *words, *(["--by-start"] if by_start else [])))
        mine = done & (calls["server_node"] == 2)
        at = calls["arrive_ns" if by_start else "depart_ns"][mine] // 250_000_000 * 250_000_000
        took = (calls["depart_ns"] - calls["arrive_ns"])[mine]
        assert [w["window_start_ns"] for w in windows] == np.unique(at).tolist()
        for window in windows:
            inside = took[at == window["window_start_ns"]]
            assert window["calls"] == len(inside)
            assert window["mean_ms"] == pytest.approx(inside.mean() / 1e6)
            assert window["max_ms"] == inside.max() / 1e6
    assert {
        row["node"]
        for row in csv.DictReader(io.StringIO(printed(capsys, "response-times", path, "--pit", "--csv")))
    } == {NODE_NAMES[1]}
    assert "begin in each" in printed(capsys, "response-times", path, "--pit", "--by-start").replace(
        "\n", " "
    )
    assert run(["response-times", path, "--by-start"]) == ExitCode.USAGE


def test_listener_with_dropped_syns_comes_first_and_names_whom_it_hit(capsys, path, world) -> None:
    listed = json.loads(printed(capsys, "listeners", path, "--json"))
    first = listed[0]
    assert first["listener"].startswith("10.77.0.11:")
    assert first["syn_retransmits"] == sum(s.bit_length() for s in LATE.values()) + 4
    assert (first["waited"], first["hit"], first["unanswered_syns"]) == (3, 3, 1)
    assert first["setup_max_ms"] == 7_000
    assert first["setup_p50_ms"] == pytest.approx(0.05)
    assert {one["syn_retransmits"] for one in listed[1:]} == {0}
    assert "set up late" in printed(capsys, "listeners", path)
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "listeners", path, "--csv"))))
    assert [int(row["connections"]) for row in rows] == [one["connections"] for one in listed]


def test_every_connection_that_waited_leads_to_its_transaction(capsys, path, world) -> None:
    waits = json.loads(printed(capsys, "listeners", path, "--waits", "--json"))
    assert len(waits) == 4
    assert [one["syn_ns"] for one in waits] == sorted(one["syn_ns"] for one in waits)
    assert sorted(one["setup_ms"] for one in waits if one["setup_ms"]) == [1_000, 3_000, 7_000]
    traces, calls = world.tables["traces"], world.tables["calls"]
    for one in waits:
        if one["setup_ms"] is None:
            continue
        root = int(traces["root"][one["trace"]])
        assert calls["arrive_ns"][root] == one["syn_ns"] + one["setup_ms"] * 1e6 + 10_000
    assert "transaction" in printed(capsys, "listeners", path, "--waits")


def test_span_tables_know_of_no_listener(capsys, tmp_path) -> None:
    spans = span_sets.write(tmp_path / "spans.csv", span_sets.rows(simulate(seed=2, users=3, seconds=1.0)))
    run_path = str(tmp_path / "run.db")
    assert run(["trace", "--spans", str(spans), "-o", run_path]) == ExitCode.DONE
    capsys.readouterr()
    assert run(["listeners", run_path, "--json"]) == ExitCode.DONE
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert "no tap saw its connections" in told.err
    assert json.loads(printed(capsys, "response-times", run_path, "--json"))["nodes"]
