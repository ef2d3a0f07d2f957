"""N* on queues whose number of servers is known: how far both estimators are off.

    python benchmarks/congestion.py [--seeds N] [--seconds S]

The queues are tests/queueing.py's: closed loops of users at c servers whose think time changes, so that load
covers its range. With stops the node stands still for 300 ms every 4 s; with two speeds it changes between 1
and 0.55 about once a second. N* is c in all of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from queueing import closed_loop

from tapscope.analyze.node_state import NodeState, node_state

SERVERS = (1, 4, 16)
SERVICE_S = 0.004
STOPS = tuple((5.0 + 4 * k, 0.3) for k in range(1000))
MODELS = {
    "M/M/c": {},
    "regular service (gamma, shape 20)": {"shape": 20.0},
    "two classes, 1 : 4": {"service_s": (SERVICE_S / 2, 2 * SERVICE_S)},
    "stops": {"stops": STOPS},
    "two speeds": {"speeds": (1.0, 0.55)},
    "two speeds and stops": {"speeds": (1.0, 0.55), "stops": STOPS},
}


def analyse(model: str, servers: int, seed: int, seconds: float) -> NodeState:
    """The node of one simulated queue."""
    how = {"service_s": (SERVICE_S,)} | MODELS[model]
    stops = tuple(stop for stop in how.pop("stops", ()) if stop[0] < seconds)
    queue = closed_loop(servers, seconds=seconds, seed=seed, stops=stops, **how)
    return node_state(queue.work())


def main() -> None:
    """Print a row for each model and number of servers."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--seconds", type=float, default=60.0)
    chosen = words.parse_args()
    print("| queue | servers | N* / c: mean | worst | interval holds c | windows (paper): mean |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in MODELS:
        for servers in SERVERS:
            found = [analyse(model, servers, seed, chosen.seconds) for seed in range(1, chosen.seeds + 1)]
            ratio = np.array([one.point.n_star for one in found]) / servers
            paper = np.array([one.paper.n_star for one in found]) / servers
            held = sum(one.point.low <= servers <= one.point.high for one in found)
            worst = ratio[int(np.argmax(np.abs(ratio - 1)))]
            print(
                f"| {model} | {servers} | {ratio.mean():.3f} | {worst:.3f} | {held} of {len(found)} "
                f"| {np.nanmean(paper):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
