"""The strips: every time series of the page, on one time axis, as plain data for assets/strips.js.

A strip is {"id", "group", "title", "note", "unit", "colour", "series": [...]}; a series is {"label", "role",
"colour", "x", "y"} with x an axis and y a column of encode.py. Roles: mean, max, event, rate, host, mark.
Windows are drawn as steps from their start, as stored; very long runs are merged into wider windows, in
which a mean stays the time-weighted mean and a maximum the maximum, so that no peak is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import coarser, throughput_per_s
from tapscope.analyze.response_time import vlrt
from tapscope.analyze.tcp import syns_sent_again
from tapscope.report import encode
from tapscope.report.run import Columns, Run, Tier, protocol_name

MAX_WINDOWS = 120_000
"""Windows per series in the page: 100 minutes at 50 ms. Longer runs are merged into wider windows."""
MAX_MARKS = 2_000
NOTICEABLE = 0.02
"""Mean difference of two curves, of their mean, from which both are drawn."""
LOAD_SCALE = 1000.0
MICRO = 1000.0  # ns

EVENT_TIER_PROTOCOLS = {"web": (1, 7), "app": (2, 6), "middle": (4, 11), "db": (3, 5)}
"""Protocols in which a tier of the event monitors is called: HTTP; AJP, FastCGI; C-JDBC, Avatica; MySQL,
PostgreSQL."""


def strips(run: Run) -> list[dict[str, Any]]:
    """Strips of queue length, throughput and point-in-time response time, from the entry tier down."""
    loads = run.file.read_table("loads")
    events = _event_loads(run)
    made: dict[str, list[dict[str, Any]]] = {"queue": [], "throughput": [], "response": []}
    seen: set[int] = set()
    for tier in run.tiers:
        if tier.node in seen:  # loads are per node: a node with two protocols has one series
            continue
        seen.add(tier.node)
        table = {name: values[loads["node"] == tier.node] for name, values in loads.items()}
        if not len(table["window_ns"]):
            continue
        series = coarser(table, max(1, -(-len(table["window_ns"]) // MAX_WINDOWS)))
        made["queue"].append(_queue(run, tier, series, events.get(tier.node)))
        made["throughput"].append(_throughput(run, tier, series))
        if tier.depth <= run.tiers[0].depth:
            made["response"].append(_response(run, tier, series))
    return made["response"] + made["queue"] + made["throughput"]


def _strip(
    run: Run, tier: Tier, group: str, unit: str, note: str, series: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": f"{group}-{tier.node}",
        "group": group,
        "title": tier.name,
        "note": note,
        "unit": unit,
        "colour": tier.colour,
        "protocol": protocol_name(tier.protocol),
        "series": series,
    }


def _series(
    label: str, role: str, colour: int, x: dict[str, Any], y: NDArray[Any], scale: float
) -> dict[str, Any]:
    return {"label": label, "role": role, "colour": colour, "x": x, "y": encode.column(y, scale)}


def _queue(run: Run, tier: Tier, table: Columns, event: Columns | None) -> dict[str, Any]:
    x = encode.axis(table["window_ns"], run.start_ns)
    series = [
        _series("max", "max", tier.colour, x, table["max"], 1),
        _series("tap", "mean", tier.colour, x, table["load"], LOAD_SCALE),
    ]
    note = ""
    if event is not None:
        factor = -(-len(event["window_ns"]) // MAX_WINDOWS)
        windows = _merged_means(event, factor)
        at = encode.axis(windows["window_ns"], run.start_ns)
        if "tap_load" in windows and _differs(table, windows):
            series.append(
                _series("tap, compared calls", "compared", tier.colour, at, windows["tap_load"], LOAD_SCALE)
            )
        series.append(_series("event monitor", "event", 0, at, windows["load"], LOAD_SCALE))
        note = "tap and event monitor"
    return _strip(run, tier, "queue", "calls", note, series)


def _differs(table: Columns, event: Columns) -> bool:
    """Whether the calls that the log can show make a curve that can be told from that of all calls."""
    if len(table["window_ns"]) != len(event["window_ns"]):
        return True
    gap = np.abs(table["load"] - event["tap_load"])
    return bool(np.nanmean(gap) > NOTICEABLE * np.nanmean(table["load"]))


def _merged_means(table: Columns, factor: int) -> Columns:
    if factor <= 1:
        return table
    starts = np.arange(0, len(table["window_ns"]), factor)
    sizes = np.diff(np.append(starts, len(table["window_ns"])))
    return {
        name: values[starts] if name == "window_ns" else np.add.reduceat(values, starts) / sizes
        for name, values in table.items()
    }


def _throughput(run: Run, tier: Tier, table: Columns) -> dict[str, Any]:
    x = encode.axis(table["window_ns"], run.start_ns)
    return _strip(
        run,
        tier,
        "throughput",
        "calls/s",
        "",
        [_series("completed", "rate", tier.colour, x, throughput_per_s(table), 100)],
    )


def _response(run: Run, tier: Tier, table: Columns) -> dict[str, Any]:
    x = encode.axis(table["window_ns"], run.start_ns)
    longest = np.where(table["pit_max_ns"] >= 0, table["pit_max_ns"] / 1e6, np.nan)
    series = [
        _series("max", "max", tier.colour, x, longest, MICRO),
        _series("mean", "mean", tier.colour, x, table["pit_mean_ns"] / 1e6, MICRO),
    ]
    at, stay, threshold, total = slow_calls(run, tier)
    note = ""
    if len(at):
        mark = _series("VLRT", "mark", 0, encode.axis(at, run.start_ns), stay / 1e6, MICRO)
        series.append(mark)
        note = f"VLRT: {total} calls of {threshold / 1e6:.0f} ms and more"
        if total > len(at):
            note += f", the longest {len(at)} marked"
    resent = syns_sent_again(run.connections)
    resent = resent[run.connections["server_addr"][resent] == run.nodes["addr"][tier.node]][:MAX_MARKS]
    if len(resent):
        when = run.connections["syn_ns"][resent]
        series.append(
            _series("SYN sent again", "syn", 0, encode.axis(when, run.start_ns), np.zeros(len(when)), 1)
        )
    return _strip(run, tier, "response", "ms", note, series)


def slow_calls(run: Run, tier: Tier) -> tuple[NDArray[np.int64], NDArray[np.int64], float, int]:
    """Calls of a tier whose response time is very long (analyze/response_time.py).

    Returns departure and response time (int64 ns, in order of departure, the longest MAX_MARKS), the
    threshold in ns, and how many there are in all.
    """
    calls = run.calls
    mine = (calls["server_node"] == tier.node) & (calls["depart_ns"] >= 0)
    depart = calls["depart_ns"][mine]
    stay = depart - calls["arrive_ns"][mine]
    late, threshold = vlrt(stay)
    slow = np.flatnonzero(late)
    total = len(slow)
    slow = slow[np.argsort(-stay[slow], kind="stable")[:MAX_MARKS]]
    slow = slow[np.argsort(depart[slow], kind="stable")]
    return depart[slow], stay[slow], threshold, total


def _event_loads(run: Run) -> dict[int, Columns]:
    """Queue length by event monitors, per node that it is compared with."""
    columns = run.file.read_columns("event_load")
    tiers = np.array(columns["tier"], dtype=object)
    found: dict[int, Columns] = {}
    for name in dict.fromkeys(columns["tier"]):
        rows = np.flatnonzero(tiers == name)
        node = columns["tap_node"][rows[0]] if "tap_node" in columns else None
        node = event_node(run, name) if node is None or node < 0 else int(node)
        if node is None:
            continue
        table: Columns = {}
        for column in ("window_ns", "load", "tap_load"):
            if column in columns and columns[column][rows[0]] is not None:
                dtype = np.int64 if column == "window_ns" else np.float64
                table[column] = np.array([columns[column][row] for row in rows], dtype=dtype)
        order = np.argsort(table["window_ns"], kind="stable")
        found[node] = {column: values[order] for column, values in table.items()}
    return found


def event_node(run: Run, name: str) -> int | None:
    """Node of a tier of the event monitors: by its own name, or by the protocol it is called in."""
    for tier in run.tiers:
        if tier.name == name:
            return tier.node
    for tier in run.tiers:
        if tier.protocol in EVENT_TIER_PROTOCOLS.get(name, ()):
            return tier.node
    return None
