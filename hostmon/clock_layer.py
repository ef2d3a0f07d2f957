"""The clocks of a run's hosts: measured against the tap, stored beside the logs, taken off on reading.

What a host logged is never changed. `host_clock` says by how much its clock was ahead of the tap's, and
`tap_times` takes that off; `RunFile.raw_clocks` leaves the times as they were logged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.clock_line import ClockLine, clock_lines
from tapscope.hostmon.clock_offset import Offsets, offsets
from tapscope.hostmon.clock_sources import SOURCES, Counted, counted, seen_by_tap
from tapscope.store.runfile import RunFile

READING_NS = 3_000_000
"""A monitor notes the time, then reads its counters: Collectl 1 to 2 ms later on machines of known clocks.
That shifts every sample alike and cannot be told from an offset, so that it is part of the error."""

FIELDS = (
    "host",
    "from_ns",
    "to_ns",
    "offset_ns",
    "drift_ppb",
    "error_ns",
    "drift_error_ppb",
    "method",
    "points",
    "r",
    "applied",
    "reason",
)


@dataclass(frozen=True)
class HostClock:
    """One row of host_clock: a stretch of a host's clock without a step, or why it could not be measured.

    `offset_ns` is host minus tap at `from_ns`, by the host's clock; it grows by `drift_ppb` (ns per s). It is
    applied only where it is larger than `error_ns` at either end of the stretch.
    """

    host: str
    from_ns: int = -1
    to_ns: int = -1
    offset_ns: int = 0
    drift_ppb: float = 0.0
    error_ns: int = -1
    drift_error_ppb: float = -1.0
    method: str = ""
    points: int = 0
    r: float | None = None
    applied: bool = False
    reason: str = ""


def measure_clocks(run: RunFile, addresses: dict[str, set[str]]) -> list[HostClock]:
    """Measure the clock of every host of `addresses` (host -> its IP addresses); replaces the stored layer.

    The first source that says something is taken: bytes on the network, else connections opened.
    """
    found: list[HostClock] = []
    for host in sorted({table.host for table in run.dynamic_tables()}):
        if not addresses.get(host):
            found.append(HostClock(host, reason="no address of this host is known"))
            continue
        found += _measure(run, host, addresses[host])
    run.write_columns("host_clock", {name: [getattr(one, name) for one in found] for name in FIELDS})
    return found


def _measure(run: RunFile, host: str, addresses: set[str]) -> list[HostClock]:
    reasons = []
    for source in SOURCES:
        counters = counted(run, host, source)
        if counters is None:
            continue
        seen = seen_by_tap(run, addresses, source, counters)
        measured = offsets(counters.begin_ns, counters.end_ns, counters.grown, seen)
        lines = clock_lines(measured.at_ns, measured.offset_ns)
        if lines:
            return [_row(host, source.method, line, measured, counters) for line in lines]
        reasons.append(f"{source.method}: {measured.reason}")
    return [HostClock(host, reason="; ".join(reasons) or "no counters of network bytes or connections")]


def _row(host: str, method: str, line: ClockLine, measured: Offsets, counters: Counted) -> HostClock:
    here = (measured.at_ns >= line.from_ns) & (measured.at_ns <= line.to_ns)
    if not math.isfinite(line.error_ns):
        why = f"{line.points} points between two steps; three are needed"
        return HostClock(host, line.from_ns, line.to_ns, method=method, reason=why)
    error = line.error_ns + READING_NS + _resolution_ns(counters.end_ns)
    largest = float(np.abs(line.at(np.array([line.from_ns, line.to_ns]))).max())
    return HostClock(
        host=host,
        from_ns=line.from_ns,
        to_ns=line.to_ns,
        offset_ns=round(line.offset_ns),
        drift_ppb=line.drift_ppb,
        error_ns=round(error),
        drift_error_ppb=line.drift_error_ppb,
        method=method,
        points=line.points,
        r=float(np.median(measured.r[here])),
        applied=largest > error,
        reason="" if largest > error else "the offset is within its error",
    )


def _resolution_ns(at_ns: NDArray[np.int64]) -> int:
    """To what the stamps are cut: 1 s for monitors that log whole seconds, 0 below a millisecond."""
    for step in (1_000_000_000, 100_000_000, 10_000_000, 1_000_000):
        if not (at_ns % step).any():
            return step
    return 0


def read_clocks(run: RunFile) -> list[HostClock]:
    """The layer as it is stored, by host and time."""
    stored = run.read_columns("host_clock")
    rows = zip(*(stored[name] for name in FIELDS), strict=True)
    clocks = [
        HostClock(**(named | {"applied": bool(named["applied"])}))
        for named in (dict(zip(FIELDS, row, strict=True)) for row in rows)
    ]
    return sorted(clocks, key=lambda one: (one.host, one.from_ns))


def forget_clocks(run: RunFile) -> None:
    """Empty the layer: all times are read as they were logged."""
    run.write_columns("host_clock", {name: [] for name in FIELDS})


def tap_times(run: RunFile, host: str, *times_ns: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Times of a host's log by the tap's clock; -1 (not observed) stays. Before the first stretch and after
    the last, the nearest one counts.

    Unchanged where the clock was not measured or its offset is not significant, or with `run.raw_clocks`.
    """
    pieces = [] if run.raw_clocks else [one for one in read_clocks(run) if one.host == host and one.points]
    if not any(one.applied for one in pieces):
        return list(times_ns)
    begins = np.array([one.from_ns for one in pieces])
    offset = np.array([one.offset_ns if one.applied else 0 for one in pieces])
    drift = np.array([one.drift_ppb if one.applied else 0.0 for one in pieces])
    out = []
    for at in times_ns:
        piece = np.maximum(np.searchsorted(begins, at, side="right") - 1, 0)
        ahead = offset[piece] + np.rint(drift[piece] * ((at - begins[piece]) / 1e9)).astype(np.int64)
        out.append(np.where(at < 0, at, at - ahead))
    return out
