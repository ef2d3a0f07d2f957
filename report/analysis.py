"""The section that relates load, throughput, utilisation and response time of each node over the whole run.

The figures are those of Wang et al. (ICDCS 2013: load against throughput with N*, Fig. 5, 9 and 12;
throughput as it is and normalised, Fig. 7; interval lengths, Fig. 8; collections against load, Fig. 10), Pu
(distribution of response times) and milliScope (utilisation per node, Fig. 8 and 12). A scatter holds at
most MOST_POINTS windows, thinned where they lie densest, so that the page does not grow with the run and no
outlier is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int, by_window
from tapscope.analyze.load import WINDOW_NS, window_edges
from tapscope.analyze.node_state import NodeState, node_state
from tapscope.analyze.node_work import NodeWork
from tapscope.analyze.response_time import OMISSION, modes
from tapscope.analyze.service_time import Float
from tapscope.analyze.symptoms import entry_nodes
from tapscope.analyze.tcp import set_up_ns
from tapscope.analyze.windows import WindowState, classify
from tapscope.hostmon.fuse import cpu_by_window, host_of_node, stop_share
from tapscope.report import encode
from tapscope.report.run import Run
from tapscope.report.sections import table
from tapscope.report.words import share, significant

WIDTHS_NS = (20_000_000, WINDOW_NS, 1_000_000_000)
"""The interval lengths that the paper compares (its Fig. 8)."""

MOST_POINTS = 1500
CELLS = 38
"""Per axis, for thinning; there must be fewer cells than points."""

BINS_PER_OCTAVE = 6
LOAD_SCALE = 100
RATE_SCALE = 10
PERCENT_SCALE = 10


@dataclass(frozen=True)
class Analysis:
    """What the sections share: how long setting up its connection kept each call from being sent (ns), and
    the state of every called node in windows of WINDOW_NS, by row of nodes."""

    waited: Int
    states: dict[int, NodeState]


def analyse(run: Run) -> Analysis:
    """Analyse every called node of a run, from the entry down."""
    nodes = dict.fromkeys(tier.node for tier in run.tiers)
    return Analysis(
        set_up_ns(run.calls, run.connections),
        run.read.of_each(lambda node: node_state(run.read.work(node), width_ns=WINDOW_NS), nodes),
    )


def figures(run: Run, known: Analysis) -> list[dict[str, Any]]:
    """Data of assets/analysis.js, one record per node."""
    hosts = host_of_node(run.file)
    if not known.states:
        return []
    entries = entry_nodes(run.nodes, run.calls)
    return [
        _node(run, known, state, hosts.get(node), node in entries) for node, state in known.states.items()
    ]


def _node(run: Run, known: Analysis, state: NodeState, host: str | None, is_entry: bool) -> dict[str, Any]:
    node = state.node
    work, at = run.read.work(node), run.read.at(node)
    tier = run.tier_of_node(node)
    # Clients wait for their connection, too; calls between servers are what the tap saw of them.
    took = at.end_ns - at.begin_ns + (known.waited[at.rows] if is_entry else 0)
    return {
        "node": node,
        "name": run.node_names[node],
        "colour": tier.colour if tier else 0,
        "point": _point(state),
        "unit_us": _finite(state.unit_ns / 1e3),
        "widths": [_load_and_throughput(state, work, width) for width in WIDTHS_NS],
        "raw": _not_normalised(state),
        "host": _against_load(run, state, host) if host is not None else [],
        "entry": is_entry,
        "times": _times(took[at.departed]),
    }


def _point(state: NodeState) -> dict[str, Any]:
    """N*, the levels above it, and shares of the windows."""
    point = state.point
    return {
        "reached": point.reached,
        "n_star": _finite(point.n_star),
        "low": _finite(point.low),
        "high": _finite(point.high),
        "slope": _finite(point.slope),
        "capacity": _finite(point.capacity),
        "reason": point.reason,
        "levels": [float(level) for level in state.speeds.throughput] if len(state.speeds.share) > 1 else [],
        "shares": {kind.name.lower(): round(100 * state.share(kind), 2) for kind in WindowState},
    }


def _load_and_throughput(state: NodeState, work: NodeWork, width_ns: int) -> dict[str, Any]:
    """Windows of one length as points: load, throughput and state of each that was not idle."""
    if width_ns == WINDOW_NS:
        load, rate, kind = state.load, state.throughput, state.state
    elif len(work.at):
        inside = work.at.inside
        edges = window_edges(int(inside.begin_ns[0]), int(inside.end_ns[-1]), width_ns)
        load = inside.mean(edges)
        rate = by_window(np.add, work.units, np.searchsorted(inside.end_ns, edges)) * 1e9 / width_ns
        usual = state.point.capacity if state.point.reached else 0.0
        kind = classify(load, rate, state.point.n_star, usual)
    else:
        load, rate, kind = np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.uint8)
    used = kind != WindowState.IDLE
    return {"ms": width_ns / 1e6, **points(load[used], rate[used], RATE_SCALE, kind[used])}


def _not_normalised(state: NodeState) -> dict[str, Any]:
    """Completed calls, whatever their class, of each window that was not idle; with the correlation of load
    with calls and with work units over normal windows."""
    used = state.state != WindowState.IDLE
    per_s = state.completions[used] * 1e9 / WINDOW_NS
    calls, units = map(_finite, state.follows)
    return {
        "r": calls,
        "r_units": units,
        "ms": WINDOW_NS / 1e6,
        **points(state.load[used], per_s, RATE_SCALE, state.state[used]),
    }


def _against_load(run: Run, state: NodeState, host: str) -> list[dict[str, Any]]:
    """Host metrics of each window against the node's load: collections, CPU."""
    found = []
    cpu = cpu_by_window(run.file, host, state.edges_ns)
    gc = stop_share(run.file, host, "jvm_gc", state.edges_ns)
    measured: list[tuple[str, str, Float]] = []
    if gc is not None:
        measured.append(("Time in garbage collection", "% of the window", 100 * gc))
    if cpu is not None:
        measured.append(("CPU", cpu.unit if cpu.unit != "%" else "% of all cores", cpu.busy))
    for name, unit, values in measured:
        used = np.isfinite(values)
        if used.sum() < 2:
            continue
        load, value = state.load[used], values[used]
        varies = load.std() > 0 and value.std() > 0
        r = float(np.corrcoef(load, value)[0, 1]) if varies else float("nan")
        found.append({"name": name, "unit": unit, "r": _finite(r), **points(load, value, PERCENT_SCALE)})
    return found


def _times(took: Int) -> dict[str, Any]:
    """Distribution of response times in bins of a logarithmic scale, and its modes."""
    took = took[took > 0]
    if not len(took):
        return {"first": 0, "per_octave": BINS_PER_OCTAVE, "count": [], "modes": []}
    at = np.floor(np.log2(took) * BINS_PER_OCTAVE).astype(np.int64)
    first = int(at.min())
    return {
        "first": first,
        "per_octave": BINS_PER_OCTAVE,
        "count": np.bincount(at - first).tolist(),
        "modes": [
            {"ns": mode.peak_ns, "share": round(mode.share, 6), "ladder": mode.ladder} for mode in modes(took)
        ],
    }


def points(x: Float, y: Float, y_scale: float, kind: NDArray[np.uint8] | None = None) -> dict[str, Any]:
    """Points of a scatter over load, in order of load: {"x", "y", "kind" if given, "of": how many there
    were, "most": how many were kept of each of "cells" (0: all)}."""
    rows, most = thinned(x, y, MOST_POINTS)
    rows = rows[np.argsort(x[rows], kind="stable")]
    made: dict[str, Any] = {
        "x": encode.column(x[rows], LOAD_SCALE),
        "y": encode.column(y[rows], y_scale),
        "of": len(x),
        "most": most,
        "cells": CELLS * CELLS,
    }
    if kind is not None:
        made["kind"] = kind[rows].tolist()
    return made


def thinned(x: Float, y: Float, most: int) -> tuple[NDArray[np.int64], int]:
    """Rows of at most `most` points that look like all of them, and how many a cell could keep (0: all).

    The plane is cut into CELLS x CELLS; full cells lose points evenly, those of few points keep every one.
    """
    if len(x) <= most:
        return np.arange(len(x)), 0
    cell = _cell(x) * CELLS + _cell(y)
    counts = np.bincount(cell, minlength=CELLS * CELLS)
    limit = 1
    while np.minimum(counts, limit + 1).sum() <= most:
        limit += 1
    order = np.argsort(cell, kind="stable")
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    step = np.maximum(-(-counts // limit), 1)[cell[order]]
    return np.sort(order[rank % step == 0]), limit


def _cell(values: Float) -> NDArray[np.int64]:
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return np.zeros(len(values), dtype=np.int64)
    return np.minimum((values - low) / (high - low) * CELLS, CELLS - 1).astype(np.int64)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def section(run: Run, known: Analysis) -> str:
    """HTML of what needs no script: utilisation of every node, and what the figures cannot say."""
    if not known.states:
        return "<p>There are no calls to analyse.</p>"
    hosts = host_of_node(run.file)
    rows = [_utilisation(run, state, hosts.get(node)) for node, state in known.states.items()]
    head = (
        ("node", ""),
        ("N*", "n"),
        ("calls inside, share of time", "n"),
        ("congested", "n"),
        ("stalled", "n"),
        ("CPU, mean", "n"),
        ("CPU, highest window", "n"),
        ("in collection, mean", "n"),
        ("highest window", "n"),
    )
    made = table(head, rows, "utilisation", "Utilisation of each node")
    return f'{made}<p class="hint">{escape(OMISSION)}</p>'


def _utilisation(run: Run, state: NodeState, host: str | None) -> list[str]:
    cpu = gc = None
    if host is not None:
        cpu = cpu_by_window(run.file, host, state.edges_ns)
        gc = stop_share(run.file, host, "jvm_gc", state.edges_ns)
    windows = max(len(state.load), 1)
    point = state.point
    n_star = (
        f"{significant(point.n_star)} ({significant(point.low)} to {significant(point.high)})"
        if point.reached
        else "not reached"
    )
    return [
        escape(run.node_names[state.node]),
        escape(n_star),
        escape(share(float((state.load > 0).sum()), windows)),
        escape(share(float((state.state == WindowState.CONGESTED).sum()), windows)),
        escape(share(float((state.state == WindowState.STALLED).sum()), windows)),
        *_mean_and_highest(None if cpu is None else cpu.busy, "" if cpu is None else cpu.unit),
        *_mean_and_highest(None if gc is None else 100 * gc, "%"),
    ]


def _mean_and_highest(values: Float | None, unit: str) -> tuple[str, str]:
    if values is None or not np.isfinite(values).any():
        return "–", "–"
    mean, highest = significant(float(np.nanmean(values))), significant(float(np.nanmax(values)))
    return f"{mean} {escape(unit)}", f"{highest} %"
