"""Queue length by the tap against queue length by the event monitors, tier by tier (milliScope 4.3, METHOD
4).

Two readings, never mixed: *concurrent* is the time-weighted mean number of calls inside, per window (the
reading of SysViz figures); *started* is the number of calls that arrived in the window (the reading of the
thesis, 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import series
from tapscope.analyze.load import WINDOW_NS, window_edges
from tapscope.validate import statistics
from tapscope.validate.aligned import Aligned
from tapscope.validate.event_calls import Table
from tapscope.validate.tiers import Compared, touched

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """How one reading of the queue length agrees; windows is the number that were compared."""

    name: str
    windows: int
    tap_mean: float
    log_mean: float
    pearson_r: float
    spearman_r: float
    rmse: float
    mean_absolute_error: float
    max_error: float
    bias: float
    bias_percent: float
    limit_low: float
    limit_high: float


@dataclass(frozen=True)
class Between:
    """Does the tap lie between the server's log and its caller's? Shares of windows, and mean queue lengths.

    A window counts as inside with a tolerance of TOLERANCE_CALLS or TOLERANCE_SHARE of it, whichever is more.
    """

    windows: int
    inside: float
    below: float
    above: float
    server_mean: float
    tap_mean: float
    caller_mean: float


MOST_WITHOUT_CALLER = 0.05
"""Share of a server's calls that may lack their caller's record, or the caller's log says nothing about the
queue. An application that logs its statements lacks the other calls that its middleware gets."""

SILENT_STAMPS = 40
"""By chance a log has no stamp where forty are usual once in 10^17 times."""

LEAST_SILENCE_NS = 200_000_000
"""Shorter ones are the pauses of a throttled server."""

TOLERANCE_CALLS = 0.05
TOLERANCE_SHARE = 0.01


@dataclass
class TierAgreement:
    """One tier. `windows` has one row per window of the capture: window_ns, width_ns, and for tap, log (the
    server's own) and, where there is one, caller: load, max, arrivals, completions, by the tap's clock.
    left_out says why a window was not compared ('' = compared). lag_ns, caller_lag_ns : shift at which the
    queue lengths are most alike, as stamped. caller_share : calls in the caller's log for each in the
    server's, in the windows that both know; None: no such log. One that has only a part of the calls
    (`caller_is_partial`) is in no reading. agrees_with : a key of verdict.AGREES; '' = it does not
    agree."""

    tier: str
    nodes: list[str]
    what: str
    lag_ns: int | None
    lag_correlation: float
    caller_lag_ns: int | None
    readings: list[Reading]
    between: Between | None
    windows: dict[str, Any]
    windows_compared: int
    windows_left_out: dict[str, int]
    calls: dict[str, int]
    stay_ns: dict[str, float]
    caller_share: float | None = None
    agrees_with: str = ""
    failures: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    @property
    def caller_is_partial(self) -> bool:
        """Does its caller's log hold only a part of the tier's calls?"""
        return is_partial(self.caller_share)

    def reading(self, name: str) -> Reading | None:
        """The reading of this name."""
        return next((reading for reading in self.readings if reading.name == name), None)


def agree(
    aligned: Aligned,
    capture_ns: tuple[int, int],
    holes: Table,
    gaps: Table,
    node_names: list[str],
    width_ns: int = WINDOW_NS,
    position_ns: tuple[float, float] | None = None,
) -> TierAgreement:
    """Compare one tier.

    capture_ns : first and last packet of the tap; width_ns : of the windows, aligned to the epoch
    holes, gaps : begin_ns, end_ns of times in which the tap's view of these nodes, or the log of this tier,
        lacks calls; both by the tap's clock
    position_ns : where the senders' stamps sit relative to the wire: median of caller's sending minus
        arrival, and of departure by the log minus by the wire; None: not known
    """
    compared, log, caller = aligned.compared, aligned.log, aligned.caller
    edges = window_edges(capture_ns[0], capture_ns[1], width_ns)
    tap_arrive, tap_depart = compared.tap_arrive, compared.tap_depart
    first, last = _common_time(compared, log.arrive, log.depart, capture_ns)
    left_out = np.full(len(edges) - 1, "", dtype=object)
    left_out[touched(edges, *silences(log.arrive, log.depart, tap_arrive))] = "log_silent"
    left_out[touched(edges, gaps["begin_ns"], gaps["end_ns"])] = "log_loss"
    left_out[touched(edges, holes["begin_ns"], holes["end_ns"])] = "capture_loss"
    unsure = np.array(aligned.unsure, dtype=np.int64).reshape(-1, 2)
    left_out[touched(edges, unsure[:, 0], unsure[:, 1])] = "clock_step"
    left_out[(edges[:-1] < first) | (edges[1:] > last)] = "edge"
    sides = {"tap": _sides(tap_arrive, tap_depart, edges), "log": _sides(log.arrive, log.depart, edges)}
    share, known = None, np.zeros(len(edges) - 1, dtype=bool)
    if caller is not None:
        silent = touched(edges, *silences(caller.arrive, caller.depart, tap_arrive))
        caller_first, caller_last = _common_time(compared, caller.arrive, caller.depart, capture_ns)
        known = (left_out == "") & (edges[:-1] >= caller_first) & (edges[1:] <= caller_last)
        caller_side = _sides(caller.arrive, caller.depart, edges)
        share = _share(caller_side["arrivals"], sides["log"]["arrivals"], known & ~silent)
        if not is_partial(share):
            left_out[silent & (left_out == "")] = "log_silent"
            known &= ~silent
            sides["caller"] = caller_side
    used = np.asarray(left_out == "", dtype=bool)
    readings = []
    departures = bool(np.any(log.depart >= 0))
    if departures:
        stamped = _sides(compared.log_arrive, compared.log_depart, edges)
        readings.append(reading("concurrent", sides["tap"]["load"][used], sides["log"]["load"][used]))
        readings.append(reading("concurrent_as_stamped", sides["tap"]["load"][used], stamped["load"][used]))
    readings.append(reading("started", sides["tap"]["arrivals"][used], sides["log"]["arrivals"][used]))
    between = None
    if caller is not None and "caller" in sides:
        readings += _readings_by_caller(sides, known)
        if departures:
            readings += _readings_by_senders(aligned, sides, edges, known, position_ns)
            low, high = (
                _sides(each.kept_arrive, each.kept_depart, edges)["load"][known] for each in (log, caller)
            )
            between = _between(low, sides["tap"]["load"][known], high)
    reasons, times = np.unique(left_out[~used].astype(str), return_counts=True)
    result = TierAgreement(
        tier=compared.tier,
        nodes=[node_names[node] for node in compared.nodes],
        what=compared.what,
        lag_ns=log.lag_ns,
        lag_correlation=log.lag.correlation if log.lag is not None else float("nan"),
        caller_lag_ns=None if caller is None else caller.lag_ns,
        readings=readings,
        between=between,
        windows={"window_ns": edges[:-1], "width_ns": np.diff(edges), "left_out": left_out}
        | {f"{side}_{name}": values for side, columns in sides.items() for name, values in columns.items()},
        windows_compared=int(np.count_nonzero(used)),
        windows_left_out=dict(zip(reasons.tolist(), times.tolist(), strict=True)),
        calls={
            "tap": _within(tap_arrive, first, last),
            "log": _within(log.arrive, first, last),
            **compared.left_out,
        },
        stay_ns={
            "tap_mean": _mean_stay(tap_arrive, tap_depart, first, last),
            "log_mean": _mean_stay(log.arrive, log.depart, first, last),
        },
        caller_share=share,
    )
    if caller is not None:
        result.calls["caller"] = _within(caller.arrive, first, last)
        result.calls["without_caller"] = int(np.count_nonzero(aligned.caller_of < 0))
    if caller is not None and "caller" in sides:
        result.stay_ns["caller_mean"] = _mean_stay(caller.arrive, caller.depart, first, last)
    return result


def is_partial(share: float | None) -> bool:
    """Is a caller's log with this share of the calls only a part?"""
    return share is not None and share < 1 - MOST_WITHOUT_CALLER


def _share(caller: Ints, log: Ints, windows: Bools) -> float | None:
    """Arrivals by the caller's log for each by the server's, in these windows; None where there are none."""
    calls = int(log[windows].sum())
    return int(caller[windows].sum()) / calls if calls else None


def _readings_by_caller(sides: dict[str, dict[str, NDArray[Any]]], used: Bools) -> list[Reading]:
    tap, caller = sides["tap"], sides["caller"]
    return [
        reading("concurrent_by_caller", tap["load"][used], caller["load"][used]),
        reading("started_by_caller", tap["arrivals"][used], caller["arrivals"][used]),
    ]


def _readings_by_senders(
    aligned: Aligned,
    sides: dict[str, dict[str, NDArray[Any]]],
    edges: Ints,
    used: Bools,
    position_ns: tuple[float, float] | None,
) -> list[Reading]:
    """From the caller's sending to the server's departure; a call its caller did not log (a pool that tests a
    connection) begins with its server's stamp. None where that would be more than a few calls."""
    log, row = aligned.log, aligned.caller_of
    joined = row >= 0
    if aligned.caller is None or not used.any():
        return []
    window = np.searchsorted(edges, log.arrive, side="right") - 1
    shown = np.append(used, False)[np.where(window < len(used), window, -1)]
    if np.count_nonzero(shown & ~joined) > MOST_WITHOUT_CALLER * np.count_nonzero(shown):
        return []
    arrive = log.arrive.copy()
    arrive[joined] = aligned.caller.arrive[row[joined]]
    tap = sides["tap"]["load"][used]
    found = []
    moved = {"concurrent_by_senders": (0.0, 0.0)}
    if position_ns is not None:
        moved["concurrent_at_wire"] = position_ns
    for name, (sent, departed) in moved.items():
        begin = arrive - np.where(joined, round(sent), 0)
        end = np.where(log.depart >= 0, np.maximum(log.depart - round(departed), begin), -1)
        found.append(reading(name, tap, _sides(begin, end, edges)["load"][used]))
    return found


def _between(server: NDArray[np.float64], tap: NDArray[np.float64], caller: NDArray[np.float64]) -> Between:
    tolerance = np.maximum(TOLERANCE_CALLS, TOLERANCE_SHARE * tap)
    below, above = tap < server - tolerance, tap > caller + tolerance
    shares = [float(np.mean(each)) if len(tap) else float("nan") for each in (~below & ~above, below, above)]
    means = [float(np.mean(each)) if len(tap) else float("nan") for each in (server, tap, caller)]
    return Between(len(tap), *shares, *means)


def silences(arrive: Ints, depart: Ints, tap_arrive: Ints) -> tuple[Ints, Ints]:
    """Begin and end of times in which a log says nothing although the tap saw calls come as usual: lines are
    missing (a rotated file that was deleted).

    At its own mean rate the log would have SILENT_STAMPS stamps and more in such a time, and half of the
    calls that the tap saw come are not in it afterwards either, as they are when a server stood still.
    Servers log at departure: calls that were inside at its ends may be missing too, so a usual stay is added
    on either side.
    """
    known = depart >= 0
    came_log, came = np.sort(arrive), np.sort(tap_arrive)
    stamps = np.sort(np.concatenate([arrive, depart[known]]))
    if len(stamps) < 2:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    usual = int(np.percentile(depart[known] - arrive[known], 99)) if known.any() else 0
    quiet_ns = max(SILENT_STAMPS * int(stamps[-1] - stamps[0]) // len(stamps), LEAST_SILENCE_NS)
    gap = np.flatnonzero(np.diff(stamps) > quiet_ns)
    begin, end = stamps[gap], stamps[gap + 1]
    seen, logged = (
        np.searchsorted(each, end + usual) - np.searchsorted(each, begin, side="right")
        for each in (came, came_log)
    )
    lost = (seen - logged >= SILENT_STAMPS // 4) & (2 * logged <= seen)
    return begin[lost] - usual, end[lost] + usual


def reading(name: str, tap: NDArray[Any], log: NDArray[Any]) -> Reading:
    """All statistics of one reading."""
    tap, log = tap.astype(np.float64), log.astype(np.float64)
    limits = statistics.bland_altman(tap, log)
    return Reading(
        name=name,
        windows=len(tap),
        tap_mean=float(tap.mean()) if len(tap) else float("nan"),
        log_mean=float(log.mean()) if len(log) else float("nan"),
        pearson_r=statistics.pearson(tap, log),
        spearman_r=statistics.spearman(tap, log),
        rmse=statistics.rmse(tap, log),
        mean_absolute_error=statistics.mean_absolute_error(tap, log),
        max_error=statistics.max_error(tap, log),
        bias=limits.bias,
        bias_percent=limits.percent,
        limit_low=limits.low,
        limit_high=limits.high,
    )


def _common_time(
    compared: Compared, log_arrive: Ints, log_depart: Ints, capture_ns: tuple[int, int]
) -> tuple[int, int]:
    """First and last time between which both sides know every call; first > last when there is none.

    A call that was inside when one side began to watch is known to the other side only: the comparison begins
    when the last of them has left. At the end, a log lacks the calls that left after its last line: the
    comparison ends before the first of them arrived. A call without an answer counts as one of them when it
    was open within a window of that line.
    """
    if not len(log_arrive) or not len(compared.tap_arrive):
        return 1, 0
    log_first = int(log_arrive.min())
    log_last = int(max(log_depart.max(), log_arrive.max()))
    first = max(capture_ns[0], log_first)
    open_at_capture = (log_arrive < capture_ns[0]) & (log_depart > capture_ns[0])
    open_at_log = (compared.tap_arrive < log_first) & (compared.tap_depart > log_first)
    first = max([first, *log_depart[open_at_capture].tolist(), *compared.tap_depart[open_at_log].tolist()])
    last = min(capture_ns[1], log_last)
    seen_until = compared.tap_depart + np.where(compared.tap_open, WINDOW_NS, 0)
    after_log = (seen_until > log_last) | (compared.tap_arrive > log_last)
    last = min([last, *compared.tap_arrive[after_log].tolist()])
    return first, last


def _sides(arrive: Ints, depart: Ints, edges: Ints) -> dict[str, NDArray[Any]]:
    known = depart >= 0
    load, highest = series(arrive[known], depart[known], edges)
    return {
        "load": load,
        "max": highest,
        "arrivals": np.diff(np.searchsorted(np.sort(arrive), edges)),
        "completions": np.diff(np.searchsorted(np.sort(depart[known]), edges)),
    }


def _within(arrive: Ints, first: int, last: int) -> int:
    return int(np.count_nonzero((arrive >= first) & (arrive < last)))


def _mean_stay(arrive: Ints, depart: Ints, first: int, last: int) -> float:
    chosen = (arrive >= first) & (arrive < last) & (depart >= 0)
    return float(np.mean(depart[chosen] - arrive[chosen])) if chosen.any() else float("nan")
