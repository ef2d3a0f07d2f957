"""The matching problem of one node as columns for the kernel, and its answer as rows of calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct import _kernel
from tapscope.reconstruct.topology import ANSWERS_EARLY
from tapscope.store.codes import ID_LIKE, EvidenceMode, TokenKind
from tapscope.store.tables import Table

_SAME_AS_TEXT = (TokenKind.NUMBER, TokenKind.TEXT)
_MAX_TOKENS = 64
_MAX_CLASSES = 2048
"""Classes that a node's model tells apart, on either side; the rarer ones share one more. Its tables are
products of both numbers, and class texts come from whoever sends requests."""


@dataclass
class TokenIndex:
    """Content tokens of request messages that the evidence mode allows, grouped by message."""

    message: NDArray[np.int64]
    slot: NDArray[np.uint32]
    hash: NDArray[np.uint64]

    @classmethod
    def build(cls, evidence: Table, mode: EvidenceMode) -> TokenIndex:
        """Select by `--evidence`: timing has no tokens, noids none that look like propagated ids."""
        kind = evidence["kind"] & np.uint8(ID_LIKE - 1)
        keep = (kind != TokenKind.RESULT) & (mode != EvidenceMode.TIMING)
        if mode == EvidenceMode.NOIDS:
            keep &= (evidence["kind"] & ID_LIKE) == 0
        rows = np.flatnonzero(keep)
        rows = rows[np.argsort(evidence["message"][rows], kind="stable")]
        # Slots of different kinds differ, but 42 is one value whether or not its slot also takes words.
        group = np.where(np.isin(kind[rows], _SAME_AS_TEXT), int(TokenKind.TEXT), kind[rows]).astype(
            np.uint32
        )
        slot = evidence["slot"][rows] * np.uint32(16) + group
        return cls(evidence["message"][rows], slot, evidence["hash"][rows])

    def of(self, messages: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
        """CSR columns token_offset, token_slot, token_hash of the messages; at most 64 tokens each."""
        begin = np.searchsorted(self.message, messages, side="left")
        count = np.minimum(np.searchsorted(self.message, messages, side="right") - begin, _MAX_TOKENS)
        offset = np.zeros(len(messages) + 1, dtype=np.int64)
        np.cumsum(count, out=offset[1:])
        rows = np.repeat(begin - offset[:-1], count) + np.arange(offset[-1])
        return {"token_offset": offset, "token_slot": self.slot[rows], "token_hash": self.hash[rows]}


@dataclass
class Matched:
    """Answer for the children of one node. `parent` and `runner_up` are rows of calls, -1 none."""

    child: NDArray[np.int64]
    parent: NDArray[np.int64]
    probability: NDArray[np.float64]
    runner_up: NDArray[np.int64]
    runner_up_probability: NDArray[np.float64]
    pairs_too_large: int


def match_node(
    calls: Table,
    parents: NDArray[np.int64],
    children: NDArray[np.int64],
    tokens: TokenIndex,
    end_ns: int,
    made: Table | None = None,
) -> Matched:
    """Match the calls `children` that a node made to the calls `parents` that it served (rows of calls).

    `end_ns` is the end of the capture: the horizon of calls that were never answered. `made` has the times of
    the same calls by their callers' clocks (columns arrive_ns, request_end_ns, response_begin_ns, depart_ns)
    where those are not the one of `calls`.
    """
    made = calls if made is None else made
    parents = parents[np.argsort(calls["arrive_ns"][parents], kind="stable")]
    children = children[np.argsort(made["arrive_ns"][children], kind="stable")]
    base = int(calls["arrive_ns"][parents].min()) if len(parents) else 0
    depart = calls["depart_ns"][parents]
    answered = depart >= 0
    child_depart = made["depart_ns"][children]
    answered_child = child_depart >= 0
    asked = made["request_end_ns"][children]
    # Where the parent may answer first, a child need only begin while the parent is there.
    early = len(parents) > 0 and bool(np.isin(calls["protocol"][parents], ANSWERS_EARLY).all())
    answer_due = made["arrive_ns" if early else "response_begin_ns"][children]
    child_class = np.stack(
        [calls["server_node"][children], calls["class_id"][children], calls["protocol"][children]]
    )
    answer = _kernel.match_node(
        {
            "cls": _classes(np.stack([calls["class_id"][parents], calls["protocol"][parents]])),
            "conn": _dense(calls["conn"][parents]),
            "arrive": calls["arrive_ns"][parents] - base,
            "request_end": calls["request_end_ns"][parents] - base,
            "response_begin": np.where(answered, calls["response_begin_ns"][parents], end_ns) - base,
            "depart": np.where(answered, depart, end_ns) - base,
            "answered": answered.astype(np.uint8),
            **tokens.of(calls["request"][parents]),
        },
        {
            "cls": _classes(child_class),
            "conn": _dense(calls["conn"][children]),
            "begin": made["arrive_ns"][children] - base,
            "response_begin": np.where(answered_child, answer_due, asked) - base,
            "end": np.where(answered_child, child_depart, asked) - base,
            **tokens.of(calls["request"][children]),
        },
    )
    return Matched(
        child=children,
        parent=_rows(parents, answer["parent"]),
        probability=answer["probability"],
        runner_up=_rows(parents, answer["runner_up"]),
        runner_up_probability=answer["runner_up_probability"],
        pairs_too_large=int(answer["pairs_too_large"]),
    )


def _dense(values: NDArray[np.generic]) -> NDArray[np.int32]:
    """0, 1, 2, ... for the distinct values (columns, when two-dimensional)."""
    _, inverse = np.unique(values, axis=-1, return_inverse=True)
    return inverse.reshape(-1).astype(np.int32)


def _classes(values: NDArray[np.generic]) -> NDArray[np.int32]:
    """Dense classes of the columns of `values`, at most _MAX_CLASSES of them and one for all rarer ones."""
    dense = _dense(values)
    count = np.bincount(dense)
    if len(count) <= _MAX_CLASSES:
        return dense
    rank = np.empty(len(count), dtype=np.int32)
    rank[np.argsort(-count, kind="stable")] = np.arange(len(count))
    return np.minimum(rank, _MAX_CLASSES)[dense]


def _rows(parents: NDArray[np.int64], index: NDArray[np.int32]) -> NDArray[np.int64]:
    if len(parents) == 0:
        return np.full(len(index), -1, dtype=np.int64)
    return np.where(index >= 0, parents[index], -1)
