"""Calls that the tap lost whole: where they were, and which transactions may be theirs.

A lost response leaves its request, and the call is flagged. A lost request leaves nothing in `calls`: only
the messages around it tell of it. That is a response without a request; or a message that the dissector
flags as the first one behind lost bytes; or lost bytes behind the last message of a connection.

Whoever made such a call has one call less than it made, and what was done for the call has nobody above it.
Which request made it is matched (assumed.py); where that does not tell, all are told that may have, by the
times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.topology import SLACK_NS, Topology
from tapscope.store.codes import CallFlag, Direction, LinkKind, MessageFlag, MessageKind, Protocol
from tapscope.store.tables import Table

FANS_OUT = 0.01
"""Share of calls of a node that begin before the one before of the same parent is over, from which on a
parent that waits for an answer may wait for another one, too."""

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

BEHIND_LOSS = MessageFlag.RESYNCHRONISED | MessageFlag.TRUNCATED | MessageFlag.ANSWER_LOST


@dataclass
class Unseen:
    """One entry per call that is known to be missing, columns of one length.

    conn : row of connections; after_ns, before_ns : it began and ended between these; answer_ns : its
    response began then (-1: not seen either); answer_bytes : length of that (-1: nor is it whole);
    protocol : of the connection; message : row of messages that tells of it, which is that response, or what
    came behind it (-1: no message does); client_node, server_node : who made and who served it (-1 not
    known)."""

    conn: Ints
    after_ns: Ints
    before_ns: Ints
    answer_ns: Ints
    answer_bytes: Ints
    protocol: Ints
    message: Ints
    client_node: Ints
    server_node: Ints

    def __len__(self) -> int:
        return len(self.conn)

    @classmethod
    def joined(cls, parts: Sequence[Unseen]) -> Unseen:
        """Those of all parts, of which there are some."""
        return cls(
            *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls))
        )

    @classmethod
    def none(cls) -> Unseen:
        """Nothing is missing."""
        return cls(*(np.zeros(0, dtype=np.int64) for _ in fields(cls)))

    def only(self, which: Flags | Ints) -> Unseen:
        """Those of them."""
        return Unseen(*(getattr(self, column.name)[which] for column in fields(self)))

    def served_during(self, node: int, begin_ns: Ints, end_ns: Ints) -> Flags:
        """For each stay [begin, end]: may `node` have served one of these calls all the time?"""
        here = self.server_node == node
        after, before = self.after_ns[here], self.before_ns[here]
        order = np.argsort(after, kind="stable")
        # The latest end among those that began no later.
        latest = np.maximum.accumulate(before[order]) if here.any() else before
        at = np.searchsorted(after[order], begin_ns + SLACK_NS, side="right") - 1
        out = at >= 0
        out[out] = latest[at[out]] + SLACK_NS >= end_ns[out]
        return out


def find(connections: Table, messages: Table, found: Topology) -> Unseen:
    """The calls that are missing, with their nodes."""
    lost = missing(connections, messages)
    client, server = _ends(connections, found)
    return replace(lost, client_node=client[lost.conn], server_node=server[lost.conn])


def missing(connections: Table, messages: Table) -> Unseen:
    """The calls that are missing, nodes not known. Only connections count of which the tap lost bytes: a
    response without a request is also what a capture begins with, and what a server says on its own."""
    lossy = (connections["missing_to_server"] > 0) | (connections["missing_to_client"] > 0)
    rows = np.flatnonzero(lossy[messages["conn"]])
    rows = rows[np.lexsort((messages["begin_ns"][rows], messages["conn"][rows]))]
    conn, kind = messages["conn"][rows], messages["kind"][rows]
    begin, end = messages["begin_ns"][rows], messages["end_ns"][rows]
    flags = messages["flags"][rows]
    asked = messages["direction"][rows] == Direction.TO_SERVER
    number = np.arange(len(rows))
    first = np.searchsorted(conn, conn)  # place of the first message of the same connection
    is_first = number == first

    orphan = (kind == MessageKind.RESPONSE) & (messages["request"][rows] < 0)
    orphan &= connections["missing_to_server"][conn] > 0
    # Of the client's messages: lost bytes that neither the one before lacks nor an orphan tells of.
    before = _last(asked)
    cut = (before >= first) & ((flags[before] & MessageFlag.TRUNCATED) != 0)
    told = _last(orphan) > np.maximum(before, first - 1)
    hidden = asked & ((flags & MessageFlag.RESYNCHRONISED) != 0) & ~cut & ~told

    inside = np.flatnonzero(orphan | hidden)
    after = np.where(is_first, connections["first_ns"][conn], end[number - 1])[inside]
    at = begin[inside]
    answer = np.where(orphan[inside], at, -1)
    over = np.where(orphan[inside], np.maximum(end[inside], at), at)
    length = messages["wire_bytes"][rows[inside]].astype(np.int64)
    length[~orphan[inside] | (messages["missing_bytes"][rows[inside]] > 0)] = -1

    # Lost bytes of which no message knows lie behind the last one.
    told_of = np.isin(np.flatnonzero(lossy), conn[orphan | ((flags & BEHIND_LOSS) != 0)])
    silent = np.flatnonzero(lossy)[~told_of]
    last = np.full(len(lossy), -1, dtype=np.int64)
    np.maximum.at(last, conn, np.maximum(begin, end))
    tail_after = np.where(last[silent] >= 0, last[silent], connections["first_ns"][silent])

    def both(told: Ints, silent: Ints | int) -> Ints:
        return np.concatenate([told, np.broadcast_to(silent, len(tail_after))]).astype(np.int64)

    return Unseen(
        conn=both(conn[inside], silent),
        after_ns=both(after, tail_after),
        before_ns=both(over, connections["last_ns"][silent]),
        answer_ns=both(answer, -1),
        answer_bytes=both(length, -1),
        protocol=connections["protocol"][both(conn[inside], silent)].astype(np.int64),
        message=both(rows[inside], -1),
        client_node=both(np.full(len(inside), -1), -1),
        server_node=both(np.full(len(inside), -1), -1),
    )


def _last(where: Flags) -> Ints:
    """For each place the last one before it at which `where` holds; -1 none."""
    latest = np.maximum.accumulate(np.where(where, np.arange(len(where)), -1))
    return np.concatenate([[-1], latest[:-1]])[: len(where)]


def _ends(connections: Table, found: Topology) -> tuple[Ints, Ints]:
    """Client's and server's node of every connection, also of one of which no call is left; -1 not known."""
    count = len(connections["client_addr"])
    client, server = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    nodes = found.nodes
    by_place = {
        (int(addr), int(port)): node
        for node, (addr, port) in reversed(list(enumerate(zip(nodes["addr"], nodes["port"], strict=True))))
    }
    called = np.zeros(count, dtype=np.bool_)
    called[found.calls["conn"]] = True
    for row in np.flatnonzero(~called).tolist():
        place = int(found.address[connections["server_addr"][row]])
        at_port = by_place.get((place, int(connections["server_port"][row])), -1)
        server[row] = by_place.get((place, 0), at_port)
        client[row] = by_place.get((int(found.address[connections["client_addr"][row]]), 0), -1)
    client[found.calls["conn"]] = found.calls["client_node"]
    server[found.calls["conn"]] = found.calls["server_node"]
    return client, server


def may_lack(unseen: Unseen, calls: Table, links: Table) -> Flags:
    """Calls that may have made one of these: who was there when the answer came (or at any time in between,
    where it was not seen, either), and did not wait for another one. Where the calls before and behind on
    the connection are of one parent, it is that one."""
    out = np.zeros(len(calls["arrive_ns"]), dtype=np.bool_)
    for node in np.unique(unseen.client_node[unseen.client_node >= 0]).tolist():
        mine = np.flatnonzero(unseen.client_node == node)
        served = _Stays.of(calls, np.flatnonzero(calls["server_node"] == node))
        made = np.flatnonzero(calls["client_node"] == node)
        waits = _Stays.of(calls, made[links["parent"][made] >= 0])
        one_by_one = _overlapping(calls, links["parent"], waits.rows) < FANS_OUT
        on_conn = _Neighbours(calls, links["parent"], made)
        for each in mine.tolist():
            answer = int(unseen.answer_ns[each])
            from_ns = int(unseen.after_ns[each]) if answer < 0 else answer
            until_ns = int(unseen.before_ns[each]) if answer < 0 else answer
            able = served.between(from_ns, until_ns, SLACK_NS)
            both_sides = on_conn.parent(int(unseen.conn[each]), until_ns)
            if both_sides >= 0 and both_sides in able:
                out[both_sides] = True
                continue
            if answer >= 0 and one_by_one:
                able = np.setdiff1d(able, links["parent"][waits.between(answer, answer, -SLACK_NS)])
            out[able] = True
    return out


@dataclass
class _Stays:
    """Rows of calls in order of arrival; an unanswered one stays to the end."""

    rows: Ints
    arrive: Ints
    leave: Ints
    latest: Ints
    """The latest to leave of those that arrived no later."""

    @classmethod
    def of(cls, calls: Table, rows: Ints) -> _Stays:
        rows = rows[np.argsort(calls["arrive_ns"][rows], kind="stable")]
        depart = calls["depart_ns"][rows]
        leave = np.where(depart < 0, np.iinfo(np.int64).max // 2, depart)
        return cls(rows, calls["arrive_ns"][rows], leave, np.maximum.accumulate(leave))

    def between(self, from_ns: int, until_ns: int, slack_ns: int) -> Ints:
        """Rows that are there at any time of [from, until]; a negative slack asks for more than touching."""
        high = int(np.searchsorted(self.arrive, until_ns + slack_ns, side="right"))
        # Nobody before that place is still there.
        low = int(np.searchsorted(self.latest[:high], from_ns - slack_ns, side="left"))
        return self.rows[low:high][self.leave[low:high] >= from_ns - slack_ns]


class _Neighbours:
    """Parents of the calls around an instant on a connection."""

    def __init__(self, calls: Table, parent: Ints, rows: Ints) -> None:
        order = np.lexsort((calls["arrive_ns"][rows], calls["conn"][rows]))
        self._rows = rows[order]
        self._conn = calls["conn"][self._rows]
        self._arrive = calls["arrive_ns"][self._rows]
        self._parent = parent

    def parent(self, conn: int, at_ns: int) -> int:
        """That of the last call before and of the first one behind, where it is the same; else -1."""
        low, high = np.searchsorted(self._conn, [conn, conn + 1])
        at = int(low + np.searchsorted(self._arrive[low:high], at_ns))
        if not low < at < high:
            return -1
        before, behind = self._parent[self._rows[at - 1]], self._parent[self._rows[at]]
        return int(before) if before == behind else -1


def _overlapping(calls: Table, parent: Ints, rows: Ints) -> float:
    """Share of these calls that begin before the one before of the same parent is over."""
    order = rows[np.lexsort((calls["arrive_ns"][rows], parent[rows]))]
    same = parent[order[1:]] == parent[order[:-1]]
    over = calls["arrive_ns"][order[1:]] + SLACK_NS < calls["depart_ns"][order[:-1]]
    return float((same & over).sum() / max(int(same.sum()), 1))


PATIENCE_NS = 120_000_000_000
"""A call without an answer is waited for so long; what comes later says nothing of when it was over. (The
matcher takes it to make no more calls then: StretchOptions::patience_ns.)"""


MULTIPLEXED = (Protocol.HTTP2,)
"""Protocols of connections that carry calls side by side by design: of two that were not answered nothing
else would tell."""


def side_by_side(calls: Table, connections: Table) -> Flags:
    """Connections on which calls were in flight side by side, or may have been by their protocol."""
    conn, arrive = calls["conn"], calls["arrive_ns"]
    order = np.lexsort((arrive, conn))
    same = conn[order[1:]] == conn[order[:-1]]
    out = np.isin(connections["protocol"], MULTIPLEXED)
    out[conn[order[1:]][same & (calls["depart_ns"][order[:-1]] > arrive[order[1:]])]] = True
    return out


def gone_by(calls: Table, connections: Table, shared: Flags | None = None) -> Ints:
    """When each call without an answer was over at the latest, ns; -1 where that is not known: it was when
    the next call on its connection began, unless calls go side by side there (`shared`); when its client gave
    it up; and, where the answer is known to be lost, when the connection ended. (Who was not answered may
    work on behind that.)"""
    conn, arrive, depart = calls["conn"], calls["arrive_ns"], calls["depart_ns"]
    order = np.lexsort((arrive, conn))
    same = conn[order[1:]] == conn[order[:-1]]
    shared = side_by_side(calls, connections) if shared is None else shared
    never = np.iinfo(np.int64).max
    behind = np.full(len(conn), never, dtype=np.int64)
    behind[order[:-1][same]] = arrive[order[1:]][same]
    closed = connections["closed_ns"][conn]
    answered = ((calls["flags"] & CallFlag.LOST_RESPONSE) != 0) & (closed >= arrive)
    out = np.minimum(np.where(shared[conn], never, behind), np.where(answered, closed, never))
    out = np.where(calls["gone_ns"] >= arrive, np.minimum(out, calls["gone_ns"]), out)
    out = np.where(out - arrive > PATIENCE_NS, never, out)
    return np.where((depart >= 0) | (out == never), -1, out).astype(np.int64)


def without_parent(unseen: Unseen, calls: Table, links: Table) -> Flags:
    """Calls that are taken for roots although their node may have served a call that is missing."""
    out = np.zeros(len(calls["arrive_ns"]), dtype=np.bool_)
    root = links["kind"] == LinkKind.ROOT
    for node in np.unique(unseen.server_node[unseen.server_node >= 0]).tolist():
        rows = np.flatnonzero(root & (calls["client_node"] == node))
        end = np.where(calls["depart_ns"][rows] < 0, calls["request_end_ns"][rows], calls["depart_ns"][rows])
        out[rows] = unseen.served_during(node, calls["arrive_ns"][rows], end)
    return out
