"""What TCP says about a listener: connections that it refused or kept waiting, and what that cost whom.

A full accept queue shows as SYNs that are sent again after 1 s, 3 s, 7 s (the server dropped them without a
word), before any server log knows of the request. Zero windows say that a receiver does not read;
retransmissions towards one side say that the path or that side lost packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int
from tapscope.store.codes import CloseHow

RETRY_NS = 900_000_000
"""A connection that took longer than this to be set up waited for a SYN to be sent again."""


@dataclass(frozen=True)
class ListenerEvidence:
    """Of one listener. Counts of connections, packets or SYNs; times int64 ns; -1 where none was observed."""

    server_addr: int
    server_port: int
    connections: int
    handshakes: int
    syn_retransmits: int
    unanswered_syns: int
    resets: int
    refused: int
    zero_windows_to_client: int
    zero_windows_to_server: int
    retransmits_to_client: int
    retransmits_to_server: int
    setup_p50_ns: int
    setup_p90_ns: int
    setup_p99_ns: int
    setup_max_ns: int
    waited: int
    """Connections that were set up only after a SYN was sent again."""


def listeners(connections: Mapping[str, NDArray[Any]]) -> list[ListenerEvidence]:
    """Evidence by listener, most trouble (SYNs sent again, then resets) first."""
    key = connections["server_addr"].astype(np.int64) << 16 | connections["server_port"].astype(np.int64)
    found = [_listener(connections, np.flatnonzero(key == k)) for k in np.unique(key)]
    return sorted(found, key=lambda one: (-one.syn_retransmits, -one.resets, -one.connections))


def _listener(connections: Mapping[str, NDArray[Any]], rows: NDArray[np.int64]) -> ListenerEvidence:
    def total(name: str) -> int:
        return int(connections[name][rows].sum())

    syn, established = connections["syn_ns"][rows], connections["established_ns"][rows]
    setup = (established - syn)[(syn >= 0) & (established >= 0)]
    silent = (syn >= 0) & (established < 0)
    reset = connections["close_how"][rows] == CloseHow.RST
    p50, p90, p99, longest = _quantiles(setup, (0.5, 0.9, 0.99, 1.0))
    return ListenerEvidence(
        server_addr=int(connections["server_addr"][rows[0]]),
        server_port=int(connections["server_port"][rows[0]]),
        connections=len(rows),
        handshakes=len(setup),
        syn_retransmits=total("syn_retransmits"),
        unanswered_syns=int((silent & ~reset).sum()),
        resets=int((reset & ~silent).sum()),
        refused=int((silent & reset).sum()),
        zero_windows_to_client=total("zero_windows_to_client"),
        zero_windows_to_server=total("zero_windows_to_server"),
        retransmits_to_client=total("retransmits_to_client"),
        retransmits_to_server=total("retransmits_to_server"),
        setup_p50_ns=p50,
        setup_p90_ns=p90,
        setup_p99_ns=p99,
        setup_max_ns=longest,
        waited=int((setup > RETRY_NS).sum()),
    )


def _quantiles(values: Int, shares: tuple[float, ...]) -> list[int]:
    """The values that these shares of all do not exceed, each an observed one; -1 when there are none."""
    if not len(values):
        return [-1] * len(shares)
    return [int(value) for value in np.quantile(values, shares, method="inverted_cdf")]


def set_up_ns(calls: Mapping[str, NDArray[Any]], connections: Mapping[str, NDArray[Any]]) -> Int:
    """What setting up its connection added to each call, ns: SYN to handshake for the first call on it, else
    0.

    A client that opens a connection for a request waits for both; the server's own log knows of the second
    only.
    """
    out = np.zeros(len(calls["conn"]), dtype=np.int64)
    if not len(out):
        return out
    syn, established = connections["syn_ns"], connections["established_ns"]
    seen = (syn >= 0) & (established >= syn)
    rows = np.flatnonzero(seen[calls["conn"]])
    conn, arrive = calls["conn"][rows], calls["arrive_ns"][rows]
    earliest = np.full(len(syn), np.iinfo(np.int64).max)
    np.minimum.at(earliest, conn, arrive)
    # Of calls that arrived together on a connection the first row.
    first = rows[arrive == earliest[conn]]
    conn, place = np.unique(calls["conn"][first], return_index=True)
    out[first[place]] = (established - syn)[conn]
    return out


def syns_sent_again(connections: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Rows of the connections whose SYN was sent again, in order of the first one.

    Only the first SYN of a connection has its time recorded, which is when the accept queue was full.
    """
    rows = np.flatnonzero((connections["syn_retransmits"] > 0) & (connections["syn_ns"] >= 0))
    return rows[np.argsort(connections["syn_ns"][rows], kind="stable")]


def syns_without_answer(connections: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Rows of the connections whose first SYN got no answer, in order of that SYN: it was sent again, or its
    client gave up. One that was refused with a reset got an answer."""
    silent = (connections["established_ns"] < 0) & (connections["close_how"] != CloseHow.RST)
    hit = (connections["syn_ns"] >= 0) & (silent | (connections["syn_retransmits"] > 0))
    rows = np.flatnonzero(hit)
    return rows[np.argsort(connections["syn_ns"][rows], kind="stable")]


def syns_to(connections: Mapping[str, NDArray[Any]], addresses: NDArray[Any]) -> NDArray[np.int64]:
    """Rows of the connections that clients asked these addresses for, in order of their first SYN."""
    rows = np.flatnonzero((connections["syn_ns"] >= 0) & np.isin(connections["server_addr"], addresses))
    return rows[np.argsort(connections["syn_ns"][rows], kind="stable")]
