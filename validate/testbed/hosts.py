"""Host records: Collectl in every host's namespace, and each host's CPU accounting from its control group.

`python -m tapscope.validate.testbed.hosts CONFIG.json` is the sampler of the accounting files: one light
process for all hosts, ended by SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

INTERVAL_S = 0.05
COLUMNS = "time_ns_begin,time_ns_end,usage_ns,user_ns,system_ns"


def collectl_command(collectl: str, host: str, folder: Path, processes: str) -> list[str]:
    """Collectl at 50 ms: CPU, disk, memory, network, TCP; and once per second the processes of this host.

    A host name of its own (UTS namespace) makes Collectl write it into file name and header.
    """
    argv = [
        collectl,
        "-i",
        f"{INTERVAL_S}:1",
        "-s",
        "cdmntZ",
        "-f",
        ".",
        "-F",
        "1",
        "--quiet",
        "--procfilt",
        processes,
    ]
    script = 'echo "$1" > /proc/sys/kernel/hostname && cd "$2" && shift 2 && exec "$@"'
    return ["unshare", "--uts", "sh", "-c", script, "sh", host, str(folder), *argv]


def cpu_model() -> str:
    """Name of the processor, as the kernel tells it; '' where it does not."""
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return ""


def _reader_v1(folder: Path) -> Callable[[], tuple[int, int, int]]:
    files = [
        os.open(folder / name, os.O_RDONLY)
        for name in ("cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys")
    ]

    def read() -> tuple[int, int, int]:
        usage, user, system = (int(os.pread(f, 64, 0)) for f in files)
        return usage, user, system

    return read


def _reader_v2(folder: Path) -> Callable[[], tuple[int, int, int]]:
    file = os.open(folder / "cpu.stat", os.O_RDONLY)

    def read() -> tuple[int, int, int]:
        values = dict(line.split() for line in os.pread(file, 4096, 0).decode().splitlines())
        usage, user, system = (int(values[k]) * 1000 for k in ("usage_usec", "user_usec", "system_usec"))
        return usage, user, system

    return read


def reader(flavour: str, folder: Path) -> Callable[[], tuple[int, int, int]]:
    """A function that reads a control group's CPU accounting: usage, user, system in ns since it was made."""
    return _reader_v1(folder) if flavour == "v1" else _reader_v2(folder)


def _sample(config: dict[str, Any]) -> None:
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    with contextlib.ExitStack() as files:
        series = []
        for host in config["hosts"]:
            out = files.enter_context(Path(host["out"]).open("w", encoding="ascii"))
            out.write(COLUMNS + "\n")
            series.append((reader(config["flavour"], Path(host["folder"])), out))
        tick = time.monotonic()
        while running:
            for read, out in series:
                begin = time.time_ns()
                usage, user, system = read()
                out.write(f"{begin},{time.time_ns()},{usage},{user},{system}\n")
            # A late sample is not made up for by a burst of others.
            tick = max(tick + INTERVAL_S, time.monotonic())
            time.sleep(max(0.0, tick - time.monotonic()))


if __name__ == "__main__":
    _sample(json.loads(Path(sys.argv[1]).read_text()))
