"""The columns that analyses of a run have in common: read once, and put in order once for each node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Inside, Int, distinct
from tapscope.analyze.memory import keep_freed_memory
from tapscope.analyze.node_calls import NodeCalls
from tapscope.analyze.stays import Stays, one_clock, stays
from tapscope.store import tables
from tapscope.store.codes import CallFlag
from tapscope.store.runfile import RunFile

if TYPE_CHECKING:
    from tapscope.analyze.node_work import NodeWork

CALL_COLUMNS = (
    "conn",
    "client_node",
    "server_node",
    "class_id",
    "arrive_ns",
    "depart_ns",
    "flags",
    "gone_ns",
)
"""Of calls; reading the others would take longer than most analyses."""

MOST_THREADS = 4
Of = TypeVar("Of")


@dataclass(frozen=True)
class Read:
    """Columns of calls, and of connections; `intra_node_ns` is that of trace_calls in the order of calls (-1:
    in no trace). What is worked out of them is kept for the next that asks."""

    calls: tables.Table
    connections: tables.Table
    intra_node_ns: Int
    _nodes: dict[int, NodeCalls] = field(default_factory=dict, init=False, repr=False)
    _works: dict[int, NodeWork] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def stay(self) -> Stays:
        """When each call was inside its node."""
        return stays(self.calls, self.connections)

    def span_ns(self, node: int) -> tuple[int, int] | None:
        """From the first arrival to the last event by the node's clock, which at a tap is that of all nodes;
        None where no call counts."""
        if one_clock(self.connections):
            return self.stay.span_ns if self.stay.arrived.any() else None
        here = self.stay.arrived & (self.calls["server_node"] == node)
        return self.stay.span_of(here) if here.any() else None

    @cached_property
    def nodes(self) -> list[int]:
        """The called nodes, as rows of nodes."""
        return [int(node) for node in distinct(self.calls["server_node"])]

    def at(self, node: int) -> NodeCalls:
        """The calls inside a node."""
        if node not in self._nodes:
            self._nodes[node] = NodeCalls(self.calls, self.stay, self.intra_node_ns, node)
        return self._nodes[node]

    def addresses(self, node: int) -> NDArray[np.int32]:
        """Addresses at which a node was called."""
        used = np.zeros(len(self.connections["server_addr"]), dtype=np.bool_)
        used[self.calls["conn"][self.at(node).rows]] = True
        return np.unique(self.connections["server_addr"][used])

    def work(self, node: int) -> NodeWork:
        """Service times, work and capacity of a node."""
        from tapscope.analyze.node_work import (
            NodeWork,  # scipy.stats takes a second that others need not wait
        )

        if node not in self._works:
            self._works[node] = NodeWork(self.at(node))
        return self._works[node]

    @cached_property
    def _arrived_only(self) -> Int:
        """Rows of the calls that arrived, and nobody knows when they left."""
        return np.flatnonzero(self.stay.arrived & ~self.stay.inside)

    def unknown_end(self, node: int) -> Int:
        """Arrivals at a node of calls that left at a time that nobody knows: they are in no load."""
        rows = self._arrived_only
        return np.sort(self.stay.begin_ns[rows[self.calls["server_node"][rows] == node]])

    @cached_property
    def resent(self) -> Int:
        """Rows of the calls of which segments were sent again."""
        return np.flatnonzero(self.stay.inside & ((self.calls["flags"] & CallFlag.RETRANSMITTED) != 0))

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Which node called which."""
        nodes = max(self.nodes[-1] + 1, 1) if self.nodes else 1
        pair = self.calls["client_node"].astype(np.int64) * nodes + self.calls["server_node"]
        return [(int(one) // nodes, int(one) % nodes) for one in distinct(pair)]

    def made(self, node: int) -> dict[int, Inside]:
        """Calls that a node made, by the node that it called."""
        found = {}
        for below in [server for client, server in self._pairs if client == node]:
            if sum(server == below for _, server in self._pairs) == 1:
                found[below] = self.at(below).inside
            else:
                found[below] = self.at(below).part(self.calls["client_node"][self.at(below).rows] == node)
        return found

    def of_each(self, work: Callable[[int], Of], nodes: Iterable[int] | None = None) -> dict[int, Of]:
        """`work` of the called nodes (or of these), in threads: numpy lets go of the interpreter in what
        takes long. The busiest node begins."""
        chosen = list(self.nodes if nodes is None else nodes)
        if not chosen:
            return {}
        calls = np.bincount(self.calls["server_node"], minlength=max(chosen) + 1)
        busiest_first = sorted(chosen, key=lambda node: -int(calls[node]))
        _ = self.stay  # before threads would work it out each by itself
        with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), MOST_THREADS)) as pool:
            done = dict(zip(busiest_first, pool.map(work, busiest_first), strict=True))
        return {node: done[node] for node in chosen}


def read_calls(run: RunFile) -> Read:
    """Read what `node_state`, `findings` and their like need of a run."""
    keep_freed_memory()
    calls = run.read_table("calls", CALL_COLUMNS)
    made = run.read_table("trace_calls", ["call", "intra_node_ns"])
    return Read(calls, run.read_table("connections"), in_order_of_calls(made, len(calls["conn"])))


def in_order_of_calls(members: tables.Table, calls: int) -> Int:
    """`intra_node_ns` of trace_calls in the order of calls; -1 for a call in no trace."""
    if len(members["call"]) == calls and bool((members["call"] == np.arange(calls)).all()):
        return np.asarray(members["intra_node_ns"], dtype=np.int64)
    delay = np.full(calls, -1, dtype=np.int64)
    delay[members["call"]] = members["intra_node_ns"]
    return delay
