"""Scores of findings against faults, over one run or many, as figures and tables.

Shares have the 95 % interval of Wilson, so that thirty faults are not read as a thousand, and rates that of
Garwood, so that a minute without a false finding is not read as an hour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scipy.special import gammaincinv

from tapscope.validate.faults import LEAST_NS, RIGHT, Fault, FaultScore
from tapscope.validate.summary import Table

WINDOW_NS = 50_000_000
HOUR_NS = 3_600_000_000_000
MISSED = "(missed)"
LENGTHS_MS = ((50, 100), (100, 200), (200, 400), (400, None))
"""Faults by length: how short a fault may be and still be found."""


def wilson(good: int, of: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927); 0 to 1 for nothing."""
    if not of:
        return 0.0, 1.0
    z = 1.959964
    centre = good + z * z / 2
    half = z * math.sqrt(good * (of - good) / of + z * z / 4)
    return (centre - half) / (of + z * z), (centre + half) / (of + z * z)


def poisson(count: int) -> tuple[float, float]:
    """95 % interval of the number to expect where so many were counted (Garwood 1936)."""
    low = float(gammaincinv(count, 0.025)) if count else 0.0
    return low, float(gammaincinv(count + 1, 0.975))


def as_json(scores: Sequence[FaultScore]) -> dict[str, Any]:
    """Figures by kind (KIND@HOST for one at several hosts) and over all kinds, and every fault.

    NaN (a share of nothing) becomes None.
    """
    faults = [fault for score in scores for fault in score.faults]
    kinds = _by_kind(faults)
    hours = sum(score.quiet_ns for score in scores) / HOUR_NS
    false = Counter(cause for score in scores for cause in score.false)
    return {
        "runs": [score.run for score in scores],
        "all": _figures(faults),
        "by_kind": {kind: _figures(those) for kind, those in kinds.items()},
        "by_length": {
            f"{low} to {high} ms" if high else f"{low} ms and more": _figures(
                [one for one in faults if low <= _ms(one) and (high is None or _ms(one) < high)]
            )
            for low, high in LENGTHS_MS
        },
        "confusion": {
            kind: dict(Counter(fault.named or MISSED for fault in those)) for kind, those in kinds.items()
        },
        "short_faults": sum(score.short_faults for score in scores),
        "joined_faults": sum(score.joined for score in scores),
        "findings": sum(score.findings for score in scores),
        "findings_in_aftermath": sum(score.aftermath for score in scores),
        "false_findings": sum(false.values()),
        "false_findings_by_cause": dict(false),
        "precision": _precision(scores),
        "quiet_hours": hours,
        "false_findings_per_quiet_hour": sum(false.values()) / hours if hours else float("nan"),
        "false_findings_per_quiet_hour_interval": (
            [bound / hours for bound in poisson(sum(false.values()))] if hours else None
        ),
        **_calm(scores),
        "faults": [
            {"run": score.run, **asdict(fault), "cause_right": fault.cause_right}
            for score in scores
            for fault in score.faults
        ],
    }


def tables(scores: Sequence[FaultScore]) -> list[Table]:
    """(title, column heads, rows) of what people read first."""
    told = as_json(scores)
    heads = ["fault", "caused", "found", "right node", "right cause"]
    heads += ["harm's onset: error ms (median)", "within a window"]
    heads += ["cause's onset: error ms (median)", "within a window", "interval holds it"]
    figures = {**told["by_kind"], **({"all": told["all"]} if len(told["by_kind"]) > 1 else {})}
    other = [
        [
            told["findings"],
            told["findings_in_aftermath"],
            told["false_findings"],
            f"{told['precision']:.1%}",
            f"{told['quiet_hours'] * 60:.1f}",
            _rate(told),
            ", ".join(f"{n} {cause}" for cause, n in sorted(told["false_findings_by_cause"].items())),
            told["false_findings_while_calm"],
            told["calm_minutes"],
        ]
    ]
    return [
        (f"Findings against faults of {LEAST_NS // 1_000_000} ms and more", heads, _rows(figures)),
        ("The same by length", ["length", *heads[1:]], _rows(told["by_length"])),
        _confusion(told["confusion"]),
        (
            "Findings without a fault",
            [
                *(
                    "findings",
                    "in an aftermath",
                    "false",
                    "precision",
                    "quiet minutes",
                    "false per hour",
                    "named",
                ),
                *("false on a calm machine", "calm quiet minutes"),
            ],
            other,
        ),
    ]


def _rate(told: dict[str, Any]) -> str:
    """False findings per quiet hour with their interval."""
    interval = told["false_findings_per_quiet_hour_interval"]
    if interval is None:
        return ""
    return f"{told['false_findings_per_quiet_hour']:.1f} ({interval[0]:.1f} to {interval[1]:.1f})"


def _rows(figures: dict[str, dict[str, Any]]) -> list[list[Any]]:
    """A row for each name that had faults."""
    return [
        [
            name,
            one["caused"],
            _share(one["found"], one["caused"]),
            _share(one["node_right"], one["found"]),
            _share(one["cause_right"], one["found"]),
            "" if one["median_onset_error_ms"] is None else f"{one['median_onset_error_ms']:.0f}",
            _share(one["onset_within_window"], one["found"]),
            "" if one["median_cause_error_ms"] is None else f"{one['median_cause_error_ms']:.0f}",
            _share(one["cause_onset_within_window"], one["cause_onsets"]),
            _share(one["cause_interval_holds"], one["cause_intervals"]),
        ]
        for name, one in figures.items()
        if one["caused"]
    ]


def _calm(scores: Sequence[FaultScore]) -> dict[str, Any]:
    """False findings while nobody else used much of the machine, of the runs that know; None without one."""
    known = [score for score in scores if score.calm_ns is not None]
    calm = sum(len(score.false) - len(score.disturbed or []) for score in known)
    return {
        "false_findings_while_calm": calm if known else None,
        "calm_minutes": sum(score.calm_ns or 0 for score in known) / 6e10 if known else None,
    }


def _confusion(counted: dict[str, dict[str, int]]) -> Table:
    named = sorted({cause for row in counted.values() for cause in row}, key=lambda c: (c == MISSED, c))
    rows = [
        [
            f"{kind} ({RIGHT.get(kind.partition('@')[0], 'unknown')})",
            *(row.get(cause, 0) or "" for cause in named),
        ]
        for kind, row in counted.items()
    ]
    return "Named cause by kind of fault", ["fault (right cause)", *named], rows


def _ms(fault: Fault) -> float:
    return (fault.end_ns - fault.begin_ns) / 1e6


def _by_kind(faults: Sequence[Fault]) -> dict[str, list[Fault]]:
    hosts: dict[str, set[str]] = {}
    for fault in faults:
        hosts.setdefault(fault.kind, set()).add(fault.host)
    found: dict[str, list[Fault]] = {}
    for fault in faults:
        several = len(hosts[fault.kind]) > 1
        found.setdefault(f"{fault.kind}@{fault.host}" if several else fault.kind, []).append(fault)
    return dict(sorted(found.items()))


def _figures(faults: Sequence[Fault]) -> dict[str, Any]:
    hit = [fault for fault in faults if fault.found is not None]
    errors = sorted(abs(fault.onset_error_ns or 0) for fault in hit)
    good = {
        "node_right": sum(fault.node_right for fault in hit),
        "cause_right": sum(fault.cause_right for fault in hit),
        "onset_within_window": sum(error <= WINDOW_NS for error in errors),
    }
    return {
        "caused": len(faults),
        "found": len(hit),
        **good,
        "recall": len(hit) / len(faults) if faults else float("nan"),
        "recall_interval": wilson(len(hit), len(faults)),
        **{f"{name}_share": value / len(hit) if hit else float("nan") for name, value in good.items()},
        **_of_cause(hit),
        "median_onset_error_ms": _median_ms(errors),
    }


def _of_cause(hit: Sequence[Fault]) -> dict[str, Any]:
    """Begins of causes, as far as they can be judged."""
    of_cause = sorted(abs(fault.cause_error_ns) for fault in hit if fault.cause_error_ns is not None)
    held = [fault.cause_interval_holds for fault in hit if fault.cause_interval_holds is not None]
    return {
        "cause_onsets": len(of_cause),
        "cause_onset_within_window": sum(error <= WINDOW_NS for error in of_cause),
        "median_cause_error_ms": _median_ms(of_cause),
        "cause_intervals": len(held),
        "cause_interval_holds": sum(held),
    }


def _median_ms(errors_ns: list[int]) -> float | None:
    return errors_ns[(len(errors_ns) - 1) // 2] / 1e6 if errors_ns else None


def _precision(scores: Sequence[FaultScore]) -> float:
    """Findings of a fault among those that are not in an aftermath."""
    judged = sum(score.findings - score.aftermath for score in scores)
    false = sum(len(score.false) for score in scores)
    return (judged - false) / judged if judged else float("nan")


def _share(good: int, of: int) -> str:
    if not of:
        return ""
    low, high = wilson(good, of)
    return f"{good / of:.0%} ({low:.0%} to {high:.0%})"
