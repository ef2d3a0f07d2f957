"""How much the matcher claims where requests wait, or do not wait for what they called, or clocks tick.

    python benchmarks/waiting_requests.py [--requests 3000]

By times alone. One simulated node (tests/waiting_worlds.py), three seeds each; every request makes a call x,
then a call y:

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
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from baselines import first_come_first_served, parents
from one_node import World, score
from waiting_worlds import forgets, pool, ticks, workers

from tapscope.store.codes import EvidenceMode

SURE = 0.99


SYSTEMS: dict[str, Callable[[random.Random, int, bool], World]] = {
    "pool, half busy": lambda d, n, c: pool(d, n, c, 1, 0.5),
    "pool, 70 % busy": lambda d, n, c: pool(d, n, c, 1, 0.7),
    "pool, 85 % busy": lambda d, n, c: pool(d, n, c, 1, 0.85),
    "pool, 85 % busy, three classes": lambda d, n, c: pool(d, n, c, 3, 0.85),
    "workers": lambda d, n, c: workers(d, n),
    "fire and forget, 0.2 in flight": lambda d, n, c: forgets(d, n, 0.2),
    "fire and forget, 2 in flight": lambda d, n, c: forgets(d, n, 2.0),
    "clocks of 1 ms, 2 in flight": lambda d, n, c: ticks(d, n, 2.0),
    "clocks of 1 ms, 6 in flight": lambda d, n, c: ticks(d, n, 6.0),
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
