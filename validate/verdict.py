"""Does a tier agree? Thresholds, and what they are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.agreement import Reading, TierAgreement
from tapscope.validate.request_agreement import RequestAgreement


@dataclass(frozen=True)
class Thresholds:
    """When a tier agrees: when one of these holds.

    * The concurrent reading of the server's own log: Pearson r, and bias (tap - log, in percent of the mean;
      a bias below `bias_calls` is never a disagreement, because at a nearly idle tier the microseconds
      between wire and log stamp are a large part of each stay).
    * The same with the log of the tier's caller; or by the stamps of the senders, caller and server, as they
      are or with their usual way to the wire taken off.
    * Call by call, of requests matched by ID, which must be the share `matched` of the calls: in the share
      `inside` of them the wire's times lie between the stamps of caller and server, and are on average so
      near to one of these stamps that the stay may be wrong by no more than `bias_percent`.
    * The tap lies between the two logs in at least the share `inside` of the windows, tap and server's log
      count the same calls to `calls_percent`, and the logs' means are no further apart than
      `bracket_percent` of the tap's. A server stamps a call when a thread takes it up, its caller when it
      hands it over; what waits in between is at the server by the wire, and only there. Logs that are
      further apart cannot confirm the tap: the tier is undecided.

    A caller's log that holds only a part of the calls is not compared. A tap that sees calls stay longer than
    the server's own log is then undecided, since what waited for a thread is in neither.

    windows : fewer than this many cannot decide anything
    paths_percent : where the true paths are known, completeness and accuracy of the paths must be at least
        this; 0: they decide nothing
    by : kinds of evidence that count (keys of AGREES)
    """

    pearson_r: float = 0.99
    bias_percent: float = 5.0
    bias_calls: float = 0.05
    inside: float = 0.98
    matched: float = 0.8
    calls_percent: float = 1.0
    bracket_percent: float = 20.0
    windows: int = 20
    paths_percent: float = 0.0
    by: tuple[str, ...] = ("server", "caller", "senders", "wire", "calls", "between")


MOSTLY_INSIDE = 0.8
"""Share of windows in which the tap must lie between logs that are too far apart to confirm it."""

READINGS = {
    "server": ("concurrent", "server's log"),
    "caller": ("concurrent_by_caller", "caller's log"),
    "senders": ("concurrent_by_senders", "senders' stamps"),
    "wire": ("concurrent_at_wire", "senders' stamps, moved to the wire"),
}
"""agrees_with -> (reading, how reasons call it), in the order they are tried."""

AGREES = {
    "server": "agrees with the server's log",
    "caller": "agrees with the caller's log",
    "senders": "agrees with the senders' stamps",
    "wire": "agrees with the senders' stamps at the wire",
    "calls": "agrees call by call",
    "between": "lies between the server's and the caller's log",
}


def judge(result: TierAgreement, requests: RequestAgreement | None, thresholds: Thresholds) -> None:
    """Fill in what the tier agrees with, why it fails, or why nothing can be said of it."""
    concurrent = result.reading("concurrent")
    if concurrent is None:
        result.undecided.append("the log has no departures, so it gives no queue length")
        return
    if concurrent.windows < thresholds.windows:
        result.undecided.append(_too_few(result, concurrent.windows, thresholds.windows))
        return
    if np.isnan(concurrent.pearson_r):
        result.undecided.append("a queue length does not vary")
        return
    failures: list[str] = []
    for agrees, (name, whose) in READINGS.items():
        each = result.reading(name)
        if agrees not in thresholds.by or each is None or each.windows < thresholds.windows:
            continue
        reasons = _reasons(each, thresholds)
        if not reasons:
            result.agrees_with = agrees
            return
        failures += [f"{why} ({whose})" for why in reasons]
    if "calls" in thresholds.by and requests is not None and _call_by_call(result, requests, thresholds):
        result.agrees_with = "calls"
        return
    if failures and result.caller_is_partial and concurrent.bias > 0:
        # What waits for a thread is at the server by the wire and not in its log: only the caller could tell.
        share = 100 * (result.caller_share or 0)
        result.undecided.append(
            f"the caller's log has {share:.0f} % of the calls and is not compared; " + ", ".join(failures)
        )
        return
    between = result.between
    if "between" in thresholds.by and between is not None and between.windows >= thresholds.windows:
        tap, log = result.calls["tap"], result.calls["log"]
        same_calls = abs(tap - log) * 100 <= thresholds.calls_percent * log
        percent = 100 * (between.caller_mean - between.server_mean) / between.tap_mean
        near_enough = percent <= thresholds.bracket_percent
        if between.inside >= thresholds.inside and same_calls and near_enough:
            result.agrees_with = "between"
            return
        # Logs that differ so much from each other say nothing against a tap between them.
        if between.inside >= MOSTLY_INSIDE and same_calls and not near_enough:
            result.undecided.append(
                f"the tap lies between both logs, but these are {percent:.0f} % of its mean apart"
            )
            return
        share = 100 * between.inside
        failures.append(f"between both logs in {share:.1f} % of windows only, or {tap} calls for {log}")
    if failures:
        result.failures += failures
    else:
        result.undecided.append(f"there is nothing to judge by of {', '.join(thresholds.by)}")


def _too_few(result: TierAgreement, windows: int, needed: int) -> str:
    if not windows and set(result.windows_left_out) == {"edge"}:
        return (
            "the log has no call during the capture: is it of another run, or its clock or time zone wrong "
            "(--zone)?"
        )
    left_out = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in result.windows_left_out.items())
    behind = f"; left out: {left_out}" if left_out else ""
    return f"only {windows} windows could be compared, {needed} are needed{behind}"


def judge_paths(paths: PathAccuracy, thresholds: Thresholds) -> list[str]:
    """Why the paths fail; empty when they do not."""
    least = thresholds.paths_percent
    shares = {"completeness": 100 * paths.completeness, "accuracy": 100 * paths.accuracy}
    return [
        f"{name} of paths is {share:.2f} %, below {least:g} %"
        for name, share in shares.items()
        if least > 0 and not share >= least
    ]


def _call_by_call(result: TierAgreement, requests: RequestAgreement, thresholds: Thresholds) -> bool:
    """Are the calls the same, and each where one of its two logs says?"""
    tap, log = result.calls["tap"], result.calls["log"]
    same_calls = abs(tap - log) * 100 <= thresholds.calls_percent * log
    near = requests.near
    if requests.matched < thresholds.matched * (requests.matched + requests.log_only):
        return False
    if not same_calls or near is None or near.calls < (1 - thresholds.calls_percent / 100) * requests.matched:
        return False
    wrong_ns = near.mean_arrive_ns + near.mean_depart_ns
    return near.inside >= thresholds.inside and wrong_ns * 100 <= thresholds.bias_percent * near.mean_stay_ns


def _reasons(each: Reading, thresholds: Thresholds) -> list[str]:
    found = []
    if not each.pearson_r >= thresholds.pearson_r:
        found.append(f"Pearson r is {each.pearson_r:.4f}, below {thresholds.pearson_r}")
    if abs(each.bias) > thresholds.bias_calls and abs(each.bias_percent) > thresholds.bias_percent:
        found.append(
            f"bias is {each.bias_percent:+.2f} % ({each.bias:+.3f} calls), beyond {thresholds.bias_percent} %"
        )
    return found
