"""The recorder in front of libc, on programs that know themselves what they did."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from cli_program import environment, wait_for

from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads.log import How, Way
from tapscope.store.errors import TapscopeError
from tapscope.validate.threads import record

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the recorder is for Linux")


def recorded(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    wrapper = [sys.executable, "-m", "tapscope", "threads", "record", "-o", str(folder), "--", *command]
    return subprocess.run(wrapper, env=environment(), capture_output=True, text=True, timeout=60, check=False)


def test_every_send_and_receive_is_logged_with_its_thread_and_connection(tmp_path):
    done = recorded(tmp_path, sys.executable, str(HERE / "threads_program.py"))
    assert done.returncode == 0, done.stderr
    logs = log.read([tmp_path])
    table, events = logs.connections, logs.events
    said = Counter(tuple(json.loads(line)) for line in done.stdout.splitlines())
    pids = [process.pid for process in logs.processes]
    found = Counter(
        (pids[thread >> 32], thread & 0xFFFFFFFF, int(table["own_port"][conn]), Way(way).name.lower(), size)
        for thread, conn, way, size in zip(
            *(events[name].tolist() for name in ("thread", "connection", "way", "bytes")), strict=True
        )
    )
    assert found == said
    assert logs.counters == {}
    assert len(pids) == 2  # the program and its child
    assert Counter(table["how"].tolist()) == {How.ACCEPTED: 6, How.CONNECTED: 6, How.FOUND: 2}
    assert (events["end_ns"] >= events["begin_ns"]).all()


def test_a_program_without_connections_leaves_no_log(tmp_path):
    done = recorded(tmp_path, "sh", "-c", "echo hello; exit 3")
    assert (done.stdout, done.returncode) == ("hello\n", 3)
    assert list(tmp_path.iterdir()) == []


def test_a_library_may_wait_for_its_own_thread_while_it_is_loaded(tmp_path):
    library = tmp_path / "waiting.so"
    source = HERE / "waiting_library.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True)
    load = f"import ctypes; print(ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), 'came').value)"
    done = recorded(tmp_path / "logs", sys.executable, "-c", load)
    assert done.stdout == "1\n", done.stderr


def test_a_program_that_is_killed_leaves_what_was_written_until_then(tmp_path):
    talk = (
        "import socket, time; l = socket.create_server(('127.0.0.1', 0));"
        "c = socket.create_connection(l.getsockname()); c.send(b'x' * 9); print(flush=True); time.sleep(60)"
    )
    variables = record.environment(record.folder_for_logs(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", talk], env={**os.environ, **variables}, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(0.5)  # longer than the helper ever sleeps
        program.send_signal(signal.SIGKILL)
    logs = log.read([tmp_path])
    assert logs.events["bytes"].tolist() == [9]
    assert logs.counters == {"threads.logs_without_end": 1}


def test_a_full_ring_loses_records_and_never_the_program_s_time(tmp_path):
    # The log's place is full from the first byte on: nothing can be written.
    talk = (
        "import socket; a = socket.create_server(('127.0.0.1', 0));"
        "c = socket.create_connection(a.getsockname()); s = a.accept()[0];"
        "[(c.send(b'x'), s.recv(1)) for _ in range(40000)]; print('done')"
    )
    limited = f"ulimit -f 1; trap '' XFSZ; exec {sys.executable} -c \"{talk}\""
    done = recorded(tmp_path, "sh", "-c", limited)
    assert done.stdout == "done\n", done.stderr
    (written,) = tmp_path.glob("*.threads")
    assert written.stat().st_size <= 1024


TALKED = 16_384
"""Bytes of a log behind which its program is under way, however busy the machine."""


def test_recording_can_be_paused_and_goes_on_at_the_right_byte(tmp_path):
    # Pairs of threads that talk all the time, in messages that say where in their stream they stand.
    with subprocess.Popen(
        [sys.executable, str(HERE / "threads_talkers.py")],
        env={**os.environ, **record.environment(record.folder_for_logs(tmp_path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        wait_for(lambda: any(each.stat().st_size > TALKED for each in tmp_path.rglob("*.threads")))
        marks = []
        for act in (record.pause, record.resume, record.pause, record.resume):
            time.sleep(0.3)
            act(tmp_path)
            marks.append(time.time_ns())
            time.sleep(2 * record.HEARD_S)
        time.sleep(0.3)
        program.stdin.close()
        said = [json.loads(line) for line in program.stdout]
    logs = log.read([tmp_path])
    assert logs.counters == {"threads.pauses": 2}
    events = logs.events
    begins = events["begin_ns"]
    for paused, resumed in zip(marks[::2], marks[1::2], strict=True):
        inside = (begins > paused + record.HEARD_S * 1e9) & (begins < resumed)
        assert not inside.any()
    assert set(np.searchsorted(marks, begins).tolist()) >= {0, 2, 4}  # before, between and after the pauses
    streams: dict[tuple[int, int, str], tuple[list[int], list[int]]] = {}
    for own, peer, way, when, offset in said:
        times, offsets = streams.setdefault((own, peer, way), ([], []))
        times.append(when)
        offsets.append(offset)
    assert len(begins) < len(said)
    table, named = logs.connections, events["connection"]
    ends = zip(table["own_port"][named], table["peer_port"][named], events["way"], strict=True)
    for (own, peer, way), begin, offset in zip(ends, begins, events["offset"], strict=True):
        times, offsets = streams[int(own), int(peer), Way(way).name.lower()]
        assert offset == offsets[np.searchsorted(times, begin, side="right") - 1]


def test_the_variables_for_a_service_are_printed(tmp_path):
    command = [sys.executable, "-m", "tapscope", "threads", "record", "-o", str(tmp_path), "--print-env"]
    printed = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    assert dict(line.split("=", 1) for line in printed.splitlines()) == {
        "LD_PRELOAD": str(record.recorder_file()),
        "TAPSCOPE_THREADS_DIR": str(tmp_path.resolve()),
    }
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_a_command_that_is_not_there_is_one_clear_error(tmp_path):
    with pytest.raises(TapscopeError, match="no-such-program cannot be started"):
        record.execute(tmp_path, ["no-such-program"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the system call is this machine's")
def test_bytes_that_pass_by_libc_are_counted(tmp_path):
    talk = (
        "import ctypes, socket; l = socket.create_server(('127.0.0.1', 0));"
        "c = socket.create_connection(l.getsockname()); s = l.accept()[0];"
        "c.send(b'x' * 9); ctypes.CDLL(None).syscall(1, c.fileno(), b'y' * 500, 500);"
        "s.recv(509, socket.MSG_WAITALL)"
    )
    assert recorded(tmp_path, sys.executable, "-c", talk).returncode == 0
    logs = log.read([tmp_path])
    assert sorted(logs.events["bytes"].tolist()) == [9, 509]
    assert abs(logs.counters["threads.bytes_not_seen"] - 500) <= 1  # the kernel counts SYN or FIN
