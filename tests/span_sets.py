"""Span tables with known truth, from the simulator; every service's clock is off by an amount of its own."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
from simulator import Simulation

from tapscope.reconstruct.spans import COLUMNS
from tapscope.store.codes import Protocol

SERVICES = ("client", "web", "app", "db")
SKEW_US = (0, 7_000, -41_000, 3_600_000_000)
"""By service: more than the calls last, the database by an hour."""

TRUTH_COLUMNS = ("message_id", "true_parent_id", "true_trace_id", "tw_scope")


def rows(world: Simulation, skew_us: tuple[int, ...] = SKEW_US) -> list[dict[str, str]]:
    """The calls of a simulation as rows of a span table; its clients report nothing."""
    calls = world.tables["calls"]
    found = []
    for call in range(len(calls["conn"])):
        node = int(calls["server_node"][call])
        caller = node - 1
        begin, end = int(calls["arrive_ns"][call]) // 1000, int(calls["depart_ns"][call]) // 1000
        ended = calls["depart_ns"][call] >= 0
        protocol, text = world.classes[calls["class_id"][call]]
        cells = (
            f"m{call}",
            SERVICES[caller],
            SERVICES[node],
            f"{Protocol(protocol).name} {text}",
            str(begin + skew_us[caller]) if caller else "",
            str(begin + skew_us[node]),
            str(end + skew_us[node]) if ended else "",
            str(end + skew_us[caller]) if ended and caller else "",
        )
        found.append(dict(zip(COLUMNS, cells, strict=True)))
    order = np.random.default_rng(5).permutation(len(found))
    return [found[place] for place in order]


def truth(world: Simulation) -> list[dict[str, str]]:
    """The true parents; everything below the root is in scope."""
    root = np.arange(len(world.true_parent))
    for _ in range(3):
        root = np.where(world.true_parent[root] >= 0, world.true_parent[root], root)
    return [
        {
            "message_id": f"m{call}",
            "true_parent_id": f"m{parent}" if parent >= 0 else "",
            "true_trace_id": f"t{top}",
            "tw_scope": "1" if parent >= 0 else "0",
        }
        for call, (parent, top) in enumerate(zip(world.true_parent.tolist(), root.tolist(), strict=True))
    ]


def write(path: Path, listed: list[dict[str, str]]) -> Path:
    """A CSV file with a header line; gzipped if its name says so."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(listed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)
    return path
