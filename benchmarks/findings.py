"""Findings of long runs: seconds over the length of the run, with a stop a minute and host logs.

    python benchmarks/findings.py [--hours H ...] [--folder DIR]

The runs are those of analysis.py at 20 transactions a second. Three hosts log the columns of a control group
and of the machine ten times a second. Every stop is an episode whose metrics are all ranked, so that windows,
episodes and metrics grow together: what is not linear shows. A line is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from analysis import MEAN_STATEMENTS, NODES, START_NS, STOP_EVERY_NS, STOP_NS, generate
from trace_capture import machine, peak_mb

from tapscope.analyze.findings import findings
from tapscope.store.runfile import RunFile

PER_SECOND = 20
SAMPLE_NS = 100_000_000
COLUMNS = {
    "cgroup_cpu": (
        *("busy_pct", "throttled_pct", "cpu_some_pct", "io_some_pct", "memory_some_pct"),
        *("written_kib_per_s", "dirty_kib", "writeback_kib"),
    ),
    "collectl_cpu": ("busy_pct", "wait_pct", "steal_pct"),
    "collectl_disk": ("busy_pct", "written_kib_per_s"),
    "collectl_memory": ("dirty",),
}


def long_run(path: Path, hours: float) -> None:
    """A run file of so many hours; the database is throttled while it stands still."""
    seconds = round(hours * 3600)
    generate(path, seconds * PER_SECOND * (2 + MEAN_STATEMENTS), PER_SECOND)
    rng = np.random.default_rng(9)
    begin = START_NS + np.arange(seconds * 1_000_000_000 // SAMPLE_NS, dtype=np.int64) * SAMPLE_NS
    into = (begin - START_NS) % STOP_EVERY_NS
    stopped = (into < STOP_NS) & (begin - START_NS >= STOP_EVERY_NS)
    with RunFile.open(path, write=True) as run:
        for host in NODES[1:]:
            for kind, names in COLUMNS.items():
                columns = {name: rng.normal(5, 1, len(begin)) for name in names}
                if host == NODES[-1] and "throttled_pct" in columns:
                    columns["throttled_pct"] += np.where(stopped, 90, 0)
                about = {"path": f"{host}.{kind}", "host": host, "kind_of_record": kind}
                run.write_dynamic(
                    kind, {"begin_ns": begin, "end_ns": begin + SAMPLE_NS, **columns}, {}, about
                )


def measure(path: Path) -> tuple[int, int, int, float, float]:
    """Calls, findings, how many of them name the throttling, seconds and MB."""
    with RunFile.open(path) as run:
        begun = time.perf_counter()
        found = findings(run)
        seconds = time.perf_counter() - begun
        ((calls,),) = run.sql("SELECT count(*) FROM call")
    return calls, len(found), sum(one.cause == "CPU quota" for one in found), seconds, peak_mb()


def main() -> None:
    """A line per length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, nargs="*", default=[0.5, 1, 2, 4])
    parser.add_argument("--folder", type=Path, help="where run files are kept")
    parser.add_argument("--point", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(measure(args.point)))
        return
    print(machine())
    print(
        f"{'hours':>6} {'calls':>9} {'findings':>9} {'right':>6} {'seconds':>8} {'s per hour':>11} {'MB':>6}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        for hours in args.hours:
            path = (args.folder or Path(temporary)) / f"hours{hours:g}.db"
            if not path.exists():
                long_run(path, hours)
            made = subprocess.run(
                [sys.executable, __file__, "--point", str(path)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            calls, found, right, seconds, mb = json.loads(made.stdout)
            print(
                f"{hours:6g} {calls:9} {found:9} {right:6} {seconds:8.2f} {seconds / hours:11.2f} {mb:6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
