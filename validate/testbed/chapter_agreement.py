"""The chapter's part on agreement: queue lengths (milliScope Fig. 20-22), verdicts, single requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.store.runfile import RunFile
from tapscope.validate import drawings
from tapscope.validate.event_calls import TIERS
from tapscope.validate.verdict import READINGS

from .markdown import image, table
from .sweep import Workload

LABELS = dict(READINGS.values())
"""Readings of the queue length that the chapter shows, by their name in the JSON of `validate`."""
STAMPS = {
    "sent": "caller sends",
    "arrive": "server takes up",
    "depart": "server is done",
    "received": "caller has it",
}
"""Stamps of a call by their name in the JSON of `validate`, in order of time."""
R_BAR, BIAS_BAR_PERCENT = 0.999, 1.0
SHOWN_S = 10
"""Seconds of each run that the figures show: those around the longest queue of the entry tier."""
TIER_SQL = """SELECT window_ns, width_ns, tap_load, load, caller_load FROM event_load
              WHERE tier = ? AND left_out = '' ORDER BY window_ns"""


def agreement(found: Sequence[Workload], folder: Path) -> list[str]:
    parts = ["### Queue length, tap against event monitors", ""]
    chosen = dict.fromkeys((found[0].users, found[len(found) // 2].users, found[-1].users))
    for workload in found:
        if workload.users in chosen:
            name = f"queues-{workload.users}"
            drawings.queue_lengths(_series(workload), folder / f"{name}.svg")
            parts += [image(f"Queue length of every tier, {workload.users} users", folder, name)]
    tiers = list(dict.fromkeys(tier["tier"] for w in found for tier in w.validation["tiers"]))
    shown = [n for n in LABELS if any(n in t["readings"] for w in found for t in w.validation["tiers"])]
    rows = [_row(tier, workload, shown) for tier in tiers for workload in found]
    lack = {
        tier: {LABELS[name]: [_distance(workload, tier, name) for workload in found] for name in shown}
        for tier in tiers
    }
    drawings.by_workload([w.users for w in found], lack, 1 - R_BAR, folder / "correlation.svg")
    of_readings = [f"{part}, {LABELS[name]}" for name in shown for part in ("r", "bias %")]
    head = ["tier", "users", "mean queue", *of_readings, "windows", "left out", "agrees with", _bar()]
    return [
        *parts,
        *table(head, rows),
        image("1 - r by workload; the dashed line is r = 0.999", folder, "correlation"),
    ]


def by_threads(found: Sequence[Workload]) -> list[str]:
    """Tap against logs of the servers' threads, for the workloads whose runs have any."""
    found = [replace(each, validation=each.threads) for each in found if each.threads is not None]
    if not found:
        return []
    tiers = list(dict.fromkeys(tier["tier"] for w in found for tier in w.validation["tiers"]))
    shown = ["concurrent", "concurrent_by_senders", "concurrent_at_wire"]
    rows = [_row(tier, workload, shown) for tier in tiers for workload in found]
    of_readings = [
        f"{part}, {label}" for label in ("receives", "sends", "at wire") for part in ("r", "bias %")
    ]
    return [
        "### Queue length, tap against the servers' system calls",
        "",
        "By logs of their threads: a server's own receives and sends; its caller's send and its own; these "
        "moved to the wire. Below: system call minus wire.",
        "",
        *table(
            ["tier", "users", "mean queue", *of_readings, "windows", "left out", "agrees with", _bar()], rows
        ),
        *requests(found)[2:],
    ]


def _bar() -> str:
    return f"r >= {R_BAR:g}, bias <= {BIAS_BAR_PERCENT:g} %"


def _row(tier: str, workload: Workload, shown: Sequence[str]) -> list[Any]:
    result = _result(workload, tier)
    if result is None:
        return [tier, workload.users, *[None] * (2 * len(shown) + 2), "", "no log", ""]
    got = [result["readings"].get(name) or {} for name in shown]
    pairs = [v for each in got for v in (_correlation(each.get("pearson_r")), each.get("bias_percent"))]
    mean = (result["readings"].get("concurrent") or {}).get("tap_mean")
    left_out = ", ".join(f"{count} {why}" for why, count in result["windows_left_out"].items())
    verdict = result["agrees_with"] or "nothing"
    bar = _meets(shown, got)
    return [tier, workload.users, mean, *pairs, result["windows_compared"], left_out, verdict, bar]


def _result(workload: Workload, tier: str) -> dict[str, Any] | None:
    return next((each for each in workload.validation["tiers"] if each["tier"] == tier), None)


def _distance(workload: Workload, tier: str, name: str) -> float:
    """1 - r of a reading; NaN when there is none."""
    r = (((_result(workload, tier) or {}).get("readings") or {}).get(name) or {}).get("pearson_r")
    return float("nan") if r is None else 1 - float(r)


def _correlation(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"


def _meets(shown: Sequence[str], readings: Sequence[dict[str, Any]]) -> str:
    """Which reading, if any, meets the bar of the validation."""
    for name, each in zip(shown, readings, strict=True):
        r, bias = each.get("pearson_r"), each.get("bias_percent")
        if r is not None and bias is not None and r >= R_BAR and abs(bias) <= BIAS_BAR_PERCENT:
            return f"yes: {LABELS[name]}"
    return "no"


def _series(workload: Workload) -> dict[str, dict[str, Any]]:
    """Both queue lengths of every tier over the seconds around the longest queue of the first."""
    out: dict[str, dict[str, Any]] = {}
    begin = None
    with RunFile.open(workload.path) as run:
        for tier in workload.validation["tiers"]:
            rows = np.array(run.sql(TIER_SQL, (tier["tier"],)), dtype=np.float64)
            if not len(rows):
                continue
            at = (rows[:, 0] - rows[0, 0]) / 1e9 if begin is None else (rows[:, 0] - begin) / 1e9
            if begin is None:
                last = max(float(at[-1]) - SHOWN_S, 0.0)
                start = min(max(float(at[np.argmax(rows[:, 2])]) - SHOWN_S / 2, 0.0), last)
                begin = rows[0, 0] + start * 1e9
                at = at - start
            here = (at >= 0) & (at < SHOWN_S)
            series = {"at_s": at[here], "tap": rows[here, 2], "log": rows[here, 3]}
            if not np.all(np.isnan(rows[here, 4])):
                series["caller"] = rows[here, 4]
            out[f"{tier['tier']} ({tier['what']})"] = series
    return out


def verdicts(found: Sequence[Workload]) -> list[str]:
    rows = [
        [workload.users, workload.validation["verdict"], reason]
        for workload in found
        for reason in [*workload.validation["failures"], *workload.validation["undecided"]]
        or ["every tier agrees"]
    ]
    return ["### Verdicts", "", *table(["users", "verdict", "why"], rows)]


def requests(found: Sequence[Workload]) -> list[str]:
    """Where the logs' stamps sit relative to the wire, request by request, and the clocks of their hosts."""
    rows = []
    for workload in found:
        for place, each in enumerate(workload.validation["requests"]):
            got = [each.get(name) or {} for name in STAMPS]
            values = [None if g.get(q) is None else g[q] / 1e6 for g in got for q in ("median_ns", "p99_ns")]
            rows.append((place, [each["tier"], workload.users, each["matched"], *values]))
    head = [
        "tier",
        "users",
        "requests",
        *(f"{s}: {q} ms" for s in STAMPS.values() for q in ("median", "p99")),
    ]
    ordered = [row for _, row in sorted(rows, key=lambda row: row[0])]
    return ["### Request by request: log minus wire, clock removed", "", *table(head, ordered)]


def clocks(found: Sequence[Workload]) -> list[str]:
    """What was taken for the clocks of the logs' hosts. On the testbed the truth is known: one clock."""
    rows = []
    for workload in found:
        for each in workload.validation["clocks"]:
            first = (each["lines"] or [{}])[0]
            offset, drift = first.get("offset_ns"), first.get("drift_ppb")
            values = [None if v is None else v / 1e6 for v in (offset, each["error_ns"])]
            rows.append([each["of"], workload.users, each["method"], *values, drift, len(each["steps"])])
    head = ["log of", "users", "found by", "offset ms", "error ms", "drift ppb", "steps"]
    rows.sort(key=lambda row: TIERS.index(row[0]) if row[0] in TIERS else -1)
    text = "All hosts of the testbed have one clock: every offset, drift and step found here is an error."
    return ["### Clocks", "", text, "", *table(head, rows)]
