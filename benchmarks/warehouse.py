"""Many runs in one warehouse: time to add a run, size, and time of queries, over the number of runs inside.

    python benchmarks/warehouse.py [--run RUN.db] [--runs N]

Copies of one real run (by default `pcaps/testbed_light`, traced first) stand for the runs: each is moved in
time by an hour, so that none equals another, added, and deleted. Seconds are of the wall clock; CPU beside.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from trace_capture import machine

from tapscope.cli.pipeline import TraceOptions, trace
from tapscope.report.warehouse.add import add_runs
from tapscope.report.warehouse.file import Warehouse
from tapscope.store.runfile import RunFile

SAMPLE = Path(__file__).resolve().parent.parent / "pcaps" / "testbed_light"
HOUR_NS = 3_600_000_000_000
MOVED = {
    "connection": ("first_ns", "last_ns", "syn_ns", "established_ns", "closed_ns"),
    "call": ("arrive_ns", "request_end_ns", "response_begin_ns", "depart_ns"),
    "trace": ("begin_ns", "end_ns"),
    "load": ("window_ns",),
}
QUERIES = {
    "highest load per run and node": "SELECT experiment, node, max(load) FROM load GROUP BY ALL",
    "99th percentile of response times per run": (
        "SELECT experiment, quantile_cont(response_time_ns, 0.99) FROM trace GROUP BY ALL"
    ),
    "CPU of every host while its node was at work": (
        "SELECT l.experiment, h.name, avg(c.busy_pct) FROM load l JOIN host h ON h.experiment = l.experiment "
        "AND h.node = l.node JOIN samples.cgroup_cpu c ON c.experiment = l.experiment AND c.host = h.name "
        "AND c.tap_ns BETWEEN l.window_start_ns AND l.window_start_ns + l.width_ns WHERE l.load > 0.5 "
        "GROUP BY ALL"
    ),
    "one run's CPU samples": "SELECT * FROM samples.collectl_cpu WHERE experiment = 'run7'",
}


def moved(source: Path, path: Path, by_ns: int) -> None:
    """A copy of a run file, later by so much."""
    shutil.copy(source, path)
    with RunFile.open(path, write=True) as run:
        tables = dict(MOVED) | {table.table: ("begin_ns", "end_ns") for table in run.dynamic_tables()}
        with run.transaction() as connection:
            for table, columns in tables.items():
                for column in columns:
                    connection.execute(
                        f"UPDATE {table} SET {column} = {column} + ? WHERE {column} >= 0", (by_ns,)
                    )


def main() -> None:
    """A line at every doubling of the number of runs, then the queries."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="run file to copy")
    parser.add_argument("--runs", type=int, default=50)
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        source = args.run or trace([SAMPLE], Path(folder) / "sample.db", TraceOptions(self_check=False))
        print(f"run: {source.name}, {source.stat().st_size / 1e6:.1f} MB")
        file = Path(folder) / "warehouse.duckdb"
        warehouse = Warehouse.open(file, write=True)
        print(f"{'runs':>6} {'s per run':>10} {'CPU s':>8} {'MB':>8} {'MB per run':>10}")
        spent = cpu = 0.0
        since, report_at = 0, 1
        for number in range(1, args.runs + 1):
            copy = Path(folder) / f"run{number}.db"
            moved(source, copy, number * HOUR_NS)
            began, began_cpu = time.perf_counter(), time.process_time()
            (added,) = add_runs(warehouse, [copy])
            if number in (report_at, args.runs):
                warehouse.close()  # what stands beside the file goes into it
                warehouse = Warehouse.open(file, write=True)
            assert added.what == "added", added
            spent += time.perf_counter() - began
            cpu += time.process_time() - began_cpu
            copy.unlink()
            if number in (report_at, args.runs):
                size, new = file.stat().st_size / 1e6, number - since
                print(
                    f"{number:6} {spent / new:10.3f} {cpu / new:8.3f} {size:8.1f} {size / number:10.2f}",
                    flush=True,
                )
                spent, cpu, since, report_at = 0.0, 0.0, number, report_at * 2
        warehouse.close()
        for what, query in QUERIES.items():
            began = time.perf_counter()
            with Warehouse.open(file) as warehouse:
                rows = len(warehouse.user_query(query)[1])
            print(f"{what}: {rows} rows in {time.perf_counter() - began:.3f} s (the file opened anew)")
        with Warehouse.open(file, write=True) as warehouse:
            began = time.perf_counter()
            warehouse.remove("run1")
            print(f"one run removed in {time.perf_counter() - began:.3f} s")


if __name__ == "__main__":
    main()
