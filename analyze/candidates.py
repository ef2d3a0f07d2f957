"""Metrics of a node, ranked by what speaks for each of them as the reason why its queue grew.

Four numbers that a reader can check: in which share of the queue's growth the metric had risen; in which
share of the quiet windows it had risen, too (a disk that is always busy explains nothing); whether it goes
with the queue beyond chance over the run, with control for the number of metrics; and whether the same metric
rose at other hosts at the same time. Lead or lag says which of both came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tapscope.analyze.correlation import Chance, Lag, chance, false_discovery_rate, lag
from tapscope.analyze.metrics import METRICS
from tapscope.analyze.service_time import Float
from tapscope.analyze.track import Mask, Track

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
class Scene:
    """Where a queue grew: the node's own load over the run, and the windows of the episode."""

    own_load: Float
    first: int
    last: int

    @property
    def at(self) -> slice:
        """Windows of the episode."""
        return slice(self.first, self.last)

    @cached_property
    def growth(self) -> Float:
        """Weight of each window of the episode: by how much the own queue grew in it; they sum up to 1."""
        before = self.own_load[max(self.first - 1, 0)] if self.last > self.first else 0.0
        rise = np.maximum(np.diff(self.own_load[self.at], prepend=before), 0.0)
        total = float(rise.sum())
        return rise / total if total > 0 else np.full(len(rise), 1.0 / max(len(rise), 1))

    def covered(self, track: Track, limit: float) -> float:
        """Share of the growth that lies in or beside windows in which the metric was at this level."""
        return float(self.growth @ track.risen(self.first, self.last, limit))

    def typical(self, values: Float) -> float:
        """Level of a metric while the queue grew: its median over the growth."""
        part = values[self.at]
        known = np.flatnonzero(np.isfinite(part))
        weight = self.growth[known]
        if not weight.sum() > 0:
            return float("nan")
        order = known[np.argsort(part[known])]
        share = np.cumsum(self.growth[order]) / weight.sum()
        return float(part[order[np.searchsorted(share, 0.5)]])

    def limit(self, track: Track) -> float:
        """Level from which a metric counts as risen in this episode: where it has risen beyond what is usual
        and, as a flood is not explained away by a drizzle, got half the way to where it was while the queue
        grew."""
        limit = track.least
        if np.isfinite(track.metric.full):
            return limit
        half = (self.typical(track.values) + track.usual) / 2
        if not np.isfinite(half):
            return limit
        return min(limit, half) if track.metric.falls else max(limit, half)


class Ranker:
    """Numbers of the metrics of one node; correlations and levels are the run's and computed once.

    `elsewhere`: by name the same metric of other hosts.
    """

    def __init__(
        self,
        series: Mapping[str, Float],
        own_load: Float,
        quiet: Mask,
        elsewhere: Mapping[str, Mapping[str, Float]] | None = None,
    ) -> None:
        self.tracks = {name: Track(name, values, quiet) for name, values in series.items()}
        self._elsewhere = {
            name: {host: Track(name, values, quiet) for host, values in theirs.items()}
            for name, theirs in (elsewhere or {}).items()
        }
        self._chance = {name: self._by_chance(name, own_load) for name in series}
        rates = false_discovery_rate(np.array([one.p for one in self._chance.values()]))
        self._rate = dict(zip(series, rates.tolist(), strict=True))

    def _by_chance(self, name: str, own_load: Float) -> Chance:
        values = self.tracks[name].values
        return chance(-values if METRICS[name].falls else values, own_load)

    def candidate(self, name: str, scene: Scene) -> Candidate | None:
        """The metric's numbers in an episode; None where it is not known there."""
        track, elsewhere = self.tracks[name], self._elsewhere.get(name, {})
        metric, part = track.metric, track.values[scene.at]
        if not np.isfinite(part).any():
            return None
        limit = scene.limit(track)
        covered, otherwise = scene.covered(track, limit), track.otherwise(limit)
        also = tuple(
            host
            for host, theirs in elsewhere.items()
            if scene.covered(theirs, scene.limit(theirs)) >= max(0.5 * covered, 1e-9)
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
            usual=track.usual,
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
        values = self.tracks[one.metric].values[near]
        return replace(one, lag=lag(-values if METRICS[one.metric].falls else values, scene.own_load[near]))


def ranked(candidates: list[Candidate]) -> list[Candidate]:
    """Best first; of equals the one with the smaller p."""
    return sorted(candidates, key=lambda one: (-one.score, one.p, one.metric))
