"""How much the matcher claims where classes are many and come in any order, and how much of it is right.

    python benchmarks/many_statements.py [--requests 2500]

One simulated node (tests/statements_any_order.py), two seeds each, by times alone. With 16 pooled
connections a request keeps one, which tells a lot; with none every call has its own, and hardly anything
does. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from one_node import score
from statements_any_order import any_of_many_statements

from tapscope.store.codes import EvidenceMode

SURE = 0.99


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=2500)
    requests = parser.parse_args().requests
    print("| statements | connections | links right % | claimed % | sure links % | wrong of those % |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for statements in (3, 30, 100, 300):
        for connections in (16, 0):
            rows = []
            for seed in (1, 2):
                world = any_of_many_statements(seed, statements, connections, requests)
                found = score(world, EvidenceMode.TIMING)
                sure = found.probability >= SURE
                wrong = 1 - found.right[sure].mean() if sure.any() else 0.0
                rows.append((found.edges, found.probability.mean(), sure.mean(), wrong))
            cells = " | ".join(f"{100 * share:.1f}" for share in np.mean(rows, axis=0))
            print(f"| {statements} | {connections or 'own'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
