"""Joins of two sets of stamped rows: which row of the other set came last before this one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]


def last_before(group_a: Ints, at_a: Ints, group_b: Ints, at_b: Ints) -> NDArray[np.int64]:
    """For every row of b the row of a in the same group with the greatest time that is not later; -1 if none.

    Rows with a group below 0 belong to no group and find nothing. Of rows of a at one time the last one is
    taken.
    """
    count = len(group_a)
    group = np.concatenate([group_a, group_b])
    at = np.concatenate([at_a, at_b])
    of_b = np.concatenate([np.zeros(count, np.int8), np.ones(len(group_b), np.int8)])
    order = np.lexsort((of_b, at, group))
    is_a = of_b[order] == 0
    latest = np.maximum.accumulate(np.where(is_a, np.arange(len(order)), -1)) if len(order) else order
    found = np.full(len(group_b), -1, dtype=np.int64)
    places = np.flatnonzero(~is_a)
    candidates = latest[places]
    rows_b = order[places] - count
    usable = candidates >= 0
    rows_a = order[candidates[usable]]
    rows_b = rows_b[usable]
    same = (group[rows_a] == group_b[rows_b]) & (group_b[rows_b] >= 0)
    found[rows_b[same]] = rows_a[same]
    return found
