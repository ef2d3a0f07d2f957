"""Joins of two sets of stamped rows that belong to groups (a request, a connection)."""

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


def by_order(
    group_a: Ints, at_a: Ints, group_b: Ints, at_b: Ints
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of both sides that have the same place in the order of their group, for groups with as many rows
    on both sides: right whatever the clocks say, as long as each keeps its order. Groups below 0 are none.
    """
    size = int(max(group_a.max(initial=-1), group_b.max(initial=-1))) + 1
    count_a, count_b = (np.bincount(group[group >= 0], minlength=size) for group in (group_a, group_b))
    equal = np.append((count_a == count_b) & (count_a > 0), False)  # -1 indexes the last element
    rows_a, rows_b = np.flatnonzero(equal[group_a]), np.flatnonzero(equal[group_b])
    return (
        rows_a[np.lexsort((at_a[rows_a], group_a[rows_a]))],
        rows_b[np.lexsort((at_b[rows_b], group_b[rows_b]))],
    )
