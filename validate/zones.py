"""Logs whose stamps name no time zone: from request IDs that also stand in a log with absolute times, or from
what the user says."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate.event_calls import Collector, Table
from tapscope.validate.monitors.lines import LOCAL

ZONE_STEP_NS = 15 * 60 * 1_000_000_000
"""Every time zone in use is a multiple of 15 minutes from UTC."""


def settle_zones(collector: Collector, calls: Table, marks: Table, gaps: Table, zone: str | None) -> None:
    """Turn stamps that were read as if they were UTC into UTC, in place, and note each source's zone.

    Without a given zone: a request's stamps in a log without a zone lie near its stamps in logs with absolute
    times, so the median difference, rounded to 15 minutes, is the offset of the zone (and only that: a clock
    that is some seconds wrong stays wrong here, and shows as a lag in the agreement).
    """
    local = [i for i, source in enumerate(collector.sources) if source["zone"] == LOCAL]
    absolute = ~np.isin(calls["source"], local)
    reference = np.full(len(collector.request_ids), UNKNOWN, dtype=np.int64)
    for name in ("alias", "request_id"):
        _put_first(reference, calls, "arrive_ns", np.flatnonzero(absolute), name)
    for place in local:
        source = collector.sources[place]
        parts = [
            (calls, ("arrive_ns", "depart_ns")),
            (marks, ("at_ns", "until_ns")),
            (gaps, ("begin_ns", "end_ns")),
        ]
        rows = [np.flatnonzero(table["source"] == place) for table, _ in parts]
        if zone is not None:
            source["zone"] = zone
            shifts = [
                _zone_offsets(zone, table[names[0]][at])
                for (table, names), at in zip(parts, rows, strict=True)
            ]
        else:
            stamps = np.full(len(reference), UNKNOWN, dtype=np.int64)
            _put_first(stamps, calls, "arrive_ns", rows[0])
            _put_first(stamps, marks, "at_ns", rows[1])
            offset = _zone_from_ids(stamps, reference, collector)
            source["zone"] = (
                "UTC (assumed)" if offset is None else f"UTC{(offset or 0) / 3.6e12:+g} h (found by IDs)"
            )
            collector.count("zone_assumed", offset is None)
            shifts = [np.full(len(at), offset or 0, dtype=np.int64) for at in rows]
        for (table, names), at, shift in zip(parts, rows, shifts, strict=True):
            for name in names:
                table[name][at] -= np.where(table[name][at] >= 0, shift, 0)
        if source["first_ns"] >= 0 and any(len(shift) for shift in shifts):
            shift = next(shift for shift in shifts if len(shift))
            source["first_ns"] -= int(shift[0])
            source["last_ns"] -= int(shift[-1])


UNKNOWN = np.iinfo(np.int64).min
"""No stamp of a request ID."""


def _put_first(
    stamps: NDArray[np.int64], table: Table, stamp: str, rows: NDArray[np.int64], name: str = "request_id"
) -> None:
    """Per request ID its first stamp among these rows; the other IDs keep what they have."""
    backwards = rows[::-1]  # of several values for one place the last one stays
    backwards = backwards[table[name][backwards] >= 0]
    stamps[table[name][backwards]] = table[stamp][backwards]


def _zone_from_ids(
    stamps: NDArray[np.int64], reference: NDArray[np.int64], collector: Collector
) -> int | None:
    """Offset of a log from UTC in ns; None when no request ID stands in both."""
    both = (stamps != UNKNOWN) & (reference != UNKNOWN)
    differences = stamps[both] - reference[both]
    if not len(differences):
        return None
    steps = np.rint(differences / ZONE_STEP_NS).astype(np.int64)
    usual = int(np.median(steps))
    # IDs that users choose repeat from run to run; a zone change inside the run would show here too.
    collector.count("zone_outlier", int(np.count_nonzero(steps != usual)))
    return usual * ZONE_STEP_NS


def _zone_offsets(zone: str, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offset of local stamps from UTC, ns, per stamp. In the doubled hour of autumn the first pass is
    meant."""
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise TapscopeError(
            f"{zone!r} is not a time zone",
            remedy="Use a name such as UTC or Europe/Berlin.",
            exit_code=ExitCode.USAGE,
        ) from error
    slots, slot_of = np.unique(at_ns // ZONE_STEP_NS, return_inverse=True)
    offsets = []
    for slot in slots.tolist():
        local = datetime.fromtimestamp(slot * (ZONE_STEP_NS // 1_000_000_000), UTC).replace(tzinfo=info)
        offset = local.utcoffset()
        offsets.append(0 if offset is None else int(offset.total_seconds()) * 1_000_000_000)
    return np.array(offsets, dtype=np.int64)[slot_of]
