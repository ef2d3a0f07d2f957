"""A node that changes its speed: how many calls it works on at once, and how fast, whatever its speed was
when.

Between full windows nothing shows directly how fast a node was. But it works at a rate of speed times
min(calls inside, N*), full or not, and a speed lasts: a hidden Markov chain of two speeds (Rabiner 1989),
seen through the work that is completed in each window, a Poisson number (of the mean size of a call). N* is
the corner for which this is most likely, found together with both capacities by expectation and conditional
maximisation (Meng and Rubin 1993). One stay from one time and a capacity from another are never multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Inside, Int, by_window
from tapscope.analyze.service_time import Float

WINDOW_NS = 50_000_000
MOST_WINDOWS = 6000
"""Five minutes: of a longer run the stretch with the most work."""

TOGETHER = 0.2
"""Correlation of the throughput of neighbouring full windows from which two speeds are looked for: noise has
none, and windows that share a speed do."""

APART = 0.85
"""The lower capacity is less than this share of the higher one, or both are one."""

LASTS = 0.7
"""Least chance that the next window has the same speed."""

RAREST = 0.03
SURELY = 12.0
"""Log-likelihood by which two speeds must beat one."""

ROUNDS, SETTLED = 60, 1e-4
NEAR, WIDE = np.geomspace(0.94, 1.064, 9), np.geomspace(0.8, 1.25, 31)
"""Corners around the present one that are tried in a round, and for the interval."""

FEWEST = 1.0
"""A node works on one call, at least: below, all corners are alike."""

BLOCK, DRAWS, SEED = 40, 200, 7


@dataclass(frozen=True)
class Speeds:
    """N* with its 90 % bootstrap interval over blocks of windows; capacity (work per second) at the lower and
    the higher speed, and the share of time of each."""

    n_star: float
    low: float
    high: float
    capacity: Float
    share: Float


@dataclass(frozen=True)
class _Windows:
    """Work done in each window (in mean calls), which of them count, and what a corner makes of the load.

    `left`: calls inside right before each departure, `size` its work, `cuts` the first of each window. How
    busy the node was is told from the very moments: within a window work empties the queue, so that the mean
    load of one with much work is low.
    """

    work: Float
    used: NDArray[np.bool_]
    left: Int
    size: Float
    cuts: Int
    at_ns: Int
    level: Float
    edges_ns: Int

    def busy(self, corner: float) -> Float:
        """Seconds of each window in which all of the node was at work: the integral of min(n / corner, 1)."""
        share = np.minimum(self.level / corner, 1.0)
        area = np.concatenate([np.zeros(1), np.cumsum(share[:-1] * np.diff(self.at_ns))])
        return np.diff(np.interp(self.edges_ns, self.at_ns, area)) / 1e9

    def logs(self, corner: float) -> Float:
        """Work of each window times the log of the share of the node that was at work on it."""
        most = int(self.left.max(initial=1))
        share = np.log(np.minimum(np.maximum(np.arange(most + 1), 1) / corner, 1.0))
        return by_window(np.add, self.size * share[self.left], self.cuts)


def two_speeds(inside: Inside, work: Float, stalled: tuple[Int, Int], n_star: float) -> Speeds | None:
    """Speeds of a node, of `work` per departure; None where one speed will do. `stalled` are begins and ends
    of what does not count, `n_star` is where the corner is looked for first."""
    windows = _windows(inside, work, stalled)
    if windows is None or not _together(windows, n_star):
        return None
    corner, stay = n_star, 0.95
    busy = windows.busy(corner)
    total = windows.work[windows.used].sum() / busy[windows.used].sum()
    capacity = total * np.array([0.75, 1.25])
    for _ in range(ROUNDS):
        chance, stay, gain = _chances(windows, busy, capacity, stay)
        before, corner = corner, _corner(windows, chance, corner)
        busy = windows.busy(corner)
        capacity = (chance @ windows.work) / np.maximum(chance @ busy, 1e-12)
        if abs(corner / before - 1) < SETTLED:
            break
    share = chance.sum(axis=1) / windows.used.sum()
    if capacity[0] > APART * capacity[1] or share.min() < RAREST or stay < LASTS or gain < SURELY:
        return None
    low, high = _interval(windows, chance, corner)
    size = float(work[work > 0].mean())
    return Speeds(corner, low, high, capacity * size, share)


def _windows(inside: Inside, work: Float, stalled: tuple[Int, Int]) -> _Windows | None:
    if not len(inside.begin_ns) or not (work > 0).any():
        return None
    edges = np.arange(inside.begin_ns[0], inside.end_ns[-1] + WINDOW_NS, WINDOW_NS, dtype=np.int64)
    done = by_window(np.add, work, np.searchsorted(inside.end_ns, edges)) / float(work[work > 0].mean())
    if len(done) > MOST_WINDOWS:
        before = np.concatenate([np.zeros(1), np.cumsum(done)])
        first = int(np.argmax(before[MOST_WINDOWS:] - before[:-MOST_WINDOWS]))
        edges, done = edges[first : first + MOST_WINDOWS + 1], done[first : first + MOST_WINDOWS]
    # What waited for a stop comes out at once behind it.
    begin, end = np.searchsorted(edges, stalled[0], side="right") - 2, np.searchsorted(edges, stalled[1]) + 1
    used = np.ones(len(done), dtype=np.bool_)
    for low, high in zip(np.maximum(begin, 0).tolist(), np.maximum(end, 0).tolist(), strict=True):
        used[low:high] = False
    if used.sum() < 2 * BLOCK:
        return None
    at = np.union1d(
        inside.begin_ns[slice(*np.searchsorted(inside.begin_ns, edges[[0, -1]]))],
        inside.end_ns[slice(*np.searchsorted(inside.end_ns, edges[[0, -1]]))],
    )
    at = np.union1d(at, edges[[0, -1]])
    level = np.searchsorted(inside.begin_ns, at, side="right") - np.searchsorted(
        inside.end_ns, at, side="right"
    )
    cuts = np.searchsorted(inside.end_ns, edges)
    rows = slice(cuts[0], cuts[-1])
    left = (inside.begun[rows] - np.arange(cuts[0], cuts[-1])).astype(np.int64)
    size = work[rows] / float(work[work > 0].mean())
    # Times since the first window: float64 holds them to the nanosecond.
    return _Windows(
        done, used, left, size, cuts - cuts[0], at - edges[0], level.astype(np.float64), edges - edges[0]
    )


def _together(windows: _Windows, corner: float) -> bool:
    """Whether neighbouring full windows have throughputs that are alike."""
    width_s = WINDOW_NS / 1e9
    full = windows.used & (windows.busy(corner) > 0.98 * width_s)
    both = full[1:] & full[:-1]
    a, b = windows.work[:-1][both], windows.work[1:][both]
    if len(a) < BLOCK or not (a.std() > 0 and b.std() > 0):
        return False
    return bool(np.corrcoef(a, b)[0, 1] >= TOGETHER)


def _chances(windows: _Windows, busy: Float, capacity: Float, stay: float) -> tuple[Float, float, float]:
    """Chance of each speed in each window, shape (2, windows), 0 where it does not count; how likely the next
    window has the same speed; and by how much two speeds are likelier than one."""
    seen = windows.work * np.log(capacity)[:, None] - capacity[:, None] * busy
    likely = np.where(windows.used, np.exp(seen - seen.max(axis=0)), 1.0)
    a, b = likely.tolist()
    go = 1.0 - stay
    forward, scale, p = [], 0.0, 0.5
    for x, y in zip(a, b, strict=True):
        x *= p * stay + (1 - p) * go
        y *= p * go + (1 - p) * stay
        p = x / (x + y)
        scale += np.log(x + y)
        forward.append(p)
    # Backward: chance of the first speed given all that comes, and of a change between neighbours.
    chance, changes = [0.0] * len(forward), 0.0
    chance[-1] = later = forward[-1]
    for row in range(len(forward) - 2, -1, -1):
        p = forward[row]
        ahead = p * stay + (1 - p) * go
        first, second = later / ahead, (1 - later) / (1 - ahead)
        changes += p * go * second + (1 - p) * go * first
        later = p * (stay * first + go * second)
        chance[row] = later
    of_first = np.array(chance)
    kept = np.clip(1 - changes / max(len(chance) - 1, 1), 0.5, 0.9999)
    one = windows.work[windows.used].sum() / busy[windows.used].sum()
    alone = windows.work * np.log(one) - one * busy
    gain = scale + float((seen.max(axis=0) - alone)[windows.used].sum())
    return np.stack([of_first, 1 - of_first]) * windows.used, float(kept), gain


def _profile(windows: _Windows, chance: Float, corner: float) -> tuple[Float, Float, Float]:
    """What the likelihood of a corner stands on, window by window: its logs, and by speed the busy time and
    the work. Their sums over any windows give the likelihood over those."""
    return windows.logs(corner) * windows.used, chance * windows.busy(corner), chance * windows.work


def _likelihood(logs: Float, busy: Float, work: Float) -> Float:
    """Of corners, with the capacities that fit each best; the last axis of `busy` and `work` is the speed."""
    return np.asarray(logs - (work * np.log(np.maximum(busy, 1e-300))).sum(axis=-1), dtype=np.float64)


def _corner(windows: _Windows, chance: Float, corner: float) -> float:
    values = []
    for one in (corner * NEAR).tolist():
        parts = _profile(windows, chance, one)
        values.append(_likelihood(parts[0].sum(), parts[1].sum(axis=1), parts[2].sum(axis=1)))
    return float(_at(corner, NEAR, np.array(values)[None])[0])


def _at(corner: float, grid: Float, values: Float) -> Float:
    """Corner of the highest value of each row of `values`, one for each of the grid."""
    return np.maximum(corner * grid[0] * (grid[1] / grid[0]) ** _top(values), FEWEST)


def _top(values: Float) -> Float:
    """Place of the highest value of each row, by a parabola through it and its neighbours."""
    at = np.clip(np.argmax(values, axis=1), 1, values.shape[1] - 2)
    rows = np.arange(len(at))
    left, top, right = (values[rows, at + step] for step in (-1, 0, 1))
    bent = left - 2 * top + right
    shift = np.divide(left - right, 2 * bent, out=np.zeros(len(at)), where=bent < 0)
    return np.asarray(at + np.clip(shift, -1, 1), dtype=np.float64)


def _interval(windows: _Windows, chance: Float, corner: float) -> tuple[float, float]:
    """The corner of resampled blocks of windows."""
    starts = np.arange(0, len(windows.work), BLOCK)
    sums = []
    for one in (corner * WIDE).tolist():
        parts = _profile(windows, chance, one)
        sums.append([np.add.reduceat(part, starts, axis=-1) for part in parts])
    counts = (
        np.random.default_rng(SEED)
        .multinomial(len(starts), np.full(len(starts), 1 / len(starts)), size=DRAWS)
        .astype(np.float64)
    )
    values = np.stack(
        [_likelihood(counts @ logs, counts @ busy.T, counts @ work.T) for logs, busy, work in sums], axis=1
    )
    low, high = np.quantile(_at(corner, WIDE, values), [0.05, 0.95])
    return float(min(low, corner)), float(max(high, corner))
