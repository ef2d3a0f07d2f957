"""Host records: Collectl in every host's namespace, and what each host's control group accounts for.

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

INTERVAL_S = 0.05


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


# File of a control group -> (word in it, column, factor). In files of one number the word is "".
_Wanted = dict[str, tuple[tuple[str, str, int], ...]]
_FILES_V1: _Wanted = {
    "cpuacct.usage": (("", "usage_ns", 1),),
    "cpuacct.usage_user": (("", "user_ns", 1),),
    "cpuacct.usage_sys": (("", "system_ns", 1),),
    "cpu.stat": (
        ("nr_periods", "nr_periods", 1),
        ("nr_throttled", "nr_throttled", 1),
        ("throttled_time", "throttled_ns", 1),
    ),
    "blkio.throttle.io_service_bytes": (("Read", "read_bytes", 1), ("Write", "written_bytes", 1)),
    "blkio.throttle.io_serviced": (("Read", "reads", 1), ("Write", "writes", 1)),
    "memory.stat": (("dirty", "dirty_bytes", 1), ("writeback", "writeback_bytes", 1)),
}
_FILES_V2: _Wanted = {
    "cpu.stat": (
        ("usage_usec", "usage_ns", 1000),
        ("user_usec", "user_ns", 1000),
        ("system_usec", "system_ns", 1000),
        ("nr_periods", "nr_periods", 1),
        ("nr_throttled", "nr_throttled", 1),
        ("throttled_usec", "throttled_ns", 1000),
    ),
    "io.stat": (
        ("rbytes", "read_bytes", 1),
        ("wbytes", "written_bytes", 1),
        ("rios", "reads", 1),
        ("wios", "writes", 1),
    ),
    "memory.stat": (("file_dirty", "dirty_bytes", 1), ("file_writeback", "writeback_bytes", 1)),
}
_PRESSURE: _Wanted = {
    f"{resource}.pressure": (("some", f"{resource}_some_ns", 1000), ("full", f"{resource}_full_ns", 1000))
    for resource in ("cpu", "io", "memory")
}


def _numbers(text: str) -> dict[str, int]:
    """Word -> number of a control group's file; what several devices have is added up."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 1:
            pairs = [("", words[0])]
        elif words[1].startswith("avg10="):
            pairs = [(words[0], words[-1].partition("=")[2])]
        elif "=" in words[1]:
            pairs = [(name, value) for name, _, value in (word.partition("=") for word in words[1:])]
        else:
            pairs = [(words[-2], words[-1])]
        for name, value in pairs:
            found[name] = found.get(name, 0) + int(value)
    return found


def reader(flavour: str, folders: Sequence[Path]) -> tuple[list[str], Callable[[], list[int]]]:
    """Columns, and a function that reads them, of the control group that has these folders.

    Times in ns, sizes in bytes, since the group was made; dirty and writeback are what is there now. Columns
    that this kernel does not give are left out.
    """
    sources, columns = [], []
    for name, wanted in ((_FILES_V1 if flavour == "v1" else _FILES_V2) | _PRESSURE).items():
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if path is None:
            continue
        try:
            known = _numbers(path.read_text())
        except OSError:  # pressure files of a kernel that was told not to count it
            continue
        # A group that no device has served yet has no line for one.
        there = [one for one in wanted if one[0] in known or name.startswith(("io.stat", "blkio."))]
        sources.append((os.open(path, os.O_RDONLY), [(word, factor) for word, _, factor in there]))
        columns += [column for _, column, _ in there]

    def read() -> list[int]:
        values = []
        for file, words in sources:
            known = _numbers(os.pread(file, 16384, 0).decode())
            values += [known.get(word, 0) * factor for word, factor in words]
        return values

    return columns, read


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
            columns, read = reader(config["flavour"], [Path(folder) for folder in host["folders"]])
            out.write(",".join(["time_ns_begin", "time_ns_end", *columns]) + "\n")
            series.append((read, out))
        tick = time.monotonic()
        while running:
            for read, out in series:
                begin = time.time_ns()
                values = read()
                out.write(",".join(map(str, [begin, time.time_ns(), *values])) + "\n")
            # A late sample is not made up for by a burst of others.
            tick = max(tick + INTERVAL_S, time.monotonic())
            time.sleep(max(0.0, tick - time.monotonic()))


if __name__ == "__main__":
    _sample(json.loads(Path(sys.argv[1]).read_text()))
