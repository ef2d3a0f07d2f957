"""A validation as the tables that people read first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tapscope.validate.edges import SURE
from tapscope.validate.request_agreement import Difference
from tapscope.validate.verdict import AGREES

if TYPE_CHECKING:
    from tapscope.validate.accuracy import PathAccuracy
    from tapscope.validate.span_truth import SpanAccuracy
    from tapscope.validate.validation import Validation

Table = tuple[str, list[str], list[list[Any]]]
"""Title, column heads, rows."""


BETWEEN_HEAD = ["tier", "windows", "server's log mean", "tap mean", "caller's log mean"]
BETWEEN_HEAD += ["between %", "below %", "above %"]


STAMPS_HEAD = ["tier", "stamp", "calls", "median ms", "p1 ms", "p99 ms", "mean ms"]
NEAR_HEAD = ["tier", "calls", "between both %", "arrival ms", "departure ms", "stay ms"]
CLOCKS_HEAD = ["log", "found by", "offset ms", "drift ppm", "error ms", "seconds", "points"]

SURE_HEAD = [f"edges of {SURE:g} and more", "wrong of those"]


def tables(validation: Validation) -> list[Table]:
    """The tables that have rows, in the order in which they are shown."""
    found = [*_agreement(validation), *([] if validation.paths is None else path_tables(validation.paths))]
    found.append(("What was odd, and was counted", ["name", "value", "unit"], _counted(validation)))
    return [table for table in found if table[2]]


def _counted(validation: Validation) -> list[list[Any]]:
    return [[name, value, unit] for name, value, unit in validation.counters if value]


def span_tables(found: SpanAccuracy) -> list[Table]:
    """The tables of a span table's validation that have rows."""
    end_to_end = [[found.traces, found.traces_right_in_scope, 100 * found.end_to_end]]
    head = ["transactions", "every edge in scope right", "end-to-end accuracy %"]
    tables = [("Transactions in scope", head, end_to_end), *path_tables(found.paths)]
    return [table for table in tables if table[2]]


def _agreement(validation: Validation) -> list[Table]:
    head = [
        "tier",
        "reading",
        "windows",
        "tap mean",
        "log mean",
        "Pearson r",
        "Spearman r",
        "RMSE",
        "MAE",
    ]
    head += ["max error", "bias", "bias %", "95 % of differences"]
    rows = [
        [
            tier.tier,
            each.name.replace("_", " "),
            each.windows,
            each.tap_mean,
            each.log_mean,
            _figure(each.pearson_r),
            _figure(each.spearman_r),
            each.rmse,
            each.mean_absolute_error,
            each.max_error,
            each.bias,
            each.bias_percent,
            None if math.isnan(each.limit_low) else f"{each.limit_low:.3f} to {each.limit_high:.3f}",
        ]
        for tier in validation.tiers
        for each in tier.readings
    ]
    compared = [
        [
            tier.tier,
            tier.what,
            tier.calls["tap"],
            tier.calls["log"],
            tier.calls.get("caller"),
            tier.stay_ns["tap_mean"] / 1e6,
            tier.stay_ns["log_mean"] / 1e6,
            tier.stay_ns["caller_mean"] / 1e6 if "caller_mean" in tier.stay_ns else None,
            None if tier.lag_ns is None else tier.lag_ns / 1e6,
            ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in tier.windows_left_out.items()),
            "; ".join(tier.failures + tier.undecided) or AGREES[tier.agrees_with],
        ]
        for tier in validation.tiers
    ]
    head_2 = [
        "tier",
        "compared",
        "tap calls",
        "log calls",
        "caller calls",
        "tap stay ms",
        "log stay ms",
        "caller stay ms",
        "log lag ms",
    ]
    head_2 += ["windows left out", "verdict"]
    width = f"{validation.window_ns / 1e6:g} ms"
    between = [
        [
            tier.tier,
            tier.between.windows,
            tier.between.server_mean,
            tier.between.tap_mean,
            tier.between.caller_mean,
            100 * tier.between.inside,
            100 * tier.between.below,
            100 * tier.between.above,
        ]
        for tier in validation.tiers
        if tier.between is not None
    ]
    requests = [
        [
            each.tier,
            each.matched,
            each.tap_only,
            each.log_only,
        ]
        for each in validation.requests
    ]
    head_3 = ["tier", "matched", "tap only", "log only"]
    stamps = [
        [each.tier, words, *_spread(difference)]
        for each in validation.requests
        for words, difference in (
            ("caller sends", each.sent),
            ("server takes up", each.arrive),
            ("server answers", each.depart),
            ("caller has the answer", each.received),
        )
        if difference is not None
    ]
    near = [
        [
            each.tier,
            each.near.calls,
            100 * each.near.inside,
            each.near.mean_arrive_ns / 1e6,
            each.near.mean_depart_ns / 1e6,
            each.near.mean_stay_ns / 1e6,
        ]
        for each in validation.requests
        if each.near is not None
    ]
    clocks = [
        [
            f"{clock['of']} {clock['host']}".strip(),
            clock["method"],
            line["offset_ns"] / 1e6,
            line["drift_ppb"] / 1e3,
            clock["error_ns"] / 1e6,
            (line["to_ns"] - line["from_ns"]) / 1e9,
            line["points"],
        ]
        for clock in validation.clocks
        for line in clock["lines"]
    ]
    return [
        ("What was compared", head_2, compared),
        (f"Queue length, tap against event monitors, {width} windows", head, rows),
        ("Tap between the server's log and its caller's", BETWEEN_HEAD, between),
        ("Requests matched by ID", head_3, requests),
        ("Where the stamps sit: log minus wire, clock removed", STAMPS_HEAD, stamps),
        ("Call by call: distance of the wire to the nearer stamp", NEAR_HEAD, near),
        ("Clocks of the logs against the tap's", CLOCKS_HEAD, clocks),
    ]


def path_tables(paths: PathAccuracy) -> list[Table]:
    """Edges, paths and probabilities against the truth."""
    edges = [
        [
            edge.pair,
            edge.edges,
            edge.right,
            edge.wrong,
            edge.unlinked,
            100 * edge.accuracy,
            100 * edge.wrong_join_rate,
        ]
        for edge in paths.edges
    ]
    whole = [
        [
            paths.paths_exist,
            paths.paths_reported,
            paths.paths_correct,
            100 * paths.completeness,
            100 * paths.accuracy,
            paths.calibration_error,
            paths.sure_edges,
            paths.sure_wrong,
        ]
    ]
    calibration = [
        [f"{row['from']:g} to {row['to']:g}", row["edges"], row["mean_probability"], row["right"]]
        for row in paths.calibration
    ]
    crowd = [
        [
            row["pair"],
            f"{row['from']} to {row['to']}" if row["to"] else f"{row['from']} and more",
            row["edges"],
            row["right"],
            100 * row["accuracy"],
        ]
        for row in paths.concurrency
    ]
    rates = ["accuracy %", "wrong joins %"]
    return [
        ("Edges", ["tier pair", "edges", "right", "wrong", "unlinked", *rates], edges),
        (
            "Paths",
            ["exist", "reported", "correct", "completeness %", "accuracy %", "calibration error", *SURE_HEAD],
            whole if paths.paths_exist or paths.paths_reported else [],
        ),
        ("Calibration", ["probability", "edges", "mean probability", "share right"], calibration),
        (
            "By calls in flight at the parent",
            ["tier pair", "in flight", "edges", "right", "accuracy %"],
            crowd,
        ),
    ]


def _figure(value: float) -> str | None:
    """A correlation with the digits that matter."""
    return None if math.isnan(value) else f"{value:.5f}"


def _spread(found: Difference) -> list[Any]:
    times = (found.median_ns, found.p1_ns, found.p99_ns, found.mean_ns)
    return [found.calls, *(value / 1e6 for value in times)]
