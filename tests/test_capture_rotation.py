"""Packet files in turns, several interfaces, clocks, fan-out groups: what an operator asks of a capture."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from cli_program import wait_for
from live_network import network, stop

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
    out, errors = process.communicate(timeout=60)
    client.send_signal(signal.SIGTERM)
    assert process.returncode == ExitCode.DONE, errors
    files = sorted(tmp_path.glob("x-*.pcap"))
    assert len(files) == 2
    first, second = (read_files([path]).sources[0] for path in files)
    assert first["last_ns"] - first["first_ns"] < 1_100_000_000
    assert first["last_ns"] <= second["first_ns"]
    # What is in the files is what was dissected, also of the burst that filled the last one.
    spool = read_spool(tmp_path / "x.spool")
    written = first["packets"] + second["packets"]
    assert written == json.loads(out)["packets"] == spool.counter("packets")
    (source,) = spool.sources
    assert source["packets"] == written
    assert source["bytes"] == first["bytes"] + second["bytes"]


def test_a_capture_of_so_many_packets_counts_no_others(net, tmp_path: Path) -> None:
    """A batch from the kernel's ring holds more packets than were asked for."""
    process = begun(net, tmp_path, "-w", tmp_path / "x.pcap", "-c", 37)
    assert net.client(100, per_connection=50).wait(timeout=60) == 0
    out, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.DONE, errors
    spool, file = read_spool(tmp_path / "x.spool"), read_files([tmp_path / "x.pcap"])
    assert json.loads(out)["packets"] == spool.counter("packets") == 37
    for source in (spool.sources[0], file.sources[0]):
        assert source["packets"] == 37
        assert source["bytes"] == file.sources[0]["bytes"]
        assert source["last_ns"] == file.sources[0]["last_ns"]
    assert spool.tap_points == file.tap_points


@pytest.mark.parametrize("name", ["x-%Y.pcap", "x.pcap"])
def test_files_of_a_size_within_a_time_do_not_write_over_each_other(net, tmp_path: Path, name: str) -> None:
    process = begun(net, tmp_path, "-w", tmp_path / name, "-C", 1, "-G", 3600, "-Z", "root")
    assert net.client(1500, per_connection=50).wait(timeout=60) == 0
    time.sleep(0.3)
    out, errors = stop(process)
    assert process.returncode == ExitCode.DONE, errors
    files = list(tmp_path.glob("x*pcap*"))
    assert len(files) > 2
    assert read_files(files).counter("packets") == json.loads(out)["packets"]
    assert requests(read_files(files)) == 1500


def test_turns_that_the_user_may_not_write_are_refused_at_once(net, tmp_path: Path) -> None:
    process = net.capture("-w", tmp_path / "x.pcap", "-C", 1, "-Z", "nobody")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.ERROR
    assert b"nobody may not make files here" in errors
    assert b"-Z root" in errors


def test_a_ring_of_files_belongs_to_the_user_that_root_became(net) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        process = net.capture("-w", folder / "x", "-C", 1, "-W", 2, "-Z", "nobody", "tcp port 8080")
        wait_for((folder / "x0").exists)
        time.sleep(0.5)
        assert net.client(3500, per_connection=50).wait(timeout=60) == 0
        time.sleep(0.3)
        _, errors = stop(process)
        assert process.returncode == ExitCode.DONE, errors
        assert sorted(path.name for path in folder.iterdir()) == ["x0", "x1"]
        assert {path.stat().st_uid for path in folder.iterdir()} == {nobody.pw_uid}
        first = [read_files([folder / name]).sources[0]["first_ns"] for name in ("x0", "x1")]
        assert first[0] > first[1], "the first file was written over"


@pytest.mark.parametrize("traced", [False, True])
def test_a_packet_file_that_was_taken_away_is_said(net, tmp_path: Path, traced: bool) -> None:
    words = ["-o", tmp_path / "x.db"] if traced else []
    process = net.capture("-w", tmp_path / "x.pcap", *words, "-Z", "root", "tcp port 8080")
    wait_for((tmp_path / "x.pcap").exists)
    time.sleep(1.0)
    (tmp_path / "x.pcap").unlink()
    (tmp_path / "x.pcap").write_bytes(b"of somebody else")
    assert net.client(10).wait(timeout=60) == 0
    time.sleep(0.3)
    out, errors = stop(process)
    assert process.returncode == ExitCode.ERROR
    assert "packets captured" in out
    assert f"Stored in {tmp_path}/x.pcap" not in out
    assert (f"Stored in {tmp_path}/x.db" in out) == traced
    assert f"{tmp_path}/x.pcap: the packet file was removed or replaced while it was written" in errors


def test_packets_on_standard_output_are_there_as_they_come(net) -> None:
    process = net.capture("-w", "-", "-s", 0, "tcp port 8080")
    assert process.stdout is not None
    assert len(os.read(process.stdout.fileno(), 100)) == 24
    time.sleep(0.3)
    assert net.client(3).wait(timeout=60) == 0
    data = os.read(process.stdout.fileno(), 65536)  # before the end, though there is much less than a block
    assert len(data) > 16
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.DONE, errors
    data += rest
    packets = 0
    while data:
        data = data[16 + int.from_bytes(data[8:12], "little") :]
        packets += 1
    assert packets > 10
    assert f"{packets} packets captured".encode() in errors


def _failed_at_a_pipe(process: subprocess.Popen[bytes]) -> bytes:
    """What a capture into a pipe says when writing fails, which is no full disk."""
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(timeout=60) == ExitCode.ERROR
    assert b"standard output" in errors
    assert b"disk" not in errors
    return errors


def test_a_reader_that_reads_no_more_is_told_from_a_full_disk(net) -> None:
    process = net.capture("-w", "-", "-s", 0, "tcp port 8080")
    assert process.stdout is not None
    assert len(os.read(process.stdout.fileno(), 100)) == 24
    time.sleep(0.3)
    assert net.client(200, per_connection=50).wait(timeout=60) == 0  # more than a pipe holds
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert b"a signal ended the capture while writing waited for the reader" in _failed_at_a_pipe(process)


def test_a_reader_that_is_gone_is_told_from_a_full_disk(net) -> None:
    process = net.capture("-w", "-", "-s", 0, "tcp port 8080")
    assert process.stdout is not None
    assert len(os.read(process.stdout.fileno(), 100)) == 24
    process.stdout.close()
    time.sleep(0.3)
    assert net.client(10).wait(timeout=60) == 0
    assert b"who read the packets is gone" in _failed_at_a_pipe(process)


@pytest.mark.parametrize("words", [("-C", "1"), ("-G", "5"), ("-o", "x.db")])
def test_standard_output_takes_no_turns(net, words) -> None:
    process = net.capture("-w", "-", *words)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.USAGE, errors


def test_several_interfaces_are_one_capture(net, tmp_path: Path) -> None:
    """Loopback beside the wire: what neither of them carries twice is there once."""
    process = net.capture("-i", "lo", "--spool", tmp_path / "x.spool", "--json", "tcp port 8080")
    wait_for(lambda: (tmp_path / "x.spool/manifest.json").exists())
    time.sleep(0.3)
    assert net.client(50).wait(timeout=60) == 0
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
    assert net.client(400, per_connection=5).wait(timeout=60) == 0
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
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.ERROR
    assert b"does not stamp packets by adapter" in errors
    process = net.capture("-j", "sundial", "--spool", tmp_path / "y.spool")
    _, errors = process.communicate(timeout=60)
    assert b"no time stamp type sundial" in errors


@pytest.mark.parametrize("words", [("-W", "3"), ("-C", "1"), ("-G", "5")])
def test_turns_without_a_packet_file_are_refused(net, tmp_path: Path, words) -> None:
    process = net.capture(*words, "--spool", tmp_path / "x.spool")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.USAGE, errors
