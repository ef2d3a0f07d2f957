"""Messages that wait until it is clear what became of them, and the calls that are clear, in order of
arrival.

A call is settled when it was answered a while ago, or when it will not be answered any more: its connection
went on without it, or ended, or PATIENCE_NS are over. Calls are handed on in the order of their arrival, so
that one which waits for its answer holds back those behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.capture.chunks import Chunk
from tapscope.capture.spool_read import amend
from tapscope.reconstruct import pair, unseen
from tapscope.reconstruct.live.lost import LostCalls
from tapscope.reconstruct.unseen import PATIENCE_NS
from tapscope.store.codes import CallFlag, MessageKind
from tapscope.store.tables import TABLES, Table, empty

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

SETTLE_NS = 3_000_000_000
"""What the tap saw so long ago was read: a live capture waits a second for segments out of order and two for
the secrets of a TLS connection."""
CLOSED_NS = 10_000_000_000
"""A call that has no answer so long after its connection began to close, or its client gave it up, gets
none."""
NEVER_NS = int(np.iinfo(np.int64).max) // 2
ENDS = ("client_addr", "server_addr", "server_port")


@dataclass
class Settled:
    """Calls that are settled, in order of arrival; conn, request and response are rows of the whole
    capture."""

    calls: Table
    evidence: Table
    gone_ns: Ids
    client_addr: NDArray[np.int32]
    server_addr: NDArray[np.int32]
    server_port: NDArray[np.uint16]
    late: int
    """The first of the calls began before a frontier that was told before: so many came too late."""
    frontier_ns: int
    """Calls that are settled later begin then or later."""
    messages: Table
    message_rows: Ids
    """Messages that nothing waits for any more, whether of a call or not."""
    amended: dict[str, Ids]
    """Amendments of messages that were handed on before."""
    lost: unseen.Unseen
    """Calls that the tap lost, nodes not known; conn and message are rows of the whole capture."""
    lost_ends: Table
    """Of these: client_addr, server_addr and server_port."""


class Held:
    """What waits: messages with their evidence, and the connections that may still have some."""

    def __init__(self) -> None:
        self._messages = empty("messages")
        self._rows: Ids = np.zeros(0, dtype=np.int64)
        self._evidence = empty("evidence")
        self._connections = empty("connections")
        self._conns: Ids = np.zeros(0, dtype=np.int64)
        self._shared: Ids = np.zeros(0, dtype=np.int64)
        self._amended: list[dict[str, Ids]] = []
        self._lost = LostCalls()
        self._frontier_ns = -NEVER_NS
        self._now_ns = -NEVER_NS

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, chunk: Chunk) -> None:
        """What a chunk brought."""
        self._now_ns = max(self._now_ns, chunk.now_ns)
        rows = np.concatenate([self._conns, chunk.connection_rows])
        self._conns, from_end = np.unique(rows[::-1], return_index=True)
        self._connections = _rows(
            _joined("connections", self._connections, chunk.connections), len(rows) - 1 - from_end
        )
        self._messages = _joined("messages", self._messages, chunk.messages)
        self._rows = np.concatenate([self._rows, chunk.message_rows])
        self._evidence = _joined("evidence", self._evidence, chunk.evidence)
        self.amend(chunk.amendments)

    def amend(self, amendments: dict[str, Ids]) -> None:
        """What became of messages."""
        if not len(amendments["message"]):
            return
        at = _places(self._rows, amendments["message"])
        amend(self._messages, at, amendments)
        if (at < 0).any():
            self._amended.append({name: values[at < 0] for name, values in amendments.items()})

    def settle(self, *, finished: bool = False) -> Settled:
        """Hand on what is settled; `finished`: everything, since nothing more will come."""
        now = NEVER_NS if finished else self._now_ns
        local = dict(self._messages)
        local["conn"] = _places(self._conns, local["conn"].astype(np.int64)).astype(np.int32)
        local["request"] = _places(self._rows, local["request"])
        stray = local["conn"] < 0  # of a connection that was over long ago
        local["conn"][stray] = 0
        local["kind"] = np.where(stray, np.uint8(MessageKind.ONE_WAY), local["kind"])
        calls = pair.calls(self._connections, local)
        shared = self._side_by_side(calls)
        final = self._final(calls, local, shared, now)
        count = len(final) if final.all() else int(np.argmin(final))
        gone = unseen.gone_by(calls, self._connections, shared)[:count]
        frontier = now - SETTLE_NS
        if count < len(final):
            frontier = min(frontier, int(calls["arrive_ns"][count]))
        late = int(np.searchsorted(calls["arrive_ns"][:count], self._frontier_ns))
        self._frontier_ns = max(self._frontier_ns, frontier)
        calls = {name: values[:count] for name, values in calls.items()}
        conn = calls["conn"]
        leaving = self._leaving(local, calls, now)
        lost = self._lost.find(
            self._connections, self._conns, local, self._rows, leaving, self._frontier_ns, finished=finished
        )
        of_lost = _places(self._conns, lost.conn)
        settled = Settled(
            calls=calls
            | {
                "conn": self._conns[conn].astype(np.int32),
                "request": self._rows[calls["request"]],
                "response": _or_none(self._rows, calls["response"]),
            },
            evidence=self._take_evidence(leaving),
            gone_ns=gone,
            client_addr=self._connections["client_addr"][conn],
            server_addr=self._connections["server_addr"][conn],
            server_port=self._connections["server_port"][conn],
            late=late,
            frontier_ns=self._frontier_ns,
            messages=_rows(self._messages, leaving),
            message_rows=self._rows[leaving],
            amended=_together(self._amended),
            lost=lost,
            lost_ends={name: self._connections[name][of_lost] for name in ENDS},
        )
        self._amended = []
        self._messages = _rows(self._messages, ~leaving)
        self._rows = self._rows[~leaving]
        self._forget_connections(now)
        return settled

    def _side_by_side(self, calls: Table) -> Flags:
        """Connections on which calls were in flight side by side, also earlier ones."""
        shared = unseen.side_by_side(calls, self._connections)
        shared |= np.isin(self._conns, self._shared)
        self._shared = self._conns[shared]
        return shared

    def _final(self, calls: Table, messages: Table, shared: Flags, now: int) -> Flags:
        has = calls["response"] >= 0
        response = np.where(has, calls["response"], calls["request"])
        ended = has & (messages["end_ns"][response] >= 0) & (calls["request_end_ns"] >= 0)
        over = np.maximum(calls["depart_ns"], calls["request_end_ns"])
        answered = ended & (over + SETTLE_NS <= now)
        lost = (calls["flags"] & CallFlag.LOST_RESPONSE) != 0
        final = answered | (calls["arrive_ns"] + PATIENCE_NS + SETTLE_NS <= now)
        final |= lost & (calls["request_end_ns"] + SETTLE_NS <= now)
        closed = self._connections["closed_ns"][calls["conn"]]
        final |= ~has & (closed >= 0) & (closed + CLOSED_NS <= now)
        final |= (calls["gone_ns"] >= 0) & (calls["gone_ns"] + CLOSED_NS <= now)
        # Passed over: a later call on its connection was answered.
        latest = np.full(len(self._conns), -NEVER_NS, dtype=np.int64)
        np.maximum.at(latest, calls["conn"][answered], calls["arrive_ns"][answered])
        passed = ~has & ~shared[calls["conn"]] & (latest[calls["conn"]] > calls["arrive_ns"])
        return np.asarray(final | passed | (now >= NEVER_NS), dtype=np.bool_)

    def _leaving(self, messages: Table, calls: Table, now: int) -> Flags:
        """Messages of the calls, and those that belong to none."""
        called = np.zeros(len(self._rows) + 1, dtype=np.bool_)  # the last one is for -1
        called[calls["request"]] = True
        out = called[:-1] | called[messages["request"]]
        alone = (messages["kind"] != MessageKind.REQUEST) & (messages["request"] < 0)
        end = messages["end_ns"]
        done = np.where(end >= 0, end + SETTLE_NS, messages["begin_ns"] + PATIENCE_NS + SETTLE_NS) <= now
        # A response without a request tells of a lost call: it leaves behind the calls before it.
        done &= (messages["kind"] != MessageKind.RESPONSE) | (messages["begin_ns"] < self._frontier_ns)
        return np.asarray(out | (alone & done), dtype=np.bool_)

    def _take_evidence(self, leaving: Flags) -> Table:
        at = np.searchsorted(self._rows, self._evidence["message"])
        taken = leaving[at] if len(leaving) else np.zeros(0, dtype=np.bool_)
        out = _rows(self._evidence, taken)
        self._evidence = _rows(self._evidence, ~taken)
        return out

    def _forget_connections(self, now: int) -> None:
        closed = self._connections["closed_ns"]
        kept = (closed < 0) | (closed + CLOSED_NS > now) | np.isin(self._conns, self._messages["conn"])
        self._connections = _rows(self._connections, kept)
        self._conns = self._conns[kept]
        self._lost.forget_connections(self._conns)


def _joined(name: str, first: Table, second: Table) -> Table:
    return {c.name: np.concatenate([first[c.name], second[c.name]]) for c in TABLES[name]}


def _rows(table: Table, rows: NDArray[np.int64] | Flags) -> Table:
    return {name: values[rows] for name, values in table.items()}


def _places(known: Ids, wanted: Ids) -> Ids:
    """Place of each wanted one among `known` (ascending); -1 where it is not."""
    at = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    return np.where(known[at] == wanted, at, -1)


def _or_none(values: Ids, at: Ids) -> Ids:
    return np.where(at >= 0, values[at], -1) if len(values) else at


def _together(amendments: list[dict[str, Ids]]) -> dict[str, Ids]:
    names = ("message", "column", "change", "value")
    nothing = np.zeros(0, dtype=np.int64)
    return {name: np.concatenate([nothing, *(part[name] for part in amendments)]) for name in names}
