"""Service time of each class at each node: intra-node delay while the node has little to do (Wang, III-B).

The delay inside a node is service and queueing together. Queueing is masked by looking only at calls that met
a lightly loaded node: for every class the calls that found the fewest others inside, as few as give enough of
them. Data selectivity and caches drift, so that the run is cut into epochs and each has its own estimate; an
epoch in which a class was too rare, or the node never quiet, inherits from its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import Int, Stays, level

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

    def of(self, class_id: NDArray[Any], at_ns: Int) -> Float:
        """Service time in ns of calls of these classes at these times; NaN for a class that is not known."""
        if not len(self.classes):
            return np.full(len(class_id), np.nan)
        column = np.minimum(np.searchsorted(self.classes, class_id), len(self.classes) - 1)
        epoch = np.clip(np.searchsorted(self.edges_ns, at_ns, side="right") - 1, 0, len(self.ns) - 1)
        return np.where(self.classes[column] == class_id, self.ns[epoch, column], np.nan)

    def mean_ns(self) -> Float:
        """Over the epochs, weighted by their samples; shape (classes,)."""
        weight = self.samples.sum(axis=0)
        total = np.nansum(np.where(self.samples > 0, self.ns, 0.0) * self.samples, axis=0)
        return np.divide(total, weight, out=np.nanmean(self.ns, axis=0), where=weight > 0)


def service_times(
    calls: Mapping[str, NDArray[Any]],
    stay: Stays,
    intra_node_ns: Int,
    node: int,
    *,
    epoch_ns: int = EPOCH_NS,
    only: NDArray[np.bool_] | None = None,
) -> ServiceTimes:
    """Estimate the service times of a node's classes.

    `stay` is `load.stays(calls)`, `intra_node_ns` the column of trace_calls in the order of calls (-1
    unknown). `only` leaves all other calls out of the estimate (they are still met by those in it).
    """
    here = (calls["server_node"] == node) & stay.inside & stay.departed & (intra_node_ns >= 0)
    rows = np.flatnonzero(here if only is None else here & only)
    if not len(rows):
        none, nothing = np.zeros(0, dtype=np.int64), np.zeros((0, 0))
        return ServiceTimes(none, none, nothing, nothing.astype(np.int64), np.zeros(0), none)
    inside = (calls["server_node"] == node) & stay.inside
    arrive = stay.begin_ns[rows]
    met = level(np.sort(stay.begin_ns[inside]), np.sort(stay.end_ns[inside]), arrive)
    delay = intra_node_ns[rows]
    classes, column = np.unique(calls["class_id"][rows], return_inverse=True)
    first, last = int(arrive.min()), int(arrive.max())
    edges = np.arange(first, last + 1 + epoch_ns, epoch_ns, dtype=np.int64)
    epoch = (arrive - first) // epoch_ns
    ns = np.full((len(edges) - 1, len(classes)), np.nan)
    samples = np.zeros(ns.shape, dtype=np.int64)
    met_at_most = np.zeros(len(classes), dtype=np.int64)
    relative_error = np.zeros(len(classes))
    for c in range(len(classes)):
        mine = np.flatnonzero(column == c)
        # As few others inside as give enough calls in every epoch that has them.
        ranked = np.sort(met[mine])
        wanted = max(ENOUGH * (len(edges) - 1), min(int(SHARE * len(mine)), MOST * (len(edges) - 1)))
        met_at_most[c] = ranked[min(wanted, len(ranked)) - 1]
        quiet = mine[met[mine] <= met_at_most[c]]
        usual = _usual(delay[quiet])
        whole = float(usual.mean())
        relative_error[c] = float(usual.std()) / max(whole, 1.0) / np.sqrt(len(usual))
        for e in np.unique(epoch[quiet]):
            part = quiet[epoch[quiet] == e]
            samples[e, c] = len(part)
            # A rare class leans on what the whole run says of it.
            weight = min(len(part) / ENOUGH, 1.0)
            ns[e, c] = weight * float(_usual(delay[part]).mean()) + (1 - weight) * whole
        _inherit(ns[:, c])
    return ServiceTimes(edges, classes.astype(np.int64), ns, samples, relative_error, met_at_most)


def _usual(delay: Int) -> Int:
    """Delays without those that a pause made."""
    return delay[delay <= PAUSE * max(float(np.median(delay)), 1.0)]


def _inherit(column: Float) -> None:
    """Fill NaN from the nearest epoch before, else behind."""
    known = np.flatnonzero(~np.isnan(column))
    at = np.clip(np.searchsorted(known, np.arange(len(column)), side="right") - 1, 0, len(known) - 1)
    column[:] = column[known[at]]
