"""Analyses of a stored run: seconds and memory over the number of calls, stage by stage, beside a floor.

    python benchmarks/analysis.py [--calls N ...] [--folder DIR]

The run file is generated (it is kept in DIR, when one is given, and used again): three tiers, a request of
the web tier makes one of the application tier, which makes four statements on average one after another;
12,000 calls a second; once a minute the database stands still for 300 ms. Each line is a process of its own,
so that memory is its own. The floor is what cannot be avoided: every needed column read from SQLite once, and
one sort of the times of each node.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))

from trace_capture import machine, peak_mb

from tapscope.analyze.calls import CALL_COLUMNS, read_calls
from tapscope.analyze.findings import findings
from tapscope.analyze.load import loads, window_edges
from tapscope.analyze.node_calls import NodeCalls
from tapscope.analyze.node_state import node_state
from tapscope.analyze.response_time import Histogram, modes, pit, vlrt
from tapscope.store import tables
from tapscope.store.codes import CallFlag, LinkKind, Protocol
from tapscope.store.runfile import RunFile

Ints = NDArray[np.int64]
START_NS = 1_795_000_000_000_000_000
PER_SECOND, MOST_STATEMENTS, MEAN_STATEMENTS = 2_000, 8, 4
STOP_EVERY_NS, STOP_NS = 60_000_000_000, 300_000_000
CHUNK = 50_000
NODES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")  # clients, web, app, db
CLASSES = {1: 24, 2: 24, 3: 40}
CONNECTIONS = {1: 400, 2: 200, 3: 100}
UNANSWERED = 1e-5
STAGES = ("read", "load", "response times", "congestion", "findings")


def lognormal(rng: np.random.Generator, mean_ns: float, shape: tuple[int, ...]) -> Ints:
    """Times around a mean that spread as service times do."""
    return (mean_ns * rng.lognormal(-0.18, 0.6, shape)).astype(np.int64)


def after_stop(at: Ints) -> Ints:
    """When what would end at `at` ends in a database that stands still now and then; then it catches up."""
    into = (at - START_NS) % STOP_EVERY_NS
    stopped = (into < STOP_NS) & (at - START_NS >= STOP_EVERY_NS)
    return np.where(stopped, at - into + STOP_NS + into // 20, at)


def generate(path: Path, calls: int, per_second: float = PER_SECOND) -> None:
    """Write a run file of about so many calls, linked and complete, at so many transactions a second."""
    rng = np.random.default_rng(5)
    with RunFile.create(path, force=True) as run:
        run.write_addresses(NODES)
        run.write_classes(
            [(Protocol.HTTP, f"GET /{n}") for n in range(CLASSES[1])]
            + [(Protocol.AJP, f"GET /{n}") for n in range(CLASSES[2])]
            + [(Protocol.MYSQL, f"SELECT a FROM t{n} WHERE b = ?") for n in range(CLASSES[3])]
        )
        nodes = tables.empty("nodes") | {
            "addr": np.arange(4, dtype=np.int32),
            "port": np.zeros(4, dtype=np.uint16),
            "protocol": np.array([0, Protocol.HTTP, Protocol.AJP, Protocol.MYSQL], dtype=np.uint8),
            "depth": np.arange(4, dtype=np.int32),
        }
        run.write_table("nodes", nodes)
        run.write_node_names(NODES)
        run.write_table("connections", _connections())
        now, done = START_NS, 0
        while done < calls:
            count = min(CHUNK, max((calls - done) // (2 + MEAN_STATEMENTS), 1))
            made, links, traced, now = _chunk(rng, count, now, done, per_second)
            for name, table in (("calls", made), ("links", links), ("trace_calls", traced)):
                run.write_table(name, table, append=True)
            done += len(made["conn"])
        run.set_meta("complete", True)


def _connections() -> tables.Table:
    total = sum(CONNECTIONS.values())
    node = np.repeat(list(CONNECTIONS), list(CONNECTIONS.values())).astype(np.int32)
    columns = {c.name: np.zeros(total, dtype=c.dtype) for c in tables.TABLES["connections"]}
    columns |= {"server_addr": node, "client_addr": node - 1, "first_ns": np.full(total, START_NS)}
    for name in ("syn_ns", "established_ns", "closed_ns"):
        columns[name] = np.full(total, -1, dtype=np.int64)
    return columns


def _chunk(
    rng: np.random.Generator, count: int, now: int, row: int, per_second: float
) -> tuple[tables.Table, tables.Table, tables.Table, int]:
    """Calls of `count` transactions from `now` on, their links and where in their trace they are."""
    web = now + np.cumsum(rng.exponential(1e9 / per_second, count)).astype(np.int64) + 1
    app = web + lognormal(rng, 150_000, (count,))
    statements = np.minimum(rng.poisson(MEAN_STATEMENTS, count), MOST_STATEMENTS)
    made = np.arange(MOST_STATEMENTS) < statements[:, None]
    begin, end = np.zeros((2, count, MOST_STATEMENTS), dtype=np.int64)
    last = app + lognormal(rng, 400_000, (count,))
    for n in range(MOST_STATEMENTS):
        begin[:, n] = last
        end[:, n] = after_stop(last + lognormal(rng, 700_000, (count,)))
        last = np.where(made[:, n], end[:, n] + lognormal(rng, 200_000, (count,)), last)
    app_end, web_end = last, last + lognormal(rng, 100_000, (count,))
    arrive = np.concatenate([web, app, begin[made]])
    depart = np.concatenate([web_end, app_end, end[made]])
    node = np.repeat([1, 2, 3], [count, count, int(made.sum())]).astype(np.int32)
    trace = np.concatenate([np.arange(count), np.arange(count), np.nonzero(made)[0]])
    in_db = np.zeros(count, dtype=np.int64)
    np.add.at(in_db, np.nonzero(made)[0], (end - begin)[made])
    own = np.concatenate([web_end - web - (app_end - app), app_end - app - in_db, (end - begin)[made]])
    order = np.argsort(arrive, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) + row
    parent = np.concatenate([np.full(count, -1), place[:count], place[count : 2 * count][trace[2 * count :]]])
    lost = rng.random(len(order)) < UNANSWERED
    kinds, low = np.zeros((2, len(order)), dtype=np.int32)
    for tier, classes in CLASSES.items():
        here = node == tier
        kinds[here] = rng.integers(0, classes, int(here.sum())) + sum(
            v for k, v in CLASSES.items() if k < tier
        )
        low[here] = rng.integers(0, CONNECTIONS[tier], int(here.sum())) + sum(
            v for k, v in CONNECTIONS.items() if k < tier
        )
    rows = row + np.arange(len(order))
    columns = {c.name: np.zeros(len(order), dtype=c.dtype) for c in tables.TABLES["calls"]}
    columns |= {
        "conn": low[order],
        "request": rows * 2,
        "response": rows * 2 + 1,
        "client_node": node[order] - 1,
        "server_node": node[order],
        "protocol": np.array([0, 1, 2, 3], dtype=np.uint8)[node[order]],
        "class_id": kinds[order],
        "arrive_ns": arrive[order],
        "request_end_ns": arrive[order],
        "response_begin_ns": depart[order],
        "depart_ns": np.where(lost, -1, depart)[order],
        "flags": np.where(lost, CallFlag.UNANSWERED, 0)[order].astype(np.uint32),
    }
    links = {
        "child": rows,
        "parent": parent[order],
        "kind": np.where(node == 1, LinkKind.ROOT, LinkKind.LINKED)[order].astype(np.uint8),
        "probability": np.ones(len(order)),
        "runner_up": np.full(len(order), -1, dtype=np.int64),
        "runner_up_probability": np.zeros(len(order)),
    }
    traced = {
        "call": rows,
        "trace": trace[order] + row,
        "depth": (node - 1)[order],
        "intra_node_ns": np.where(lost, -1, own)[order],
    }
    return columns, links, traced, int(web[-1])


class Clock:
    """Wall and CPU seconds of each stage, and the peak of memory after it."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[float, float, float]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.stages[name] = time.perf_counter() - wall, time.process_time() - cpu, peak_mb()


def analyses(path: Path) -> Clock:
    """What `queues`, `congestion`, `findings` and the report work out of calls, one after another."""
    clock = Clock()
    with RunFile.open(path) as run:
        with clock.stage("read"):
            read = read_calls(run)
        with clock.stage("load"):
            loads(read, run.read_table("nodes"))
        with clock.stage("response times"):
            read.of_each(lambda node: _response_times(read.at(node)))
        with clock.stage("congestion"):
            read.of_each(lambda node: node_state(read.work(node)))
        with clock.stage("findings"):
            findings(run, read=read)
    return clock


def _response_times(at: NodeCalls) -> None:
    begin, end = at.begin_ns[at.departed], at.end_ns[at.departed]
    counted = Histogram()
    counted.add(end - begin)
    assert counted.percentile(0.99) > 0
    modes(end - begin)
    vlrt(end - begin)
    pit(begin, end, window_edges(int(begin.min()), int(end.max()), 50_000_000))


def floor(path: Path) -> Clock:
    """Columns out of SQLite once, and one sort of arrivals and departures of each node."""
    clock = Clock()
    with RunFile.open(path) as run:
        with clock.stage("read"):
            calls = run.read_table("calls", CALL_COLUMNS)
            run.read_table("trace_calls", ["call", "intra_node_ns"])
        with clock.stage("sort"):
            for node in np.unique(calls["server_node"]):
                here = calls["server_node"] == node
                np.sort(calls["arrive_ns"][here])
                np.sort(calls["depart_ns"][here])
    return clock


MEASURED: dict[str, Callable[[Path], Clock]] = {"analyses": analyses, "floor": floor}


def _point(kind: str, path: Path) -> dict[str, list[float]]:
    """One measurement in a process of its own."""
    made = subprocess.run(
        [sys.executable, __file__, "--point", kind, str(path)], check=True, stdout=subprocess.PIPE, text=True
    )
    answer: dict[str, list[float]] = json.loads(made.stdout)
    return answer


def main() -> None:
    """A line per number of calls: seconds of each stage, their sum, peak memory, and the floor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="where run files are kept")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(MEASURED[args.point[0]](Path(args.point[1])).stages))
        return
    print(f"{machine()}, load average {os.getloadavg()[0]:.1f}")
    print("seconds of the wall clock, CPU seconds in brackets; MB: peak memory of the process")
    cells = [f"{name:>14}" for name in (*STAGES, "all", "floor")]
    print(f"{'calls':>10} {' '.join(cells)} {'MB':>6}")
    with tempfile.TemporaryDirectory() as temporary:
        for calls in args.calls:
            path = (args.folder or Path(temporary)) / f"calls{calls}.db"
            if not path.exists():
                generate(path, calls)
            measured, least = _point("analyses", path), _point("floor", path)
            times = [measured[stage][:2] for stage in STAGES]
            times += [
                [sum(column) for column in zip(*(v[:2] for v in part.values()), strict=True)]
                for part in (measured, least)
            ]
            shown = " ".join(f"{wall:7.2f} ({cpu:4.1f})"[:14].rjust(14) for wall, cpu in times)
            print(f"{calls:10} {shown} {max(v[2] for v in measured.values()):6.0f}", flush=True)


if __name__ == "__main__":
    main()
