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

from tapscope.analyze.load import WINDOW_NS, series, window_edges
from tapscope.validate import statistics
from tapscope.validate.event_calls import Table
from tapscope.validate.statistics import Lag
from tapscope.validate.tiers import Compared

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SURE_CORRELATION = 0.5
"""A lag is believed when the queue lengths are at least this alike at it."""


SMALL_LAG_NS = 5_000_000
"""Below this a lag is the way between wire and log stamp, above it is taken for the clock of the log's
host."""


@dataclass(frozen=True)
class Thresholds:
    """When a tier agrees: when one of these holds.

    * The concurrent reading of the server's own log, its lag removed: Pearson r, and bias (tap - log, in
        percent of
      the mean; a bias below `bias_calls` is never a disagreement, because at a nearly idle tier the
      microseconds between wire and log stamp are a large part of each stay).
    * The same with the log of the tier's caller.
    * The tap lies between the two logs in at least the share `between` of the windows, tap and server's log
      count the same calls to `calls_percent`, and the logs' means are no further apart than
      `bracket_percent` of the tap's. A server stamps a call when a thread takes it up, its caller when it
      hands it over; what waits in between is at the server by the wire, and only there. Logs that are
      further apart cannot confirm the tap: the tier is undecided.
    """

    pearson_r: float = 0.99
    bias_percent: float = 5.0
    bias_calls: float = 0.05
    between: float = 0.98
    calls_percent: float = 1.0
    bracket_percent: float = 20.0
    windows: int = 20


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


TOLERANCE_CALLS = 0.05
TOLERANCE_SHARE = 0.01


@dataclass
class TierAgreement:
    """One tier. `windows` has one row per window of the capture: window_ns, width_ns, and for tap, log (the
    server's own) and, where there is one, caller: load, max, arrivals, completions. Lags are removed in it.
    left_out says why a window was not compared ('' = compared). agrees_with : server, caller or between
    (Thresholds); '' = it does not agree."""

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
    agrees_with: str = ""
    failures: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def reading(self, name: str) -> Reading | None:
        """The reading of this name."""
        return next((reading for reading in self.readings if reading.name == name), None)


@dataclass(frozen=True)
class _Log:
    """One log's calls with its lag removed, and the time in which it and the tap both know every call."""

    arrive: Ints
    depart: Ints
    lag: Lag | None
    shift_ns: int
    first_ns: int
    last_ns: int

    @property
    def lag_ns(self) -> int | None:
        """The lag, None when it could not be told."""
        return self.lag.lag_ns if self.lag is not None and self.lag.correlation >= SURE_CORRELATION else None

    def stamped(self, small_only: bool = False) -> tuple[Ints, Ints]:
        """Calls as they were stamped; with `small_only` a large lag stays removed."""
        back = 0 if small_only and abs(self.shift_ns) >= SMALL_LAG_NS else self.shift_ns
        return self.arrive + back, np.where(self.depart >= 0, self.depart + back, -1)


def agree(
    compared: Compared,
    capture_ns: tuple[int, int],
    holes: Table,
    gaps: Table,
    node_names: list[str],
    width_ns: int = WINDOW_NS,
    thresholds: Thresholds | None = None,
) -> TierAgreement:
    """Compare one tier.

    capture_ns : first and last packet of the tap; width_ns : of the windows, aligned to the epoch
    holes, gaps : begin_ns, end_ns of times in which the tap's view of these nodes, or the log of this tier,
        lacks calls
    """
    edges = window_edges(capture_ns[0], capture_ns[1], width_ns)
    log = _log(compared, compared.log_arrive, compared.log_depart, capture_ns)
    caller = None
    if len(compared.caller_arrive):
        caller = _log(compared, compared.caller_arrive, compared.caller_depart, capture_ns)
    shift = log.shift_ns
    left_out = np.full(len(edges) - 1, "", dtype=object)
    left_out[touched(edges, gaps["begin_ns"] - shift, gaps["end_ns"] - shift)] = "log_loss"
    left_out[touched(edges, holes["begin_ns"], holes["end_ns"])] = "capture_loss"
    left_out[(edges[:-1] < log.first_ns) | (edges[1:] > log.last_ns)] = "edge"
    used = np.asarray(left_out == "", dtype=bool)
    sides = {"tap": _sides(compared.tap_arrive, compared.tap_depart, edges)}
    sides["log"] = _sides(log.arrive, log.depart, edges)
    readings = []
    if np.any(log.depart >= 0):
        stamped = _sides(*log.stamped(), edges)
        readings.append(reading("concurrent", sides["tap"]["load"][used], sides["log"]["load"][used]))
        readings.append(reading("concurrent_as_stamped", sides["tap"]["load"][used], stamped["load"][used]))
    readings.append(reading("started", sides["tap"]["arrivals"][used], sides["log"]["arrivals"][used]))
    between = None
    if caller is not None:
        sides["caller"] = _sides(caller.arrive, caller.depart, edges)
        known = used & (edges[:-1] >= caller.first_ns) & (edges[1:] <= caller.last_ns)
        readings += _readings_by_caller(sides, known)
        if np.any(log.depart >= 0):
            low, high = (
                _sides(*each.stamped(small_only=True), edges)["load"][known] for each in (log, caller)
            )
            between = _between(low, sides["tap"]["load"][known], high)
    reasons, times = np.unique(left_out[~used].astype(str), return_counts=True)
    first, last = log.first_ns, log.last_ns
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
            "tap": _within(compared.tap_arrive, first, last),
            "log": _within(log.arrive, first, last),
            **compared.left_out,
        },
        stay_ns={
            "tap_mean": _mean_stay(compared.tap_arrive, compared.tap_depart, first, last),
            "log_mean": _mean_stay(log.arrive, log.depart, first, last),
        },
    )
    if caller is not None:
        result.calls["caller"] = _within(caller.arrive, first, last)
        result.stay_ns["caller_mean"] = _mean_stay(caller.arrive, caller.depart, first, last)
    _judge(result, thresholds or Thresholds())
    return result


def _log(compared: Compared, arrive: Ints, depart: Ints, capture_ns: tuple[int, int]) -> _Log:
    tap_known, known = compared.tap_depart >= 0, depart >= 0
    lag = statistics.best_lag(
        (compared.tap_arrive[tap_known], compared.tap_depart[tap_known]),
        (arrive[known], depart[known]),
        *capture_ns,
    )
    shift = lag.lag_ns if lag is not None and lag.correlation >= SURE_CORRELATION else 0
    arrive, depart = arrive - shift, np.where(known, depart - shift, -1)
    return _Log(arrive, depart, lag, shift, *_common_time(compared, arrive, depart, capture_ns))


def _readings_by_caller(sides: dict[str, dict[str, NDArray[Any]]], used: Bools) -> list[Reading]:
    tap, caller = sides["tap"], sides["caller"]
    return [
        reading("concurrent_by_caller", tap["load"][used], caller["load"][used]),
        reading("started_by_caller", tap["arrivals"][used], caller["arrivals"][used]),
    ]


def _between(server: NDArray[np.float64], tap: NDArray[np.float64], caller: NDArray[np.float64]) -> Between:
    tolerance = np.maximum(TOLERANCE_CALLS, TOLERANCE_SHARE * tap)
    below, above = tap < server - tolerance, tap > caller + tolerance
    shares = [float(np.mean(each)) if len(tap) else float("nan") for each in (~below & ~above, below, above)]
    means = [float(np.mean(each)) if len(tap) else float("nan") for each in (server, tap, caller)]
    return Between(len(tap), *shares, *means)


def touched(edges: Ints, begin_ns: Ints, end_ns: Ints) -> Bools:
    """Per window: does one of these times (ends included) reach into it?"""
    windows = len(edges) - 1
    low = np.clip(np.searchsorted(edges, begin_ns, side="right") - 1, 0, windows)
    high = np.clip(np.searchsorted(edges, end_ns, side="right"), 0, windows)
    change = np.zeros(windows + 1, dtype=np.int64)
    np.add.at(change, low, 1)
    np.add.at(change, np.maximum(high, low), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0, dtype=bool)


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


def _judge(result: TierAgreement, thresholds: Thresholds) -> None:
    """Fill in what the tier agrees with, why it fails, or why nothing can be said of it."""
    concurrent = result.reading("concurrent")
    if concurrent is None:
        result.undecided.append("the log has no departures, so it gives no queue length")
        return
    if concurrent.windows < thresholds.windows:
        result.undecided.append(
            f"only {concurrent.windows} windows could be compared, {thresholds.windows} are needed"
        )
        return
    if np.isnan(concurrent.pearson_r):
        result.undecided.append("a queue length does not vary")
        return
    for name, whose in (("concurrent", "server"), ("concurrent_by_caller", "caller")):
        each = result.reading(name)
        if each is None or each.windows < thresholds.windows:
            continue
        reasons = _reasons(each, thresholds)
        if not reasons:
            result.agrees_with = whose
            result.failures.clear()
            return
        result.failures += [f"{why} ({whose}'s log)" for why in reasons]
    tap, log = result.calls["tap"], result.calls["log"]
    if result.between is not None and result.between.windows >= thresholds.windows:
        same_calls = abs(tap - log) * 100 <= thresholds.calls_percent * log
        if result.between.inside >= thresholds.between and same_calls:
            apart = result.between.caller_mean - result.between.server_mean
            percent = 100 * apart / result.between.tap_mean
            if percent <= thresholds.bracket_percent:
                result.agrees_with = "between"
            else:
                result.undecided.append(
                    f"the tap lies between both logs, but these are {percent:.0f} % of its mean apart"
                )
            result.failures.clear()
            return
        share = 100 * result.between.inside
        result.failures.append(
            f"between both logs in {share:.1f} % of windows only, or {tap} calls for {log}"
        )


def _reasons(each: Reading, thresholds: Thresholds) -> list[str]:
    found = []
    if not each.pearson_r >= thresholds.pearson_r:
        found.append(f"Pearson r is {each.pearson_r:.4f}, below {thresholds.pearson_r}")
    if abs(each.bias) > thresholds.bias_calls and abs(each.bias_percent) > thresholds.bias_percent:
        found.append(
            f"bias is {each.bias_percent:+.2f} % ({each.bias:+.3f} calls), beyond {thresholds.bias_percent} %"
        )
    return found
