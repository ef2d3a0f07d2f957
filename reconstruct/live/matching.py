"""Calls to links while calls come in: a stream of the kernel per node."""

from __future__ import annotations

from functools import partial

import numpy as np

from tapscope.reconstruct import _kernel
from tapscope.reconstruct.live.held import NEVER_NS, Ids
from tapscope.reconstruct.match.crew import Crew
from tapscope.reconstruct.match.lent import lent_connections
from tapscope.reconstruct.match.node import (
    TokenIndex,
    answers_early,
    child_columns,
    parent_columns,
    told_lengths,
)
from tapscope.reconstruct.unseen import PATIENCE_NS
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import TABLES, Table, empty

_COUNTERS = ("pairs_too_large", "parents_given_up")


class _Node:
    """What a node serves and makes, as the kernel got it."""

    def __init__(self, base: int, early: bool, options: dict[str, int]) -> None:
        self.stream = _kernel.NodeStream(**options)
        self.base = base
        self.early = early
        self.pushed = 0
        self.parents: Ids = np.zeros(0, dtype=np.int64)
        self.parent_arrive: Ids = np.zeros(0, dtype=np.int64)
        """The latest of those that were pushed."""
        self.children: Ids = np.zeros(0, dtype=np.int64)
        self.begin: Ids = np.zeros(0, dtype=np.int64)
        """Those that are not decided."""
        self.longest_ns = 0

    def of(self, numbers: Ids) -> Ids:
        """Calls by their number among the parents."""
        first = self.pushed - len(self.parents)
        place = np.maximum(numbers - first, 0)
        return np.where(numbers >= 0, self.parents[place], -1) if len(self.parents) else numbers


class Matching:
    """Links of calls, a bounded time after the calls were settled."""

    def __init__(self, mode: EvidenceMode, *, threads: int = 0, **options: int) -> None:
        """At most `threads` nodes are matched beside each other (0: one per core). `options`: those of
        NodeStream."""
        self._mode, self._options = mode, options
        self._crew = Crew(threads)
        self._nodes: dict[int, _Node] = {}
        self._begin_ns: int | None = None
        self._first: list[tuple[Ids, Ids, int]] = []
        self._frontier_ns = -NEVER_NS

    def take(
        self,
        calls: Table,
        ids: Ids,
        evidence: Table,
        gone_ns: Ids,
        frontier_ns: int,
        late: int,
    ) -> Table:
        """More calls, numbered `ids`, in order of arrival; whatever arrives later does so at `frontier_ns` or
        later (NEVER_NS: no call will come). The first `late` arrive before an earlier frontier: they get no
        parent. Returns links that are decided now, in no order."""
        self._frontier_ns = frontier_ns
        out = [_links(ids[:late], LinkKind.UNKNOWN)]
        if len(ids) and self._begin_ns is None:
            self._begin_ns = int(calls["arrive_ns"][0])
        told = told_lengths(calls, self._mode)
        calls = {**calls, "conn": lent_connections(calls, evidence), "response_bytes": told}
        tokens, results = TokenIndex.build(evidence, self._mode, whole=False)
        served, made = calls["server_node"].copy(), calls["client_node"].copy()
        served[:late] = made[:late] = -1
        for number in np.unique(served[late:]).tolist():
            parents = np.flatnonzero(served == number)
            if number not in self._nodes:
                first = int(np.argmax((served == number) | (made == number)))
                early = answers_early(calls["protocol"][parents])
                self._nodes[number] = _Node(int(calls["arrive_ns"][first]), early, self._options)
                self._crew.watch(self._nodes[number].stream)
        alone = ~np.isin(made, list(self._nodes)) & (made >= 0)
        out.append(_links(ids[alone], LinkKind.ROOT))
        for number, node in self._nodes.items():
            parents, children = np.flatnonzero(served == number), np.flatnonzero(made == number)
            if len(parents) or len(children):
                own = np.full(len(ids), -1, dtype=np.int64)  # of a node that calls itself
                own[parents] = node.pushed + np.arange(len(parents))
                node.stream.push(
                    parent_columns(calls, parents, tokens, node.base, gone_ns),
                    child_columns(calls, calls, children, tokens, results, node.base, node.early)
                    | {"as_parent": own[children]},
                )
                stay = calls["depart_ns"][parents] - calls["arrive_ns"][parents]
                node.longest_ns = max(node.longest_ns, int(stay.max(initial=0)))
                node.pushed += len(parents)
                node.parents = np.concatenate([node.parents, ids[parents]])
                node.parent_arrive = np.concatenate([node.parent_arrive, calls["arrive_ns"][parents]])
                node.children = np.concatenate([node.children, ids[children]])
                node.begin = np.concatenate([node.begin, calls["arrive_ns"][children]])
        nodes = list(self._nodes.values())
        answers = self._crew.run([partial(self._answer, node) for node in nodes])
        out += [self._decided(node, answer) for node, answer in zip(nodes, answers, strict=True)]
        return {c.name: np.concatenate([part[c.name] for part in out]) for c in TABLES["links"]}

    def frontier(self, nodes: Ids) -> Ids:
        """By node: every call that it makes and that begins before has its link."""
        count = int(nodes.max(initial=-1)) + 1
        out = np.full(count, self._frontier_ns, dtype=np.int64)
        for number, node in self._nodes.items():
            if number < count and len(node.begin):
                out[number] = node.begin[0]
        return out[nodes]

    def counters(self) -> dict[str, int]:
        """What the kernel met."""
        counted = [node.stream.counters() for node in self._nodes.values()]
        return {"match." + name: sum(each[name] for each in counted) for name in _COUNTERS}

    def kept_bytes(self) -> int:
        """Of rows that wait in the kernel."""
        return sum(node.stream.counters()["kept_bytes"] for node in self._nodes.values())

    def doubtful_roots(self) -> Ids:
        """Calls that were taken for roots, and may have been made for calls that came before the capture:
        known only when the longest stay at their node is."""
        assert self._begin_ns is not None or not self._first
        out = [np.zeros(0, dtype=np.int64)]
        for ids, begin_ns, node in self._first:
            out.append(ids[begin_ns <= (self._begin_ns or 0) + self._nodes[node].longest_ns])
        return np.unique(np.concatenate(out))

    def _answer(self, node: _Node) -> Table:
        """What the kernel decides of a node by now; nothing of the others is touched."""
        if self._frontier_ns >= NEVER_NS:
            node.stream.finish()
        else:
            node.stream.advance(self._frontier_ns - node.base)
        return node.stream.take()

    def _decided(self, node: _Node, answer: Table) -> Table:
        count = len(answer["parent"])
        if not count:
            return empty("links")
        assert self._begin_ns is not None
        out = _links(node.children[:count], LinkKind.LINKED)
        out["parent"], out["runner_up"] = node.of(answer["parent"]), node.of(answer["runner_up"])
        out["probability"] = answer["probability"]
        out["runner_up_probability"] = answer["runner_up_probability"]
        out["kind"][out["parent"] < 0] = LinkKind.UNKNOWN
        alone = (out["parent"] < 0) & (out["runner_up"] < 0)
        begin = node.begin[:count]
        root = alone & (begin > self._begin_ns + node.longest_ns)
        out["kind"][root] = LinkKind.ROOT
        first = root & (begin <= self._begin_ns + 2 * PATIENCE_NS)
        if first.any():
            number = next(key for key, each in self._nodes.items() if each is node)
            self._first.append((out["child"][first], begin[first], number))
        node.children, node.begin = node.children[count:], node.begin[count:]
        # Nobody else can be the parent of a call that is still to be decided.
        since = (node.begin[0] if len(node.begin) else self._frontier_ns) - 2 * PATIENCE_NS
        gone = int(np.searchsorted(node.parent_arrive, since))
        node.parents, node.parent_arrive = node.parents[gone:], node.parent_arrive[gone:]
        return out


def _links(ids: Ids, kind: LinkKind) -> Table:
    count = len(ids)
    nothing = np.full(count, -1, dtype=np.int64)
    sure = 1.0 if kind == LinkKind.ROOT else 0.0
    return {
        "child": ids.astype(np.int64),
        "parent": nothing,
        "kind": np.full(count, kind, dtype=np.uint8),
        "probability": np.full(count, sure),
        "runner_up": nothing.copy(),
        "runner_up_probability": np.zeros(count),
    }
