"""Edges (links with a known true parent) as the tables by which a matcher is judged: accuracy per pair of
tiers, what probabilities are worth, and accuracy by how many calls were in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import level

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PROBABILITY_BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
CONCURRENCY_BINS = (1, 2, 3, 5, 9, 17, 33, 65, 129)
"""Lower ends; the last bucket is open."""

SURE = 0.99
"""Probability from which on an edge is called sure."""


@dataclass(frozen=True)
class EdgeAccuracy:
    """One tier pair. edges = right + wrong + unlinked; accuracy = right / edges; wrong_join_rate = wrong /
    linked."""

    pair: str
    edges: int
    right: int
    wrong: int
    unlinked: int
    accuracy: float
    wrong_join_rate: float


@dataclass(frozen=True)
class Calibration:
    """Probabilities against what was right. `error`: mean gap between the two over the bins, weighted by
    edges (expected calibration error); sure_wrong of sure_edges are wrong although SURE."""

    bins: list[dict[str, float]]
    error: float
    sure_edges: int
    sure_wrong: int


def rate(part: int, whole: int) -> float:
    """Share; NaN of nothing."""
    return part / whole if whole else float("nan")


@dataclass(frozen=True)
class Pairs:
    """Per edge which two tiers it joins, as the index of their names."""

    code: Ints
    names: list[str]

    @classmethod
    def of(cls, above: Ints, below: Ints, texts: Sequence[str]) -> Pairs:
        """above, below : per edge the index into `texts`, which are all different."""
        used, code = np.unique(above * len(texts) + below, return_inverse=True)
        ends = (divmod(each, len(texts)) for each in used.tolist())
        return cls(code.astype(np.int64), [f"{texts[high]}->{texts[low]}" for high, low in ends])

    def each(self) -> list[tuple[str, Bools]]:
        """Every name in order and which edges have it."""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        return [(self.names[code], self.code == code) for code in order]


def by_pair(pair: Pairs, right: Bools, joined: Bools) -> list[EdgeAccuracy]:
    """Accuracy per name of a tier pair. One row per edge: was it found right, was it linked to anything?"""
    found = []
    for name, here in pair.each():
        edges, good, linked = (int(np.count_nonzero(mask)) for mask in (here, here & right, here & joined))
        accuracy, wrong_rate = rate(good, edges), rate(linked - good, linked)
        found.append(EdgeAccuracy(name, edges, good, linked - good, edges - linked, accuracy, wrong_rate))
    return found


def calibration(probability: NDArray[np.float64], right: Bools) -> Calibration:
    """One row per linked edge; probabilities that are not known (NaN) are left out."""
    known = np.isfinite(probability)
    p, good = probability[known], right[known]
    place = np.clip(np.searchsorted(PROBABILITY_BINS, p, side="right") - 1, 0, len(PROBABILITY_BINS) - 2)
    table = []
    error = 0.0
    for number in range(len(PROBABILITY_BINS) - 1):
        here = place == number
        count = int(np.count_nonzero(here))
        if not count:
            continue
        mean, share = float(p[here].mean()), float(good[here].mean())
        error += count * abs(mean - share)
        table.append(
            {
                "from": PROBABILITY_BINS[number],
                "to": PROBABILITY_BINS[number + 1],
                "edges": count,
                "mean_probability": mean,
                "right": share,
            }
        )
    sure = p >= SURE
    return Calibration(
        table,
        error / len(p) if len(p) else float("nan"),
        int(np.count_nonzero(sure)),
        int(np.count_nonzero(sure & ~good)),
    )


def busy(place: Ints, begin_ns: Ints, end_ns: Ints, at_place: Ints, at_ns: Ints) -> Ints:
    """Calls in flight at place `at_place` at `at_ns`; a call stays at `place` from begin to end (-1: not
    known, not counted)."""
    found = np.zeros(len(at_ns), dtype=np.int64)
    known = end_ns >= 0
    for number in np.unique(at_place).tolist():
        inside = known & (place == number)
        here = at_place == number
        found[here] = level(np.sort(begin_ns[inside]), np.sort(end_ns[inside]), at_ns[here])
    return found


def by_crowd(pair: Pairs, right: Bools, in_flight: Ints) -> list[dict[str, Any]]:
    """Edge accuracy per tier pair and number of calls in flight at the true parent's node (bins as above)."""
    bucket = np.searchsorted(CONCURRENCY_BINS, np.maximum(in_flight, 1), side="right") - 1
    table = []
    for name, here in pair.each():
        all_edges, all_good = (
            np.bincount(bucket[rows], minlength=len(CONCURRENCY_BINS)) for rows in (here, here & right)
        )
        for number, low in enumerate(CONCURRENCY_BINS):
            edges, good = int(all_edges[number]), int(all_good[number])
            if edges:
                high = CONCURRENCY_BINS[number + 1] - 1 if number + 1 < len(CONCURRENCY_BINS) else None
                table.append(
                    {"pair": name, "from": low, "to": high, "edges": edges, "right": good}
                    | {"accuracy": rate(good, edges)}
                )
    return table


def roots(parent: Ints) -> Ints:
    """Topmost ancestor of every row; a row without parent is its own. Rows of a cycle get some row of it."""
    above = np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(max(len(parent), 1).bit_length()):
        above = above[above]
    return above
