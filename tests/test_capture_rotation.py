"""Packet files in turns, several interfaces, clocks, fan-out groups: what an operator asks of a capture."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from live_network import network, stop, wait_for

from tapscope.capture import read_files, read_spool
from tapscope.store.errors import ExitCode


@pytest.fixture(scope="module")
def net():
    with network() as made:
        yield made


def begun(net, tmp_path: Path, *words):
    process = net.capture(*words, "--spool", tmp_path / "x.spool", "--json", "tcp port 8080")
    wait_for(lambda: (tmp_path / "x.spool/manifest.json").exists())
    time.sleep(0.3)
    return process


def requests(tables) -> int:
    return int((tables.messages["kind"] == 0).sum())


def test_files_of_a_size_are_read_together_as_one(net, tmp_path: Path) -> None:
    process = begun(net, tmp_path, "-w", tmp_path / "x.pcap", "-C", 1, "-Z", "root")
    assert net.client(1500, per_connection=50).wait(timeout=60) == 0
    time.sleep(0.3)
    out, errors = stop(process)
    assert process.returncode == ExitCode.DONE, errors
    files = sorted(tmp_path.glob("x.pcap*"), key=lambda path: (len(path.name), path.name))
    assert [path.name for path in files[:2]] == ["x.pcap", "x.pcap1"]
    assert all(1_000_000 <= path.stat().st_size < 1_300_000 for path in files[:-1])
    together = read_files(files)
    assert together.counter("packets") == json.loads(out)["packets"]
    assert requests(together) == requests(read_spool(tmp_path / "x.spool")) == 1500


def test_a_ring_of_files_keeps_the_newest(net, tmp_path: Path) -> None:
    process = begun(net, tmp_path, "-w", tmp_path / "x", "-C", 1, "-W", 2, "-Z", "root")
    assert net.client(2500, per_connection=50).wait(timeout=60) == 0
    time.sleep(0.3)
    stop(process)
    files = sorted(tmp_path.glob("x?"))
    assert [path.name for path in files] == ["x0", "x1"]
    spool = read_spool(tmp_path / "x.spool")
    kept = [read_files([path]).sources[0] for path in files]
    assert max(source["last_ns"] for source in kept) == spool.sources[0]["last_ns"]
    assert sum(source["packets"] for source in kept) < spool.sources[0]["packets"]


def test_files_of_a_time_end_the_capture_when_there_are_enough(net, tmp_path: Path) -> None:
    process = begun(net, tmp_path, "-w", tmp_path / "x-%s.pcap", "-G", 1, "-W", 2, "-Z", "root")
    client = net.client(10_000, per_connection=10, pause=0.01)
    out, errors = process.communicate(timeout=30)
    client.send_signal(signal.SIGTERM)
    assert process.returncode == ExitCode.DONE, errors
    files = sorted(tmp_path.glob("x-*.pcap"))
    assert len(files) == 2
    first, second = (read_files([path]).sources[0] for path in files)
    assert first["last_ns"] - first["first_ns"] < 1_100_000_000
    assert first["last_ns"] <= second["first_ns"]
    # What is in the files is what was dissected, also of the burst that filled the last one.
    seen = read_spool(tmp_path / "x.spool").sources[0]["packets"]
    assert first["packets"] + second["packets"] == json.loads(out)["packets"]
    assert read_spool(tmp_path / "x.spool").counter("packets") == first["packets"] + second["packets"] <= seen


def test_several_interfaces_are_one_capture(net, tmp_path: Path) -> None:
    """Loopback beside the wire: what neither of them carries twice is there once."""
    process = net.capture("-i", "lo", "--spool", tmp_path / "x.spool", "--json", "tcp port 8080")
    wait_for(lambda: (tmp_path / "x.spool/manifest.json").exists())
    time.sleep(0.3)
    assert net.client(50).wait(timeout=30) == 0
    time.sleep(0.3)
    _, errors = stop(process)
    assert process.returncode == ExitCode.DONE, errors
    tables = read_spool(tmp_path / "x.spool")
    assert requests(tables) == 50


def test_a_group_of_processes_shares_the_connections(net, tmp_path: Path) -> None:
    names = ("one", "two")
    processes = [
        net.capture("--spool", tmp_path / f"{name}.spool", "--json", "--fanout", 77, "tcp port 8080")
        for name in names
    ]
    for name in names:
        wait_for(lambda name=name: (tmp_path / f"{name}.spool/manifest.json").exists())
    time.sleep(0.5)
    assert net.client(400, per_connection=5).wait(timeout=30) == 0
    time.sleep(0.5)
    for process in processes:
        _, errors = stop(process)
        assert process.returncode == ExitCode.DONE, errors
    parts = [read_spool(tmp_path / f"{name}.spool") for name in names]
    assert sum(map(requests, parts)) == 400
    assert min(map(requests, parts)) > 40, "80 connections do not all fall to one of two"
    for part in parts:
        answered = part.messages["request"][part.messages["kind"] == 1]
        assert (answered >= 0).all(), "both directions of a connection came to the same process"


def test_a_clock_that_the_interface_does_not_have_is_named(net, tmp_path: Path) -> None:
    process = net.capture("-j", "adapter", "--spool", tmp_path / "x.spool")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == ExitCode.ERROR
    assert b"does not stamp packets by adapter" in errors
    process = net.capture("-j", "sundial", "--spool", tmp_path / "y.spool")
    _, errors = process.communicate(timeout=20)
    assert b"no time stamp type sundial" in errors


@pytest.mark.parametrize("words", [("-W", "3"), ("-C", "1"), ("-G", "5")])
def test_turns_without_a_packet_file_are_refused(net, tmp_path: Path, words) -> None:
    process = net.capture(*words, "--spool", tmp_path / "x.spool")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == ExitCode.USAGE, errors
