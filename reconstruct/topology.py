"""Who is a node, and who calls whom: found from addresses, listeners and nesting alone.

One address is one node, whatever it listens on, unless it is seen to call itself or serves a database beside
a web protocol: then (as on a loopback capture) every listener is a node of its own, and the caller of each
connection is the node whose calls contain the calls of that connection.

A server that is called by one address and calls by another one (several network cards, a load balancer, a
translated address) looks like two nodes: who knows better says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import Protocol
from tapscope.store.tables import Table

CONTAINED = 0.8
"""Share of a connection's calls that must lie inside calls of a node for that node to be their maker."""

SLACK_NS = 50_000
DATABASES = (Protocol.MYSQL, Protocol.POSTGRES, Protocol.REDIS, Protocol.MEMCACHED)

ANSWERS_EARLY = (Protocol.CJDBC,)
"""Protocols of nodes that may answer before the calls they made are done: a C-JDBC controller sends a write
to all of its databases, and answers when the first (or a majority) of them has, if it is told to."""


@dataclass
class Topology:
    """Nodes, their names, and calls with `client_node` and `server_node` filled."""

    nodes: Table
    names: list[str]
    calls: Table
    address: NDArray[np.int32]
    """By row of the address list: the row of its node's address, itself where nothing else was said."""


def edges(calls: Table) -> list[tuple[int, int, int]]:
    """(caller node, called node, number of calls), busiest first."""
    pair = calls["client_node"].astype(np.int64) << 32 | calls["server_node"]
    value, count = np.unique(pair, return_counts=True)
    order = np.argsort(-count, kind="stable")
    return [(int(value[i] >> 32), int(value[i] & 0xFFFFFFFF), int(count[i])) for i in order]


def find(
    calls: Table, connections: Table, addresses: list[str], same: Sequence[Sequence[str]] = ()
) -> Topology:
    """Fill `client_node` and `server_node` of the calls, and describe the nodes (METHOD section 1).

    Nodes that are called come first, in the order of their addresses and ports, then the others.
    same : groups of addresses that are one server each; its node is called like the first one that is there.
    """
    conn = calls["conn"]
    address = stands_for(addresses, same)
    server_addr = address[connections["server_addr"][conn]]
    client_addr = address[connections["client_addr"][conn]]
    port = connections["server_port"][conn]
    split = split_addresses(server_addr, client_addr, calls["protocol"])
    node_port = np.where(np.isin(server_addr, split), port, 0).astype(np.int64)

    rank = ranks(addresses)
    key = rank[server_addr] << 16 | node_port
    served, server_node = np.unique(key, return_inverse=True)
    of_rank = np.argsort(rank)
    node_addr = of_rank[served >> 16].astype(np.int32)
    node_port_of = (served & 0xFFFF).astype(np.uint16)

    client_node = np.full(len(conn), -1, dtype=np.int32)
    clients: dict[int, int] = {}

    def client(addr: int) -> int:
        return clients.setdefault(addr, len(served) + len(clients))

    inside = Nesting(calls, server_node)
    for addr in of_rank[np.unique(rank[client_addr])]:
        here = np.flatnonzero(node_addr == addr)
        mine = client_addr == addr
        if len(here) == 0:
            client_node[mine] = client(int(addr))
        elif addr not in split:
            client_node[mine] = here[0]
        else:
            ordered = np.flatnonzero(mine)
            ordered = ordered[np.argsort(conn[ordered], kind="stable")]
            borders = np.flatnonzero(np.diff(conn[ordered])) + 1
            for rows in np.split(ordered, borders):
                maker = inside.maker(rows, [int(n) for n in here if n != server_node[rows[0]]])
                client_node[rows] = client(int(addr)) if maker is None else maker

    calls = dict(calls)
    calls["client_node"] = client_node
    calls["server_node"] = server_node.astype(np.int32)
    nodes: Table = {
        "addr": np.concatenate([node_addr, np.array(list(clients), dtype=np.int32)]),
        "port": np.concatenate([node_port_of, np.zeros(len(clients), dtype=np.uint16)]),
        "protocol": np.array(
            [_main_protocol(calls["protocol"][server_node == n]) for n in range(len(served))]
            + [Protocol.UNKNOWN] * len(clients),
            dtype=np.uint8,
        ),
        "depth": depths(len(served) + len(clients), client_node, server_node),
    }
    names = []
    for n in range(len(nodes["addr"])):
        clients_only = n >= len(served) and int(nodes["addr"][n]) in node_addr
        names.append(name_of(addresses[nodes["addr"][n]], int(nodes["port"][n]), clients_only))
    return Topology(nodes=nodes, names=names, calls=calls, address=address)


def ranks(addresses: Sequence[str]) -> NDArray[np.int64]:
    """Place of each address in the order of addresses, whatever the order in which a capture told them."""

    def key(text: str) -> tuple[int, int, str]:
        try:
            address = ip_address(text)
        except ValueError:
            return 0, 0, text
        return address.version, int(address), text

    order = sorted(range(len(addresses)), key=lambda row: key(addresses[row]))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order))
    return out


def name_of(address: str, port: int, clients_only: bool) -> str:
    """Name of a node: its address, its listener where it has several, and what it is where others serve
    there."""
    name = address
    if port:
        name = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f"{name} (clients)" if clients_only else name


def stands_for(addresses: list[str], same: Sequence[Sequence[str]]) -> NDArray[np.int32]:
    """By row of the address list: the row of its node's address (Topology.address)."""
    place = {text: row for row, text in enumerate(addresses)}
    out = np.arange(len(addresses), dtype=np.int32)
    for group in same:
        seen = [place[text] for text in group if text in place]
        out[seen] = seen[:1]
    return out


def split_addresses(
    server_addr: NDArray[np.int32], client_addr: NDArray[np.int32], protocol: NDArray[np.uint8]
) -> NDArray[np.int32]:
    """Addresses of which every listener is a node of its own."""
    split = set(np.unique(server_addr[server_addr == client_addr]).tolist())
    database = np.isin(protocol, DATABASES)
    split |= set(server_addr[database].tolist()) & set(server_addr[~database].tolist())
    return np.array(sorted(split), dtype=np.int32)


class Nesting:
    """Which calls of a node contain a given interval."""

    def __init__(self, calls: Table, server_node: NDArray[np.int64]) -> None:
        self._arrive = calls["arrive_ns"]
        depart = calls["depart_ns"]
        self._depart = np.where(depart < 0, calls["request_end_ns"], depart)
        self._rows = {int(n): np.flatnonzero(server_node == n) for n in np.unique(server_node)}
        self._early = {
            node: bool(np.isin(calls["protocol"][rows], ANSWERS_EARLY).all())
            for node, rows in self._rows.items()
        }

    def maker(self, rows: NDArray[np.int64], nodes: list[int]) -> int | None:
        """Node whose calls contain most of the calls `rows`; among equals the one that fits most tightly."""
        best: tuple[float, float] | None = None
        found = None
        for node in nodes:
            stays = [self._tightest(int(row), node) for row in rows[:2000]]
            inside = [stay for stay in stays if stay is not None]
            share = len(inside) / len(stays)
            if share < CONTAINED:
                continue
            rank = (round(share, 1), -float(np.mean(inside)))
            if best is None or rank > best:
                best, found = rank, node
        return found

    def _tightest(self, row: int, node: int) -> int | None:
        """Stay in ns of the shortest call at `node` that contains call `row`; None when there is none."""
        rows = self._rows[node]
        begin = self._arrive[row]
        end = begin if self._early[node] else self._depart[row]
        last = np.searchsorted(self._arrive[rows], begin + SLACK_NS, side="right")
        near = rows[max(0, last - 500) : last]
        near = near[(self._depart[near] + SLACK_NS >= end) & (near != row)]
        return int((self._depart[near] - self._arrive[near]).min()) if len(near) else None


def _main_protocol(protocols: NDArray[np.uint8]) -> int:
    return int(np.bincount(protocols).argmax())


def depths(n: int, client: NDArray[np.int32], server: NDArray[np.int64]) -> NDArray[np.int32]:
    """Shortest distance from a pure client; a cycle without an entry begins at its first node."""
    depth = np.full(n, -1, dtype=np.int32)
    pairs = {(int(c), int(s)) for c, s in np.unique(np.stack([client, server]), axis=1).T}
    frontier = set(range(n)) - {s for _, s in pairs}
    level = 0
    while frontier:
        depth[list(frontier)] = level
        level += 1
        frontier = {s for c, s in pairs if c in frontier and depth[s] < 0}
        if not frontier and (rest := [n_ for n_ in range(n) if depth[n_] < 0]):
            frontier = {min(rest)}  # a cycle without an entry: begin it somewhere, deterministically
    return depth
