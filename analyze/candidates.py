"""Metrics of a node, ranked by what speaks for each of them as the reason why its queue grew.

Four numbers that a reader can check: in which share of the queue's growth the metric had risen; in which
share of the quiet windows it had risen, too (a disk that is always busy explains nothing); whether it goes
with the queue beyond chance over the run, with control for the number of metrics; and whether the same metric
rose at other hosts at the same time. Lead or lag says which of both came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from tapscope.analyze.correlation import Chance, Lag, chance, false_discovery_rate, lag
from tapscope.analyze.metrics import METRICS, Metric, usual
from tapscope.analyze.service_time import Float

Mask = NDArray[np.bool_]

SLACK = 1
"""Windows by which a sample of a host may lie beside the moment that it speaks of."""

EVERYWHERE = 0.85
"""What is left of the evidence of a metric that rose at all other hosts as well."""

NEAR = 100
"""Windows around an episode within which lead or lag is looked for."""


@dataclass(frozen=True)
class Candidate:
    """One metric and the numbers that speak for it.

    `level` is its most extreme value in the episode and `usual` its median in quiet windows, in `unit`;
    `covered` the share of the queue's growth in windows in which it had risen and `otherwise` the share of
    quiet windows; `score` their difference times what chance and other hosts leave of it (0 to 1). `lag`:
    windows by which the queue follows the metric.
    """

    metric: str
    words: str
    unit: str
    level: float
    usual: float
    covered: float
    otherwise: float
    r: float
    p: float
    q: float
    lag: Lag | None
    also_at: tuple[str, ...]
    score: float

    def said(self) -> str:
        """The evidence in words; the ranking has all its numbers."""
        unit = f" {self.unit}" if self.unit else ""
        text = f"{self.words} {self.level:.3g}{unit}, usually {self.usual:.3g}"
        text += f", in {self.covered:.0%} of the queue's growth and {self.otherwise:.0%} of quiet windows"
        return text + (f"; also at {', '.join(self.also_at)}" if self.also_at else "")


@dataclass(frozen=True)
class Level:
    """What is usual for a metric in the quiet windows of a run, and from where it has risen."""

    usual: float
    limit: float


def _level(metric: Metric, values: Float, quiet: Mask) -> Level:
    middle, spread = usual(values, quiet)
    return Level(middle, metric.limit(middle, spread))


@dataclass(frozen=True)
class Scene:
    """Where a queue grew: the node's own load over the run, the windows of the episode, and quiet ones."""

    own_load: Float
    first: int
    last: int
    quiet: Mask

    @property
    def at(self) -> slice:
        """Windows of the episode."""
        return slice(self.first, self.last)

    def growth(self) -> Float:
        """Weight of each window of the episode: by how much the own queue grew in it; they sum up to 1."""
        before = self.own_load[max(self.first - 1, 0)] if self.last > self.first else 0.0
        rise = np.maximum(np.diff(self.own_load[self.at], prepend=before), 0.0)
        total = float(rise.sum())
        return rise / total if total > 0 else np.full(len(rise), 1.0 / max(len(rise), 1))

    def covered(self, risen: Mask) -> tuple[float, float]:
        """Shares of the growth and of the quiet windows that lie in or beside windows of `risen`."""
        near = binary_dilation(risen, iterations=SLACK)
        quiet = float(near[self.quiet].mean()) if self.quiet.any() else 0.0
        return float(self.growth() @ near[self.at]), quiet

    def typical(self, values: Float) -> float:
        """Level of a metric while the queue grew: its median over the growth."""
        part = values[self.at]
        known = np.flatnonzero(np.isfinite(part))
        weight = self.growth()[known]
        if not weight.sum() > 0:
            return float("nan")
        order = known[np.argsort(part[known])]
        share = np.cumsum(self.growth()[order]) / weight.sum()
        return float(part[order[np.searchsorted(share, 0.5)]])

    def limit(self, metric: Metric, values: Float, level: Level) -> float:
        """Level from which a metric counts as risen in this episode: where it has risen beyond what is usual
        and, as a flood is not explained away by a drizzle, got half the way to where it was while the queue
        grew."""
        limit = level.limit
        if np.isfinite(metric.full):
            return limit
        half = (self.typical(values) + level.usual) / 2
        if not np.isfinite(half):
            return limit
        return min(limit, half) if metric.falls else max(limit, half)


class Ranker:
    """Numbers of the metrics of one node; correlations and levels are the run's and computed once."""

    def __init__(self, series: Mapping[str, Float], own_load: Float, quiet: Mask) -> None:
        self.series = series
        self._levels = {name: _level(METRICS[name], values, quiet) for name, values in series.items()}
        self._chance = {name: self._by_chance(name, own_load) for name in series}
        rates = false_discovery_rate(np.array([one.p for one in self._chance.values()]))
        self._rate = dict(zip(series, rates.tolist(), strict=True))

    def _by_chance(self, name: str, own_load: Float) -> Chance:
        values = self.series[name]
        return chance(-values if METRICS[name].falls else values, own_load)

    def candidate(
        self, name: str, scene: Scene, elsewhere: Mapping[str, Float] | None = None
    ) -> Candidate | None:
        """The metric's numbers in an episode; None where it is not known there. `elsewhere`: the same metric
        by other host."""
        metric, values = METRICS[name], self.series[name]
        part = values[scene.at]
        if not np.isfinite(part).any():
            return None
        level = self._levels[name]
        covered, otherwise = scene.covered(metric.beyond(values, scene.limit(metric, values, level)))
        also = tuple(
            host
            for host, theirs in (elsewhere or {}).items()
            if scene.covered(
                metric.beyond(theirs, scene.limit(metric, theirs, _level(metric, theirs, scene.quiet)))
            )[0]
            >= max(0.5 * covered, 1e-9)
        )
        found = self._chance[name]
        score = max(covered - otherwise, 0.0) * (1 - found.p)
        if elsewhere and len(also) == len(elsewhere):
            score *= EVERYWHERE
        return Candidate(
            metric=name,
            words=metric.words,
            unit=metric.unit,
            level=float(np.nanmin(part) if metric.falls else np.nanmax(part)),
            usual=level.usual,
            covered=covered,
            otherwise=otherwise,
            r=found.r,
            p=found.p,
            q=self._rate[name],
            lag=None,
            also_at=also if covered > 0 else (),
            score=score,
        )

    def with_lag(self, one: Candidate, scene: Scene) -> Candidate:
        """The candidate with by how many windows the queue follows it, around the episode."""
        near = slice(max(scene.first - 4 * NEAR, 0), scene.last + 4 * NEAR)
        values = self.series[one.metric][near]
        return replace(one, lag=lag(-values if METRICS[one.metric].falls else values, scene.own_load[near]))


def ranked(candidates: list[Candidate]) -> list[Candidate]:
    """Best first; of equals the one with the smaller p."""
    return sorted(candidates, key=lambda one: (-one.score, one.p, one.metric))
