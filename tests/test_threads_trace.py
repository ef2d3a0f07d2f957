"""Exact paths from a capture of real servers and the logs of their threads (pcaps/threads/)."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from cli_program import tapscope

from tapscope import capture
from tapscope.reconstruct.run import Reconstruction
from tapscope.reconstruct.run import trace as match
from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads.run import trace
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.runfile import RunFile
from tapscope.validate import accuracy, truth
from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.event_calls import Names

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "pcaps" / "threads"


@pytest.fixture(scope="module")
def tables() -> capture.CaptureTables:
    return capture.read_files([str(GOLDEN / "board.pcap.gz")])


@pytest.fixture(scope="module")
def logs() -> log.ThreadLogs:
    return log.read([GOLDEN])


def judged(tables: capture.CaptureTables, made: Reconstruction, path: Path) -> PathAccuracy:
    names = Names()
    linked = accuracy.from_tables(made.calls, tables.connections, tables.addresses, made.links, names)
    return accuracy.paths(linked, truth.read(path, names))


def test_every_path_is_exact(tables, logs):
    found = trace(tables, logs)
    assert found.refused == []
    result = judged(tables, found.made, GOLDEN / "calls.csv.gz")
    assert result.paths_exist > 40
    assert result.paths_correct == result.paths_exist == result.paths_reported
    assert {edge.pair: edge.accuracy for edge in result.edges} == {"HTTP->AJP": 1.0, "AJP->MYSQL": 1.0}
    # What Tomcat's pool asked the database before anybody came is Tomcat's own.
    assert found.made.counters["threads.own_calls"] > 0
    assert (found.made.links["kind"] != LinkKind.UNKNOWN).all()


def test_connections_that_stood_before_the_capture_are_lined_up_by_time(logs, tmp_path, tables):
    data = gzip.decompress((GOLDEN / "board.pcap.gz").read_bytes())
    starts, at = [], 24
    while at < len(data):
        starts.append(at)
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    half = starts[len(starts) // 2]
    (tmp_path / "late.pcap").write_bytes(data[:24] + data[half:])
    late = capture.read_files([str(tmp_path / "late.pcap")])
    assert late.connections["midstream"].sum() > 5
    found = trace(late, logs).made
    assert found.counters["threads.streams_lined_up_by_time"] > 10
    assert found.counters["threads.streams_not_lined_up"] == 0
    whole = trace(tables, logs).made
    above = {
        seq: int(whole.calls["tcp_seq"][parent])
        for seq, parent in zip(whole.calls["tcp_seq"].tolist(), whole.links["parent"].tolist(), strict=True)
        if parent >= 0
    }
    linked = np.flatnonzero(found.links["parent"] >= 0)
    assert len(linked) > 0.4 * len(above)
    for row in linked.tolist():
        parent = int(found.links["parent"][row])
        assert above[int(found.calls["tcp_seq"][row])] == int(found.calls["tcp_seq"][parent])


def test_without_the_logs_of_a_server_nothing_is_guessed_about_it(tables, tmp_path):
    for path in GOLDEN.glob("*.threads"):
        if "java" not in path.name:
            shutil.copy(path, tmp_path)
    found = trace(tables, log.read([tmp_path])).made
    server = np.array(found.node_names)[found.calls["server_node"]]
    kind = found.links["kind"]
    assert (kind[server == "10.77.0.30"] == LinkKind.LINKED).all()  # Apache's own log tells
    assert (kind[server == "10.77.0.40"] == LinkKind.UNKNOWN).all()
    assert (kind[server == "10.77.0.20"] == LinkKind.ROOT).all()


def test_what_the_logs_do_not_tell_is_matched_where_that_is_wanted(tables, tmp_path):
    for path in GOLDEN.glob("*.threads"):
        if "java" not in path.name:
            shutil.copy(path, tmp_path)
    found = trace(tables, log.read([tmp_path]), match_rest=EvidenceMode.ALL).made
    server = np.array(found.node_names)[found.calls["server_node"]]
    told, rest = found.links["probability"][server == "10.77.0.30"], server == "10.77.0.40"
    assert (told == 1).all()
    alone = match(tables).links
    for name in ("parent", "kind", "probability"):
        assert (found.links[name][rest] == alone[name][rest]).all()
    assert found.counters["threads.matched_instead"] == int((alone["kind"][rest] != LinkKind.UNKNOWN).sum())


def test_a_truth_file_by_threads_judges_as_the_one_by_request_ids(tables, tmp_path):
    run, out = tmp_path / "run.db", tmp_path / "calls.csv.gz"
    done = tapscope("trace", GOLDEN / "board.pcap.gz", "--thread-log", GOLDEN, "-o", run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["quality"]["unknown"] == 0
    with RunFile.open(run) as opened:
        assert opened.meta("threads") == {"logs": 4, "records_lost": 0, "refused": [], "rest_matched": False}
    done = tapscope("threads", "truth", run, GOLDEN, "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    matched = match(tables)
    by_threads, by_ids = (judged(tables, matched, path) for path in (out, GOLDEN / "calls.csv.gz"))
    assert by_threads.edges == by_ids.edges
    assert by_threads.paths_correct == by_ids.paths_correct
    assert json.loads(done.stdout)["transactions"] == by_ids.paths_exist


def test_thread_logs_do_not_go_with_span_tables(tmp_path):
    done = tapscope("trace", "--spans", "a.csv", "--thread-log", GOLDEN, "-o", tmp_path / "run.db")
    assert done.returncode == 2
    assert "either --thread-log or --spans" in done.stderr


def test_the_statistical_matcher_knows_nothing_of_threads():
    for path in [*(ROOT / "reconstruct/match").glob("*.py"), *(ROOT / "reconstruct").glob("*.py")]:
        assert "reconstruct.threads" not in path.read_text(encoding="utf-8"), path
