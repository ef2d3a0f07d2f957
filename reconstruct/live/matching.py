"""Calls to links while calls come in: a stream of the kernel per node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tapscope.reconstruct import _kernel
from tapscope.reconstruct.assumed import LONGEST_NS, Stays, forget
from tapscope.reconstruct.live.held import NEVER_NS, Ids
from tapscope.reconstruct.live.lost import UNSEEN, Answers, Waiting
from tapscope.reconstruct.match.crew import Crew
from tapscope.reconstruct.match.lent import lent_connections
from tapscope.reconstruct.match.node import (
    KERNEL_COUNTERS,
    TokenIndex,
    answers_early,
    begins,
    child_columns,
    parent_columns,
    told_lengths,
)
from tapscope.reconstruct.unseen import PATIENCE_NS, Unseen
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import TABLES, Table, empty

LOST = -2
"""And below: numbers of calls that the tap did not see."""


@dataclass
class _Rows:
    """Calls for the kernel: rows of `calls`, their numbers (LOST - number of those that were lost), when
    they were over at the latest, and began as children; and their contents."""

    calls: Table
    ids: Ids
    gone_ns: Ids
    begin: Ids
    tokens: TokenIndex
    results: TokenIndex


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

    def push(self, rows: _Rows, parents: Ids, children: Ids) -> None:
        """More of what it serves and makes."""
        calls = rows.calls
        parents = parents[np.argsort(calls["arrive_ns"][parents], kind="stable")]
        children = children[np.argsort(rows.begin[children], kind="stable")]
        if not len(parents) and not len(children):
            return
        own = np.full(len(rows.ids), -1, dtype=np.int64)  # of a node that calls itself
        own[parents] = self.pushed + np.arange(len(parents))
        self.stream.push(
            parent_columns(calls, parents, rows.tokens, self.base, rows.gone_ns),
            child_columns(calls, calls, children, rows.tokens, rows.results, self.base, self.early)
            | {"as_parent": own[children]},
        )
        stay = (calls["depart_ns"] - calls["arrive_ns"])[parents[rows.ids[parents] >= 0]]
        self.longest_ns = max(self.longest_ns, int(stay.max(initial=0)))
        self.pushed += len(parents)
        self.parents = np.concatenate([self.parents, rows.ids[parents]])
        self.parent_arrive = np.concatenate([self.parent_arrive, calls["arrive_ns"][parents]])
        self.children = np.concatenate([self.children, rows.ids[children]])
        self.begin = np.concatenate([self.begin, rows.begin[children]])

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
        self.answers = Answers()
        """What was found of calls that the tap did not see."""
        self._waiting = Waiting(self.answers)
        self._stays: dict[int, Stays] = {}

    def take(
        self,
        calls: Table,
        ids: Ids,
        evidence: Table,
        gone_ns: Ids,
        frontier_ns: int,
        late: int,
        lost: Unseen,
    ) -> Table:
        """More calls, numbered `ids`, in order of arrival; whatever arrives later does so at `frontier_ns` or
        later (NEVER_NS: no call will come). The first `late` arrive before an earlier frontier: they get no
        parent. `lost`: calls that the tap did not see. Returns links that are decided now, in no order."""
        self._frontier_ns = frontier_ns
        out = [_links(ids[:late], LinkKind.UNKNOWN)]
        if len(ids) and self._begin_ns is None:
            self._begin_ns = int(calls["arrive_ns"][0])
        calls = {**calls, "conn": lent_connections(calls, evidence)}
        tokens, results = TokenIndex.build(evidence, self._mode, whole=False)
        served, made = calls["server_node"].copy(), calls["client_node"].copy()
        served[:late] = made[:late] = -1
        numbers = np.unique(served[late:]).tolist()
        for number in numbers:
            stays = self._stays.setdefault(number, Stays())
            stays.add(calls, np.flatnonzero(served == number))
        alone = ~np.isin(made, [*self._nodes, *numbers]) & (made >= 0)
        out.append(_links(ids[alone], LinkKind.ROOT))
        rows, as_parent, as_child = self._waiting.take(lost, self._stays, frontier_ns)
        served = np.concatenate([served, np.where(as_parent, rows["server_node"], -1)])
        made = np.concatenate([made, np.where(as_child, rows["client_node"], -1)])
        calls = {name: np.concatenate([values, rows[name]]) for name, values in calls.items()}
        pushed = _Rows(
            calls | {"response_bytes": told_lengths(calls, self._mode)},
            np.concatenate([ids, LOST - rows["number"]]),
            np.concatenate([gone_ns, rows["over_ns"]]),
            begins(calls, calls, np.arange(len(served))),
            tokens,
            results,
        )
        for number in numbers:
            if number not in self._nodes:
                parents, children = served == number, made == number
                base = min(
                    int(pushed.calls["arrive_ns"][parents].min()),
                    int(pushed.begin[children].min(initial=NEVER_NS)),
                )
                early = answers_early(calls["protocol"][parents & (pushed.ids >= 0)])
                self._nodes[number] = _Node(base, early, self._options)
                self._crew.watch(self._nodes[number].stream)
        for number, node in self._nodes.items():
            node.push(pushed, np.flatnonzero(served == number), np.flatnonzero(made == number))
        for each in self._stays.values():
            each.forget(frontier_ns - LONGEST_NS)
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
        return {counter: sum(each[name] for each in counted) for name, counter in KERNEL_COUNTERS.items()}

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
        alone = (out["parent"] == -1) & (out["runner_up"] == -1)
        for name in ("parent", "runner_up"):
            out[name][out[name] <= LOST] = UNSEEN
        seen = out["child"] >= 0
        lost = {name: values[~seen] for name, values in out.items()}
        self.answers.add(lost | {"child": LOST - lost["child"]})
        forget(out, UNSEEN)
        out["kind"][out["parent"] < 0] = LinkKind.UNKNOWN
        begin = node.begin[:count]
        root = alone & seen & (begin > self._begin_ns + node.longest_ns)
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
        return {name: values[seen] for name, values in out.items()}


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
