"""Cost of matching one node: calls per second of CPU, and memory, over the number of calls and over the load.

    python benchmarks/matching.py [--calls N ...] [--in-flight L ...]

The node is generated: requests of 12 classes arrive at random, each makes its own chain of one to nine
calls of 18 classes, gaps are lognormal, and a request holds one connection while it works, which has
nothing to do with the one that it came on. With content, the key of the request is a literal of six calls
in ten. Rows are made and pushed in chunks, so that what is measured is the stream: its memory must not grow
with the number of calls. Every line is a process of its own. The baselines of benchmarks/baselines are run
beside it where they end in reasonable time.
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))

from baselines import first_come_first_served, wap5
from baselines.node import Node
from trace_capture import machine, peak_mb

from tapscope.reconstruct import _kernel
from tapscope.store.codes import TokenKind
from tapscope.store.tables import Table

Ints = NDArray[np.int64]
Rows = dict[str, NDArray[np.generic]]

REQUEST_CLASSES, CALL_CLASSES, MOST_CALLS = 12, 18, 9
GAP_NS, ANSWER_NS, SPREAD = 600_000.0, 900_000.0, 0.8
PARENTS_PER_CHUNK = 20_000
SLOT = 7 * 16 + TokenKind.TEXT
"""Of the key: its place, and what it is, as the kernel has both in one number (problem.hpp)."""

MOST_FOR_BASELINES = 100_000
"""Calls up to which the baselines, which are written in Python, are run."""


@dataclass
class Chunk:
    """Rows in the order of time, the true parent of every child, and the time up to which all are there."""

    parents: Rows
    children: Rows
    true_parent: Ints
    until_ns: int


def _tokens(count: int, hashes: NDArray[np.uint64], has: NDArray[np.bool_], name: str = "token") -> Rows:
    offset = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(has, out=offset[1:])
    kept = hashes[has]
    slots = np.full(len(kept), SLOT, dtype=np.uint32)
    return {f"{name}_offset": offset, f"{name}_slot": slots, f"{name}_hash": kept}


@dataclass
class Connections:
    """Those that lie idle, and those in use with the times until when."""

    free: list[int] = field(default_factory=list)
    busy: list[tuple[int, int]] = field(default_factory=list)

    def held(self, arrive: Ints, depart: Ints, which: NDArray[np.float64] | None = None) -> Ints:
        """One for every request: any idle one by `which`, else the one given back last, as most pools do."""
        out = np.empty(len(arrive), dtype=np.int64)
        for i, (begin, end) in enumerate(zip(arrive.tolist(), depart.tolist(), strict=True)):
            while self.busy and self.busy[0][0] <= begin:
                self.free.append(heapq.heappop(self.busy)[1])
            if which is not None and self.free:
                at = int(which[i] * len(self.free))
                self.free[at], self.free[-1] = self.free[-1], self.free[at]
            conn = self.free.pop() if self.free else len(self.busy)
            heapq.heappush(self.busy, (end, conn))
            out[i] = conn
        return out


def generate(calls: int, in_flight: float, content: bool, seed: int = 0) -> Iterator[Chunk]:
    """Chunks of one node's rows with about `calls` children and so many requests in flight on average."""
    shape = np.random.default_rng(7 + 1000 * seed)
    length = shape.integers(1, MOST_CALLS + 1, REQUEST_CLASSES)
    chain = shape.integers(0, CALL_CLASSES, (REQUEST_CLASSES, MOST_CALLS))
    copies = shape.random((REQUEST_CLASSES, MOST_CALLS)) < 0.6
    stay = float((GAP_NS * (length + 1) + ANSWER_NS * length).mean()) * np.exp(SPREAD**2 / 2)
    rng = np.random.default_rng(11 + 1000 * seed)
    clients, clients_rng = Connections(), np.random.default_rng(13 + 1000 * seed)
    pool = Connections()
    left, now, pushed = calls, 0, 0
    late: tuple[NDArray[np.generic], ...] = ()
    while left > 0:
        count = min(PARENTS_PER_CHUNK, max(int(left / length.mean()), 1))
        arrive = now + np.cumsum(rng.exponential(stay / in_flight, count)).astype(np.int64) + 1
        cls = rng.integers(0, REQUEST_CLASSES, count)
        key = rng.integers(1, 90_000, count).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        n = length[cls]
        gaps = (GAP_NS * rng.lognormal(0, SPREAD, (count, MOST_CALLS + 1))).astype(np.int64)
        answers = (ANSWER_NS * rng.lognormal(0, SPREAD, (count, MOST_CALLS))).astype(np.int64)
        begin = arrive[:, None] + np.cumsum(gaps[:, :-1], axis=1) + np.cumsum(answers, axis=1) - answers
        end = begin + answers
        row = np.arange(count)
        depart = end[row, n - 1] + gaps[row, n]
        conn = pool.held(arrive, depart)
        made = np.arange(MOST_CALLS) < n[:, None]
        at, place = np.nonzero(made)
        fresh = (
            begin[made],
            end[made],
            chain[cls[at], place],
            conn[at],
            key[at],
            copies[cls[at], place],
            at + pushed,
        )
        rows = tuple(np.concatenate(both) for both in zip(late, fresh, strict=True)) if late else fresh
        left -= len(at)
        now = int(arrive[-1])
        until = now if left > 0 else int(rows[0].max()) + 1
        order = np.argsort(rows[0], kind="stable")
        whole = int(np.searchsorted(rows[0][order], until))
        late = tuple(column[order[whole:]] for column in rows)
        begins, ends, kinds, conns, keys, copied, parent = (column[order[:whole]] for column in rows)
        yield Chunk(
            {
                "cls": cls.astype(np.int64),
                "conn": clients.held(arrive, depart, clients_rng.random(count)),
                "arrive": arrive,
                "request_end": arrive,
                "response_begin": depart,
                "depart": depart,
                **_tokens(count, key, np.full(count, content)),
            },
            {
                "cls": kinds.astype(np.int64),
                "conn": conns,
                "begin": begins,
                "response_begin": ends,
                "end": ends,
                **_tokens(whole, keys, copied & content),
                **_tokens(whole, keys, np.zeros(whole, dtype=bool), "result"),
            },
            parent.astype(np.int64),
            until,
        )
        pushed += count


def run_stream(calls: int, in_flight: float, content: bool, seed: int) -> dict[str, float]:
    """One point of the curves; seconds are CPU, without what it takes to make the rows."""
    stream = _kernel.NodeStream()
    spent, right, count, stay = 0.0, 0, 0, 0
    waiting: list[Ints] = []

    def grade(links: Table) -> None:
        nonlocal right, count
        truth = np.concatenate(waiting) if waiting else np.empty(0, dtype=np.int64)
        done = len(links["parent"])
        right += int((links["parent"] == truth[:done]).sum())
        count += done
        waiting[:] = [truth[done:]]

    first = last = 0
    before = peak_mb()
    for chunk in generate(calls, in_flight, content, seed):
        begin = time.process_time()
        stream.push(chunk.parents, chunk.children)
        stream.advance(chunk.until_ns)
        spent += time.process_time() - begin
        waiting.append(chunk.true_parent)
        grade(stream.take())
        stay += int((chunk.parents["depart"].astype(np.int64) - chunk.parents["arrive"]).sum())
        first, last = first or int(chunk.parents["arrive"][0]), chunk.until_ns
    begin = time.process_time()
    stream.finish()
    spent += time.process_time() - begin
    grade(stream.take())
    counted = stream.counters()
    return {
        "calls": count,
        "in_flight": stay / (last - first),
        "seconds": spent,
        "right": right / count,
        "kept_mb": counted["most_kept_bytes"] / 1e6,
        "grown_mb": peak_mb() - before,
    }


def run_baseline(name: str, calls: int, in_flight: float, seed: int) -> dict[str, float]:
    """A baseline over the same rows, in one piece."""
    chunks = list(generate(calls, in_flight, False, seed))
    parents = {k: np.concatenate([c.parents[k] for c in chunks]) for k in ("cls", "arrive", "depart")}
    children = {k: np.concatenate([c.children[k] for c in chunks]) for k in ("cls", "begin", "end")}
    truth = np.concatenate([c.true_parent for c in chunks])
    node = Node(*parents.values(), *children.values())
    begin = time.process_time()
    found = {"FCFS": first_come_first_served, "WAP5": wap5}[name](node)
    return {
        "seconds": time.process_time() - begin,
        "right": float((found == truth).mean()),
        "calls": len(truth),
    }


def _point(kind: str, calls: int, in_flight: float, seed: int) -> dict[str, float]:
    """One measurement in a process of its own, so that memory is its own."""
    command = [sys.executable, __file__, "--point", kind, str(calls), str(in_flight), "--seed", str(seed)]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(made.stdout)
    return answer


def line(calls: int, in_flight: float, seed: int) -> str:
    """One line of the table."""
    with_content, by_time = (_point(kind, calls, in_flight, seed) for kind in ("content", "timing"))
    cells = [f"{with_content['calls']:10.0f} {with_content['in_flight']:9.1f}"]
    for made in (with_content, by_time):
        rate = made["calls"] / made["seconds"]
        cells.append(f"{rate:9.0f} {100 * made['right']:6.2f} {made['kept_mb']:6.1f} {made['grown_mb']:7.0f}")
    for name in ("FCFS", "WAP5") if calls <= MOST_FOR_BASELINES else ():
        made = _point(name, calls, in_flight, seed)
        cells.append(f"{made['calls'] / made['seconds']:9.0f} {100 * made['right']:6.2f}")
    return "  ".join(cells)


def main() -> None:
    """Two curves: over the number of calls at 10 in flight, and over the load at 100,000 calls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--in-flight", type=float, nargs="*", default=[1, 3, 10, 30, 100, 300, 500])
    parser.add_argument("--seed", type=int, default=0, help="of the node and its calls")
    parser.add_argument(
        "--point",
        nargs=3,
        metavar=("KIND", "CALLS", "IN_FLIGHT"),
        help="one measurement, as JSON; KIND: content, timing, FCFS or WAP5",
    )
    args = parser.parse_args()
    if args.point:
        kind, calls, in_flight = args.point[0], int(args.point[1]), float(args.point[2])
        if kind in ("content", "timing"):
            print(json.dumps(run_stream(calls, in_flight, kind == "content", args.seed)))
        else:
            print(json.dumps(run_baseline(kind, calls, in_flight, args.seed)))
        return
    print(machine())
    print(f"{'':20}  {'with content':^31}  {'by time and class':^31}  {'FCFS':^16}  {'WAP5-style':^16}")
    ours = f"{'calls/s':>9} {'% ok':>6} {'kept':>6} {'grown':>7}"
    theirs = f"{'calls/s':>9} {'% ok':>6}"
    print(f"{'calls':>10} {'in flight':>9}  {ours}  {ours}  {theirs}  {theirs}")
    for calls in args.calls:
        print(line(calls, 10, args.seed), flush=True)
    for in_flight in args.in_flight:
        print(line(100_000, in_flight, args.seed), flush=True)
    print(
        "kept: rows that wait, at most (10^6 bytes); grown: peak memory above that at the start (2^20 bytes)."
    )


if __name__ == "__main__":
    main()
