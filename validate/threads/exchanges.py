"""Exchanges of thread logs as the tables of an event monitor: calls by who serves them, the same by who made
them, and the times in which some may be missing.

An exchange is what went one way on a connection, and then what went the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads.log import ThreadLogs, Way
from tapscope.reconstruct.threads.messages import LoggedCalls
from tapscope.reconstruct.threads.streams import Streams
from tapscope.store.codes import Protocol
from tapscope.validate.csv_files import csv_columns
from tapscope.validate.event_calls import (
    CALLER,
    DOWNSTREAM,
    EVENT_CALL,
    LOG_GAP,
    TIERS,
    Cells,
    EventCalls,
    Growing,
    Table,
    empty_table,
)
from tapscope.validate.joining import last_before
from tapscope.validate.parsing import whole

Ints = NDArray[np.int64]

MONITOR = "thread log"
PRECISION_NS = 1

UNWRITTEN_NS = 160_000_000
"""What the log of a killed process may lack at its end: the recorder's longest pause between two writes."""

_CLIENT = ("local_port", "start_ns", "end_ns")


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of the logs that are to be compared.

    streams : index over the logs' sends and receives
    tier : per exchange of `found` the index into TIERS of the server's, -1 none
    used : rows of those that count as calls, in order of arrival
    """

    logs: ThreadLogs
    streams: Streams
    found: LoggedCalls
    tier: Ints
    used: Ints

    def process(self, connection: Ints) -> Ints:
        """Number of the process that logged each of these connections."""
        return np.asarray(self.logs.connections["process"][connection])

    def tier_of_process(self) -> Ints:
        """Tier whose calls a process serves; -1 none."""
        tier = np.full(len(self.logs.processes), -1, dtype=np.int64)
        tier[self.process(self.found.seen_at[self.used])] = self.tier[self.used]
        return tier

    def host_of_process(self) -> Ints:
        """Index into `hosts`."""
        names = hosts(self.logs)
        return np.array([names.index(process.host) for process in self.logs.processes], dtype=np.int64)

    def stamp(self, connection: Ints, way: Way, offset: Ints, name: str) -> Ints:
        """A time of the calls of send or receive that moved these bytes; -1 where none is logged."""
        events = self.streams.event(connection, way, offset)
        return np.asarray(np.append(self.logs.events[name], -1)[events])


def hosts(logs: ThreadLogs) -> list[str]:
    """Hosts of the logs."""
    return sorted({process.host for process in logs.processes})


def event_calls(these: Exchanges, clients: Sequence[Path], counters: dict[str, int]) -> EventCalls:
    """The tables. clients : files of the load generator; counters : what is odd about them is added."""
    calls = _calls(these)
    callers = Growing(CALLER)
    _add_callers(callers, these)
    for path in clients:
        _add_clients(callers, path, calls, counters)
    return EventCalls(
        calls=calls,
        downstream=empty_table(DOWNSTREAM),
        callers=callers.table(),
        gaps=_gaps(these),
        hosts=hosts(these.logs),
        request_ids=_names(these),
        sources=_sources(these),
        counters=[(name, value, "") for name, value in sorted(counters.items()) if value],
    )


def _calls(these: Exchanges) -> Table:
    """Arrived when the server's receive of the first byte was over; departed when its last send began: what
    follows inside that call is the way to the wire."""
    found, used = these.found, these.used
    connection = found.seen_at[used]
    process = these.process(connection)
    columns: dict[str, Cells] = {
        "tier": these.tier[used],
        "host": these.host_of_process()[process],
        "protocol": int(Protocol.UNKNOWN),
        "request_id": used,
        "arrive_ns": found.begin_ns[used],
        "depart_ns": found.end_ns[used],
        "arrive_precision_ns": PRECISION_NS,
        "depart_precision_ns": PRECISION_NS,
        "client_port": these.logs.connections["peer_port"][connection],
        "source": process,
        "line": used + 1,
    }
    table = Growing(EVENT_CALL)
    table.block(len(used), columns | dict.fromkeys(("command", "thread", "status"), -1))
    return table.table()


def _add_callers(callers: Growing, these: Exchanges) -> None:
    """The same exchanges as the processes logged them that made the calls."""
    ranges = these.found.ranges
    made = these.used[ranges.at_client[these.used] >= 0]
    connection = ranges.at_client[made]
    process = these.process(connection)
    columns: dict[str, Cells] = {
        "tier": these.tier[made],
        "send_ns": these.stamp(connection, Way.SENT, ranges.request[made], "begin_ns"),
        "receive_ns": these.stamp(connection, Way.RECEIVED, ranges.answer_last[made], "end_ns"),
        "by": these.tier_of_process()[process],
        "host": these.host_of_process()[process],
        "request_id": made,
    }
    callers.block(len(made), columns | {"command": -1, "thread": -1})


def _add_clients(callers: Growing, path: Path, calls: Table, counters: dict[str, int]) -> None:
    """The load generator's own record: a request goes with the call that came from its port after it was
    sent."""
    entry = np.flatnonzero(calls["tier"] == TIERS.index("web"))
    came = calls["arrive_ns"][entry]
    for chunk in csv_columns(path, _CLIENT, counters, "threads.client"):
        columns = [whole(chunk[name]) for name in _CLIENT]
        good = np.logical_and.reduce([each.good for each in columns])
        port, start, end = (each.values[good] for each in columns)
        row = last_before(port, start, calls["client_port"][entry].astype(np.int64), came)
        fits = np.flatnonzero((row >= 0) & ((end[row] < 0) | (came <= end[row])))[::-1]
        exchange = np.full(len(start), -1, dtype=np.int64)
        exchange[row[fits]] = calls["request_id"][entry[fits]]  # backwards: of several the first stays
        answered = end >= 0
        told: dict[str, Cells] = {
            "tier": TIERS.index("web"),
            "by": -1,
            "host": 0,
            "command": -1,
            "thread": -1,
        }
        told |= {"send_ns": start[answered], "receive_ns": end[answered], "request_id": exchange[answered]}
        callers.block(int(np.count_nonzero(answered)), told)


def _gaps(these: Exchanges) -> Table:
    """Times in which calls are missing: next to lost records, and at the end of a killed process's log."""
    logs, found = these.logs, these.found
    _, last = _first_and_last(logs)
    cut = np.array([number for number, each in enumerate(logs.processes) if not each.ended], dtype=np.int64)
    tier = these.tier_of_process()
    table = Growing(LOG_GAP)
    for process, begin, end in (
        (these.process(found.doubtful_at), *found.doubtful_ns),
        (cut, last[cut], last[cut] + UNWRITTEN_NS),
    ):
        serves = tier[process] >= 0
        columns = {"tier": tier[process], "begin_ns": begin, "end_ns": end, "source": process}
        columns = {name: values[serves] for name, values in columns.items()}
        table.block(int(np.count_nonzero(serves)), columns)
    return table.table()


def _first_and_last(logs: ThreadLogs) -> tuple[Ints, Ints]:
    """Per process the begin of its first and the end of its last send or receive."""
    size = len(logs.processes)
    process = logs.connections["process"][logs.events["connection"]]
    first, last = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, dtype=np.int64)
    np.minimum.at(first, process, logs.events["begin_ns"])
    np.maximum.at(last, process, logs.events["end_ns"])
    return np.where(last >= 0, first, -1), last


def _names(these: Exchanges) -> list[str]:
    """Of every exchange: client, server, and where its request begins in the stream."""
    table, addresses = these.logs.connections, these.logs.addresses
    seen_at = these.found.seen_at
    sides = [
        [f"{addresses[a]}:{p}" for a, p in zip(table[own][seen_at], table[port][seen_at], strict=True)]
        for own, port in (("peer", "peer_port"), ("own", "own_port"))
    ]
    offsets = these.found.ranges.request.tolist()
    return [f"{peer}>{own}@{offset}" for peer, own, offset in zip(*sides, offsets, strict=True)]


def _sources(these: Exchanges) -> list[dict[str, object]]:
    """One per process; `lines` are its sends and receives, those that are lost the unreadable ones."""
    logs, tier = these.logs, these.tier_of_process()
    size = len(logs.processes)
    lines = np.bincount(these.process(logs.events["connection"]), minlength=size).tolist()
    calls = np.bincount(these.process(these.found.seen_at[these.used]), minlength=size).tolist()
    first, last = (each.tolist() for each in _first_and_last(logs))
    return [
        {
            "path": each.path,
            "kind": "events",
            "monitor": MONITOR,
            "tier": TIERS[tier[number]] if tier[number] >= 0 else "",
            "host": each.host,
            "bytes": Path(each.path).stat().st_size,
            "lines": lines[number],
            "calls": calls[number],
            "unreadable_lines": each.lost,
            "first_ns": first[number],
            "last_ns": last[number],
            "zone": "UTC epoch",
        }
        for number, each in enumerate(logs.processes)
    ]
