"""Wall time, peak memory and rate of `tapscope trace`.

    python benchmarks/trace_capture.py [CAPTURE [REPEATS]]

Each repeat is a process of its own, so that the peak memory is that of one run. Printed: median and spread.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ("pcaps/testbed_busy", "pcaps/http_ajp_mysql_groundtruth.pcap")


def peak_mb() -> float:
    """Greatest memory of this process so far. Not ru_maxrss: that one begins with what the process had that
    started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def machine() -> str:
    """Processor, usable cores and kernel of this machine."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, flags=re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    return f"{model.group(1) if model else platform.machine()}, {cores} cores, Linux {platform.release()}"


def input_bytes(path: Path) -> int:
    """Bytes of a capture file, or of the captures in a run directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if ".pcap" in file.name)


def measure(path: Path) -> tuple[float, int]:
    """Seconds and peak resident bytes of one `tapscope trace`; RuntimeError when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["tapscope", "trace", str(path), "-o", f"{folder}/run.db"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 3):
            raise RuntimeError(message.decode(errors="replace"))
    return seconds, usage.ru_maxrss * 1024


def main() -> None:
    """Measure the named capture, or the first sample that is there."""
    named = sys.argv[1:2] or [name for name in SAMPLES if (ROOT / name).exists()]
    if not named:
        sys.exit("no sample capture in pcaps/; name one")
    path = (ROOT / named[0]).resolve()
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    runs = [measure(path) for _ in range(repeats)]
    seconds = [run[0] for run in runs]
    size = input_bytes(path)
    print(f"machine   {machine()}")
    print(f"input     {named[0]}, {size / 1e6:.1f} MB")
    spread = f"min {min(seconds):.2f}, max {max(seconds):.2f}, n {repeats}"
    print(f"wall time {statistics.median(seconds):.2f} s ({spread})")
    print(f"rate      {size / 1e6 / statistics.median(seconds):.1f} MB/s")
    print(f"memory    {max(run[1] for run in runs) / 1e6:.0f} MB peak")


if __name__ == "__main__":
    main()
