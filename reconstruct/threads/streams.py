"""Bytes of a stream to the call of send or receive that moved them.

Both ends of a TCP connection number the bytes of a direction alike, from its first byte. That is vPath's rule
of the n-th message (paper, section 2.3), counted in bytes: it also holds where one side reads in other pieces
than the other side wrote, and after a record was lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads.log import How, ThreadLogs

Ints = NDArray[np.int64]


class Streams:
    """Index over the events of thread logs by connection, direction and offset."""

    def __init__(self, logs: ThreadLogs) -> None:
        events = logs.events
        group = events["connection"].astype(np.int64) * 2 + events["way"]
        order = np.lexsort((events["offset"], group))
        self._rows = order
        self._group = group[order]
        self._begin = events["offset"][order]
        self._end = self._begin + events["bytes"][order]
        # All streams behind one another on one line, so that a binary search finds group and offset together.
        length = np.zeros(2 * len(logs.connections["own"]) + 1, dtype=np.int64)
        np.maximum.at(length, self._group, self._end + 1)
        self._base = np.cumsum(length) - length
        self._place = self._base[self._group] + self._begin

    def event(self, connection: Ints, way: int | Ints, offset: Ints) -> Ints:
        """Row of the event that moved byte `offset`; -1 where none did (connection -1, a record lost)."""
        group = np.where(connection >= 0, connection * 2 + way, len(self._base) - 1)
        found = np.full(len(group), -1, dtype=np.int64)
        if not len(self._place):
            return found
        at = np.searchsorted(self._place, self._base[group] + offset, side="right") - 1
        at = np.maximum(at, 0)
        good = (connection >= 0) & (offset >= 0) & (self._group[at] == group)
        good &= (self._begin[at] <= offset) & (offset < self._end[at])
        found[good] = self._rows[at[good]]
        return found


def nearest(begin_ns: int, end_ns: int, candidates: list[int], logs: ThreadLogs) -> int:
    """Of connections with equal addresses and ports the one whose life is nearest in time: port numbers are
    used again only after a while (vPath 3.3). -1 for none."""
    best, least = -1, np.iinfo(np.int64).max
    for row in candidates:
        begin, end = int(logs.connections["begin_ns"][row]), int(logs.connections["end_ns"][row])
        end = end if end >= 0 else np.iinfo(np.int64).max
        apart = max(0, begin - end_ns, begin_ns - end)
        if apart < least or (apart == least and begin <= begin_ns):
            best, least = row, apart
    return best


def accepting_ports(logs: ThreadLogs) -> set[tuple[int, int]]:
    """(address, port) pairs at which connections were accepted: they tell who is the server of a connection
    that was only found."""
    table = logs.connections
    accepted = table["how"] == How.ACCEPTED
    connected = table["how"] == How.CONNECTED
    pairs = set(zip(table["own"][accepted].tolist(), table["own_port"][accepted].tolist(), strict=True))
    return pairs | set(
        zip(table["peer"][connected].tolist(), table["peer_port"][connected].tolist(), strict=True)
    )


def is_server(logs: ThreadLogs) -> NDArray[np.bool_]:
    """By connection: does its process serve it (True) or make calls over it (False)?"""
    table = logs.connections
    listening = accepting_ports(logs)
    found = table["how"] == How.ACCEPTED
    for row in np.flatnonzero(table["how"] == How.FOUND).tolist():
        found[row] = (int(table["own"][row]), int(table["own_port"][row])) in listening
    return np.asarray(found, dtype=bool)
