"""More captures than a process may open files at first."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, START_NS, Dialogue, write_pcap
from cli_program import COMMAND, environment

from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

FILES, PACKETS = 200, 10
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def captures(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("many")
    for number in range(FILES):
        dialogue = Dialogue(client_port=40000 + number, now_ns=START_NS + number * 1_000_000).open()
        dialogue.send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n").send(SERVER, ANSWER).close()
        assert len(dialogue.packets) == PACKETS
        write_pcap(folder / f"{number:03}.pcap", dialogue.packets)
    return sorted(folder.iterdir())


def trace(captures: list[Path], bound: str, *words: str | Path) -> subprocess.Popen[str]:
    script = f'ulimit {bound} 150; exec "$@"'
    command = ["sh", "-c", script, "sh", *COMMAND, "trace", *map(str, [*words, *captures])]
    return subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def calls(path: Path) -> int:
    with RunFile.open(path) as run:
        return run.count("calls")


def packets(path: Path) -> int:
    if not path.exists():
        return 0
    with RunFile.open(path) as run:
        return sum(source["packets"] for source in run.sources())


def test_the_bound_of_the_shell_is_raised(captures: list[Path], tmp_path: Path) -> None:
    done = trace(captures, "-Sn", "-o", tmp_path / "x.db")
    _, errors = done.communicate(timeout=120)
    assert done.returncode == ExitCode.DONE, errors
    assert calls(tmp_path / "x.db") == FILES


def test_files_that_are_followed_need_more_each(captures: list[Path], tmp_path: Path) -> None:
    done = trace(captures, "-Sn", "--follow", "-o", tmp_path / "x.db")
    for _ in range(300):
        time.sleep(0.1)
        if done.poll() is not None or packets(tmp_path / "x.db") == FILES * PACKETS:
            break
    done.send_signal(signal.SIGINT)
    _, errors = done.communicate(timeout=120)
    assert done.returncode == ExitCode.DONE, errors
    assert calls(tmp_path / "x.db") == FILES


def test_a_bound_of_the_system_is_named(captures: list[Path], tmp_path: Path) -> None:
    done = trace(captures, "-n", "-o", tmp_path / "x.db")
    _, errors = done.communicate(timeout=120)
    assert done.returncode == ExitCode.ERROR
    assert f"{FILES} captures are open at once, and this process may open 150 files" in errors
    assert "mergecap" in errors
