"""The calls of one node in order of arrival, with what several analyses need of them worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Inside, Int, distinct, in_order, place_in
from tapscope.analyze.stays import Stays


class NodeCalls:
    """The calls that were inside `node`, in order of arrival.

    `rows` are rows of calls; all other arrays have one value for each of them: `begin_ns`, `end_ns` (int64
    ns), `departed` (its departure was seen).
    """

    def __init__(
        self,
        calls: Mapping[str, NDArray[Any]],
        stay: Stays,
        intra_node_ns: Int,
        node: int,
    ) -> None:
        self.node = node
        self._calls, self._intra_node_ns = calls, intra_node_ns
        rows = np.flatnonzero((calls["server_node"] == node) & stay.inside)
        self.rows: NDArray[np.int32 | np.int64] = rows.astype(np.min_scalar_type(-len(stay.inside) - 1))
        self.begin_ns: Int = stay.begin_ns[self.rows]
        if not in_order(self.begin_ns):
            order = np.argsort(self.begin_ns, kind="stable")
            self.rows, self.begin_ns = self.rows[order], self.begin_ns[order]
        self.end_ns: Int = stay.end_ns[self.rows]
        self.departed: NDArray[np.bool_] = stay.departed[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def delay_ns(self) -> Int:
        """Delay inside the node: intra_node_ns of trace_calls; -1 unknown."""
        return self._intra_node_ns[self.rows]

    @cached_property
    def by_end(self) -> NDArray[np.int32]:
        """Places of the calls in order of departure."""
        return np.argsort(self.end_ns, kind="stable").astype(np.int32)

    @cached_property
    def inside(self) -> Inside:
        """Arrivals and departures as a step function."""
        return Inside(self.begin_ns, self.end_ns[self.by_end])

    def part(self, chosen: NDArray[np.bool_]) -> Inside:
        """The chosen calls alone as a step function; nothing is sorted again."""
        if chosen.all():
            return self.inside
        return Inside(self.begin_ns[chosen], self.inside.end_ns[chosen[self.by_end]])

    @property
    def classes(self) -> Int:
        """The classes of the calls, in order of their number; -1: without a class."""
        return self._classes[0]

    @property
    def column(self) -> NDArray[Any]:
        """Place in `classes` of each call's class; 16 bits where they will do, which are sorted by radix."""
        return self._classes[1]

    @cached_property
    def _classes(self) -> tuple[Int, NDArray[Any]]:
        class_id = self._calls["class_id"][self.rows]
        found = distinct(class_id)
        return found, place_in(found, class_id)

    def by_class(self, chosen: NDArray[np.bool_] | None = None) -> list[Int]:
        """Places of the (chosen) calls of each of `classes`, in order of arrival."""
        if not len(self.classes):
            return []
        column = self.column if chosen is None else self.column[chosen]
        order = np.argsort(column, kind="stable")
        if chosen is not None:
            order = np.flatnonzero(chosen)[order]
        return np.split(order, np.cumsum(np.bincount(column, minlength=len(self.classes)))[:-1])
