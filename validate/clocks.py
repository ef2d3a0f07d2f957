"""Clocks of the logs' hosts against the tap's: measured, and stamps turned into times of the tap (METHOD 4).

Where requests are matched by ID, the wire bounds the clock from both sides: what a host stamps after the wire
(it received a message) is never early, what it stamps before the wire (it is about to send one) never late.
The least of the one and the greatest of the other, piece by piece of the run, enclose the offset; load and
queues only widen the gap. Half of the gap is the error that no fit can remove. Without IDs each piece's
offset is the shift at which the queue lengths are most alike. Lines and steps: hostmon.clock_line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.clock_line import ClockLine, clock_lines
from tapscope.validate.statistics import piece_lags

Ints = NDArray[np.int64]

PIECE_SIGHTINGS = 25
"""Matched stamps per piece: the extreme ones must be among them, and steps must not blur."""

MOST_PIECES = 150

EXTREME = 0.05
"""Share of a piece's stamps beyond its bound: a wrongly matched request must not move it."""

CONTRADICTION_NS = 50_000
"""By so much stamps before and after the wire may overlap in a piece, through drift and coarse stamps."""

LEAST_STEP_NS = 1_000_000
"""A clock that was set by less is not told from a change of load."""

NONE, REQUESTS, CORRELATION = "none", "matched requests", "cross-correlation"


@dataclass(frozen=True)
class HostClock:
    """One clock. lines : offset (clock minus tap) against tap time, one per stretch between steps
    half_ns : half of the gap between what is stamped before and after the wire; nan by cross-correlation,
        whose offset holds the way from wire to stamp; spacing_ns : time between two points of the lines
    """

    method: str = NONE
    lines: list[ClockLine] = field(default_factory=list)
    half_ns: float = float("nan")
    spacing_ns: int = 0

    def offset_at(self, at_ns: Ints) -> Ints:
        """By how much the clock is ahead at these tap times, ns; 0 where nothing is known."""
        which = np.searchsorted(self._borders(), at_ns, side="right")
        found = np.zeros(len(at_ns), dtype=np.int64)
        for number, line in enumerate(self.lines):
            found[which == number] = np.rint(line.at(at_ns[which == number])).astype(np.int64)
        return found

    def tap_time(self, stamped_ns: Ints) -> Ints:
        """Stamps of the clock as times of the tap.

        Around a step the clock skips some time or shows it twice. Of a time shown twice the later showing is
        taken, a time that was never shown is the border: `steps` says what is not to be compared.
        """
        if not self.lines:
            return stamped_ns
        found = _undone(self.lines[0], stamped_ns)
        for border, line in zip(self._borders().tolist(), self.lines[1:], strict=True):
            begin = border + round(float(line.at(np.array([border]))[0]))
            found = np.where(stamped_ns >= begin, _undone(line, stamped_ns), np.minimum(found, border))
        return found

    def steps(self) -> list[tuple[int, int, int]]:
        """Per step: tap times between which the stamps are unsure, and by how much the clock was set, ns."""
        found = []
        for border, (before, after) in zip(self._borders().tolist(), pairwise(self.lines), strict=True):
            at = np.array([border])
            size = round(float(after.at(at)[0] - before.at(at)[0]))
            if abs(size) >= LEAST_STEP_NS:
                reach = abs(size) + self.spacing_ns
                found.append((before.to_ns - reach, after.from_ns + reach, size))
        return found

    def small(self, limit_ns: int) -> bool:
        """Is the clock never further away than this, so that the way from wire to stamp could be all of
        it?"""
        ends = [(line, at) for line in self.lines for at in (line.from_ns, line.to_ns)]
        return all(abs(float(line.at(np.array([at]))[0])) < limit_ns for line, at in ends)

    @property
    def error_ns(self) -> float:
        """Of its worst line and half the gap together; infinite when nothing tells it."""
        half = 0.0 if np.isnan(self.half_ns) else self.half_ns
        return max((line.error_ns for line in self.lines), default=float("inf")) + half

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "method": self.method,
            "error_ns": self.error_ns,
            "lines": [asdict(line) for line in self.lines],
            "steps": [{"begin_ns": b, "end_ns": e, "by_ns": by} for b, e, by in self.steps()],
        }

    def _borders(self) -> Ints:
        pairs = pairwise(self.lines)
        return np.array([(before.to_ns + after.from_ns) // 2 for before, after in pairs], dtype=np.int64)


def _undone(line: ClockLine, stamped_ns: Ints) -> Ints:
    since = stamped_ns - line.from_ns - round(line.offset_ns)
    drift = line.drift_ppb * 1e-9
    return line.from_ns + since - np.rint(since * (drift / (1 + drift))).astype(np.int64)


@dataclass
class Sightings:
    """Stamps of one clock whose time on the wire is known: (tap time, stamp minus tap time) per kind.

    received : stamped after the wire; sent : stamped before it; departed : of a server, on either side
    """

    received: list[tuple[Ints, Ints]] = field(default_factory=list)
    sent: list[tuple[Ints, Ints]] = field(default_factory=list)
    departed: list[tuple[Ints, Ints]] = field(default_factory=list)


def by_requests(seen: Sightings) -> HostClock:
    """The clock by matched requests; method NONE when there are too few.

    Where nothing else is stamped before sending, departures bound the clock, from the side that they are on:
    MariaDB's slow log has the end of a statement before the answer goes out, its performance_schema and web
    servers after. Before is possible only if no departure contradicts an arrival.
    """
    after, before = _joined(seen.received), _joined(seen.sent)
    if len(after[0]) < PIECE_SIGHTINGS:
        return HostClock()
    if not len(before[0]) and seen.departed:
        departed = _joined(seen.departed)
        points = _points(after, departed)
        if points and np.median([gap for _, _, gap in points]) >= -CONTRADICTION_NS:
            before = departed
        else:
            after = _joined([*seen.received, *seen.departed])
    points = _points(after, before)
    return _clock(REQUESTS, [(at, offset, max(gap, 0.0) / 2) for at, offset, gap in points])


def _points(after: tuple[Ints, Ints], before: tuple[Ints, Ints]) -> list[tuple[int, float, float]]:
    """Per piece: tap time, offset, and the gap between the least stamp after and the greatest before the
    wire.

    Without stamps before the wire the offset is the least after it, the gap twice its distance to the middle.
    """
    fewest = min(len(after[0]), len(before[0])) if len(before[0]) else len(after[0])
    pieces = int(np.clip(fewest // PIECE_SIGHTINGS, 1, MOST_PIECES))
    edges = after[0][np.linspace(0, len(after[0]) - 1, pieces + 1).astype(np.int64)]
    edges[-1] += 1
    late_rows, early_rows = np.searchsorted(after[0], edges), np.searchsorted(before[0], edges)
    points = []
    for number in range(pieces):
        late = after[1][late_rows[number] : late_rows[number + 1]]
        early = before[1][early_rows[number] : early_rows[number + 1]]
        if not len(late) or (len(before[0]) and not len(early)):
            continue
        at = (int(edges[number]) + int(edges[number + 1])) // 2
        least = float(np.quantile(late, EXTREME))
        if len(early):
            most = float(np.quantile(early, 1 - EXTREME))
            points.append((at, (least + most) / 2, least - most))
        else:
            points.append((at, least, 2 * (float(np.median(late)) - least)))
    return points


def by_correlation(
    tap: tuple[Ints, Ints], log: tuple[Ints, Ints], first_ns: int, last_ns: int, least_correlation: float
) -> HostClock:
    """The clock by the likeness of queue lengths (arrive_ns, depart_ns; all departures known)."""
    found = [lag for lag in piece_lags(tap, log, first_ns, last_ns) if lag.correlation >= least_correlation]
    return _clock(CORRELATION, [(lag.at_ns, float(lag.lag_ns), float("nan")) for lag in found])


def _clock(method: str, points: list[tuple[int, float, float]]) -> HostClock:
    if not points:
        return HostClock()
    at, offset, half = (np.array(column) for column in zip(*points, strict=True))
    spacing = int(np.median(np.diff(at))) if len(at) > 1 else 0
    return HostClock(method, clock_lines(at.astype(np.int64), offset), float(np.median(half)), spacing)


def _joined(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """In order of tap time."""
    none = np.empty(0, dtype=np.int64)
    at, value = (np.concatenate([none, *(part[i] for part in parts)]) for i in (0, 1))
    order = np.argsort(at, kind="stable")
    return at[order], value[order]


def corrected(clocks: Mapping[int, HostClock], owner: Ints, stamped_ns: Ints) -> Ints:
    """Stamps of several clocks as times of the tap; -1 stays -1."""
    found = stamped_ns.copy()
    for number, clock in clocks.items():
        here = (owner == number) & (stamped_ns >= 0)
        found[here] = clock.tap_time(stamped_ns[here])
    return found
