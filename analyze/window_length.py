"""How long a window should be. Wang et al. take 50 ms and leave an automatic choice open (III-D).

Too short a window blurs the main sequence: a call works in one window and counts in the next, and few
completions make noise. Too long a one averages short congestions away. So: the shortest window at which
normalised throughput still tracks load, by the share of the throughput's variance that load explains while
the node is not full (there, throughput should be load over service time and nothing else).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapscope.analyze.inside import Inside, Int
from tapscope.analyze.load import window_edges
from tapscope.analyze.service_time import Float

CANDIDATES_NS = tuple(ms * 1_000_000 for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
TRACKS = 0.8
"""Correlation from which throughput is taken to track load (two thirds of its variance explained)."""

FEWEST_WINDOWS = 50
MOST_WINDOWS = 500_000
"""More would not make a correlation clearer: of a long run its beginning is looked at."""

PAPER_NS = 50_000_000


@dataclass(frozen=True)
class WindowLength:
    """The window chosen, ns, with the correlation at every candidate (NaN: too few windows) and the
    reason."""

    width_ns: int
    candidates_ns: Int
    correlation: Float
    reason: str


def given(width_ns: int) -> WindowLength:
    """A length that was asked for, compared with no other."""
    nothing = np.zeros(0)
    return WindowLength(width_ns, nothing.astype(np.int64), nothing, "as asked for")


def window_length(inside: Inside, units: Float, n_star: float = float("nan")) -> WindowLength:
    """Choose for a node whose calls count `units` each when they complete, in order of departure.

    Windows above `n_star` (where load must not matter) do not take part.
    """
    candidates = np.array(CANDIDATES_NS, dtype=np.int64)
    found = np.full(len(candidates), np.nan)
    # Work completed before the n-th departure, so that no width has to go through the calls again.
    before = np.concatenate([np.zeros(1), np.cumsum(units)])
    for i, width in enumerate(CANDIDATES_NS if len(units) else ()):
        first = int(inside.begin_ns[0])
        edges = window_edges(first, min(int(inside.end_ns[-1]), first + MOST_WINDOWS * width), width)
        if len(edges) <= FEWEST_WINDOWS:
            continue
        load = inside.mean(edges)
        done = np.diff(before[np.searchsorted(inside.end_ns, edges)])
        used = load > 0
        if np.isfinite(n_star):
            used &= load <= n_star
        if used.sum() > FEWEST_WINDOWS and load[used].std() > 0 and done[used].std() > 0:
            found[i] = float(np.corrcoef(load[used], done[used])[0, 1])
    good = np.flatnonzero(found >= TRACKS)
    if len(good):
        chosen, at = int(candidates[good[0]]), found[good[0]]
        why = f"the shortest at which throughput tracks load (r = {at:.2f}, asked for {TRACKS:g})"
    elif np.isfinite(found).any():
        best = int(np.nanargmax(found))
        chosen = int(max(candidates[best], PAPER_NS)) if found[best] > 0.5 else PAPER_NS
        why = (
            f"throughput tracks load nowhere (at best r = {found[best]:.2f} at {candidates[best] / 1e6:g} ms)"
        )
    else:
        chosen, why = PAPER_NS, "too few calls to compare windows; 50 ms is the paper's"
    return WindowLength(chosen, candidates, found, why)
