"""How much the matcher claims about systems drawn at random, and how much of it is right.

    python benchmarks/systems_at_random.py [--systems 100] [--requests 1500] [--seed 0] [--background 0]
        [--servers 1]

One simulated node each (tests/random_systems.py says what it may be made of), by all evidence where calls
repeat values, else by times alone. With --background timers make so many calls for each request, too, which
are nobody's: a parent that one is given is a wrong link. Claimed is the probability of the parent that was
found; sure are links of 0.99 and more; calibration error: mean gap between probability and share right over
the bins of validate/edges.py. Prints Markdown: the systems by what connections are lent for, then those of
which the matcher claims most too much, with their seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from one_node import Score, score
from random_systems import System, random_system

from tapscope.store.codes import EvidenceMode
from tapscope.validate.edges import calibration

FEWEST_CALLS = 100
WORST = 8


def row(scores: list[Score]) -> tuple[float, ...]:
    """In percent: links that are right, claimed, sure, wrong of those, and the calibration error."""
    taken = np.concatenate([each.taken for each in scores])
    right = np.concatenate([*(each.right for each in scores), np.zeros(len(taken), bool)])
    claimed = np.concatenate([*(each.probability for each in scores), taken])
    told = calibration(claimed, right)
    sure = told.sure_edges / len(right)
    wrong = told.sure_wrong / max(told.sure_edges, 1)
    return tuple(100 * float(share) for share in (right.mean(), claimed.mean(), sure, wrong, told.error))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--systems", type=int, default=100)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0, help="of the first system")
    parser.add_argument("--background", type=float, default=0.0, help="calls of timers for each request")
    parser.add_argument("--servers", type=int, default=1, help="behind each node")
    options = parser.parse_args()
    kinds: dict[str, list[Score]] = defaultdict(list)
    each: list[tuple[tuple[float, ...], int, System]] = []
    for seed in range(options.seed, options.seed + options.systems):
        system, world = random_system(seed, options.requests, options.background, options.servers)
        if len(world.rows) - options.requests < FEWEST_CALLS:
            continue
        found = score(world, EvidenceMode.ALL if system.repeats else EvidenceMode.TIMING)
        kinds[system.lent_for].append(found)
        each.append((row([found]), seed, system))
        if sys.stderr.isatty():
            print(f"\r{seed - options.seed + 1} of {options.systems}", end="", file=sys.stderr, flush=True)
    head = "right % | claimed % | sure % | wrong of those % | calibration error %"
    print(f"| connections are lent for | systems | links | {head} |")
    print("| --- |" + " ---: |" * 7)
    every = [one for found in kinds.values() for one in found]
    for kind in (*sorted(kinds), "all"):
        scores = every if kind == "all" else kinds[kind]
        links = sum(len(one.right) + len(one.taken) for one in scores)
        print(f"| {kind} | {len(scores)} | {links} |", " | ".join(f"{x:.2f}" for x in row(scores)), "|")
    nobodys, taken = sum(one.nobodys for one in every), sum(len(one.taken) for one in every)
    if nobodys:
        alone = 100 * (1 - taken / nobodys)
        print(f"\nCalls of nobody: {nobodys}, of which {alone:.1f} % were given no parent.")
    print(f"\n| seed | {head} | system |")
    print("| ---: |" + " ---: |" * 5 + " --- |")
    each.sort(key=lambda one: one[0][0] - one[0][1])
    for shares, seed, system in each[:WORST]:
        print(f"| {seed} |", " | ".join(f"{x:.2f}" for x in shares), f"| {system} |")


if __name__ == "__main__":
    main()
