"""Links that are known, not matched: from logs of threads, or from the parent ids of annotated spans."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.match.cycles import circling
from tapscope.store.codes import LinkKind
from tapscope.store.tables import Table


def exact_links(parent: NDArray[np.int64], root: NDArray[np.bool_]) -> tuple[Table, int]:
    """The contract table `links`, probability 1; where no parent is known, nothing is guessed. And how many
    circles were opened.

    parent : row of each call's parent, -1 none; root : which calls are known to have none. A circle of
    parents, which contradicts itself, is opened (match/cycles.py).
    """
    count = len(parent)
    parent = parent.copy()
    circles = circling(parent, np.ones(count))
    parent[circles] = -1
    kind = np.where(parent >= 0, int(LinkKind.LINKED), int(LinkKind.UNKNOWN))
    kind[root] = int(LinkKind.ROOT)
    links: Table = {
        "child": np.arange(count, dtype=np.int64),
        "parent": parent,
        "kind": kind.astype(np.uint8),
        "probability": np.where(kind == int(LinkKind.UNKNOWN), 0.0, 1.0),
        "runner_up": np.full(count, -1, dtype=np.int64),
        "runner_up_probability": np.zeros(count, dtype=np.float64),
    }
    return links, len(circles)
