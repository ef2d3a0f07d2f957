"""Thread logs as event monitors: when each server received a request and sent the last of its answer, and
when it sent its own calls, by the system calls that did it, in ns (docs/validating.md).

Which bytes are a request the logs say themselves: what goes one way until something goes the other way. The
tap's borders are not used for it, or it would be no second witness. The tap tells which of its calls goes
with which exchange, by connection and offset, and which tier a server is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads import log, messages, wire
from tapscope.reconstruct.threads.log import ThreadLogs, Way
from tapscope.reconstruct.threads.messages import LoggedCalls
from tapscope.reconstruct.threads.sides import Ranges
from tapscope.reconstruct.threads.streams import Streams
from tapscope.store.codes import Protocol
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate.event_calls import TIERS, EventCalls
from tapscope.validate.tap import Tap
from tapscope.validate.threads.exchanges import Exchanges, event_calls

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STREAMED_NS = 1_000_000
"""A request that took longer than this to receive may be two messages, of which the first has no answer
(COM_STMT_CLOSE), or one in pieces: the logs cannot tell."""

_TIER_OF = {
    Protocol.HTTP: "web",
    Protocol.AJP: "app",
    Protocol.FASTCGI: "app",
    Protocol.AVATICA: "middle",
    Protocol.CJDBC: "middle",
    Protocol.MYSQL: "db",
    Protocol.POSTGRES: "db",
}
"""Tier of a server by the protocol in which it is called; of HTTP, when those who call it serve nobody."""


@dataclass(frozen=True)
class ThreadMonitor:
    """What the logs say, put beside a run.

    logs : as from any event monitor; the request ID of a call is its exchange
    nodes : of the run, by tier
    call_id : per call of the tap its exchange (index into logs.request_ids), -1 none
    left_out : per call of the tap: its exchange may be more than it, and is in no comparison. Counted in
        logs.counters
    """

    logs: EventCalls
    nodes: dict[str, list[int]]
    call_id: Ints
    left_out: Bools


def read(
    run: RunFile,
    seen: Tap,
    folders: Sequence[Path],
    clients: Sequence[Path] = (),
    named: Mapping[str, Sequence[str]] | None = None,
) -> ThreadMonitor:
    """Thread logs below `folders` beside the calls of a run.

    named : tier -> addresses, where the protocols do not tell the tiers
    clients : files of the load generator (local_port, start_ns, end_ns): the entry tier's caller, where it
        has no thread log
    Raises TapscopeError when there are no logs, or none of a server that the run has.
    """
    logs = log.read(folders)
    found = messages.calls(logs)
    streams = Streams(logs)
    tier_of_node = tiers_of_nodes(seen, named or {})
    node = np.where(found.ranges.at_server >= 0, _nodes(seen, logs)[found.seen_at], -1)
    codes = np.full(len(seen.node_names) + 1, -1, dtype=np.int64)  # the last one is no node's
    codes[list(tier_of_node)] = [TIERS.index(tier) for tier in tier_of_node.values()]
    tier = codes[node]
    if not np.any(tier >= 0):
        raise TapscopeError(
            "these thread logs have no call of a server that the run has",
            path=folders[0],
            remedy="Give the logs that were recorded with this capture, on the same hosts.",
        )
    exchange, ranges = _exchanges_of_calls(run, logs, found)
    doubtful = _doubtful(Exchanges(logs, streams, found, tier, np.arange(0)), exchange, ranges)
    left_out = (exchange >= 0) & np.append(doubtful, False)[exchange]
    # What a client says before it closes (COM_QUIT, the end of a FastCGI request) is no call.
    last_words = (found.end_ns < 0) & ~np.isin(np.arange(len(tier)), exchange)
    used = np.flatnonzero((tier >= 0) & ~doubtful & ~last_words)
    counters = logs.counters | found.counters
    counters["threads.calls_of_servers_not_in_the_run"] = int(np.count_nonzero(tier < 0))
    counters["threads.exchanges_left_out"] = int(np.count_nonzero(doubtful & (tier >= 0)))
    counters["threads.last_words"] = int(np.count_nonzero(last_words & (tier >= 0)))
    counters["threads.tap_calls_left_out"] = int(np.count_nonzero(left_out))
    return ThreadMonitor(
        event_calls(Exchanges(logs, streams, found, tier, used), clients, counters),
        {name: _of_tier(node, tier, code) for code, name in enumerate(TIERS) if np.any(tier == code)},
        np.where(left_out, -1, exchange),
        left_out,
    )


def _of_tier(node: Ints, tier: Ints, code: int) -> list[int]:
    return [int(each) for each in np.unique(node[tier == code])]


def tiers_of_nodes(seen: Tap, named: Mapping[str, Sequence[str]]) -> dict[int, str]:
    """Tier of every node that has one, by its address (`named`), or the protocol in which it is called
    most."""
    found = {}
    told = {address: tier for tier, addresses in named.items() for address in addresses}
    serving = np.unique(seen.calls["server_node"])
    for node in serving.tolist():
        here = seen.calls["server_node"] == node
        protocol = Protocol(int(np.bincount(seen.calls["protocol"][here]).argmax()))
        tier = _TIER_OF.get(protocol)
        if protocol == Protocol.HTTP and np.isin(seen.calls["client_node"][here], serving).any():
            tier = "app"
        tier = told.get(seen.node_names[node].partition(":")[0], tier)
        if tier is not None:
            found[node] = tier
    return found


def _nodes(seen: Tap, logs: ThreadLogs) -> Ints:
    """Per connection of the logs the node of the run that listens at its own end; -1 none."""
    conn, place = np.unique(seen.calls["conn"], return_index=True)
    addresses = (seen.addresses[each] for each in seen.connections["server_addr"][conn].tolist())
    ports = seen.connections["server_port"][conn].tolist()
    nodes = seen.calls["server_node"][place].tolist()
    of_listener = {(address, port): node for address, port, node in zip(addresses, ports, nodes, strict=True)}
    own, own_port = logs.connections["own"].tolist(), logs.connections["own_port"].tolist()
    ends = zip((logs.addresses[each] for each in own), own_port, strict=True)
    return np.array([of_listener.get(end, -1) for end in ends], dtype=np.int64)


def _exchanges_of_calls(run: RunFile, logs: ThreadLogs, found: LoggedCalls) -> tuple[Ints, Ranges]:
    """Per call of the tap the exchange in which its request begins (-1 none), and where it lies."""
    calls = run.read_table("calls", ["conn", "request", "response"])
    connections, sent = run.read_table("connections"), run.read_table("messages")
    ranges, _ = wire.ranges(calls, connections, sent, run.addresses(), logs)
    exchange = np.full(len(ranges.request), -1, dtype=np.int64)
    begin, last = found.ranges.request, found.ranges.request_last
    order = np.flatnonzero(found.ranges.at_server >= 0)
    asked = np.flatnonzero((ranges.at_server >= 0) & (ranges.request >= 0))
    if not len(order) or not len(asked):
        return exchange, ranges
    span = int(max(begin.max(), ranges.request.max())) + 1  # all streams behind one another on one line
    place = found.ranges.at_server * span + begin
    order = order[np.argsort(place[order], kind="stable")]
    at = ranges.at_server[asked] * span + ranges.request[asked]
    near = order[np.maximum(np.searchsorted(place[order], at, side="right") - 1, 0)]
    inside = found.ranges.at_server[near] == ranges.at_server[asked]
    inside &= (begin[near] <= ranges.request[asked]) & (ranges.request[asked] <= last[near])
    exchange[asked[inside]] = near[inside]
    return exchange, ranges


def _doubtful(these: Exchanges, exchange: Ints, ranges: Ranges) -> Bools:
    """Exchanges that may be more than one call: requests that were sent before the answer to the one before
    came; and those whose first byte, received long before the last, is of something else by the tap."""
    asked = these.found.ranges
    inside = np.flatnonzero(exchange >= 0)
    doubtful = np.bincount(exchange[inside], minlength=len(asked.request)) > 1
    first, last = (
        these.stamp(asked.at_server, Way.RECEIVED, offset, "end_ns")
        for offset in (asked.request, asked.request_last)
    )
    streamed = (first >= 0) & (last - first > STREAMED_NS)
    of_something_else = ranges.request[inside] != asked.request[exchange[inside]]
    doubtful[exchange[inside][of_something_else & streamed[exchange[inside]]]] = True
    return np.asarray(doubtful)
