"""Calls to links: the matcher over all nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.match.crew import Crew
from tapscope.reconstruct.match.cycles import circling
from tapscope.reconstruct.match.lent import lent_connections
from tapscope.reconstruct.match.node import KERNEL_COUNTERS, Matched, TokenIndex, match_node, told_lengths
from tapscope.reconstruct.match.refusal import NOTHING_REFUSED, Refusal, unlink
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table


def links(
    calls: Table,
    evidence: Table,
    mode: EvidenceMode,
    *,
    refusal: Refusal = NOTHING_REFUSED,
    made: Table | None = None,
    gone_ns: NDArray[np.int64] | None = None,
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Table, dict[str, int]]:
    """Parent of every call, and counters of what the matcher met. One row per call, in the order of calls.

    A call made by a node that serves nothing is a root. So is a call during which its node served nobody,
    unless it lies so near the start of the capture that its parent may have come before. Any other call
    without a likely parent, or whose link is refused, is UNKNOWN.

    `made`, `gone_ns`: see Unlinked. At most `threads` nodes are matched beside each other (0: one per core);
    the links are the same for any number. `progress(done, total)` counts calls that a node made.
    """
    asked = [Unlinked(calls, evidence, made, gone_ns)]
    return links_of(asked, mode, refusal=refusal, threads=threads, progress=progress)[0]


@dataclass(frozen=True)
class Unlinked:
    """Calls whose parents are wanted, and the `evidence` of their messages.

    `made`: the times of the same calls by their callers' clocks (see match_node), where nodes have clocks of
    their own; then the start and end of a node's capture are those of its own clock.
    `gone_ns`: when calls without an answer were over at the latest (-1 not known, unseen.gone_by).
    Rows whose request is none (-1) stand for calls that were lost (assumed.py): theirs are never refused.
    `lent`: the connection that was lent for each call, where that is not for the `evidence` to say (lent.py).
    """

    calls: Table
    evidence: Table
    made: Table | None = None
    gone_ns: NDArray[np.int64] | None = None
    lent: NDArray[np.int64] | None = None


def links_of(
    sets: Sequence[Unlinked],
    mode: EvidenceMode,
    *,
    refusal: Refusal = NOTHING_REFUSED,
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[Table, dict[str, int]]]:
    """What `links` gives, for several sets of calls that have nothing to do with each other."""
    crew = Crew(threads)
    nodes = [node for number, unlinked in enumerate(sets) for node in _nodes(number, unlinked, mode, crew)]
    nodes.sort(key=lambda node: -len(node.children))  # the longest first, so that none is left alone
    total = sum(len(node.children) for node in nodes)
    over = 0

    def done(number: int) -> None:
        nonlocal over
        over += len(nodes[number].children)
        if progress is not None:
            progress(over, total)

    if progress is not None:
        progress(0, total)
    answers = crew.run([node.match for node in nodes], done)
    out = []
    for number, unlinked in enumerate(sets):
        mine = [(node, found) for node, found in zip(nodes, answers, strict=True) if node.set == number]
        out.append(_linked(unlinked, mine, refusal))
    return out


@dataclass(frozen=True)
class _Node:
    """A node of one of the sets: rows of the calls that it served and made."""

    set: int
    parents: NDArray[np.int64]
    children: NDArray[np.int64]
    match: Callable[[], Matched]


def _nodes(number: int, unlinked: Unlinked, mode: EvidenceMode, crew: Crew) -> list[_Node]:
    """The nodes that were called and made calls."""
    calls, evidence = unlinked.calls, unlinked.evidence
    if len(calls["arrive_ns"]) == 0:
        return []
    lent = lent_connections(calls, evidence) if unlinked.lent is None else unlinked.lent
    calls = {**calls, "conn": lent, "response_bytes": told_lengths(calls, mode)}
    tokens, results = TokenIndex.build(evidence, mode)
    out = []
    for node in np.intersect1d(calls["server_node"], calls["client_node"]):
        parents = np.flatnonzero(calls["server_node"] == node)
        children = np.flatnonzero(calls["client_node"] == node)
        columns = (calls, parents, children, tokens, results, unlinked.made)
        match = partial(match_node, *columns, gone_ns=unlinked.gone_ns, crew=crew)
        out.append(_Node(number, parents, children, match))
    return out


def _linked(
    unlinked: Unlinked, answers: Sequence[tuple[_Node, Matched]], refusal: Refusal
) -> tuple[Table, dict[str, int]]:
    """Links and counters of a set, from the answers for its nodes."""
    calls, made = unlinked.calls, unlinked.made
    out = _roots(len(calls["arrive_ns"]))
    counters = dict.fromkeys((*KERNEL_COUNTERS.values(), "match.circles", "match.refused"), 0)
    if len(out["child"]) == 0:
        return out, counters
    seen = calls["request"] >= 0
    begin_ns = int(calls["arrive_ns"][seen].min())
    for node, answer in answers:
        parents = node.parents[seen[node.parents]]
        if made is not None:
            sent = made["arrive_ns"][node.children]
            begin_ns = min(int(calls["arrive_ns"][parents].min()), int(sent.min()))
        at = answer.child
        out["parent"][at] = answer.parent
        out["probability"][at] = answer.probability
        out["runner_up"][at] = answer.runner_up
        out["runner_up_probability"][at] = answer.runner_up_probability
        out["kind"][at] = np.where(answer.parent >= 0, LinkKind.LINKED, LinkKind.UNKNOWN)
        for name, counter in KERNEL_COUNTERS.items():
            counters[counter] += answer.counters[name]
        alone = (answer.parent < 0) & (answer.runner_up < 0)
        longest = int((calls["depart_ns"][parents] - calls["arrive_ns"][parents]).max(initial=0))
        sent_ns = (calls if made is None else made)["arrive_ns"][at]
        out["kind"][at[alone & (sent_ns > begin_ns + longest)]] = LinkKind.ROOT
    broken = np.zeros(len(out["child"]), dtype=np.bool_)
    broken[circling(out["parent"], out["probability"])] = True
    assumed = ~seen | ((out["parent"] >= 0) & ~seen[out["parent"]])
    refused = refusal.unsure(out, leave=broken | assumed)
    counters["match.circles"] = int(broken.sum())
    counters["match.refused"] = int(refused.sum())
    unlink(out, broken | refused)
    return out, counters


def unmatched(calls: Table) -> Table:
    """Links where nothing is matched: calls made by a node that serves nothing are roots, others UNKNOWN."""
    out = _roots(len(calls["arrive_ns"]))
    out["kind"][np.isin(calls["client_node"], calls["server_node"])] = LinkKind.UNKNOWN
    return out


def _roots(n: int) -> Table:
    return {
        "child": np.arange(n, dtype=np.int64),
        "parent": np.full(n, -1, dtype=np.int64),
        "kind": np.full(n, LinkKind.ROOT, dtype=np.uint8),
        "probability": np.ones(n, dtype=np.float64),
        "runner_up": np.full(n, -1, dtype=np.int64),
        "runner_up_probability": np.zeros(n, dtype=np.float64),
    }
