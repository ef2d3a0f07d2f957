"""Cost of validating a run: time and memory of `validate` over the number of calls.

    python benchmarks/validation.py [--calls N ...]

The run is the tests' simulation of three tiers, repeated one after the other until there are N calls, with
the logs of its three servers in the formats of Apache, Tomcat and MariaDB (one line per call), what the
client and the application logged as callers (one line per request and per statement), and the true paths.
Every line is a process of its own; making the input is not measured. Beside it, as a floor, what
it takes to read the same bytes line by line and to split nothing.
"""

from __future__ import annotations

import gzip
import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from by_size import print_lines
from event_logs import HOSTS, request_ids, write_logs, write_run, write_truth
from simulator import DB, WEB, Simulation, simulate
from trace_capture import peak_mb

from tapscope.store.tables import Table
from tapscope.validate.validation import validate

PIECE_SECONDS = 20.0
TIMES = ("arrive_ns", "request_end_ns", "response_begin_ns", "depart_ns", "begin_ns", "end_ns")
MESSAGES = ("request", "response")
CALLER_NS = 100_000


def answered(world: Simulation) -> Simulation:
    """Without calls that were open at the end: repeated, they would be open until the next copy's calls."""
    calls = dict(world.tables["calls"])
    calls["depart_ns"] = np.where(calls["depart_ns"] >= 0, calls["depart_ns"], world.end_ns)
    return replace(world, tables=dict(world.tables) | {"calls": calls})


def repeated(world: Simulation, calls: int) -> Simulation:
    """The simulation as often as it takes, each time after the one before."""
    times = max(1, round(calls / len(world.true_parent)))
    length = world.end_ns - world.begin_ns + 1_000_000_000
    counts = {name: len(next(iter(table.values()))) for name, table in world.tables.items()}
    tables: dict[str, Table] = dict(world.tables)
    for name in ("calls", "messages"):
        table: Table = {}
        for column, values in world.tables[name].items():
            copies = np.tile(values, times)
            copy = np.repeat(np.arange(times, dtype=np.int64), counts[name])
            if column in TIMES:
                copies = np.where(copies >= 0, copies + copy * length, copies)
            elif column in MESSAGES:
                copies = np.where(copies >= 0, copies + copy * counts["messages"], copies)
            table[column] = copies.astype(values.dtype)
        tables[name] = table
    tables["connections"] = dict(world.tables["connections"])
    end = world.begin_ns + times * length
    tables["connections"]["last_ns"] = np.full(counts["connections"], end, dtype=np.int64)
    copy = np.repeat(np.arange(times, dtype=np.int64), counts["calls"])
    parent = np.tile(world.true_parent, times)
    parent = np.where(parent >= 0, parent + copy * counts["calls"], -1)
    return replace(world, tables=tables, true_parent=parent, end_ns=end)


def make(folder: Path, calls: int) -> int:
    """Write run file, logs and truth; gives the number of calls."""
    world = repeated(answered(simulate(seed=7, users=150, seconds=PIECE_SECONDS)), calls)
    write_run(world, folder / "run.db")
    write_logs(world, folder / "events")
    write_callers(world, folder)
    write_truth(world, folder / "truth" / "calls.csv.gz")
    (folder / "manifest.json").write_text(json.dumps({"hosts": HOSTS}))
    return len(world.true_parent)


def write_callers(world: Simulation, folder: Path) -> None:
    """users/requests.csv and the application's statements.tsv; a caller is a tenth of a millisecond away."""
    calls, ids = world.tables["calls"], request_ids(world)
    node = calls["server_node"]
    begin, end = calls["arrive_ns"] - CALLER_NS, calls["depart_ns"] + CALLER_NS
    (folder / "users").mkdir()
    with (folder / "users" / "requests.csv").open("w") as file:
        file.write("request_id,start_ns,end_ns\n")
        file.writelines(
            f"{ids[row]},{begin[row]},{end[row]}\n" for row in np.flatnonzero(node == WEB).tolist()
        )
    with (folder / "events" / "tomcat" / "statements.tsv").open("w") as file:
        file.write("request_id\tordinal\tds_us\tdr_us\tthread_id\tform\n")
        file.writelines(
            f"{ids[row]}\t0\t{begin[row] // 1000}\t{end[row] // 1000}\t{calls['conn'][row]}\ttext\n"
            for row in np.flatnonzero(node == DB).tolist()
        )


def _cpu() -> float:
    """Seconds of processor time of this process and those it ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def measure(folder: Path) -> dict[str, float | str]:
    """One validation in this process."""
    began, used = time.perf_counter(), _cpu()
    found = validate(folder / "run.db", folder)
    return {
        "wall": time.perf_counter() - began,
        "cpu": _cpu() - used,
        "rss": peak_mb(),
        "verdict": found.verdict,
    }


def floor(folder: Path) -> float:
    """Seconds to read the lines of logs and truth."""
    began = time.perf_counter()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".log", ".tsv", ".csv"):
            with path.open("rb") as file:
                sum(len(line) for line in file)
        elif path.suffix == ".gz":
            with gzip.open(path) as file:
                sum(len(line) for line in file)
    return time.perf_counter() - began


def line(folder: Path, made: int, found: dict[str, Any]) -> str:
    """The line of one size."""
    each = 1e6 * found["cpu"] / made
    return (
        f"{made:9d} {found['wall']:8.2f} {found['cpu']:8.2f} {each:12.1f} {found['rss']:8.0f}"
        f" {floor(folder):8.2f}  {found['verdict']}"
    )


HEAD = "    calls   wall s    CPU s  CPU us/call  peak MB  floor s  verdict"

if __name__ == "__main__":
    sizes = (10_000, 100_000, 1_000_000)
    print_lines(__file__, __doc__.splitlines()[0], "calls", sizes, make, measure, HEAD, line)
