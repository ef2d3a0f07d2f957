"""Calls of a capture to byte ranges of the streams that thread logs number.

A capture has raw sequence numbers; the logs count from the first byte of a connection. Where the capture has
the beginning of a stream, its first message is byte 0. Elsewhere (pools that were connected before) the two
are lined up by time: most messages begin where a send begins, so the difference that occurs most often is the
right one.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads.log import ThreadLogs, Way
from tapscope.reconstruct.threads.sides import Ranges
from tapscope.reconstruct.threads.streams import is_server, nearest
from tapscope.store.codes import Direction
from tapscope.store.tables import Table

Ints = NDArray[np.int64]

LINED_UP_BY = 200
"""Messages of a stream that are looked at to line it up."""

AGREEING = 0.5
"""Share of them that must say the same."""


def ranges(
    calls: Table, connections: Table, messages: Table, addresses: list[str], logs: ThreadLogs
) -> tuple[Ranges, dict[str, int]]:
    """Where the calls of a capture lie on the streams of the logs, and counters."""
    at_client, at_server = _sides(connections, addresses, logs)
    offset, counters = _offsets(connections, messages, at_client, at_server, logs)
    last = offset + np.maximum(messages["wire_bytes"].astype(np.int64), 1) - 1
    request, response = calls["request"], calls["response"]

    def of(values: Ints, rows: Ints) -> Ints:
        if not len(values):
            return np.full(len(rows), -1, dtype=np.int64)
        return np.where((rows >= 0) & (offset[rows] >= 0), values[rows], -1)

    conn = calls["conn"]
    found = Ranges(
        at_client[conn],
        at_server[conn],
        of(offset, request),
        of(last, request),
        of(offset, response),
        of(last, response),
    )
    used = np.unique(conn)
    counters["threads.connections_in_no_log"] = int(((at_client[used] < 0) & (at_server[used] < 0)).sum())
    return found, counters


def _sides(connections: Table, addresses: list[str], logs: ThreadLogs) -> tuple[Ints, Ints]:
    """By connection of the capture: rows of the logs' connections at client and server, -1 none."""
    table = logs.connections
    serving = is_server(logs)
    rows_at: dict[tuple[str, int, str, int, bool], list[int]] = {}
    for row in range(len(serving)):
        own, peer = logs.addresses[table["own"][row]], logs.addresses[table["peer"][row]]
        key = (own, int(table["own_port"][row]), peer, int(table["peer_port"][row]), bool(serving[row]))
        rows_at.setdefault(key, []).append(row)
    count = len(connections["client_addr"])
    at_client, at_server = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    for row in range(count):
        client, server = (
            addresses[connections["client_addr"][row]],
            addresses[connections["server_addr"][row]],
        )
        port, listener = int(connections["client_port"][row]), int(connections["server_port"][row])
        life = int(connections["first_ns"][row]), int(connections["last_ns"][row])
        at_client[row] = nearest(*life, rows_at.get((client, port, server, listener, False), []), logs)
        at_server[row] = nearest(*life, rows_at.get((server, listener, client, port, True), []), logs)
    return at_client, at_server


def _offsets(
    connections: Table, messages: Table, at_client: Ints, at_server: Ints, logs: ThreadLogs
) -> tuple[Ints, dict[str, int]]:
    """Offset of the first byte of every message on its stream; -1 where the stream could not be lined up."""
    conn, way = messages["conn"].astype(np.int64), messages["direction"].astype(np.int64)
    stream = conn * 2 + way
    order = np.argsort(stream, kind="stable")
    offset = np.full(len(stream), -1, dtype=np.int64)
    counters = {"threads.streams_lined_up_by_time": 0, "threads.streams_not_lined_up": 0}
    if not len(order):
        return offset, counters
    sent = _by_connection(logs, Way.SENT, "begin_ns")
    received = _by_connection(logs, Way.RECEIVED, "end_ns")
    for rows in np.split(order, np.flatnonzero(np.diff(stream[order])) + 1):
        row, direction = int(conn[rows[0]]), Direction(int(way[rows[0]]))
        ends = (
            (at_client[row], at_server[row])
            if direction == Direction.TO_SERVER
            else (at_server[row], at_client[row])
        )
        if max(ends) < 0:
            continue
        # Sequence numbers wrap; differences between neighbours do not.
        seq = messages["tcp_seq"][rows]
        along = np.concatenate([[0], np.cumsum(np.diff(seq).astype(np.int32).astype(np.int64))])
        if _from_its_beginning(connections, row, direction):
            offset[rows] = along - along.min()
            continue
        origin = _line_up(along, messages["begin_ns"][rows], int(ends[0]), int(ends[1]), sent, received, logs)
        if origin is None:
            counters["threads.streams_not_lined_up"] += 1
        else:
            offset[rows] = along + origin
            counters["threads.streams_lined_up_by_time"] += 1
    return offset, counters


def _from_its_beginning(connections: Table, row: int, direction: Direction) -> bool:
    """Is the stream's first message its first byte? Not when the handshake is missing, or bytes are, or some
    were in no message."""
    side = "to_server" if direction == Direction.TO_SERVER else "to_client"
    return not (
        connections["midstream"][row]
        or connections[f"missing_{side}"][row]
        or connections[f"unparsed_{side}"][row]
    )


class _Moments:
    """Events of one way, by connection and time."""

    def __init__(self, rows: Ints, first: Ints, at_ns: Ints) -> None:
        self.rows, self.first, self.at_ns = rows, first, at_ns

    def of(self, connection: int) -> tuple[Ints, Ints]:
        """(rows of the events, their times)"""
        here = slice(int(self.first[connection]), int(self.first[connection + 1]))
        return self.rows[here], self.at_ns[here]


def _by_connection(logs: ThreadLogs, way: Way, stamp: str) -> _Moments:
    events = logs.events
    rows = np.flatnonzero(events["way"] == way)
    rows = rows[np.lexsort((events[stamp][rows], events["connection"][rows]))]
    count = len(logs.connections["own"])
    first = np.searchsorted(events["connection"][rows], np.arange(count + 1))
    return _Moments(rows, first, events[stamp][rows])


def _line_up(
    along: Ints,
    begin_ns: Ints,
    sender: int,
    receiver: int,
    sent: _Moments,
    received: _Moments,
    logs: ThreadLogs,
) -> int | None:
    """What must be added to positions along the capture's stream to get offsets; None when too few agree.

    A message came on the wire after the send that wrote it began, and before the receive that read it ended.
    """
    if sender >= 0:
        rows, at_ns = sent.of(sender)
        near = np.searchsorted(at_ns, begin_ns[:LINED_UP_BY], side="right") - 1
    else:
        rows, at_ns = received.of(receiver)
        near = np.searchsorted(at_ns, begin_ns[:LINED_UP_BY], side="left")
    good = (near >= 0) & (near < len(rows))
    if not good.any():
        return None
    origins = logs.events["offset"][rows[near[good]]] - along[:LINED_UP_BY][good]
    origin, votes = Counter(origins.tolist()).most_common(1)[0]
    return int(origin) if votes >= AGREEING * len(along[:LINED_UP_BY]) else None
