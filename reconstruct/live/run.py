"""Chunks of a capture to traces, as they come: the stages of `reconstruct.run`, each with what it must
remember.

The links are those of the capture as a whole: the kernel cuts a node's calls into stretches by the calls
alone. The first calls are kept back for a while, for who is a node is told by as many calls as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.capture.chunks import Chunk
from tapscope.reconstruct.live.held import NEVER_NS, Held, Ids, Settled
from tapscope.reconstruct.live.matching import Matching
from tapscope.reconstruct.live.nodes import Nodes
from tapscope.reconstruct.live.trees import Done, Trees
from tapscope.reconstruct.unseen import Unseen
from tapscope.store.codes import EvidenceMode
from tapscope.store.tables import TABLES, Table, empty

FIRST_NS = 60_000_000_000
FIRST_CALLS = 65_536
"""The first calls are kept back until they span so long, or are so many."""


@dataclass
class Progressed:
    """What became clear with a chunk. Calls are numbered in the order of their arrival, as in a run file."""

    messages: Table
    message_rows: Ids
    amended: dict[str, Ids]
    """Amendments of messages that were handed on before."""
    calls: Table
    call_ids: Ids
    evidence: Table
    """Of their messages."""
    done: Done


class Reconstructor:
    """A reconstruction that goes on: chunks in, what is clear out."""

    def __init__(
        self,
        mode: EvidenceMode = EvidenceMode.ALL,
        *,
        min_probability: float = 0.0,
        same_nodes: Sequence[Sequence[str]] = (),
        first_ns: int = FIRST_NS,
        threads: int = 0,
        **options: int,
    ) -> None:
        """`first_ns`: FIRST_NS, for tests. `threads`, `options`: see Matching."""
        self._held = Held()
        self._matching = Matching(mode, threads=threads, **options)
        self._trees = Trees(min_probability)
        self._first: list[Settled] = []
        self._first_ns = first_ns
        self._started = False
        self.nodes = Nodes(same_nodes)
        self.calls = 0
        self.late = 0
        """Calls that came too late to be matched."""
        self.frontier_ns = -1
        """Calls that arrived before are numbered."""

    def add(self, chunk: Chunk, addresses: list[str]) -> Progressed:
        """What comes next. `addresses`: all that were told."""
        self._held.add(chunk)
        return self._settle(addresses, finished=False)

    def finish(self, addresses: list[str]) -> Progressed:
        """Nothing more will come."""
        return self._settle(addresses, finished=True)

    def amend(self, amendments: dict[str, Ids]) -> None:
        """What became of messages, without a chunk."""
        self._held.amend(amendments)

    def counters(self) -> dict[str, int]:
        """What the matcher met, and what it could not do because it had to go on."""
        return self._matching.counters() | {
            "match.circles": self._trees.circles,
            "match.refused": self._trees.refused,
            "follow.late_calls": self.late,
            "follow.late_topology": self.nodes.surprises,
        }

    def waiting(self) -> dict[str, int]:
        """What is kept: messages, calls, and bytes in the kernel."""
        return {
            "messages": len(self._held),
            "calls": len(self._trees) + sum(len(each.calls["conn"]) for each in self._first),
            "kernel_bytes": self._matching.kept_bytes(),
        }

    def waiting_since_ns(self) -> int:
        """Transactions that began before were handed on; -1: none was."""
        return self._trees.waiting_since_ns(self.frontier_ns)

    def doubtful_roots(self) -> Ids:
        """Calls that were handed on as roots, and are of unknown parent (see Matching)."""
        return self._matching.doubtful_roots()

    def lost_calls(self, lost: Unseen) -> tuple[Ids, Table]:
        """Which of these were matched, and their links; rows of calls that were lost, too, are UNSEEN."""
        return self._matching.answers.of(lost)

    def _settle(self, addresses: list[str], *, finished: bool) -> Progressed:
        settled = self._held.settle(finished=finished)
        messages, rows, amended = settled.messages, settled.message_rows, settled.amended
        if not self._started:
            self._first.append(settled)
            spans = settled.frontier_ns - next(
                (int(each.calls["arrive_ns"][0]) for each in self._first if len(each.calls["arrive_ns"])),
                NEVER_NS,
            )
            count = sum(len(each.calls["conn"]) for each in self._first)
            if not finished and count < FIRST_CALLS and spans < self._first_ns:
                nothing = {c.name: np.zeros(0, dtype=c.dtype) for c in TABLES["calls"]}
                none = np.zeros(0, dtype=np.int64)
                done = self._trees.take(self._matching)
                return Progressed(messages, rows, amended, nothing, none, empty("evidence"), done)
            settled = _together(self._first)
            self._first, self._started = [], True
        calls = self.nodes.fill(settled, addresses)
        ids = self.calls + np.arange(len(calls["conn"]), dtype=np.int64)
        self.calls += len(ids)
        self.late += settled.late
        self.frontier_ns = settled.frontier_ns
        links = self._matching.take(
            calls,
            ids,
            settled.evidence,
            settled.gone_ns,
            NEVER_NS if finished else settled.frontier_ns,
            settled.late,
            self.nodes.fill_lost(settled, addresses),
        )
        self._trees.add(calls, ids, settled.gone_ns, links)
        done = self._trees.take(self._matching, finished=finished)
        return Progressed(messages, rows, amended, calls, ids, settled.evidence, done)


def _together(parts: list[Settled]) -> Settled:
    def whole(name: str) -> Table:
        columns = getattr(parts[0], name)
        return {column: np.concatenate([getattr(part, name)[column] for part in parts]) for column in columns}

    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    # Calls that came late are in their place: nothing was done with those behind them.
    calls = whole("calls")
    order = np.argsort(calls["arrive_ns"], kind="stable")
    return Settled(
        calls={name: values[order] for name, values in calls.items()},
        evidence=whole("evidence"),
        gone_ns=column("gone_ns")[order],
        client_addr=column("client_addr")[order],
        server_addr=column("server_addr")[order],
        server_port=column("server_port")[order],
        late=0,
        frontier_ns=parts[-1].frontier_ns,
        messages=whole("messages"),
        message_rows=column("message_rows"),
        amended=whole("amended"),
        lost=Unseen.joined([part.lost for part in parts]),
        lost_ends=whole("lost_ends"),
    )
