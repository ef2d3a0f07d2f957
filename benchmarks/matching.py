"""Cost of matching: CPU time over the number of calls and over the load, next to first come, first served.

    python benchmarks/matching.py [SECONDS]

The input is the simulator of the tests, whose statements look alike and whose gaps have no memory: a hard
case. The baseline (each child goes to the request that has waited longest) is what a matcher costs that does
not think, and the floor that its accuracy must beat. Memory is not shown here; see trace_capture.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from simulator import APP, DB, Simulation, simulate
from trace_capture import machine

from tapscope.reconstruct.match.links import links
from tapscope.store.codes import EvidenceMode


def first_come_first_served(world: Simulation) -> np.ndarray:
    """Parent of each call to the database: the request at the application that has waited longest."""
    calls = world.tables["calls"]
    requests = np.flatnonzero(calls["server_node"] == APP)
    found = np.full(len(calls["conn"]), -1)
    idle_since: dict[int, int] = {}
    events = [(int(calls["arrive_ns"][r]), 0, int(r), -1) for r in requests]
    events += [(int(calls["depart_ns"][r]), 3, int(r), -1) for r in requests if calls["depart_ns"][r] >= 0]
    for c in np.flatnonzero(calls["server_node"] == DB):
        events.append((int(calls["arrive_ns"][c]), 1, int(c), -1))
        if calls["depart_ns"][c] >= 0:
            events.append((int(calls["depart_ns"][c]), 2, int(c), -1))
    for at, kind, row, _ in sorted(events):
        if kind == 0:
            idle_since[row] = at
        elif kind == 1 and idle_since:
            found[row] = min(idle_since, key=idle_since.__getitem__)
            del idle_since[found[row]]
        elif kind == 2 and found[row] >= 0:
            idle_since[int(found[row])] = at
        elif kind == 3:
            idle_since.pop(row, None)
    return found


def row(world: Simulation) -> str:
    """One line of the table."""
    calls = world.tables["calls"]
    at_app = (calls["server_node"] == APP) & (calls["depart_ns"] >= 0)
    stay = (calls["depart_ns"] - calls["arrive_ns"])[at_app].sum()
    in_flight = stay / (world.end_ns - world.begin_ns)
    children = calls["server_node"] == DB
    cells = [f"{len(children):9d} {in_flight:9.1f}"]
    begin = time.process_time()
    guessed = first_come_first_served(world)
    baseline = time.process_time() - begin
    cells.append(f"{baseline:8.2f} {100 * (guessed == world.true_parent)[children].mean():6.1f}")
    for mode in (EvidenceMode.NOIDS, EvidenceMode.TIMING):
        begin = time.process_time()
        made, _ = links(calls, world.tables["evidence"], mode)
        spent = time.process_time() - begin
        right = 100 * (made["parent"] == world.true_parent)[children].mean()
        cells.append(f"{spent:8.2f} {len(children) / spent:8.0f} {spent / baseline:6.1f}x {right:6.1f}")
    return "  ".join(cells)


def main() -> None:
    """Two curves: over the length of the capture at one load, and over the load at one length."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    print(machine())
    head = f"{'calls':>9} {'in flight':>9}  {'FCFS s':>8} {'% ok':>6}"
    for mode in ("noids", "timing"):
        head += f"  {mode + ' s':>8} {'calls/s':>8} {'/FCFS':>7} {'% ok':>6}"
    print(head)
    for length in (seconds, 2 * seconds, 4 * seconds):
        print(row(simulate(seed=1, users=60, seconds=length)))
    for users in (20, 120, 160, 200):
        print(row(simulate(seed=1, users=users, seconds=seconds)))


if __name__ == "__main__":
    main()
