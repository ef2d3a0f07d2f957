"""A simulated run of which the tap lost requests, with what is true of the calls that are left."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from simulator import Simulation

from tapscope.capture import CaptureTables
from tapscope.store.codes import MessageFlag
from tapscope.store.tables import empty


@dataclass
class Thinned:
    """A capture that lost requests. By call that is left: was its parent lost, was its transaction touched,
    and the row of its parent (-1: none, or lost)."""

    tables: CaptureTables
    orphan: np.ndarray
    touched: np.ndarray
    parent: np.ndarray


def thinned_by(world: Simulation, share: float, seed: int = 1) -> Thinned:
    """Loses that share of the requests, and with some of them the answer."""
    draw = random.Random(seed)
    calls, parent = world.tables["calls"], world.true_parent
    count = len(parent)
    answered = calls["response"] >= 0
    lost = answered & np.array([draw.random() < share for _ in range(count)])
    silent = lost & np.array([draw.random() < 0.1 for _ in range(count)])

    messages = world.tables["messages"]
    keep = np.ones(len(messages["conn"]), dtype=bool)
    keep[calls["request"][lost]] = keep[calls["response"][silent]] = False
    place = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
    flags = messages["flags"].copy()
    for call in np.flatnonzero(silent):
        behind = np.flatnonzero(keep & (messages["conn"] == calls["conn"][call]) & (messages["request"] < 0))
        flags[behind[behind > calls["request"][call]][:1]] |= np.uint32(MessageFlag.RESYNCHRONISED)
    messages = {name: values[keep] for name, values in (messages | {"flags": flags}).items()}
    messages["request"] = place[messages["request"]]
    missing = np.bincount(calls["conn"][lost], minlength=len(world.tables["connections"]["syn_ns"]))
    said = keep[world.tables["evidence"]["message"]]
    evidence = {name: values[said] for name, values in world.tables["evidence"].items()}
    evidence["message"] = place[evidence["message"]]

    root = np.arange(count)
    for _ in range(3):
        root = np.where(parent[root] >= 0, parent[root], root)
    row = np.append(np.where(lost, -1, np.cumsum(~lost) - 1), -1)
    return Thinned(
        CaptureTables(
            connections=world.tables["connections"] | {"missing_to_server": 100 * missing.astype(np.uint64)},
            messages=messages,
            evidence=evidence,
            tcp_events=empty("tcp_events"),
            classes=world.classes,
            addresses=world.addresses,
            counters=[],
            sources=[],
            tap_points=[],
            examples=[],
            interrupted=False,
        ),
        orphan=((parent >= 0) & lost[parent])[~lost],
        touched=np.isin(root, root[lost])[~lost],
        parent=row[parent][~lost],
    )
