"""Calls to links: the matcher over all nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.match.cycles import circling
from tapscope.reconstruct.match.lent import lent_connections
from tapscope.reconstruct.match.node import TokenIndex, match_node, told_lengths
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table


def links(
    calls: Table,
    evidence: Table,
    mode: EvidenceMode,
    *,
    min_probability: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
    made: Table | None = None,
    gone_ns: NDArray[np.int64] | None = None,
) -> tuple[Table, dict[str, int]]:
    """Parent of every call, and counters of what the matcher met. One row per call, in the order of calls.

    A call made by a node that serves nothing is a root. So is a call during which its node served nobody,
    unless it lies so near the start of the capture that its parent may have come before. Any other call
    without a likely parent, or with one below `min_probability`, is UNKNOWN.

    `gone_ns`: when calls without an answer were over at the latest (-1 not known, unseen.gone_by).
    `made`: the times of the same calls by their callers' clocks (see match_node), where nodes have clocks of
    their own; then the start and end of a node's capture are those of its own clock.
    """
    out = _roots(len(calls["arrive_ns"]))
    counters = {"match.pairs_too_large": 0, "match.parents_given_up": 0, "match.circles": 0}
    if len(out["child"]) == 0:
        return out, counters
    calls = {**calls, "conn": lent_connections(calls, evidence), "response_bytes": told_lengths(calls, mode)}
    tokens, results = TokenIndex.build(evidence, mode)
    begin_ns = int(calls["arrive_ns"].min())
    serving = np.unique(calls["server_node"])
    for done, node in enumerate(serving):
        parents = np.flatnonzero(calls["server_node"] == node)
        children = np.flatnonzero(calls["client_node"] == node)
        if len(children) == 0:
            continue
        if made is not None:
            begin_ns = min(int(calls["arrive_ns"][parents].min()), int(made["arrive_ns"][children].min()))
        answer = match_node(calls, parents, children, tokens, results, made, gone_ns=gone_ns)
        at = answer.child
        out["parent"][at] = answer.parent
        out["probability"][at] = answer.probability
        out["runner_up"][at] = answer.runner_up
        out["runner_up_probability"][at] = answer.runner_up_probability
        out["kind"][at] = np.where(answer.parent >= 0, LinkKind.LINKED, LinkKind.UNKNOWN)
        for name in ("pairs_too_large", "parents_given_up"):
            counters["match." + name] += answer.counters[name]
        alone = (answer.parent < 0) & (answer.runner_up < 0)
        longest = int((calls["depart_ns"][parents] - calls["arrive_ns"][parents]).max(initial=0))
        sent_ns = (calls if made is None else made)["arrive_ns"][at]
        out["kind"][at[alone & (sent_ns > begin_ns + longest)]] = LinkKind.ROOT
        if progress is not None:
            progress(done + 1, len(serving))
    circles = circling(out["parent"], out["probability"])
    counters["match.circles"] = len(circles)
    weak = (out["kind"] == LinkKind.LINKED) & (out["probability"] < min_probability)
    weak[circles] = True
    out["runner_up"][weak] = out["parent"][weak]
    out["runner_up_probability"][weak] = out["probability"][weak]
    out["parent"][weak] = -1
    out["kind"][weak] = LinkKind.UNKNOWN
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
