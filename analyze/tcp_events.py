"""Which calls, and so which transactions, met what TCP did on their connection.

An event touches a call of its connection when their times overlap, ends included: an event from `begin_ns` to
`end_ns`, a call from the first byte of its request to the last of its response. The first call on a
connection begins with its SYN, as its client waited for both; one without an answer lasts as long as its
connection. Of a response that was sent again behind its last byte the client had not got all, which the tap
cannot see in its times: what touches nobody else touches the call before it, if segments of that were sent
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import Read
from tapscope.analyze.inside import Int
from tapscope.store.codes import CallFlag, Direction, TcpEventKind
from tapscope.store.runfile import RunFile

Columns = Mapping[str, NDArray[Any]]

RESENT = (
    TcpEventKind.RESENT,
    TcpEventKind.RESENT_ASKED,
    TcpEventKind.RESENT_NEEDLESS,
    TcpEventKind.RESENT_UNSEEN,
)

WORDS = {
    TcpEventKind.SYN_AGAIN: "sent its SYN again",
    TcpEventKind.SYN_ANSWER_AGAIN: "answered a SYN again",
    TcpEventKind.RESENT: "sent data again, by a timer",
    TcpEventKind.RESENT_ASKED: "sent data again, as it was asked to",
    TcpEventKind.RESENT_NEEDLESS: "sent data again that had come",
    TcpEventKind.RESENT_UNSEEN: "sent data again that had been lost before the tap",
    TcpEventKind.ZERO_WINDOW: "had no room to receive",
    TcpEventKind.RST: "reset the connection",
}
"""What one side did, behind its name."""

COUNTED: Sequence[str] = (
    "syn_retransmits",
    "retransmits_to_server",
    "retransmits_to_client",
    "zero_windows_to_server",
    "zero_windows_to_client",
)

TOUCHED_COLUMNS = ("conn", "arrive_ns", "depart_ns", "flags")
"""Of calls, what `touched` looks at."""


@dataclass(frozen=True)
class Touched:
    """Pairs of an event and a call that it touched: rows of both tables, in order of event, then of call."""

    event: Int
    call: Int


@dataclass(frozen=True)
class Trouble:
    """Events of one kind, listener and direction together. `calls` and `traces` are how many they touched,
    `packets` how many said so, `waited_ns` is the longest of them."""

    kind: TcpEventKind
    direction: Direction
    server_addr: int
    server_port: int
    events: int
    packets: int
    calls: int
    traces: int
    waited_ns: int
    first_ns: int

    @property
    def words(self) -> str:
        """Who did what."""
        return told(self.kind, self.direction)


def side(direction: int) -> str:
    """Whose packets have this direction."""
    return "client" if direction == Direction.TO_SERVER else "listener"


def told(kind: int, direction: int) -> str:
    """Who did what, in words."""
    return f"{side(direction)} {WORDS[TcpEventKind(kind)]}"


def touched(events: Columns, calls: Columns, connections: Columns, chosen: Int | None = None) -> Touched:
    """Which calls the events touched; `chosen`: only these rows of events, in ascending order."""
    rows = np.arange(len(events["conn"])) if chosen is None else chosen
    conn = events["conn"][rows]
    busy = np.zeros(len(connections["syn_ns"]), dtype=np.bool_)
    busy[conn] = True
    call = np.flatnonzero(busy[calls["conn"]])
    begin, end = _stays(calls, connections, call)
    order = np.lexsort((begin, calls["conn"][call]))
    call, begin, end = call[order], begin[order], end[order]
    first_call, last_call = (
        np.searchsorted(calls["conn"][call], conn, side=side) for side in ("left", "right")
    )
    found_event, found_call = [], []
    by_conn = np.argsort(conn, kind="stable")
    cuts = np.flatnonzero(np.diff(conn[by_conn], prepend=-1, append=-1))
    for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        here = by_conn[low:high]
        of = slice(first_call[here[0]], last_call[here[0]])
        if of.start == of.stop:
            continue
        event, place = _overlaps(
            events["begin_ns"][rows[here]], events["end_ns"][rows[here]], begin[of], end[of]
        )
        again = np.setdiff1d(np.flatnonzero(np.isin(events["kind"][rows[here]], RESENT)), event)
        before = np.searchsorted(begin[of], events["begin_ns"][rows[here[again]]]) - 1
        told = before >= 0
        told[told] = (calls["flags"][call[of]][before[told]] & CallFlag.RETRANSMITTED) != 0
        event, place = np.append(event, again[told]), np.append(place, before[told])
        found_event.append(rows[here[event]])
        found_call.append(call[of][place])
    if not found_event:
        return Touched(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    pairs = np.lexsort((np.concatenate(found_call), np.concatenate(found_event)))
    return Touched(np.concatenate(found_event)[pairs], np.concatenate(found_call)[pairs])


def _stays(calls: Columns, connections: Columns, rows: Int) -> tuple[Int, Int]:
    """From when to when each of these calls concerned its client."""
    conn = calls["conn"][rows]
    begin, end = calls["arrive_ns"][rows].copy(), calls["depart_ns"][rows]
    end = np.where(end >= 0, end, np.maximum(connections["last_ns"][conn], begin))
    earliest = np.full(len(connections["syn_ns"]), np.iinfo(np.int64).max)
    np.minimum.at(earliest, conn, begin)
    syn = connections["syn_ns"][conn]
    first = (begin == earliest[conn]) & (syn >= 0)
    begin[first] = np.minimum(begin[first], syn[first])
    return begin, end


def _overlaps(begin: Int, end: Int, call_begin: Int, call_end: Int) -> tuple[Int, Int]:
    """Pairs of stretches and calls, which are in order of their begins, that overlap."""
    high = np.searchsorted(call_begin, end, side="right")
    low = np.minimum(np.searchsorted(np.maximum.accumulate(call_end), begin), high)
    count = high - low
    event = np.repeat(np.arange(len(begin)), count)
    place = np.arange(len(event)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    kept = call_end[place] >= begin[event]
    return event[kept], place[kept]


def troubles(events: Columns, connections: Columns, found: Touched, trace_of_call: Int) -> list[Trouble]:
    """What touched calls, by kind, listener and direction; those that touched most transactions first."""
    rows = np.unique(found.event)
    conn = events["conn"][rows]
    columns = (
        events["kind"][rows],
        events["direction"][rows],
        connections["server_addr"][conn],
        connections["server_port"][conn],
    )
    groups, which = np.unique(np.stack(columns).astype(np.int64), axis=1, return_inverse=True)
    which = which.ravel()
    listed = []
    for at, (kind, direction, addr, port) in enumerate(groups.T.tolist()):
        mine = rows[which == at]
        calls = np.unique(found.call[np.isin(found.event, mine)])
        traces = np.unique(trace_of_call[calls])
        listed.append(
            Trouble(
                kind=TcpEventKind(kind),
                direction=Direction(direction),
                server_addr=addr,
                server_port=port,
                events=len(mine),
                packets=int(events["packets"][mine].sum()),
                calls=len(calls),
                traces=int((traces >= 0).sum()),
                waited_ns=int((events["end_ns"] - events["begin_ns"])[mine].max()),
                first_ns=int(events["begin_ns"][mine].min()),
            )
        )
    return sorted(listed, key=lambda one: (-one.traces, -one.calls, one.kind, one.first_ns))


def kept(events: Columns, connections: Columns) -> bool:
    """Whether a run has the events at all: an older tapscope counted them only."""
    counted = sum(int(connections[name].sum()) for name in COUNTED)
    return len(events["conn"]) > 0 or counted == 0


def troubles_between(run: RunFile, read: Read, stretches: Sequence[tuple[int, int]]) -> list[list[Trouble]]:
    """For each stretch of time what touched calls by an event that overlaps it, ends included."""
    events = run.read_table("tcp_events")
    chosen = [
        np.flatnonzero((events["begin_ns"] <= end_ns) & (events["end_ns"] >= begin_ns))
        for begin_ns, end_ns in stretches
    ]
    together = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *chosen]))
    if not len(together):
        return [[] for _ in stretches]
    found = touched(events, read.calls, read.connections, together)
    trace_of_call = trace_of_calls(run, len(read.calls["conn"]))
    listed = []
    for rows in chosen:
        mine = np.isin(found.event, rows)
        one = Touched(found.event[mine], found.call[mine])
        listed.append(troubles(events, read.connections, one, trace_of_call))
    return listed


def trace_of_calls(run: RunFile, calls: int) -> Int:
    """Row of traces of each of the run's calls; -1 none."""
    member = run.read_table("trace_calls", ["call", "trace"])
    trace = np.full(calls, -1, dtype=np.int64)
    trace[member["call"]] = member["trace"]
    return trace
