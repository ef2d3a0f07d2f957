"""Service time of each class at each node: intra-node delay while the node has little to do (Wang, III-B).

The delay inside a node is service and queueing together. Queueing is masked by looking only at calls that met
a lightly loaded node: for every class the calls that found the fewest others inside, as few as give enough of
them. Data selectivity and caches drift, so that the run is cut into epochs and each has its own estimate; an
epoch in which a class was too rare, or the node never quiet, inherits from its neighbours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int
from tapscope.analyze.node_calls import NodeCalls

Float = NDArray[np.float64]

EPOCH_NS = 60_000_000_000
ENOUGH = 30
"""Calls of a class in an epoch from which on its own estimate stands for itself."""

SHARE, MOST = 0.05, 2000
"""Of a frequent class this share of the calls is looked at, as far as MOST in each epoch: more calls make the
mean better, and met more others."""

PAUSE = 20
"""Medians from which on a delay is left out: a pause that fell into a quiet moment is not service. A trimmed
mean would be too low by a sixth for service times that vary like an exponential."""


@dataclass(frozen=True)
class ServiceTimes:
    """Of one node. `ns` and `samples` have the shape (epochs, classes); `ns` is NaN where a class was never
    seen."""

    edges_ns: Int
    classes: Int
    ns: Float
    samples: Int
    relative_error: Float
    """By class: standard error of its mean over the run, as a share of it."""
    met_at_most: Int
    """By class: how many calls the samples found inside the node on arrival, themselves included, at most."""

    def per_call(self, at: NodeCalls) -> Float:
        """Service time in ns of each call of the node; NaN for one whose class is not known."""
        out = np.full(len(at), np.nan)
        if not len(self.classes) or not len(at):
            return out
        found = np.isin(at.classes, self.classes)
        ns = np.full((len(self.ns), len(at.classes)), np.nan)
        ns[:, found] = self.ns[:, np.searchsorted(self.classes, at.classes[found])]
        cuts = [0, *np.searchsorted(at.begin_ns, self.edges_ns[1:-1]).tolist(), len(at)]
        for epoch, (low, high) in enumerate(itertools.pairwise(cuts)):
            np.take(ns[epoch], at.column[low:high], out=out[low:high])
        return out

    def mean_ns(self) -> Float:
        """Over the epochs, weighted by their samples; shape (classes,)."""
        weight = self.samples.sum(axis=0)
        total = np.nansum(np.where(self.samples > 0, self.ns, 0.0) * self.samples, axis=0)
        return np.divide(total, weight, out=np.nanmean(self.ns, axis=0), where=weight > 0)


class Quiet:
    """Calls of a node that met few others, of each class as few as give enough calls; from them any delay can
    be estimated.

    `known` (one value per call of the node) says which calls take part; the others are still met by those.
    """

    def __init__(self, at: NodeCalls, known: NDArray[np.bool_], epoch_ns: int = EPOCH_NS) -> None:
        self.at = at
        rows = at.by_class(None if known.all() else known)
        met_by_all = at.inside.met
        some = [place for place, mine in enumerate(rows) if len(mine)]
        self.classes: Int = at.classes[some]
        first, last = (int(at.begin_ns[place]) for place in _ends(known)) if some else (0, 0)
        self.edges_ns = np.arange(first, last + 1 + epoch_ns, epoch_ns, dtype=np.int64)
        self.met_at_most = np.zeros(len(some), dtype=np.int64)
        self.rows: list[Int] = []
        epochs = len(self.edges_ns) - 1
        for c, place in enumerate(some):
            mine = rows[place]
            met = met_by_all[mine]
            wanted = max(ENOUGH * epochs, min(int(SHARE * len(mine)), MOST * epochs))
            nth = min(wanted, len(met)) - 1
            self.met_at_most[c] = np.partition(met, nth)[nth]
            self.rows.append(mine[met <= self.met_at_most[c]])


def _ends(known: NDArray[np.bool_]) -> tuple[int, int]:
    """The first and the last that is true."""
    return int(np.argmax(known)), len(known) - 1 - int(np.argmax(known[::-1]))


def service_times(quiet: Quiet, delay_ns: Int) -> ServiceTimes:
    """Estimate service times by class and epoch. `delay_ns` has one value per call of the node."""
    if not len(quiet.classes):
        none, nothing = np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        return ServiceTimes(none, none, nothing, nothing.astype(np.int64), np.zeros(0), none)
    edges = quiet.edges_ns
    ns = np.full((len(edges) - 1, len(quiet.classes)), np.nan)
    samples = np.zeros(ns.shape, dtype=np.int64)
    relative_error = np.zeros(len(quiet.classes))
    for c, rows in enumerate(quiet.rows):
        delay = delay_ns[rows]
        usual = _usual(delay)
        whole = float(usual.mean())
        relative_error[c] = float(usual.std()) / max(whole, 1.0) / np.sqrt(len(usual))
        cuts = np.searchsorted(quiet.at.begin_ns[rows], edges)
        for e in np.flatnonzero(np.diff(cuts)).tolist():
            part = delay[cuts[e] : cuts[e + 1]]
            samples[e, c] = len(part)
            # A rare class leans on what the whole run says of it.
            weight = min(len(part) / ENOUGH, 1.0)
            ns[e, c] = weight * float(_usual(part).mean()) + (1 - weight) * whole
        _inherit(ns[:, c])
    return ServiceTimes(edges, quiet.classes, ns, samples, relative_error, quiet.met_at_most)


def _usual(delay: Int) -> Int:
    """Delays without those that a pause made."""
    return delay[delay <= PAUSE * max(float(np.median(delay)), 1.0)]


def _inherit(column: Float) -> None:
    """Fill NaN from the nearest epoch before, else behind."""
    known = np.flatnonzero(~np.isnan(column))
    at = np.clip(np.searchsorted(known, np.arange(len(column)), side="right") - 1, 0, len(known) - 1)
    column[:] = column[known[at]]
