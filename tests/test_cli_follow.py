"""`trace --follow`: transactions are stored while the capture grows, and the run is that of the whole
capture."""

from __future__ import annotations

import itertools
import json
import random
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from cli_program import COMMAND, environment, tapscope

from tapscope.capture import _native
from tapscope.capture import spool as spools
from tapscope.capture.growing import GrowingSpool, Piece
from tapscope.capture.segment import arrays_of
from tapscope.cli.following import _Steps
from tapscope.cli.pipeline import TraceOptions
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
SAMPLE = PCAPS / "http_ajp_mysql_groundtruth.pcap"
TABLES = ("call", "link", "trace", "trace_call", "message", "tcp_event", "node", "class", "load")


def following(path: Path | str, run: Path, **pipes) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, "trace", "--follow", str(path), "-o", str(run), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        **pipes,
    )


def has_begun(run: Path) -> None:
    """Waits for the run file, and a while longer."""
    until = time.monotonic() + 60
    while not run.exists() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2.0)


def ended(process: subprocess.Popen, sign: int | None = signal.SIGINT) -> dict:
    if sign is not None:
        process.send_signal(sign)
    out, errors = process.communicate(timeout=60)
    assert process.returncode in (ExitCode.DONE, ExitCode.LOW_QUALITY), errors
    return json.loads(out)


def traced(path: Path, run: Path) -> Path:
    done = tapscope("trace", path, "-o", run, "--no-self-check")
    assert done.returncode in (ExitCode.DONE, ExitCode.LOW_QUALITY), done.stderr
    return run


def differences(one: Path, other: Path) -> list[str]:
    """Tables in which two runs differ. (Numbers of addresses depend on the pieces; so does nothing else.)"""
    with RunFile.open(one) as left, RunFile.open(other) as right:
        found = []
        for table in TABLES:
            columns = "*" if table != "node" else "id, port, protocol, depth, name"
            rows = [run.sql(f"SELECT {columns} FROM {table} ORDER BY id") for run in (left, right)]
            if rows[0] != rows[1]:
                pairs = [pair for pair in zip(*rows, strict=False) if pair[0] != pair[1]]
                found.append(f"{table}: {len(rows[0])} and {len(rows[1])} rows; {pairs[:1]}")
        told = [[source["packets"] for source in run.sources()] for run in (left, right)]
        found += [] if told[0] == told[1] else [f"sources: {told}"]
        ends = [run.sql("SELECT * FROM v_connection ORDER BY id") for run in (left, right)]
        found += [] if ends[0] == ends[1] else ["connections"]
        for key in ("edges", "quality", "complete"):
            told = [run.meta(key) for run in (left, right)]
            found += [] if told[0] == told[1] else [f"{key}: {told}"]
        return found


def without_some(capture: bytes, every: int) -> bytes:
    """A capture that lacks packets."""
    out, at, number = [capture[:24]], 24, 0
    while at < len(capture):
        size = 16 + struct.unpack_from("<I", capture, at + 8)[0]
        number += 1
        out += [] if number % every == 0 else [capture[at : at + size]]
        at += size
    return b"".join(out)


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("name", [SAMPLE.name, "mediawiki_http_mysql.pcap"])
def test_what_comes_through_a_pipe_gives_the_run_of_the_whole_capture(tmp_path, name, lossy):
    capture = (PCAPS / name).read_bytes()
    capture = without_some(capture, 23) if lossy else capture
    whole = tmp_path / "whole.pcap"
    whole.write_bytes(capture)
    process = following("-", tmp_path / "run.db", stdin=subprocess.PIPE)
    some, at = random.Random(3), 0
    while at < len(capture):
        size = some.choice((100, 3000, 40_000))
        process.stdin.write(capture[at : at + size])
        process.stdin.flush()
        at += size
        time.sleep(0.02)
    process.stdin.close()
    process.stdin = None
    record = ended(process, sign=None)
    assert record["complete"]
    assert record["calls"] > 0
    assert differences(tmp_path / "run.db", traced(whole, tmp_path / "whole.db")) == []


def test_a_file_that_is_no_capture_is_named(tmp_path):
    path = tmp_path / "notes.pcap"
    path.write_text("no capture, and long enough to be one by its length\n")
    done = tapscope("trace", "--follow", path, "-o", tmp_path / "run.db")
    assert done.returncode == ExitCode.ERROR
    assert str(path) in done.stderr


@pytest.mark.parametrize("grows_on", [False, True])
def test_a_run_that_another_process_replaced_is_an_error_and_the_other_one_is_whole(tmp_path, grows_on):
    capture = SAMPLE.read_bytes()
    growing = tmp_path / "growing.pcap"
    growing.write_bytes(capture[:40_000])
    process = following(growing, tmp_path / "run.db")
    has_begun(tmp_path / "run.db")
    done = tapscope("trace", SAMPLE, "-o", tmp_path / "run.db", "--force", "--no-self-check")
    assert done.returncode in (ExitCode.DONE, ExitCode.LOW_QUALITY), done.stderr
    if grows_on:
        with growing.open("ab") as file:
            file.write(capture[40_000:])
    else:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.ERROR
    assert f"{tmp_path}/run.db: another process removed or replaced this run file" in errors.decode()
    assert differences(tmp_path / "run.db", traced(SAMPLE, tmp_path / "whole.db")) == []


def test_who_reads_the_run_meanwhile_sees_whole_steps(tmp_path):
    capture = SAMPLE.read_bytes()
    growing = tmp_path / "growing.pcap"
    growing.write_bytes(capture[:40_000])
    process = following(growing, tmp_path / "run.db")
    until = time.monotonic() + 60
    stored = 0
    while not stored and time.monotonic() < until:
        time.sleep(0.2)
        if (tmp_path / "run.db").exists():
            stats = tapscope("stats", tmp_path / "run.db")
            assert stats.returncode in (ExitCode.DONE, ExitCode.LOW_QUALITY), stats.stderr
            with RunFile.open(tmp_path / "run.db") as run:
                stored = run.count("messages") + run.count("connections")
    assert stored
    assert process.poll() is None
    assert "still being followed" in stats.stdout
    with growing.open("ab") as file:
        file.write(capture[40_000:])
    time.sleep(1.5)
    record = ended(process, signal.SIGTERM)
    assert record["complete"]
    assert differences(tmp_path / "run.db", traced(SAMPLE, tmp_path / "whole.db")) == []


def with_a_pause(capture: bytes, behind: int, seconds: int) -> bytes:
    """A capture in which nothing comes for a while behind so many packets."""
    out, at, number = bytearray(capture), 24, 0
    while at < len(capture):
        number += 1
        if number > behind:
            struct.pack_into("<I", out, at, struct.unpack_from("<I", capture, at)[0] + seconds)
        at += 16 + struct.unpack_from("<I", capture, at + 8)[0]
    return bytes(out)


def test_calls_that_are_answered_after_two_minutes_have_their_times_at_the_end(tmp_path):
    paused = tmp_path / "paused.pcap"
    paused.write_bytes(with_a_pause((PCAPS / "mediawiki_http_mysql.pcap").read_bytes(), 261, 200))
    capture = _native.Capture.of_files(
        paths=[str(paused)], salt=bytes(16), keep_text=False, port_map={}, limits={}
    )
    with RunFile.create(tmp_path / "run.db") as run:
        steps = _Steps(run, TraceOptions())
        packets, more = 0, True
        while more:
            packets += 1
            while capture.run(0, packets):
                pass
            more = capture.status()["packets"] == packets
            if not more:
                capture.finish()
            segment = capture.drain()
            classes = {number: tuple(rest) for number, *rest in segment["classes"]}
            steps.take(Piece(1, *arrays_of(segment), classes))
        steps.finish()
        steps.conclude()
        changed = {name: value for name, value, _ in run.counters()}["follow.late_changes"]
        # Not who made them: on one host that is told by the first calls of a connection.
        columns = "id, request, response, server_node, class_id, arrive_ns, depart_ns, status, flags"
        calls = run.sql(f"SELECT {columns} FROM call ORDER BY id")
        messages = run.sql("SELECT * FROM message ORDER BY id")
    with RunFile.open(traced(paused, tmp_path / "whole.db")) as whole:
        assert (
            max(depart - arrive for depart, arrive in whole.sql("SELECT depart_ns, arrive_ns FROM call"))
            > 2e11
        )
        assert messages == whole.sql("SELECT * FROM message ORDER BY id")
        assert calls == whole.sql(f"SELECT {columns} FROM call ORDER BY id")
    assert changed > 0


def segments(path: Path, spool: spools.Spool):
    """Writes a spool of the capture, one step at a time."""
    spool.begin({"interface": path.name})
    capture = _native.Capture.of_files(
        paths=[str(path)], salt=spool.salt, keep_text=False, port_map={}, limits={}
    )
    packets, more = 0, True
    while more:
        packets += 20
        while capture.run(0, packets):
            pass
        more = capture.status()["packets"] == packets
        spool.write(capture.drain())
        yield
    capture.finish()
    spool.write(capture.drain(), last=True)
    spool.close("end of file")
    yield


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_a_spool_is_followed_while_a_capture_writes_to_it(tmp_path, share):
    """Also of a capture that goes on when nobody follows it any more."""
    count = len(list(segments(SAMPLE, spools.Spool(tmp_path / "whole.spool"))))
    writing = segments(SAMPLE, spools.Spool(tmp_path / "tap.spool"))
    next(writing)
    process = following(tmp_path / "tap.spool", tmp_path / "run.db")
    for _ in itertools.islice(writing, int(share * count)):
        time.sleep(0.05)
    has_begun(tmp_path / "run.db")
    assert process.poll() is None
    record = ended(process)
    assert record["complete"]
    assert record["calls"] > 0
    assert differences(tmp_path / "run.db", traced(tmp_path / "tap.spool", tmp_path / "whole.db")) == []


@pytest.mark.parametrize("every", [1, 3, 5, 8])
def test_segments_that_are_joined_meanwhile_are_read_once(tmp_path, monkeypatch, every):
    monkeypatch.setattr(spools, "JOINED", 6)
    writing = segments(SAMPLE, spools.Spool(tmp_path / "tap.spool"))
    next(writing)
    spool = GrowingSpool(tmp_path / "tap.spool")
    numbers, amendments, told = [], 0, 1

    def look() -> None:
        nonlocal amendments
        for piece in spool._new():
            first = piece.about["first_message"]
            numbers.extend(range(first, first + piece.about["messages"]))
            assert len(piece.arrays["messages.conn"]) == piece.about["messages"]
            amendments += len(piece.arrays["amendments.message"])

    for told, _ in enumerate(writing, 2):
        if told % every == 0:
            look()
    look()
    assert told > 12
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 150
    assert spool.counters() == [("spool.segments", told, "segments")]
    all_at_once = GrowingSpool(tmp_path / "tap.spool")
    assert amendments == sum(len(piece.arrays["amendments.message"]) for piece in all_at_once._new())
