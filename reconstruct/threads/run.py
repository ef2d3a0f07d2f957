"""Traces from a capture and thread logs: the calls of the one, the parents by the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tapscope.capture import CaptureTables
from tapscope.reconstruct import pair, topology
from tapscope.reconstruct.exact import exact_links
from tapscope.reconstruct.match.cycles import circling
from tapscope.reconstruct.match.links import links as match
from tapscope.reconstruct.match.refusal import NOTHING_REFUSED, Refusal
from tapscope.reconstruct.run import Reconstruction, assemble
from tapscope.reconstruct.threads import parents, wire
from tapscope.reconstruct.threads.log import ThreadLogs
from tapscope.reconstruct.threads.parents import Why
from tapscope.reconstruct.threads.sides import sides
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table


@dataclass
class ThreadTraces:
    """Reconstruction, and one sentence per process that had to be refused."""

    made: Reconstruction
    refused: list[str]


def trace(
    tables: CaptureTables,
    logs: ThreadLogs,
    *,
    match_rest: EvidenceMode | None = None,
    refusal: Refusal = NOTHING_REFUSED,
    same_nodes: Sequence[Sequence[str]] = (),
    threads: int = 0,
) -> ThreadTraces:
    """Rebuild calls and traces of a capture; which call made which is told by thread logs alone.

    match_rest: what the logs do not tell is matched after all, with this evidence (None: it stays unknown).
    same_nodes: groups of addresses that are one server each. `threads`: that match, see `links`.
    """
    calls = pair.calls(tables.connections, tables.messages)
    found = topology.find(calls, tables.connections, tables.addresses, same_nodes)
    ranges, counters = wire.ranges(found.calls, tables.connections, tables.messages, tables.addresses, logs)
    told = parents.find(sides(ranges, logs), logs)
    counters = {**logs.counters, **counters, **told.counters}
    links, circles = _links(found.calls, told)
    if circles:
        counters["threads.parent_circle"] = circles
    if match_rest is not None:
        matched, more = match(found.calls, tables.evidence, match_rest, refusal=refusal, threads=threads)
        counters |= more | {"threads.matched_instead": _fill(links, matched)}
    return ThreadTraces(assemble(found, links, counters, tables), told.refused)


def _fill(links: Table, matched: Table) -> int:
    """Gives calls that the threads do not tell of the links that the matcher found, with its probability.
    Returns how many. Nodes are matched one by one, so what is told of one does not depend on the others."""
    rest = links["kind"] == LinkKind.UNKNOWN
    for name, values in matched.items():
        links[name] = np.where(rest, values, links[name])
    circles = circling(links["parent"], links["probability"])
    links["parent"][circles] = -1
    links["kind"][circles] = LinkKind.UNKNOWN
    return int(np.count_nonzero(rest & (links["kind"] != LinkKind.UNKNOWN)))


def _links(calls: Table, told: parents.Parents) -> tuple[Table, int]:
    """The contract table, and how many circles were opened. A link by threads is certain: probability 1;
    where there is none, nothing is guessed. A call of a node that serves nobody, or that its process made on
    its own, is a root."""
    entry = ~np.isin(calls["client_node"], calls["server_node"])
    return exact_links(told.parent, (told.why == Why.OWN) | ((told.why == Why.NOT_LOGGED) & entry))
