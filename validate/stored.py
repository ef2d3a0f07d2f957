"""What a validation leaves in the run file: true calls, both load series, the figures, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.runfile import RunFile
from tapscope.validate.agreement import Reading, TierAgreement
from tapscope.validate.event_calls import TIERS, EventCalls, Names

MEASURES = (
    ("pearson_r", "pearson_r", ""),
    ("spearman_r", "spearman_r", ""),
    ("rmse", "rmse", "calls"),
    ("mae", "mean_absolute_error", "calls"),
    ("max_error", "max_error", "calls"),
    ("bias", "bias", "calls"),
    ("bias_percent", "bias_percent", "%"),
    ("windows", "windows", ""),
)
"""Name in the table, field of Reading, unit."""


def store(
    run: RunFile,
    document: dict[str, Any],
    compared: list[TierAgreement],
    logs: EventCalls,
    nodes: dict[str, list[int]],
) -> None:
    """Replace whatever an earlier validation stored."""
    run.write_event_calls(*_event_calls(logs))
    run.write_columns("event_load", _event_loads(compared, nodes))
    run.write_columns("agreement", _agreement(compared))
    run.write_sources([{**source, "format": source["monitor"]} for source in logs.sources])
    run.write_counters(logs.counters)
    run.set_meta("validation", document)


def _event_calls(logs: EventCalls) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    calls, below = logs.calls, logs.downstream
    count = len(calls["arrive_ns"])
    sent = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    received = np.full(count, -1, dtype=np.int64)
    np.minimum.at(sent, below["call"], below["send_ns"])
    np.maximum.at(received, below["call"], below["receive_ns"])
    sent[sent == np.iinfo(np.int64).max] = -1
    texts = Names()

    def coded(codes: NDArray[Any], names: Iterable[str]) -> NDArray[np.int64]:
        """The texts' numbers; of -1 that of ''."""
        of = np.array([texts.code(name) for name in (*names, "")], dtype=np.int64)
        return np.asarray(of[codes])

    files = [str(source["path"]).rpartition("/")[2] for source in logs.sources]
    columns = {
        "tier": coded(calls["tier"], TIERS),
        "host": coded(calls["host"], logs.hosts),
        "request_id": coded(calls["request_id"], logs.request_ids),
        "class": coded(calls["command"], logs.commands),
        "downstream_send_ns": sent,
        "downstream_receive_ns": received,
        "file": coded(calls["source"], files),
    }
    columns |= {name: calls[name] for name in ("arrive_ns", "depart_ns", "status", "line")}
    return columns, texts.texts


def _event_loads(compared: list[TierAgreement], nodes: dict[str, list[int]]) -> dict[str, list[Any]]:
    """Log and tap side by side per window. A log without departures gives no queue length, hence no rows."""
    columns: dict[str, list[Any]] = {name: [] for name in ("tier", "tap_node", "window_ns", "width_ns")}
    sides = ("load", "max", "arrivals", "completions")
    columns |= {name: [] for name in (*sides, *(f"tap_{name}" for name in sides), "caller_load", "left_out")}
    for tier in compared:
        if tier.reading("concurrent") is None:
            continue
        windows = tier.windows
        count = len(windows["window_ns"])
        columns["tier"] += [tier.tier] * count
        columns["tap_node"] += [nodes[tier.tier][0]] * count
        for name in ("window_ns", "width_ns", "left_out"):
            columns[name] += windows[name].tolist()
        columns["caller_load"] += (
            windows["caller_load"].tolist() if "caller_load" in windows else [None] * count
        )
        for name in sides:
            columns[name] += windows[f"log_{name}"].tolist()
            columns[f"tap_{name}"] += windows[f"tap_{name}"].tolist()
    return columns


def _agreement(compared: list[TierAgreement]) -> dict[str, list[Any]]:
    rows: list[dict[str, Any]] = []
    for tier in compared:
        for reading in tier.readings:
            rows += [_row(tier, reading, *measure) for measure in MEASURES]
        lag: dict[str, Any] = {
            "tier": tier.tier,
            "subject": "concurrent",
            "measure": "best_lag_ms",
            "unit": "ms",
        }
        lag["value"] = None if tier.lag_ns is None else tier.lag_ns / 1e6
        left_out: dict[str, Any] = {
            "tier": tier.tier,
            "subject": "concurrent",
            "measure": "windows_left_out",
            "unit": "",
        }
        left_out["value"] = float(sum(tier.windows_left_out.values()))
        left_out["detail"] = ", ".join(f"{why} {count}" for why, count in tier.windows_left_out.items())
        rows += _between(tier)
        rows += [lag, left_out] if tier.reading("concurrent") else []
    names = ("tier", "subject", "measure", "value", "low", "high", "unit", "detail")
    empty = {"value": None, "low": None, "high": None}
    return {name: [row.get(name, empty.get(name, "")) for row in rows] for name in names}


def _between(tier: TierAgreement) -> list[dict[str, Any]]:
    """Shares of windows in which the tap lies between, below and above the two logs."""
    if tier.between is None:
        return []
    what = "windows in which the tap's queue length lies {} the server's and its caller's log"
    return [
        {
            "tier": tier.tier,
            "subject": "between_logs",
            "measure": share,
            "value": 100 * getattr(tier.between, share),
            "unit": "%",
            "detail": what.format("between" if share == "inside" else share),
        }
        for share in ("inside", "below", "above")
    ]


def _row(tier: TierAgreement, reading: Reading, measure: str, field: str, unit: str) -> dict[str, Any]:
    value = float(getattr(reading, field))
    row: dict[str, Any] = {"tier": tier.tier, "subject": reading.name, "measure": measure, "unit": unit}
    row |= {"value": value if math.isfinite(value) else None}
    if measure == "bias":
        row |= {"low": reading.limit_low, "high": reading.limit_high}
        row |= {"detail": "95 % of the differences lie between low and high"}
    return row
