"""How fast host logs are read: MB/s of CPU time per format, at three sizes, to see that reading is linear.

    python benchmarks/host_logs.py [--megabytes 1 4 16]

The recorded logs of pcaps/hostlogs are made long by repeating their samples (so their clocks go back now
and then, which starts a new recording as in real files that were appended to). Each is read by a process of
its own; the figure is user + system time of reading it into columns, without the run file.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trace_capture import peak_mb

LOGS = Path(__file__).resolve().parent.parent / "pcaps" / "hostlogs"
MEGABYTE = 1_000_000
FORMATS = {
    "Collectl raw": ("raw-vm-20261121-063512.raw.gz", lambda line: line.startswith(">>>"), ""),
    "Collectl plot": ("plot-raw-vm-20261121.tab.gz", lambda line: not line.startswith("#"), ""),
    "sadf JSON": ("sadf.json.gz", lambda line: line == "\t\t\t\t{\n", "\t\t\t],\n"),
    "sadf CSV": ("sadf.csv.gz", lambda line: True, ""),
    "iostat JSON": ("iostat.json", lambda line: line == "\t\t\t\t{\n", "\t\t\t]\n"),
    "sar text": ("sar.txt.gz", lambda line: line.startswith("\n"), ""),
    "vmstat": ("vmstat.txt", lambda line: line[:2].strip().isdigit(), ""),
    "perf stat": ("perf_stat.csv", lambda line: line.startswith("     "), ""),
    "esxtop": ("esxtop.csv", lambda line: line.startswith('"11/'), ""),
    "snapshots": ("kernel.snap.gz", lambda line: True, ""),
    "lock_stat": ("lock_stat.snap", lambda line: True, ""),
    "GC log, unified": ("gc_g1.log.gz", lambda line: True, ""),
    "GC log, JDK 8": ("gc_jdk8_parallel.log", lambda line: line.startswith("2026"), ""),
    "turbostat (declared)": ("turbostat.txt", lambda line: line.startswith("17"), ""),
}
"""File, first line of what is repeated, and the line at which that ends ('' the end of the file)."""


def lengthened(name: str, size: int, path: Path) -> None:
    """Write the log of a format with its samples repeated until it has `size` bytes."""
    file, begins, end = FORMATS[name]
    data = (LOGS / file).read_bytes()
    lines = (gzip.decompress(data) if file.endswith(".gz") else data).decode().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if begins(line))
    last = lines.index(end) if end else len(lines)
    body = "".join(lines[first:last])
    if end:
        body = body.rstrip("\n") + ",\n"  # elements of an array
    with path.open("w", encoding="utf-8") as out:
        out.write("".join(lines[:first]))
        for _ in range(max(1, size // len(body))):
            out.write(body)
        out.write("".join(lines[last:]))


def measure(path: Path) -> None:
    """Print CPU seconds, rows and peak memory of reading one file (in a process of its own)."""
    from tapscope.hostmon.clock import Told
    from tapscope.hostmon.load import read_host_log

    began = time.process_time()
    log = read_host_log(path, Told(start_ns=0))
    seconds = time.process_time() - began
    rows = sum(len(table.columns["end_ns"]) for table in log.tables)
    print(seconds, rows, peak_mb())


def main() -> None:
    """Measure every format at every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        measure(arguments.read)
        return
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    sizes = arguments.megabytes
    print(
        f"{'MB/s of CPU time':24}" + "".join(f"{f'{size} MB':>9}" for size in sizes) + "    rows/s   peak MiB"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            path = Path(folder) / "log"
            speeds = []
            rows = seconds = peak = 0.0
            for size in sizes:
                lengthened(name, size * MEGABYTE, path)
                command = [sys.executable, __file__, "--read", str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, rows, peak = map(float, done.stdout.split())
                speeds.append(path.stat().st_size / MEGABYTE / seconds)
            figures = "".join(f"{speed:9.1f}" for speed in speeds)
            print(f"{name:24}{figures}{rows / seconds:10.0f}{peak:10.0f}", flush=True)


if __name__ == "__main__":
    main()
