"""What accuracy to expect, without any truth: transactions whose links are sure are matched again in a crowd.

A sample of the run is staged anew: in place of every transaction stands another one of the same class and
about the same length that was linked with confidence, shifted as a whole to the time of the one that it
replaces. So as many are in flight as in the run, in the same mixture, and every parent is known. The links
are stripped and the matcher runs on it; a second staging lays two stretches of the run over each other.

Confident transactions are easier than the others, also in a crowd. But the matcher's own probabilities say
how much easier: what is expected of the run is what it claims of the run, put right by the ratio of errors
found to errors claimed in the staged sample. That ratio is too high where a sample teaches the matcher less
than the whole run does, and where staging breaks the order in which requests queued; without it the claims
are too high. The square root, half of the way, was nearest to the truth where the truth is known
(docs/accuracy.md). What is wrong in the same way for all transactions of a kind, no self-check can see.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.match.lent import lent_connections
from tapscope.reconstruct.match.links import Unlinked, links_of
from tapscope.reconstruct.staged_connections import connections, given_back, processes
from tapscope.reconstruct.traces import traces
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table

SURE = 0.9
"""Probability from which on a transaction may stand in for others."""
LEAST_TRACES = 100
"""Fewer sure transactions say nothing about the others."""
SAMPLE_SHARE = 0.1
SAMPLE_CALLS = (8_000, 100_000)
"""Calls per staging: a share of the run, within these bounds."""
PIECES = 5
"""Stretches of the run that a sample is made of."""
NEAR = 20
"""Stand-ins of the most similar length among which one is drawn."""
MOST = 3.0
"""By how much errors claimed are put right at most."""

FEW = 5e-4
"""Added to shares of errors: the ratio of two tiny numbers says nothing and stays near one."""

_TIMES = ("arrive_ns", "request_end_ns", "response_begin_ns", "depart_ns")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Staged:
    """A sample of `calls` staged and matched again. claimed: what the probabilities say; found: what was
    right. Shares of the edges, and of whole transactions (paths)."""

    calls: int
    transactions: int
    edges_claimed: float
    edges_found: float
    paths_claimed: float
    paths_found: float


@dataclass(frozen=True)
class Expectation:
    """Expected accuracy of a run: share of edges and of whole transactions that are right; twice_*: the same
    if twice as many were in flight and nothing waited longer for it (None: not tried)."""

    edges: float
    paths: float
    twice_edges: float | None
    twice_paths: float | None
    sample: Staged

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def expectation(
    calls: Table,
    found: Table,
    trees: Table,
    tree_calls: Table,
    evidence: Table,
    mode: EvidenceMode,
    made: Table | None = None,
    *,
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Expectation | None:
    """Expected accuracy of the links `found` with their traces `trees`, `tree_calls`; None when too few
    transactions are sure. `made`, `threads`, `progress`: as `links` takes them."""
    joined = found["kind"] == LinkKind.LINKED
    calls = {**calls, "conn": lent_connections(calls, evidence)}
    run = _Run(calls, made, found, trees, tree_calls)
    if not joined.any() or len(run.stand_ins) < LEAST_TRACES:
        return None
    most = min(max(int(SAMPLE_SHARE * len(calls["conn"])), SAMPLE_CALLS[0]), SAMPLE_CALLS[1])
    stages = [run.staged(run.stretches(most, PIECES)), run.staged(run.stretches(most // 4, PIECES, layers=2))]
    again = links_of(
        [
            Unlinked(stage.calls, evidence, stage.made, lent=stage.calls["conn"])
            for stage in stages
            if stage is not None
        ],
        mode,
        threads=threads,
        progress=progress,
    )
    once, twice = (None if stage is None else stage.judged(again.pop(0)[0]) for stage in stages)
    if once is None:
        return None
    edges = float(found["probability"][joined].mean())
    whole = found["kind"][trees["root"]] == LinkKind.ROOT
    paths = float(trees["probability"][whole].mean())
    edges = _put_right(edges, once.edges_claimed, once.edges_found)
    paths = _put_right(paths, once.paths_claimed, once.paths_found)
    return Expectation(
        edges=edges,
        paths=paths,
        twice_edges=None if twice is None else _crowded(edges, once.edges_found, twice.edges_found),
        twice_paths=None if twice is None else _crowded(paths, once.paths_found, twice.paths_found),
        sample=once,
    )


def _put_right(claimed: float, sample_claimed: float, sample_found: float) -> float:
    """Share that is right: the errors claimed of the run, times those found per claimed one in the sample."""
    ratio = (1.0 - sample_found + FEW) / (1.0 - sample_claimed + FEW)
    return 1.0 - min(min(max(math.sqrt(ratio), 1.0 / MOST), MOST) * (1.0 - claimed), 1.0)


def _crowded(expected: float, once: float, twice: float) -> float:
    """Share that is right with twice as many in flight: errors grow as they did in the sample."""
    growth = (1.0 - twice + FEW) / (1.0 - once + FEW)
    return max(1.0 - max(growth, 1.0) * (1.0 - expected), 0.0)


@dataclass(frozen=True)
class _Stage:
    """A sample staged anew: its calls (`made`: by the callers' clocks), the true parent of each (row, -1
    none), and the transaction that each plays in."""

    calls: Table
    made: Table | None
    parent: Ints
    play: Ints
    plays: int

    def judged(self, again: Table) -> Staged | None:
        """What was right of the links that were found without the true ones."""
        trees, _ = traces(self.calls, again, self.made)
        edge = self.parent >= 0
        right = again["parent"] == self.parent
        joined = edge & (again["kind"] == LinkKind.LINKED)
        if not joined.any():
            return None
        whole = np.ones(self.plays, dtype=bool)
        whole[self.play[~right]] = False
        complete = again["kind"][trees["root"]] == LinkKind.ROOT
        return Staged(
            calls=len(self.parent),
            transactions=self.plays,
            edges_claimed=float(again["probability"][joined].mean()),
            edges_found=float(right[joined].mean()),
            paths_claimed=float(trees["probability"][complete].mean()) if complete.any() else 0.0,
            paths_found=float(whole.mean()),
        )


class _Run:
    """The transactions of a run: where they begin, how long they last, which of them are sure."""

    def __init__(
        self, calls: Table, made: Table | None, found: Table, trees: Table, tree_calls: Table
    ) -> None:
        self._calls = calls
        self._given_back = given_back(calls, found["parent"])
        self._process = processes(calls, found["parent"], found["probability"] >= SURE)
        self._made = made
        self._parent: Ints = found["parent"]
        of_trace = np.argsort(tree_calls["trace"], kind="stable")
        self._members = tree_calls["call"][of_trace]
        self._first = np.searchsorted(tree_calls["trace"][of_trace], np.arange(len(trees["root"]) + 1))
        root = trees["root"]
        begun = found["kind"][root] == LinkKind.ROOT
        self.begin_ns: Ints = calls["arrive_ns"][root]
        self._length = np.maximum(calls["depart_ns"][root] - self.begin_ns, 0)
        # Transactions are of one class when their first calls are.
        keys = np.stack([calls["server_node"][root], calls["protocol"][root], calls["class_id"][root]])
        self._kind = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
        self.begun = np.flatnonzero(begun)[np.argsort(self.begin_ns[begun], kind="stable")]
        size = np.diff(self._first)
        sure = begun & trees["complete"] & (trees["probability"] >= SURE)
        self.stand_ins = np.flatnonzero(sure)
        self._size = size

    def stretches(self, most: int, pieces: int, layers: int = 1) -> tuple[Ints, Ints]:
        """Transactions (rows of traces) of stretches evenly spread over the run, `most` calls in each layer,
        and by how much each is shifted back (ns) so that layers lie over each other."""
        volume = np.concatenate([[0], np.cumsum(self._size[self.begun])])
        total = int(volume[-1])
        count = pieces * layers
        length = min(most // pieces, total // count)
        rows, shift = [], []
        for number in range(count):
            low = number * (total - length) // max(count - 1, 1)
            here = self.begun[np.searchsorted(volume, low) : np.searchsorted(volume, low + length)]
            rows.append(here)
            shift.append(np.zeros(len(here), dtype=np.int64))
            if number % layers and len(here) and len(rows[-2]):
                base = number - number % layers
                shift[-1] += int(self.begin_ns[here[0]] - self.begin_ns[rows[base][0]])
        return np.concatenate(rows), np.concatenate(shift)

    def staged(self, sample: tuple[Ints, Ints]) -> _Stage | None:
        """A sample with stand-ins; None when there are too few of them."""
        places, shift = sample
        actor = self._cast(places)
        played = actor >= 0
        places, shift, actor = places[played], shift[played], actor[played]
        if len(places) < LEAST_TRACES // 2:
            return None
        moved = self.begin_ns[places] - shift - self.begin_ns[actor]
        size = self._size[actor]
        start = np.concatenate([[0], np.cumsum(size)])
        offset = np.arange(start[-1]) - np.repeat(start[:-1], size)
        rows = self._members[np.repeat(self._first[actor], size) + offset]
        delay = np.repeat(moved, size)
        play = np.repeat(np.arange(len(actor)), size)

        order = np.argsort(self._calls["arrive_ns"][rows] + delay, kind="stable")
        rows, delay, play = rows[order], delay[order], play[order]
        new_row = np.full(len(self._calls["conn"]), -1, dtype=np.int64)
        new_row[rows] = np.arange(len(rows))  # nobody stands in twice
        parent = np.where(self._parent[rows] >= 0, new_row[self._parent[rows]], -1)
        calls = {name: values[rows] for name, values in self._calls.items()}
        made = None if self._made is None else {name: self._made[name][rows] for name in _TIMES}
        for table in (calls, made):
            for name in _TIMES if table is not None else ():
                assert table is not None
                table[name] = np.where(table[name] < 0, table[name], table[name] + delay)
        calls["conn"] = connections(calls, parent, play, self._given_back[rows], self._process[rows])

        return _Stage(calls, made, parent, play, len(actor))

    def _cast(self, places: Ints) -> Ints:
        """Who stands in for whom: a sure transaction of the same class and about the same length, but never
        the same one, and none twice; -1 where nobody is left."""
        draw = np.random.default_rng(len(places))
        actor = np.full(len(places), -1, dtype=np.int64)
        for kind in np.unique(self._kind[places]).tolist():
            here = np.flatnonzero(self._kind[places] == kind)
            free = self.stand_ins[self._kind[self.stand_ins] == kind]
            free = free[np.argsort(self._length[free], kind="stable")].tolist()
            lengths = [int(self._length[each]) for each in free]
            for place in draw.permutation(here).tolist():
                if not free:
                    break
                at = int(np.searchsorted(lengths, self._length[places[place]]))
                low, high = max(0, at - NEAR // 2), min(len(free), at + NEAR // 2)
                chosen = int(draw.integers(low, high)) if high > low else low - 1
                if free[chosen] == places[place]:
                    if len(free) == 1:
                        continue
                    chosen = chosen - 1 if chosen > 0 else 1
                actor[place] = free.pop(chosen)
                lengths.pop(chosen)
        return actor
