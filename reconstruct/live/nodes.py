"""The nodes as they become known: what `topology.find` says of the first calls, carried on.

A node keeps its number while calls come in; `Nodes.renumber` gives it at the end the one that `topology.find`
would have given it. What the first calls do not show and later ones do (an address that serves at several
ports, a server that was taken for a client) holds from then on, and is counted in `surprises`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct import topology
from tapscope.reconstruct.live.held import Ids, Settled
from tapscope.reconstruct.unseen import Unseen
from tapscope.store.codes import Protocol
from tapscope.store.tables import Table

CLIENTS = -1
"""Stands for the port of a node that only makes calls, at an address where others serve."""
REMEMBERED = 500
"""Calls of a node among which the maker of another call is looked for, as in topology.Nesting."""
_NESTING = ("arrive_ns", "request_end_ns", "depart_ns", "protocol")


class Nodes:
    """Numbers of nodes. The first calls it gets are to be as many as one can wait for."""

    def __init__(self, same: Sequence[Sequence[str]] = ()) -> None:
        self._same = same
        self._number: dict[tuple[int, int], int] = {}
        self._served: set[int] = set()
        self._split: set[int] = set()
        self._maker: dict[int, int] = {}
        self._protocols: list[NDArray[np.int64]] = []
        self._recent: Table = {name: np.zeros(0, dtype=np.int64) for name in (*_NESTING, "server_node")}
        self._databases: set[int] = set()
        self._others: set[int] = set()
        self.edges: dict[tuple[int, int], int] = {}
        self.surprises = 0

    def __len__(self) -> int:
        return len(self._number)

    def fill(self, settled: Settled, addresses: list[str]) -> Table:
        """The settled calls with `client_node` and `server_node`."""
        calls = dict(settled.calls)
        if not len(calls["conn"]):
            return calls
        stands_for = topology.stands_for(addresses, self._same)
        client_addr, server_addr = stands_for[settled.client_addr], stands_for[settled.server_addr]
        if not self._number:
            calls = self._learn(calls, settled, addresses)
        else:
            self._find_split(server_addr, client_addr, calls["protocol"])
            calls["server_node"] = self._servers(server_addr, settled.server_port)
            calls["client_node"] = self._clients(calls, client_addr)
        self._note(calls)
        return calls

    def fill_lost(self, settled: Settled, addresses: list[str]) -> Unseen:
        """The lost calls of which both nodes are known by now, with these."""
        lost, ends = settled.lost, settled.lost_ends
        stands_for = topology.stands_for(addresses, self._same)
        client, server = [], []
        places = (stands_for[ends[name]].tolist() for name in ("client_addr", "server_addr"))
        for conn, at, to, port in zip(lost.conn.tolist(), *places, ends["server_port"].tolist(), strict=True):
            found = self._number.get((to, port if to in self._split else 0), -1)
            server.append(found if found in self._served else -1)
            clients = self._number.get((at, CLIENTS if at in self._split else 0), -1)
            client.append(self._maker.get(conn, clients))
        ends_of = np.array([client, server], dtype=np.int64).reshape(2, -1)
        lost = replace(lost, client_node=ends_of[0], server_node=ends_of[1])
        return lost.only(ends_of.min(axis=0) >= 0)

    def _learn(self, calls: Table, settled: Settled, addresses: list[str]) -> Table:
        """The first calls: as a capture of its own."""
        _, first, of = np.unique(calls["conn"], return_index=True, return_inverse=True)
        connections: Table = {
            "client_addr": settled.client_addr[first],
            "server_addr": settled.server_addr[first],
            "server_port": settled.server_port[first],
        }
        found = topology.find(calls | {"conn": of}, connections, addresses, self._same)
        filled = found.calls | {"conn": calls["conn"]}
        served = int(filled["server_node"].max()) + 1
        node_addr = found.nodes["addr"].tolist()
        for node, (addr, port) in enumerate(zip(node_addr, found.nodes["port"].tolist(), strict=True)):
            clients_only = node >= served and addr in node_addr[:served]
            self._number[addr, CLIENTS if clients_only else port] = node
        self._served = set(range(served))
        stands_for = found.address
        server_addr, client_addr = stands_for[settled.server_addr], stands_for[settled.client_addr]
        self._find_split(server_addr, client_addr, calls["protocol"])
        self.surprises = 0
        for row in first.tolist():
            maker = int(filled["client_node"][row])
            if int(client_addr[row]) in self._split and maker in self._served:
                self._maker[int(calls["conn"][row])] = maker
        return filled

    def _find_split(
        self,
        server_addr: NDArray[np.int32],
        client_addr: NDArray[np.int32],
        protocol: NDArray[np.uint8],
    ) -> None:
        database = np.isin(protocol, topology.DATABASES)
        self._databases |= set(np.unique(server_addr[database]).tolist())
        self._others |= set(np.unique(server_addr[~database]).tolist())
        found = set(np.unique(server_addr[server_addr == client_addr]).tolist())
        found |= self._databases & self._others
        self.surprises += len(found - self._split)
        self._split |= found

    def _node(self, addr: int, port: int) -> int:
        return self._number.setdefault((addr, port), len(self._number))

    def _servers(self, addr: NDArray[np.int32], port: NDArray[np.uint16]) -> NDArray[np.int32]:
        at = np.where(np.isin(addr, list(self._split)), port, 0).astype(np.int64)
        keys, of = np.unique(addr.astype(np.int64) << 16 | at, return_inverse=True)
        numbers = []
        for key in keys.tolist():
            place = key >> 16, key & 0xFFFF
            self.surprises += place in self._number and self._number[place] not in self._served
            numbers.append(self._node(*place))
        self._served.update(numbers)
        return np.array(numbers, dtype=np.int32)[of]

    def _clients(self, calls: Table, addr: NDArray[np.int32]) -> NDArray[np.int32]:
        out = np.zeros(len(addr), dtype=np.int32)
        for each in np.unique(addr).tolist():
            mine = np.flatnonzero(addr == each)
            if each not in self._split:
                out[mine] = self._node(each, 0)
                continue
            order = mine[np.argsort(calls["conn"][mine], kind="stable")]
            borders = np.flatnonzero(np.diff(calls["conn"][order])) + 1
            for rows in np.split(order, borders):
                out[rows] = self._maker_of(calls, rows, each)
        return out

    def _maker_of(self, calls: Table, rows: Ids, addr: int) -> int:
        """Node at an address with several that makes the calls of a connection."""
        conn = int(calls["conn"][rows[0]])
        if conn not in self._maker:
            before = len(self._recent["arrive_ns"])
            names = (*_NESTING, "server_node")
            window = {name: np.concatenate([self._recent[name], calls[name]]) for name in names}
            here = [node for (at, _), node in self._number.items() if at == addr and node in self._served]
            others = [node for node in here if node != int(calls["server_node"][rows[0]])]
            found = topology.Nesting(window, window["server_node"]).maker(before + rows, others)
            if found is None:
                return self._node(addr, CLIENTS)
            self._maker[conn] = found
        return self._maker[conn]

    def _note(self, calls: Table) -> None:
        pair = calls["client_node"].astype(np.int64) << 32 | calls["server_node"]
        value, count = np.unique(pair, return_counts=True)
        for each, times in zip(value.tolist(), count.tolist(), strict=True):
            edge = each >> 32, each & 0xFFFFFFFF
            self.edges[edge] = self.edges.get(edge, 0) + times
        while len(self._protocols) < len(self._number):
            self._protocols.append(np.zeros(256, dtype=np.int64))
        for node in np.unique(calls["server_node"]).tolist():
            here = calls["protocol"][calls["server_node"] == node]
            self._protocols[node] += np.bincount(here, minlength=256)
        if not self._split:
            return
        names = (*_NESTING, "server_node")
        both = {name: np.concatenate([self._recent[name], calls[name]]) for name in names}
        kept = np.zeros(len(both["arrive_ns"]), dtype=np.bool_)
        for node in np.unique(both["server_node"]).tolist():
            kept[np.flatnonzero(both["server_node"] == node)[-REMEMBERED:]] = True
        self._recent = {name: values[kept] for name, values in both.items()}

    def forget_connections(self, kept: Ids) -> None:
        """Connections that are not among these will make no calls any more."""
        if len(self._maker) > 2 * len(kept) + 1000:
            alive = set(kept.tolist())
            self._maker = {conn: node for conn, node in self._maker.items() if conn in alive}

    def renumber(self, addresses: list[str]) -> NDArray[np.int32]:
        """Number the nodes as topology.find does, who sees all calls at once. Returns the new ones by the
        old."""
        rank = topology.ranks(addresses)
        places = sorted(
            self._number.items(), key=lambda item: (item[1] not in self._served, rank[item[0][0]], item[0][1])
        )
        new = np.zeros(len(places), dtype=np.int32)
        for number, (_, node) in enumerate(places):
            new[node] = number
        self._number = {place: int(new[node]) for place, node in places}
        self._served = {int(new[node]) for node in self._served}
        self._maker = {conn: int(new[node]) for conn, node in self._maker.items()}
        self._protocols = [self._protocols[node] for _, node in places]
        self._recent["server_node"] = new[self._recent["server_node"].astype(np.int64)]
        self.edges = {(int(new[a]), int(new[b])): times for (a, b), times in self.edges.items()}
        return new

    def table(self, addresses: list[str]) -> tuple[Table, list[str]]:
        """The nodes by number, and their names."""
        count = len(self._number)
        places = [place for place, _ in sorted(self._number.items(), key=lambda item: item[1])]
        served_at = {addr for (addr, _), node in self._number.items() if node in self._served}
        pairs = np.array(sorted(self.edges), dtype=np.int64).reshape(-1, 2)
        protocol = [
            int(seen.argmax()) if node in self._served else int(Protocol.UNKNOWN)
            for node, seen in enumerate(self._protocols)
        ]
        nodes: Table = {
            "addr": np.array([addr for addr, _ in places], dtype=np.int32),
            "port": np.array([max(port, 0) for _, port in places], dtype=np.uint16),
            "protocol": np.array(protocol, dtype=np.uint8),
            "depth": topology.depths(count, pairs[:, 0].astype(np.int32), pairs[:, 1]),
        }
        names = [
            topology.name_of(addresses[addr], max(port, 0), node not in self._served and addr in served_at)
            for node, (addr, port) in enumerate(places)
        ]
        return nodes, names
