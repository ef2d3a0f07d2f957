"""`tapscope trace`: from packets, or a run directory, to a run file."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from capture_packets import read_pcap, write_pcap
from cli_program import CAPTURE, tapscope
from queueing import read_of

from tapscope.analyze.load import loads
from tapscope.cli import pipeline
from tapscope.cli.inputs import find_inputs
from tapscope.cli.main import run
from tapscope.store.codes import LinkKind, Protocol
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile

HOSTS = CAPTURE.parent / "hosts"


def traced(tmp_path: Path, *options: str, source: Path = CAPTURE) -> RunFile:
    assert run(["trace", str(source), "-o", str(tmp_path / "run.db"), *options]) == ExitCode.DONE
    return RunFile.open(tmp_path / "run.db")


def test_a_capture_becomes_calls_traces_and_loads(tmp_path, capsys):
    with traced(tmp_path) as stored:
        out = capsys.readouterr().out
        calls = stored.read_table("calls")
        protocols, counts = np.unique(calls["protocol"], return_counts=True)
        counted = dict(zip(protocols.tolist(), counts.tolist(), strict=True))
        assert counted[Protocol.HTTP] == counted[Protocol.AJP] == 20
        assert stored.count("traces") == counted[Protocol.HTTP]
        assert stored.meta("complete") is True
        assert stored.sql("PRAGMA foreign_key_check") == []
        expected = loads(read_of(calls), stored.read_table("nodes"))
        found = stored.read_table("loads")
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)
        names = stored.node_names()
        assert all(names[node] in out for node in np.unique(calls["server_node"]))
    assert "0 % missing, 0 % unparsed" in out
    assert f"Stored in {tmp_path / 'run.db'}" in out


def test_what_takes_longest_to_load_is_loaded_only_by_what_needs_it(tmp_path):
    for command in (["trace", CAPTURE, "-o", tmp_path / "run.db"], ["stats", tmp_path / "run.db"]):
        done = tapscope(*command, PYTHONPROFILEIMPORTTIME="1")
        assert done.returncode == ExitCode.DONE
        assert " numpy\n" in done.stderr
        assert " scipy" not in done.stderr


def test_json_holds_the_whole_summary(tmp_path, capsys):
    traced(tmp_path, "--json").close()
    record = json.loads(capsys.readouterr().out)
    assert record["complete"] is True
    assert record["problems"] == []
    assert record["loss"]["packets"] == 494
    assert {node["protocol"] for node in record["nodes"]} == {"http", "ajp", "mysql"}
    assert record["calls"] == sum(node["calls"] for node in record["nodes"])


def test_packed_and_split_captures_give_the_same_calls(tmp_path):
    packed = tmp_path / "c.pcap.gz"
    packed.write_bytes(gzip.compress(CAPTURE.read_bytes()))
    pipeline.trace([CAPTURE], tmp_path / "a.db")
    pipeline.trace([packed], tmp_path / "b.db")
    with RunFile.open(tmp_path / "a.db") as first, RunFile.open(tmp_path / "b.db") as second:
        for name in ("calls", "links", "traces", "loads"):
            one, other = first.read_table(name), second.read_table(name)
            for column in one:
                np.testing.assert_array_equal(one[column], other[column], err_msg=f"{name}.{column}")


def test_the_same_capture_traced_twice_gives_the_same_run(tmp_path):
    tables = []
    for name in ("a.db", "b.db"):
        with RunFile.open(pipeline.trace([CAPTURE], tmp_path / name)) as stored:
            tables.append(
                [stored.sql(f"SELECT * FROM {t} ORDER BY id") for t in ("call", "link", "trace", "class")]
            )
    assert tables[0] == tables[1]


def test_options_reach_the_stages_and_are_recorded(tmp_path):
    options = ("--evidence", "timing", "--window", "10ms", "--min-probability", "0.5", "--keep-evidence")
    with traced(tmp_path, *options) as stored:
        assert stored.meta("options")["evidence"] == "timing"
        assert np.unique(stored.read_table("loads")["width_ns"]).tolist() == [10_000_000]
        assert stored.count("evidence") > 0
        links = stored.read_table("links")
        assert (links["probability"][links["parent"] >= 0] >= 0.5).all()


def test_a_probability_that_is_no_number_is_refused(tmp_path, capsys):
    given = ["trace", str(CAPTURE), "-o", str(tmp_path / "run.db"), "--min-probability", "nan"]
    assert run(given) == ExitCode.USAGE
    assert "'nan' is no number" in capsys.readouterr().err
    assert not (tmp_path / "run.db").exists()


def on_hosts(frame: bytes, calling: int) -> bytes:
    """A packet of the capture as if servers were hosts: called by 10.0.0.x, calling by 10.`calling`.0.x."""
    called = {3316: (3, 2), 8109: (2, 1), 8091: (1, 9), 8092: (1, 9)}
    source, target = (int.from_bytes(frame[at : at + 2], "big") for at in (34, 36))
    answer = source in called
    server, client = called[source if answer else target]
    ends = [bytes((10, calling, 0, client)), bytes((10, 0, 0, server))]
    return frame[:26] + b"".join(reversed(ends) if answer else ends) + frame[34:]


def test_servers_with_two_addresses_are_one_node_each_where_that_is_said(tmp_path, capsys):
    path = write_pcap(tmp_path / "a.pcap", [(at, on_hosts(frame, 1)) for at, frame in read_pcap(CAPTURE)])
    with traced(tmp_path) as stored:
        whole = sorted(stored.read_table("traces")["calls"].tolist())
    with traced(tmp_path, "--force", source=path) as stored:
        assert stored.count("traces") > len(whole)
    same = ("--same-node", "10.0.0.1,10.1.0.1", "--same-node", "10.0.0.2, 10.1.0.2,10.2.0.2")
    capsys.readouterr()
    with traced(tmp_path, "--force", *same, source=path) as stored:
        assert sorted(stored.read_table("traces")["calls"].tolist()) == whole
        assert stored.node_names() == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.1.0.9"]
    assert "10.2.0.2 is in no connection" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1,10.0.0.1", "10.0.0.1,web", ""])
def test_one_address_alone_or_a_name_is_no_node(text, tmp_path, capsys):
    given = ["trace", str(CAPTURE), "-o", str(tmp_path / "run.db"), "--same-node", text]
    assert run(given) == ExitCode.USAGE
    assert "--same-node" in capsys.readouterr().err


def test_calls_of_a_server_that_serves_nobody_are_told(tmp_path, capsys):
    """The database's packets come from a tap whose clock is a second ahead."""
    for ahead_ns in (0, 1_000_000_000):
        packets = sorted(
            (at + ahead_ns * (b"\x0c\xf4" in (frame[34:36], frame[36:38])), on_hosts(frame, 0))
            for at, frame in read_pcap(CAPTURE)
        )
        with traced(tmp_path, "--force", source=write_pcap(tmp_path / "a.pcap", packets)):
            told = re.findall(r"(\d+) of 31 calls that 10.0.0.2 made came while", capsys.readouterr().err)
        assert [int(number) > 20 for number in told] == [True] * (ahead_ns > 0)


def test_without_matching_calls_and_loads_are_the_same_and_parents_are_open(tmp_path, capsys):
    with traced(tmp_path) as stored:
        matched = {name: stored.read_table(name) for name in ("calls", "loads", "links")}
    capsys.readouterr()
    with traced(tmp_path, "--no-match", "--force") as stored:
        out = capsys.readouterr().out
        for name in ("calls", "loads"):
            for column, values in stored.read_table(name).items():
                np.testing.assert_array_equal(values, matched[name][column], err_msg=f"{name}.{column}")
        kind = stored.read_table("links")["kind"]
        assert stored.meta("expected") is None
    assert "calls that were not matched" in out
    roots = matched["links"]["kind"] == LinkKind.ROOT
    assert (kind[roots] == LinkKind.ROOT).all()
    assert (kind[~roots] == LinkKind.UNKNOWN).all()
    assert run(["report", str(tmp_path / "run.db"), "-o", str(tmp_path / "report.html")]) == ExitCode.DONE
    assert "there are no transactions" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_without_matching_nothing_that_gives_parents_is_taken(tmp_path):
    words = ["trace", str(CAPTURE), "-o", str(tmp_path / "run.db"), "--no-match"]
    assert run([*words, "--thread-log", str(tmp_path)]) == ExitCode.USAGE


def test_no_raw_text_is_stored_unless_asked_for(tmp_path):
    with traced(tmp_path) as stored:
        assert stored.sql("SELECT count(*) FROM class WHERE example <> ''") == [(0,)]
        assert stored.count("evidence") == 0
    with traced(tmp_path, "--keep-text", "--force") as stored:
        assert stored.sql("SELECT count(*) FROM class WHERE example <> ''")[0][0] > 0


@pytest.fixture
def run_directory(tmp_path) -> Path:
    folder = tmp_path / "run"
    (folder / "capture").mkdir(parents=True)
    shutil.copy(CAPTURE, folder / "capture" / "tap.pcap")
    shutil.copytree(HOSTS, folder / "hosts")
    (folder / "events").mkdir()
    shutil.copy(CAPTURE, folder / "events" / "not_for_trace.pcap")
    manifest = {"hosts": {"web": "127.0.0.1"}, "capture": {"dropped_by_kernel": 3}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_run_directory_brings_its_captures_hosts_and_manifest(run_directory, tmp_path, capsys):
    with traced(tmp_path, source=run_directory) as stored:
        assert [s["path"] for s in stored.sources() if s["kind"] == "capture"] == [
            str(run_directory / "capture" / "tap.pcap")
        ]
        assert {t.host for t in stored.dynamic_tables()} == {"web", "app"}
        assert stored.meta("manifest")["hosts"] == {"web": "127.0.0.1"}
    out = capsys.readouterr().out
    assert "host logs of: app, web" in out
    assert "3 dropped by the recorder" in out


def test_a_manifest_that_is_no_json_is_named_with_the_place(run_directory):
    (run_directory / "manifest.json").write_text('{"hosts": {"web": }}')
    with pytest.raises(TapscopeError, match=r"manifest.json \(byte 18\): this is no JSON"):
        find_inputs([run_directory])


@pytest.mark.parametrize("hosts", ["[1]", '"web"', "7"])
def test_a_manifest_whose_hosts_are_no_object_is_refused(hosts, run_directory):
    (run_directory / "manifest.json").write_text(f'{{"hosts": {hosts}}}')
    with pytest.raises(TapscopeError, match=r'manifest.json: "hosts" is no JSON object'):
        find_inputs([run_directory])


def test_a_folder_without_captures_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TapscopeError, match="no capture file in this folder"):
        find_inputs([tmp_path])


@pytest.mark.parametrize("again", ["a.pcap", "link.pcap", "."])
def test_an_input_that_is_named_twice_is_refused(again, tmp_path):
    (tmp_path / "a.pcap").write_bytes(CAPTURE.read_bytes())
    if again == "link.pcap":
        (tmp_path / again).symlink_to(tmp_path / "a.pcap")
    with pytest.raises(TapscopeError, match="is named more than once") as raised:
        find_inputs([tmp_path / "a.pcap", tmp_path / again])
    assert raised.value.exit_code == ExitCode.USAGE


def test_several_files_keep_their_order(tmp_path):
    second = tmp_path / "b.pcap"
    shutil.copy(CAPTURE, second)
    assert find_inputs([second, CAPTURE]).captures == [second, CAPTURE]


def test_a_capture_without_a_known_protocol_is_low_quality_not_an_error(tmp_path, capsys):
    scapy = pytest.importorskip("scapy.all")
    packets, seq, noise = [], 1000, random.Random(1)
    for i in range(20):
        payload = noise.randbytes(200)
        tcp = scapy.TCP(sport=5000, dport=9999, seq=seq, flags="PA", ack=1)
        packets.append(scapy.Ether() / scapy.IP(src="10.0.0.1", dst="10.0.0.2") / tcp / payload)
        packets[-1].time = 1_700_000_000 + i * 0.01
        seq += len(payload)
    scapy.wrpcap(str(tmp_path / "noise.pcap"), packets)
    code = run(["trace", str(tmp_path / "noise.pcap"), "-o", str(tmp_path / "run.db")])
    printed = capsys.readouterr()
    assert code == ExitCode.LOW_QUALITY
    assert "no call of a known protocol in 1 TCP connections" in printed.err
    assert "--port-map" in printed.err
    with RunFile.open(tmp_path / "run.db") as stored:
        assert stored.meta("complete") is True
        assert stored.count("connections") == 1
