"""Links that go round in a circle.

By one clock none can: a child lies inside its parent. Where every node has a clock of its own, or a node
calls itself within the slack of nesting, two calls may each be taken for the other one's parent. A chain of
parents must end, so the least certain link of every circle is taken back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def circling(parent: NDArray[np.int64], probability: NDArray[np.float64]) -> NDArray[np.int64]:
    """Children whose link must go so that every chain of parents ends: the least certain one of each circle,
    of equals the first. `parent`: row of the parent, -1 none."""
    count = len(parent)
    above = np.where(parent >= 0, parent, np.arange(count))
    for _ in range(max(count, 1).bit_length()):  # afterwards everybody stands at a root, or inside a circle
        above = above[above]
    inside = np.unique(above[parent[above] >= 0])
    weakest = []
    waiting = set(inside.tolist())
    while waiting:
        circle = [min(waiting)]
        while (up := int(parent[circle[-1]])) != circle[0]:
            circle.append(up)
        waiting -= set(circle)
        weakest.append(min(circle, key=lambda child: (probability[child], child)))
    return np.array(sorted(weakest), dtype=np.int64)
