"""Which calls waited while others went on: what a lock does to a node, and no stop or full CPU does.

Seen from the tap a lock is a pattern, not a counter: of the calls that arrive while a queue grows, those that
name one thing (a table, or a class of calls) wait, and those that do not are served as fast as ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int
from tapscope.analyze.node_calls import NodeCalls

TABLE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+([\w.`\"]+)", re.IGNORECASE)
PREPARED = re.compile(r"PREPARE\b", re.IGNORECASE)
"""Preparing a statement names its tables, and waits for none of them."""

HELD_TIMES, LEAST_HELD_NS = 5.0, 10_000_000
"""A call was held when it took so many times the median of its class, and so long."""

FEWEST_CALLS, FEWEST_HELD = 10, 3


@dataclass(frozen=True)
class Held:
    """The thing that calls which waited have in common: `held` of the `naming` calls that name it waited, and
    `others_held` of the `others`. `phi` is the correlation of both (0 to 1), 0 where chance does as well."""

    what: str
    held: int
    naming: int
    others_held: int
    others: int
    phi: float

    def said(self) -> str:
        """In words."""
        return (
            f"{self.held} of {self.naming} calls that name {self.what} were held up, "
            f"{self.others_held} of {self.others} others"
        )


class Separator:
    """Calls of one node with the usual stay of their classes, and what each class names."""

    def __init__(self, at: NodeCalls, classes: Sequence[tuple[int, str]]) -> None:
        self._begin, self._end, self._column = at.begin_ns, at.end_ns, at.column
        took = self._end - self._begin
        self._longest = int(took.max(initial=0))
        usual = np.array([_lower_median(took[rows]) for rows in at.by_class()], dtype=np.float64)
        least = np.maximum(HELD_TIMES * usual, LEAST_HELD_NS)
        self._held = took > least[self._column]
        texts = [classes[kind][1] if kind >= 0 else "" for kind in at.classes.tolist()]
        self._names = [_names(text) for text in texts]

    def overdue(self, begin_ns: int, end_ns: int) -> float:
        """Share of the time of the calls inside in [begin, end) that belongs to calls that were held up; 1
        without calls. Calls that always take long are not held up by anything."""
        part = slice(*np.searchsorted(self._begin, (begin_ns - self._longest, end_ns)).tolist())
        inside = np.minimum(self._end[part], end_ns) - np.maximum(self._begin[part], begin_ns)
        inside = np.maximum(inside, 0)
        total = int(inside.sum())
        return float(inside[self._held[part]].sum()) / total if total > 0 else 1.0

    def between(self, begin_ns: int, end_ns: int) -> Held | None:
        """What tells the calls apart that arrived in [begin, end) and were held up from those that were not;
        None where too few calls arrived, or all or none were held up."""
        part = slice(*np.searchsorted(self._begin, (begin_ns, end_ns)).tolist())
        column, held = self._column[part], self._held[part]
        if len(column) < FEWEST_CALLS or held.sum() < FEWEST_HELD or held.all():
            return None
        calls = np.bincount(column, minlength=len(self._names))
        waited = np.bincount(column, held, len(self._names)).astype(np.int64)
        named: dict[str, NDArray[np.int64]] = {}
        for kind in np.flatnonzero(calls).tolist():
            for name in self._names[kind]:
                named.setdefault(name, np.zeros(2, dtype=np.int64))[:] += (waited[kind], calls[kind])
        total = int(waited.sum())
        compared = [
            _compare(name, int(count[0]), int(count[1]), total, len(column)) for name, count in named.items()
        ]
        if not compared:
            return None
        # Of a table that one class alone names, the class: it says whether the calls write.
        best = max(compared, key=lambda one: (one.phi, one.naming, len(one.what), one.what))
        # The best of so many unrelated names would do as well by chance.
        by_chance = 1.5 * float(np.sqrt(2 * np.log(len(named) + 1) / len(column)))
        if best.phi >= by_chance and best.held >= FEWEST_HELD:
            return best
        return Held(best.what, best.held, best.naming, best.others_held, best.others, 0.0)


def _names(text: str) -> set[str]:
    """What waits together with calls of this class: the class itself, and the tables that it uses."""
    if not text or PREPARED.match(text):
        return {text} - {""}
    return {text} | {table.strip('`"') for table in TABLE.findall(text)}


def _lower_median(values: Int) -> int:
    """Of one value and more."""
    middle = (len(values) - 1) // 2
    return int(np.partition(values, middle)[middle])


def _compare(name: str, held: int, naming: int, all_held: int, calls: int) -> Held:
    others, others_held = calls - naming, all_held - held
    below = float(naming) * others * all_held * (calls - all_held)
    phi = (held * (others - others_held) - (naming - held) * others_held) / np.sqrt(below) if below else 0.0
    return Held(name, held, naming, others_held, others, max(float(phi), 0.0))
