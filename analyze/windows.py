"""What a node was doing in each window: normal, congested, stalled or idle; and how fast it went when full.

A window is congested when its load is above N* (Wang, III-C). Of those, windows with next to no throughput
are stalls: the node stood still while calls were inside (POIs, IV-A). Full windows at several distinct
throughputs mean a node that changes its speed (P-states, IV-C; a quota; a neighbour).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from tapscope.analyze.inside import Int
from tapscope.analyze.service_time import Float


class WindowState(IntEnum):
    """State of a node in a window."""

    IDLE = 0
    NORMAL = 1
    CONGESTED = 2
    STALLED = 3


IDLE_LOAD = 0.01
STALLED_SHARE = 0.1
"""Of the capacity: less is next to nothing."""

MOST_LEVELS = 5
APART = 0.15
"""Levels that differ by less of the larger one are one level."""

SMALLEST_LEVEL = 0.05
"""Share of the full windows that a level must hold."""

FEWEST_WINDOWS = 40

LASTS = 0.4
"""Agreement of neighbouring windows beyond chance from which levels are speeds: at a change every second, or
every ten windows, it is above 0.8."""


def classify(load: Float, throughput: Float, n_star: float, capacity: float) -> NDArray[np.uint8]:
    """WindowState of each window. `throughput` and `capacity` have one unit; without an N* (NaN) nothing is
    congested.

    A stall needs no N*: a window with load above one, whose throughput is next to nothing although the calls
    inside could have been served at their usual pace, is one. `capacity` is then the usual throughput.
    """
    state = np.full(len(load), WindowState.NORMAL, dtype=np.uint8)
    state[load < IDLE_LOAD] = WindowState.IDLE
    if np.isfinite(n_star):
        state[load > n_star] = WindowState.CONGESTED
    above = load > (n_star if np.isfinite(n_star) else 1.0)
    state[above & (throughput < STALLED_SHARE * capacity)] = WindowState.STALLED
    return state


def intervals(edges_ns: Int, chosen: NDArray[np.bool_]) -> tuple[Int, Int]:
    """Begins and ends of the runs of neighbouring windows that are chosen."""
    padded = np.concatenate([[False], chosen, [False]])
    begin = np.flatnonzero(padded[1:] & ~padded[:-1])
    end = np.flatnonzero(~padded[1:] & padded[:-1])
    return edges_ns[begin], edges_ns[end]


@dataclass(frozen=True)
class SpeedLevels:
    """Throughput levels of full windows, lowest first: per second, share of windows, and the level of each
    window.

    `of_window` is -1 for windows that were not full.
    """

    throughput: Float
    share: Float
    of_window: NDArray[np.int8]


def speed_levels(throughput: Float, full: NDArray[np.bool_]) -> SpeedLevels:
    """Levels of throughput among full windows: a Gaussian mixture whose size is chosen by BIC.

    `full` are windows in which the load never fell below N* (`Inside.lowest`) and that are no stalls: where
    it did for a moment, throughput is lower for want of calls. Neighbouring levels that are less than APART
    or two standard deviations from each other are one, and levels that hold less than SMALLEST_LEVEL of the
    windows go to their neighbour. Levels that do not last from one window to the next are no speeds but
    noise.
    """
    of_window = np.full(len(throughput), -1, dtype=np.int8)
    rows = np.flatnonzero(full)
    if not len(rows):
        return SpeedLevels(np.zeros(0), np.zeros(0), of_window)
    values = throughput[rows]
    if len(rows) < FEWEST_WINDOWS or values.std() == 0:
        of_window[rows] = 0
        return SpeedLevels(values.mean(keepdims=True), np.ones(1), of_window)
    component = _mixture(values)
    while True:
        means = np.array([values[component == k].mean() for k in range(component.max() + 1)])
        spread = np.array([values[component == k].std() for k in range(component.max() + 1)])
        share = np.bincount(component) / len(component)
        gap = np.diff(means)
        near = (gap < APART * means[1:]) | (gap < spread[1:] + spread[:-1])
        near |= np.minimum(share[1:], share[:-1]) < SMALLEST_LEVEL
        if not near.any():
            break
        joined = int(np.flatnonzero(near)[np.argmin(gap[near])])
        component = np.where(component > joined, component - 1, component)
    if not _lasts(rows, component, share):
        of_window[rows] = 0
        return SpeedLevels(values.mean(keepdims=True), np.ones(1), of_window)
    of_window[rows] = component
    return SpeedLevels(means, share, of_window)


def _lasts(rows: NDArray[np.int64], component: NDArray[np.int64], share: Float) -> bool:
    """Whether neighbouring windows are of one level more often than chance makes them (Cohen's kappa): a
    clock keeps its speed for a while, noise does not."""
    if len(share) < 2:
        return True
    beside = np.diff(rows) == 1
    same = float((component[1:] == component[:-1])[beside].mean()) if beside.any() else 0.0
    by_chance = float((share**2).sum())
    return same - by_chance >= LASTS * (1 - by_chance)


def _mixture(values: Float) -> NDArray[np.int64]:
    """Component of each value, numbered by rising mean."""
    best, found = np.inf, None
    column = values.reshape(-1, 1)
    for size in range(1, MOST_LEVELS + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a component too many does not converge, and loses by BIC
            fit = GaussianMixture(size, random_state=0, n_init=2, reg_covar=1e-6 * float(values.var())).fit(
                column
            )
        if (score := fit.bic(column)) < best:
            best, found = score, fit
    assert found is not None
    rank = np.argsort(np.argsort(found.means_.ravel()))
    _, component = np.unique(rank[found.predict(column)], return_inverse=True)
    return component.astype(np.int64)
