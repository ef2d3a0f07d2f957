"""What a baseline sees of one node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SLACK_NS = 50_000
"""By how much two packets of one host may be swapped; as tapscope's own matcher has it."""


@dataclass(frozen=True)
class Node:
    """Calls that a node served (parents, by arrival) and made (children, by beginning). Times: int64 ns of
    one clock; a call without an answer lasts until the end. Classes are dense, 0, 1, ..."""

    parent_class: Ints
    arrive_ns: Ints
    depart_ns: Ints
    child_class: Ints
    begin_ns: Ints
    end_ns: Ints

    def candidates(self) -> list[list[int]]:
        """Of every child the parents whose stay holds it, in order of arrival."""
        found: list[list[int]] = []
        active: list[int] = []
        coming = 0
        arrive, depart = self.arrive_ns.tolist(), self.depart_ns.tolist()
        for begin, end in zip(self.begin_ns.tolist(), self.end_ns.tolist(), strict=True):
            while coming < len(arrive) and arrive[coming] <= begin + SLACK_NS:
                active.append(coming)
                coming += 1
            active = [parent for parent in active if depart[parent] + SLACK_NS >= begin]
            found.append([parent for parent in active if depart[parent] + SLACK_NS >= end])
        return found
