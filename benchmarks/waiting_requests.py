"""How much the matcher claims where requests wait, or do not wait for what they called, or clocks tick.

    python benchmarks/waiting_requests.py [--requests 3000]

By times alone. One simulated node (tests/one_node.py), three seeds each; every request makes a call x, then a call y:

* pool: calls go out on four connections, lent for each call in the order of asking; requests come at
  random, as many as keep the pool busy for a share of the time. Their own work is 2 ms a step, a call takes
  3 ms, lognormal.
* workers: four, each with one request at a time from when it gets it to the answer; 16 callers ask again
  2 ms after their answer, so that requests wait for a worker all the time.
* fire and forget: y begins before the answer and ends behind it.
* clocks of 1 ms: nothing waits, and nothing is forgotten; stamps are cut to whole milliseconds.

Connections are seen (a capture) or not (a span table); those of workers and forgotten calls never are.
Claimed is the probability of the parent that was found, or of having none; sure are links, and calls without
a parent, of 0.99 and more. Prints Markdown.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from baselines import first_come_first_served, parents
from one_node import MS, World, score

from tapscope.store.codes import EvidenceMode

SURE = 0.99
SLOTS, CALLERS, THINK_NS = 4, 16, 2 * MS
WORK_MS, CALL_MS, SPREAD = 2.0, 3.0, 0.6


def _lasts(draw: random.Random, mean_ms: float) -> int:
    return int(draw.lognormvariate(np.log(mean_ms) - SPREAD**2 / 2, SPREAD) * MS)


def _pool(draw: random.Random, requests: int, connections: bool, classes: int, busy: float) -> World:
    """Events are a request's steps: it asks for a connection, and goes on when its call is over."""
    gap = 2 * CALL_MS * MS / (SLOTS * busy)
    now = 0.0
    arrive: list[int] = []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        arrive.append(int(now))
    asks = [(at + _lasts(draw, WORK_MS), request, 0) for request, at in enumerate(arrive)]
    heapq.heapify(asks)
    idle = [(0, slot) for slot in range(SLOTS)]
    made: list[list[tuple[int, int, int]]] = [[] for _ in range(requests)]
    depart = [0] * requests
    while asks:
        at, request, step = heapq.heappop(asks)
        free, slot = heapq.heappop(idle)
        begin = max(at, free)
        end = begin + _lasts(draw, CALL_MS)
        heapq.heappush(idle, (end, slot))
        made[request].append((begin, end, slot))
        after = end + _lasts(draw, WORK_MS)
        if step == 0:
            heapq.heappush(asks, (after, request, 1))
        else:
            depart[request] = after
    kinds = [draw.randrange(classes) for _ in range(requests)]
    return _written(kinds, arrive, depart, made, connections)


def _workers(draw: random.Random, requests: int, connections: bool) -> World:
    waiting = [(draw.randrange(20 * MS), caller) for caller in range(CALLERS)]
    heapq.heapify(waiting)
    free = [0] * SLOTS
    arrive, depart, made = [], [], []
    for _ in range(requests):
        asked, caller = heapq.heappop(waiting)
        at = max(asked, heapq.heappop(free))
        calls = []
        for _ in range(2):
            begin = at + _lasts(draw, WORK_MS)
            at = begin + _lasts(draw, CALL_MS)
            calls.append((begin, at, 0))
        answered = at + _lasts(draw, WORK_MS)
        heapq.heappush(free, answered)
        heapq.heappush(waiting, (answered + THINK_NS, caller))
        arrive.append(asked)
        depart.append(answered)
        made.append(calls)
    return _written([0] * requests, arrive, depart, made, connections)


def _forgets(draw: random.Random, requests: int, connections: bool, in_flight: float) -> World:
    gap = (2 * WORK_MS + CALL_MS) * MS / in_flight
    now = 0.0
    arrive, depart, made = [], [], []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        first = int(now) + _lasts(draw, WORK_MS)
        second = first + _lasts(draw, CALL_MS)
        answered = second + _lasts(draw, WORK_MS)
        arrive.append(int(now))
        depart.append(answered)
        made.append([(first, second, 0), (answered - MS // 10, answered + _lasts(draw, 20.0), 1)])
    return _written([0] * requests, arrive, depart, made, connections)


def _ticks(draw: random.Random, requests: int, connections: bool, in_flight: float) -> World:
    gap = (3 * WORK_MS + 2 * CALL_MS) * MS / in_flight
    now = 0.0
    arrive, depart, made = [], [], []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        at = int(now)
        calls = []
        for _ in range(2):
            begin = at + _lasts(draw, WORK_MS)
            at = begin + _lasts(draw, CALL_MS)
            calls.append((begin // MS * MS, at // MS * MS, 0))
        arrive.append(int(now) // MS * MS)
        depart.append((at + _lasts(draw, WORK_MS)) // MS * MS)
        made.append(calls)
    return _written([0] * requests, arrive, depart, made, connections)


def _written(
    kinds: list[int],
    arrive: list[int],
    depart: list[int],
    made: list[list[tuple[int, int, int]]],
    connections: bool,
) -> World:
    world = World()
    for kind, begin, end, calls in zip(kinds, arrive, depart, made, strict=True):
        request = world.serve(kind, begin, end)
        for number, (asked, answered, slot) in enumerate(calls):
            world.call(request, 10 * kind + number, asked, answered, slot if connections else None)
    return world


SYSTEMS: dict[str, Callable[[random.Random, int, bool], World]] = {
    "pool, half busy": lambda d, n, c: _pool(d, n, c, 1, 0.5),
    "pool, 70 % busy": lambda d, n, c: _pool(d, n, c, 1, 0.7),
    "pool, 85 % busy": lambda d, n, c: _pool(d, n, c, 1, 0.85),
    "pool, 85 % busy, three classes": lambda d, n, c: _pool(d, n, c, 3, 0.85),
    "workers": _workers,
    "fire and forget, 0.2 in flight": lambda d, n, c: _forgets(d, n, c, 0.2),
    "fire and forget, 2 in flight": lambda d, n, c: _forgets(d, n, c, 2.0),
    "clocks of 1 ms, 2 in flight": lambda d, n, c: _ticks(d, n, c, 2.0),
    "clocks of 1 ms, 6 in flight": lambda d, n, c: _ticks(d, n, c, 6.0),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=3000)
    requests = parser.parse_args().requests
    head = ("system", "connections", "right %", "first come, first served %", "claimed %", "sure %")
    print("|", " | ".join((*head, "wrong of those %")), "|")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, made in SYSTEMS.items():
        for connections in (False, True):
            if connections and not name.startswith("pool"):
                continue
            rows = []
            for seed in (1, 2, 3):
                world = made(random.Random(seed), requests, connections)
                found = score(world, EvidenceMode.TIMING)
                sure = found.probability >= SURE
                wrong = 1 - found.right[sure].mean() if sure.any() else 0.0
                calls, _, true = world.tables()
                child = true >= 0
                guess = parents(first_come_first_served, calls)[child] == true[child]
                rows.append((found.edges, guess.mean(), found.probability.mean(), sure.mean(), wrong))
            cells = " | ".join(f"{100 * share:.1f}" for share in np.mean(rows, axis=0))
            print(f"| {name} | {'seen' if connections else '-'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
