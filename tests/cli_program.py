"""Runs the `tapscope` program in a process of its own, with the modules that the tests see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CAPTURE = Path(__file__).resolve().parent.parent / "pcaps" / "http_ajp_mysql_groundtruth.pcap"
COMMAND = [sys.executable, "-m", "tapscope"]


def environment(**more: str) -> dict[str, str]:
    """Environment in which `python -m tapscope` is the program under test."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))) | more


def tapscope(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def wait_for(condition, seconds: float = 60.0) -> None:
    """Polls ten times a second."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.1)


def until_read(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has read this file to its end."""
    of_process = Path(f"/proc/{process.pid}")

    def at_its_end() -> bool:
        for link in of_process.glob("fd/*"):
            try:
                same = link.samefile(path)
                places = (of_process / "fdinfo" / link.name).read_text()
            except OSError:  # closed meanwhile
                continue
            if same and f"pos:\t{path.stat().st_size}\n" in places:
                return True
        return False

    wait_for(lambda: process.poll() is not None or at_its_end(), 60)
    assert process.poll() is None


def broken_off(path: Path, *arguments: str | Path) -> tuple[int, str]:
    """Exit status and messages of a command line that gets Ctrl-C while it works on this file."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    descriptors = Path(f"/proc/{process.pid}/fd")

    def there() -> bool:
        with suppress(OSError):  # one was closed meanwhile
            return any(link.samefile(path) for link in descriptors.iterdir())
        return False

    wait_for(lambda: process.poll() is not None or there())
    time.sleep(0.5)  # from the opened file into the work
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    return process.returncode, said.decode().strip()
