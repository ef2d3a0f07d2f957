"""Messages to traces, in one call: pair, topology, match, trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tapscope.capture import CaptureTables
from tapscope.reconstruct import pair, topology, traces, unseen
from tapscope.reconstruct.assumed import Assumed
from tapscope.reconstruct.match.links import links, unmatched
from tapscope.reconstruct.match.refusal import NOTHING_REFUSED, Refusal
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table, check


@dataclass
class Reconstruction:
    """Everything that is rebuilt from the messages of a capture (columns: store/tables.py)."""

    calls: Table
    nodes: Table
    node_names: list[str]
    links: Table
    traces: Table
    trace_calls: Table
    edges: list[tuple[int, int, int]]
    counters: dict[str, int] = field(default_factory=dict)

    def quality(self) -> dict[str, float | int]:
        """How much was linked, and how sure the matcher says it is (no ground truth is involved)."""
        kind = self.links["kind"]
        linked = kind == LinkKind.LINKED
        probability = self.links["probability"][linked]
        return {
            "calls": len(kind),
            "roots": int((kind == LinkKind.ROOT).sum()),
            "linked": int(linked.sum()),
            "unknown": int((kind == LinkKind.UNKNOWN).sum()),
            "expected_edge_accuracy": float(probability.mean()) if len(probability) else 1.0,
            "traces": len(self.traces["root"]),
            "complete_traces": int(self.traces["complete"].sum()),
        }


def trace(
    tables: CaptureTables,
    mode: EvidenceMode | None = EvidenceMode.ALL,
    *,
    refusal: Refusal = NOTHING_REFUSED,
    same_nodes: Sequence[Sequence[str]] = (),
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Rebuild calls, links and traces from captured messages. Without a `mode` nothing is matched: calls
    whose client serves others are of unknown origin. `same_nodes`: groups of addresses that are one server
    each. `threads`, `progress`: of the matching, see `links`."""
    calls = pair.calls(tables.connections, tables.messages)
    found = topology.find(calls, tables.connections, tables.addresses, same_nodes)
    if mode is None:
        return assemble(found, unmatched(found.calls), {}, tables)
    lost = unseen.find(tables.connections, tables.messages, found)
    gone = unseen.gone_by(found.calls, tables.connections)
    assumed = Assumed.behind(found.calls, gone, lost)
    made, counters = links(
        assumed.calls,
        tables.evidence,
        mode,
        refusal=refusal,
        threads=threads,
        progress=progress,
        gone_ns=assumed.gone_ns,
    )
    return assemble(found, made, counters, tables, assumed)


def assemble(
    found: topology.Topology,
    made: Table,
    counters: dict[str, int],
    tables: CaptureTables,
    assumed: Assumed | None = None,
) -> Reconstruction:
    """Trees of the links `made`, marked where the tap lost something of them, and every table checked.
    `assumed`: what was matched, where that is more than the calls that were `found`."""
    if assumed is None:
        lost = unseen.find(tables.connections, tables.messages, found)
        lacking = unseen.may_lack(lost, found.calls, made)
    else:
        lost = assumed.lost
        lacking, told = assumed.makers(made)
        made = assumed.without(made)
        lacking |= unseen.may_lack(lost.only(~told), found.calls, made)
    made["kind"][unseen.without_parent(lost, found.calls, made)] = LinkKind.UNKNOWN
    counters = counters | {"match.calls_not_seen": len(lost)}
    trees, tree_calls = traces.traces(found.calls, made, lacking=lacking)
    for name, table in (("calls", found.calls), ("nodes", found.nodes), ("links", made), ("traces", trees)):
        check(name, {column: np.asarray(values) for column, values in table.items()})
    check("trace_calls", tree_calls)
    return Reconstruction(
        found.calls, found.nodes, found.names, made, trees, tree_calls, topology.edges(found.calls), counters
    )
