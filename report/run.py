"""What the report reads from a run file, once: tables as numpy columns, and the names that go with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import Read, in_order_of_calls
from tapscope.analyze.inside import distinct, place_in
from tapscope.analyze.memory import keep_freed_memory
from tapscope.analyze.stays import stays
from tapscope.store.codes import Protocol
from tapscope.store.runfile import RunFile

Columns = dict[str, NDArray[Any]]
"""A table of store/tables.py, or part of one."""

CALL_COLUMNS = (
    "conn",
    "client_node",
    "server_node",
    "protocol",
    "class_id",
    "arrive_ns",
    "depart_ns",
    "status",
    "flags",
    "gone_ns",
)
"""Columns that the report uses of all calls; of those that it shows it has the others, too (`Run.shown`)."""

LINK_COLUMNS = ("child", "parent", "kind", "probability")
SHOWN_COLUMNS = {
    "calls": ("request_end_ns", "response_begin_ns"),
    "links": ("runner_up", "runner_up_probability"),
}

COLOURS = 8
"""Tier colours in assets/page.css; a ninth tier begins again with the first."""

PROTOCOL_NAMES = {
    Protocol.UNKNOWN: "unknown",
    Protocol.HTTP: "HTTP",
    Protocol.AJP: "AJP",
    Protocol.MYSQL: "MySQL",
    Protocol.CJDBC: "C-JDBC",
    Protocol.POSTGRES: "PostgreSQL",
    Protocol.FASTCGI: "FastCGI",
    Protocol.HTTP2: "HTTP/2",
    Protocol.TLS: "TLS",
    Protocol.REDIS: "Redis",
    Protocol.MEMCACHED: "Memcached",
    Protocol.AVATICA: "Avatica",
    Protocol.GRPC: "gRPC",
}


def protocol_name(code: int) -> str:
    """Name of a protocol as people write it."""
    try:
        return PROTOCOL_NAMES[Protocol(code)]
    except ValueError:
        return f"protocol {code}"


@dataclass(frozen=True)
class Tier:
    """A node that is called, in one protocol. `colour` is 1..COLOURS and the same all over the page."""

    node: int
    protocol: int
    name: str
    depth: int
    colour: int
    calls: int


@dataclass
class Run:
    """The run as the report needs it. Times are int64 ns UTC; `start_ns` is the zero of every axis."""

    file: RunFile
    name: str
    start_ns: int
    end_ns: int
    calls: Columns
    links: Columns
    traces: Columns
    members: Columns
    nodes: Columns
    connections: Columns
    node_names: list[str]
    classes: list[tuple[int, str]]
    tiers: list[Tier]
    counters: list[tuple[str, int, str]]
    sources: list[dict[str, Any]]
    meta: dict[str, Any] = field(default_factory=dict)

    def tier_of_node(self, node: int) -> Tier | None:
        """The tier of a node; the first one if it speaks several protocols."""
        return next((tier for tier in self.tiers if tier.node == node), None)

    def class_text(self, class_id: int) -> str:
        """Text of a class, masked as the capture stage left it; '' when the call has none."""
        return self.classes[class_id][1] if 0 <= class_id < len(self.classes) else ""

    def calls_of(self, traces: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the calls of these traces."""
        rows: NDArray[np.int64] = self.members["call"][np.isin(self.members["trace"], traces)]
        return rows

    def shown(self, table: str, calls: NDArray[np.int64]) -> Columns:
        """SHOWN_COLUMNS of calls, or of the links of these children, in the order given."""
        key = "id" if table == "calls" else "child"
        asked, place = np.unique(calls, return_inverse=True)
        found = self.file.read_table(
            table,
            [key, *SHOWN_COLUMNS[table]],
            f"{key} IN (SELECT value FROM json_each(?))",
            [json.dumps(asked.tolist())],
        )
        out: Columns = {}
        for name in SHOWN_COLUMNS[table]:
            none = 0 if found[name].dtype == np.float64 else -1
            out[name] = np.full(len(asked), none, dtype=found[name].dtype)
            out[name][np.searchsorted(asked, found[key])] = found[name]
            out[name] = out[name][place]
        return out

    def children(self, call: int) -> NDArray[np.int64]:
        """Rows of the calls that a call made, in order."""
        parents, rows = self._by_parent
        first, last = np.searchsorted(parents, (call, call + 1))
        return rows[first:last]

    @cached_property
    def read(self) -> Read:
        """What analyses need of the run; they share what they work out of it."""
        delays = in_order_of_calls(self.members, len(self.calls["conn"]))
        return Read(self.calls, self.connections, delays)

    @cached_property
    def _by_parent(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        parent = self.links["parent"].astype(np.int64)
        rows = np.argsort(parent, kind="stable")
        return parent[rows], rows


def read(file: RunFile) -> Run:
    """Read an open run file. A run without calls is fine: the report then says what was seen instead."""
    keep_freed_memory()
    calls = file.read_table("calls", CALL_COLUMNS)
    nodes = file.read_table("nodes")
    names = _node_names(file, nodes)
    sources = file.sources()
    connections = file.read_table("connections")
    start_ns, end_ns = _span(sources, connections, calls)
    counters = file.counters()
    if any(name == "load.far_stamp_excluded" for name, _, _ in counters):
        start_ns, end_ns = stays(calls, connections).span_ns
    return Run(
        file=file,
        name=file.path.name,
        start_ns=start_ns,
        end_ns=end_ns,
        calls=calls,
        links=_one_per_call(file.read_table("links", LINK_COLUMNS), len(calls["conn"])),
        traces=file.read_table("traces"),
        members=file.read_table("trace_calls"),
        nodes=nodes,
        connections=connections,
        node_names=names,
        classes=file.classes(),
        tiers=_tiers(calls, nodes, names),
        counters=counters,
        sources=sources,
        meta=file.all_meta(),
    )


def _node_names(file: RunFile, nodes: Columns) -> list[str]:
    addresses = file.addresses()
    names = []
    for given, address, port in zip(file.node_names(), nodes["addr"], nodes["port"], strict=True):
        text = addresses[address] if 0 <= address < len(addresses) else f"address {address}"
        names.append(given or (f"{text}:{port}" if port else text))
    return names


def _tiers(calls: Columns, nodes: Columns, names: list[str]) -> list[Tier]:
    """Called nodes from the entry tier down; within a depth the busier first."""
    found = []
    pairs = calls["server_node"].astype(np.int64) * 256 + calls["protocol"]
    kinds = distinct(pairs)
    for pair, number in zip(kinds.tolist(), np.bincount(place_in(kinds, pairs)).tolist(), strict=True):
        node, protocol = divmod(pair, 256)
        if 0 <= node < len(names):
            found.append((int(nodes["depth"][node]), -number, node, protocol))
    found.sort()
    return [
        Tier(node, protocol, names[node], depth, place % COLOURS + 1, -number)
        for place, (depth, number, node, protocol) in enumerate(found)
    ]


def _one_per_call(links: Columns, count: int) -> Columns:
    """Links in order of their child, one per call: those without a link are unknown with probability 0."""
    child = links["child"]
    if len(child) == count and (child == np.arange(count)).all():
        return {name: links[name] for name in LINK_COLUMNS[1:]}
    whole: Columns = {
        "parent": np.full(count, -1, dtype=np.int64),
        "kind": np.full(count, 2, dtype=np.uint8),
        "probability": np.zeros(count),
    }
    for name, values in whole.items():
        values[child] = links[name]
    return whole


def _span(sources: list[dict[str, Any]], connections: Columns, calls: Columns) -> tuple[int, int]:
    """First and last instant of the capture, from its sources or, failing those, from what it holds."""
    first = [s["first_ns"] for s in sources if s.get("kind", "capture") == "capture" and s["first_ns"] >= 0]
    last = [s["last_ns"] for s in sources if s.get("kind", "capture") == "capture" and s["last_ns"] >= 0]
    for table, begin, end in ((connections, "first_ns", "last_ns"), (calls, "arrive_ns", "depart_ns")):
        if not first and len(table[begin]):
            first = [int(table[begin].min())]
            last = [int(table[end].max())]
    if not first:
        return 0, 0
    return min(first), max(max(last, default=min(first)), min(first))
