"""The matching problem of one node as columns for the kernel, and its answer as rows of calls."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct import _kernel
from tapscope.reconstruct.match.crew import Crew
from tapscope.reconstruct.topology import ANSWERS_EARLY
from tapscope.store.codes import ID_LIKE, CallFlag, EvidenceMode, TokenKind
from tapscope.store.tables import Table

_SAME_AS_TEXT = (TokenKind.NUMBER, TokenKind.TEXT)
_MAX_TOKENS = 64
KERNEL_COUNTERS = {
    name: "match." + name
    for name in (
        "pairs_too_large",
        "parents_given_up",
        "classes_shared",
        "learned_anew",
        "not_remembered",
        "no_longer_remembered",
    )
}
"""Counters of the kernel that a run keeps, and their names there."""

_KINDS = np.uint32(16)
"""More than there are kinds of tokens; the kernel takes slots apart again (problem.hpp)."""

_CHUNK = 65_536
"""Calls that go to the kernel at once; the links do not depend on it."""


@dataclass
class TokenIndex:
    """Content tokens of messages that the evidence mode allows, grouped by message."""

    message: NDArray[np.int64]
    slot: NDArray[np.uint32]
    hash: NDArray[np.uint64]

    @classmethod
    def build(
        cls, evidence: Table, mode: EvidenceMode, *, whole: bool = True
    ) -> tuple[TokenIndex, TokenIndex]:
        """What requests say, and what answers say that some request says, too: others are never looked for.
        Where the evidence is not the `whole` one, a request may still come: then everything that answers say.

        Selected by `--evidence`: timing has no tokens, noids none that look like propagated ids.
        """
        allowed = np.full(len(evidence["kind"]), mode != EvidenceMode.TIMING)
        if mode == EvidenceMode.NOIDS:
            allowed &= (evidence["kind"] & ID_LIKE) == 0
        answers = (evidence["kind"] & np.uint8(ID_LIKE - 1)) == TokenKind.RESULT
        asked = cls._of(evidence, np.flatnonzero(allowed & ~answers))
        rows = np.flatnonzero(allowed & answers)
        if whole:
            rows = rows[np.isin(evidence["hash"][rows], asked.hash)]
        return asked, cls._of(evidence, rows)

    @classmethod
    def _of(cls, evidence: Table, rows: NDArray[np.int64]) -> TokenIndex:
        rows = rows[np.argsort(evidence["message"][rows], kind="stable")]
        kind = evidence["kind"][rows] & np.uint8(ID_LIKE - 1)
        # Slots of different kinds differ, but 42 is one value whether or not its slot also takes words.
        group = np.where(np.isin(kind, _SAME_AS_TEXT), int(TokenKind.TEXT), kind).astype(np.uint32)
        slot = evidence["slot"][rows] * _KINDS + group
        return cls(evidence["message"][rows], slot, evidence["hash"][rows])

    def of(self, messages: NDArray[np.int64], name: str = "token") -> dict[str, NDArray[np.generic]]:
        """CSR columns NAME_offset, NAME_slot, NAME_hash of the messages; at most 64 tokens each."""
        begin = np.searchsorted(self.message, messages, side="left")
        count = np.minimum(np.searchsorted(self.message, messages, side="right") - begin, _MAX_TOKENS)
        offset = np.zeros(len(messages) + 1, dtype=np.int64)
        np.cumsum(count, out=offset[1:])
        rows = np.repeat(begin - offset[:-1], count) + np.arange(offset[-1])
        return {f"{name}_offset": offset, f"{name}_slot": self.slot[rows], f"{name}_hash": self.hash[rows]}


@dataclass
class Matched:
    """Answer for the children of one node. `parent` and `runner_up` are rows of calls, -1 none."""

    child: NDArray[np.int64]
    parent: NDArray[np.int64]
    probability: NDArray[np.float64]
    runner_up: NDArray[np.int64]
    runner_up_probability: NDArray[np.float64]
    counters: dict[str, int] = field(default_factory=dict)


def match_node(
    calls: Table,
    parents: NDArray[np.int64],
    children: NDArray[np.int64],
    tokens: TokenIndex,
    results: TokenIndex,
    made: Table | None = None,
    *,
    gone_ns: NDArray[np.int64] | None = None,
    crew: Crew | None = None,
    chunk: int = _CHUNK,
    **options: int,
) -> Matched:
    """Match the calls `children` that a node made to the calls `parents` that it served (rows of calls).

    `made` has the times of the same calls by their callers' clocks (columns arrive_ns, request_end_ns,
    response_begin_ns, depart_ns) where those are not the one of `calls`. The calls go to the kernel in the
    order of time, `chunk` at once. `gone_ns`: when calls without an answer were over at the latest, -1 not
    known. A `crew` can stop it. `options` are those of NodeStream.
    """
    made = calls if made is None else made
    parents = parents[np.argsort(calls["arrive_ns"][parents], kind="stable")]
    begin = begins(calls, made, children)
    order = np.argsort(begin, kind="stable")
    children, begin = children[order], begin[order]
    arrive = calls["arrive_ns"][parents]
    base = min(int(arrive.min(initial=2**62)), int(begin.min(initial=2**62)))
    # Where the parent may answer first, a child need only begin while the parent is there.
    early = answers_early(calls["protocol"][parents])
    own = np.full(len(calls["arrive_ns"]), -1, dtype=np.int64)  # of a node that calls itself
    own[parents] = np.arange(len(parents))
    stream = _kernel.NodeStream(**options)
    if crew is not None:
        crew.watch(stream)
    at_parent = at_child = 0
    taken: list[Table] = []
    total = len(parents) + len(children)
    for last in (*range(chunk, total, chunk), total):
        # The first `last` calls in the order of time; a parent goes before a child of the same instant.
        to_parent = _merged(arrive, begin, last)
        to_child = last - to_parent
        stream.push(
            parent_columns(calls, parents[at_parent:to_parent], tokens, base, gone_ns),
            child_columns(calls, made, children[at_child:to_child], tokens, results, base, early)
            | {"as_parent": own[children[at_child:to_child]]},
        )
        at_parent, at_child = to_parent, to_child
        if last < total:
            ahead = (*arrive[at_parent : at_parent + 1], *begin[at_child : at_child + 1])
            stream.advance(int(min(ahead)) - base)
            taken.append(stream.take())
    stream.finish()
    taken.append(stream.take())
    answer = {name: np.concatenate([part[name] for part in taken]) for name in taken[0]}
    return Matched(
        child=children,
        parent=_rows(parents, answer["parent"]),
        probability=answer["probability"],
        runner_up=_rows(parents, answer["runner_up"]),
        runner_up_probability=answer["runner_up_probability"],
        counters=stream.counters(),
    )


def _merged(first: NDArray[np.int64], second: NDArray[np.int64], count: int) -> int:
    """How many of the `count` smallest values of two sorted columns are of the first (which goes first)."""
    low, high = max(0, count - len(second)), min(count, len(first))
    while low < high:
        middle = (low + high) // 2
        if first[middle] <= second[count - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return low


def answers_early(protocol: NDArray[np.uint8]) -> bool:
    """Do all calls that a node serves (these) allow it to answer before what it called has answered?"""
    return len(protocol) > 0 and bool(np.isin(protocol, ANSWERS_EARLY).all())


def told_lengths(calls: Table, mode: EvidenceMode) -> NDArray[np.int64]:
    """Bytes of the responses that the matcher may know, -1 where not: by times alone, none."""
    lengths: NDArray[np.int64] = calls["response_bytes"]
    return np.full(len(lengths), -1, dtype=np.int64) if mode == EvidenceMode.TIMING else lengths


def parent_columns(
    calls: Table,
    rows: NDArray[np.int64],
    tokens: TokenIndex,
    base: int,
    gone_ns: NDArray[np.int64] | None,
) -> Table:
    """These rows of `calls` as parents for the kernel, times from `base` on."""
    assumed = calls["request"][rows] < 0
    answered = calls["depart_ns"][rows] >= 0
    gone = np.full(len(rows), -1, dtype=np.int64) if gone_ns is None else gone_ns[rows]
    gone = np.where(gone < 0, -1, gone - base)
    return {
        "cls": _combined(calls["class_id"][rows], calls["protocol"][rows]),
        "conn": calls["conn"][rows].astype(np.int64),
        "arrive": calls["arrive_ns"][rows] - base,
        "request_end": np.where(assumed, calls["arrive_ns"][rows], calls["request_end_ns"][rows]) - base,
        "response_begin": np.where(answered, calls["response_begin_ns"][rows] - base, -1),
        "depart": np.where(answered, calls["depart_ns"][rows] - base, gone),
        **tokens.of(calls["request"][rows]),
        "answer_bytes": calls["response_bytes"][rows].astype(np.float32),
        "latest": np.where(assumed, calls["request_end_ns"][rows] - base, -1),
    }


def begins(calls: Table, made: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """When these calls began as children, by the clock of `made`: an assumed one as late as it may have."""
    assumed = calls["request"][rows] < 0
    return np.where(assumed, made["request_end_ns"][rows], made["arrive_ns"][rows])


def child_columns(
    calls: Table,
    made: Table,
    rows: NDArray[np.int64],
    tokens: TokenIndex,
    results: TokenIndex,
    base: int,
    early: bool,
) -> Table:
    """These rows of `calls` as children for the kernel; `made` and `early`: see match_node."""
    answered = made["depart_ns"][rows] >= 0
    begin = begins(calls, made, rows)
    asked = made["request_end_ns"][rows]
    answer_due = begin if early else made["response_begin_ns"][rows]
    return {
        "cls": _combined(calls["class_id"][rows], calls["protocol"][rows], calls["server_node"][rows]),
        "conn": calls["conn"][rows].astype(np.int64),
        "begin": begin - base,
        "response_begin": np.where(answered, answer_due, asked) - base,
        "end": np.where(answered, made["depart_ns"][rows], asked) - base,
        "setup": ((calls["flags"][rows] & np.uint32(CallFlag.SETUP)) != 0).astype(np.uint8),
        **tokens.of(calls["request"][rows]),
        **results.of(calls["response"][rows], "result"),
        "answer_bytes": calls["response_bytes"][rows].astype(np.float32),
        "server": calls["server_node"][rows].astype(np.int64),
    }


def _combined(cls: NDArray[np.generic], *more: NDArray[np.generic]) -> NDArray[np.int64]:
    """One number for class, protocol (below 256) and node (below 2^20)."""
    out = cls.astype(np.int64)
    for column, bits in zip(more, (8, 20), strict=False):
        out = (out << bits) + column.astype(np.int64)
    return out


def _rows(parents: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(parents) == 0:
        return np.full(len(index), -1, dtype=np.int64)
    return np.where(index >= 0, parents[index], -1)
