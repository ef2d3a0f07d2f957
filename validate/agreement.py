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


@dataclass(frozen=True)
class Thresholds:
    """When a tier agrees. All hold for the concurrent reading, with the log's lag removed.

    bias is tap - log in percent of the mean; a bias of less than `bias_calls` calls is never a disagreement,
    because at a nearly idle tier the microseconds between wire and log stamp are a large part of each stay.
    """

    pearson_r: float = 0.99
    bias_percent: float = 5.0
    bias_calls: float = 0.05
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


@dataclass
class TierAgreement:
    """One tier. `windows` has one row per window of the capture: window_ns, width_ns, and for tap and log
    load, max, arrivals, completions; left_out says why it was not compared ('' = compared). The log's lag is
    removed in it."""

    tier: str
    nodes: list[str]
    what: str
    lag_ns: int | None
    lag_correlation: float
    readings: list[Reading]
    windows: dict[str, Any]
    windows_compared: int
    windows_left_out: dict[str, int]
    calls: dict[str, int]
    stay_ns: dict[str, float]
    failures: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def reading(self, name: str) -> Reading | None:
        """The reading of this name."""
        return next((reading for reading in self.readings if reading.name == name), None)


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
    thresholds = thresholds or Thresholds()
    knows_departure = bool(np.any(compared.log_depart >= 0))
    lag = _lag(compared, capture_ns) if knows_departure else None
    sure = lag is not None and lag.correlation >= SURE_CORRELATION
    shift = lag.lag_ns if lag is not None and sure else 0
    edges = window_edges(capture_ns[0], capture_ns[1], width_ns)
    log_arrive = compared.log_arrive - shift
    log_depart = np.where(compared.log_depart >= 0, compared.log_depart - shift, -1)
    first, last = _common_time(compared, log_arrive, log_depart, capture_ns)
    left_out = np.full(len(edges) - 1, "", dtype=object)
    left_out[touched(edges, gaps["begin_ns"] - shift, gaps["end_ns"] - shift)] = "log_loss"
    left_out[touched(edges, holes["begin_ns"], holes["end_ns"])] = "capture_loss"
    left_out[(edges[:-1] < first) | (edges[1:] > last)] = "edge"
    tap = _sides(compared.tap_arrive, compared.tap_depart, edges)
    log = _sides(log_arrive, log_depart, edges)
    stamped = _sides(compared.log_arrive, compared.log_depart, edges)
    used = left_out == ""
    readings = []
    if knows_departure:
        readings.append(reading("concurrent", tap["load"][used], log["load"][used]))
        readings.append(reading("concurrent_as_stamped", tap["load"][used], stamped["load"][used]))
    readings.append(
        reading("started", tap["arrivals"][used].astype(float), log["arrivals"][used].astype(float))
    )
    reasons, times = np.unique(left_out[~used].astype(str), return_counts=True)
    result = TierAgreement(
        tier=compared.tier,
        nodes=[node_names[node] for node in compared.nodes],
        what=compared.what,
        lag_ns=lag.lag_ns if lag is not None and sure else None,
        lag_correlation=lag.correlation if lag is not None else float("nan"),
        readings=readings,
        windows={"window_ns": edges[:-1], "width_ns": np.diff(edges), "left_out": left_out}
        | {f"tap_{name}": values for name, values in tap.items()}
        | {f"log_{name}": values for name, values in log.items()},
        windows_compared=int(np.count_nonzero(used)),
        windows_left_out=dict(zip(reasons.tolist(), times.tolist(), strict=True)),
        calls={
            "tap": _within(compared.tap_arrive, first, last),
            "log": _within(log_arrive, first, last),
            **compared.left_out,
        },
        stay_ns={
            "tap_mean": _mean_stay(compared.tap_arrive, compared.tap_depart, first, last),
            "log_mean": _mean_stay(log_arrive, log_depart, first, last),
        },
    )
    _judge(result, thresholds)
    return result


def touched(edges: Ints, begin_ns: Ints, end_ns: Ints) -> Bools:
    """Per window: does one of these times (ends included) reach into it?"""
    windows = len(edges) - 1
    low = np.clip(np.searchsorted(edges, begin_ns, side="right") - 1, 0, windows)
    high = np.clip(np.searchsorted(edges, end_ns, side="right"), 0, windows)
    change = np.zeros(windows + 1, dtype=np.int64)
    np.add.at(change, low, 1)
    np.add.at(change, np.maximum(high, low), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0, dtype=bool)


def reading(name: str, tap: NDArray[np.float64], log: NDArray[np.float64]) -> Reading:
    """All statistics of one reading."""
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


def _lag(compared: Compared, capture_ns: tuple[int, int]) -> Lag | None:
    tap = compared.tap_depart >= 0
    log = compared.log_depart >= 0
    return statistics.best_lag(
        (compared.tap_arrive[tap], compared.tap_depart[tap]),
        (compared.log_arrive[log], compared.log_depart[log]),
        *capture_ns,
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
    """Fill in why the tier fails, or why nothing can be said of it."""
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
    if concurrent.pearson_r < thresholds.pearson_r:
        result.failures.append(f"Pearson r is {concurrent.pearson_r:.4f}, below {thresholds.pearson_r}")
    if (
        abs(concurrent.bias) > thresholds.bias_calls
        and abs(concurrent.bias_percent) > thresholds.bias_percent
    ):
        result.failures.append(
            f"bias is {concurrent.bias_percent:+.2f} % ({concurrent.bias:+.3f} calls), "
            f"beyond {thresholds.bias_percent} %"
        )
