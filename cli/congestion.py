"""What `congestion` lists: where each node's throughput stops growing, and what it did in each window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tapscope.analyze.calls import read_calls
from tapscope.analyze.node_state import NodeState, node_state
from tapscope.analyze.windows import WindowState
from tapscope.cli.listings import node_row
from tapscope.cli.output import note
from tapscope.cli.show import records as show_records
from tapscope.store.runfile import RunFile


def states(run: RunFile, node: str | None = None, width_ns: int | None = None) -> list[NodeState]:
    """State of the called nodes of a run, or of one (TapscopeError when there is none of this name)."""
    read = read_calls(run)
    if not len(read.calls["conn"]):
        return []
    nodes = None if node is None else [node_row(run, node)]
    return list(read.of_each(lambda one: node_state(read.work(one), width_ns=width_ns), nodes).values())


def record(state: NodeState, name: str) -> dict[str, Any]:
    """One node as a record; times in the unit that the key names."""
    unit_us = state.unit_ns / 1e3
    return {
        "node": name,
        "window_ms": float(np.diff(state.edges_ns[:2])[0]) / 1e6 if len(state.load) else float("nan"),
        "window_reason": state.window.reason,
        "window_correlation": {
            f"{width / 1e6:g} ms": float(r)
            for width, r in zip(state.window.candidates_ns, state.window.correlation, strict=True)
            if np.isfinite(r)
        },
        "unit_us": unit_us,
        "reached": state.point.reached,
        "n_star": state.point.n_star,
        "n_star_low": state.point.low,
        "n_star_high": state.point.high,
        "capacity_units_per_s": state.point.capacity,
        "reason": state.point.reason,
        "n_star_paper": state.paper.n_star,
        "paper_reason": state.paper.reason,
        "windows": len(state.load),
        "r_load_completions": state.follows[0],
        "r_load_units": state.follows[1],
        **{f"{kind.name.lower()}_pct": 100 * state.share(kind) for kind in WindowState},
        "speeds_units_per_s": [float(value) for value in state.speeds.throughput],
        "speeds_pct": [100 * float(value) for value in state.speeds.share],
    }


def series(state: NodeState, name: str) -> list[dict[str, Any]]:
    """One record per window of a node."""
    return [
        {
            "node": name,
            "window_start_ns": int(at),
            "load": float(load),
            "units_per_s": float(rate),
            "completions": int(done),
            "state": WindowState(int(kind)).name.lower(),
            "speed": int(speed),
        }
        for at, load, rate, done, kind, speed in zip(
            state.edges_ns[:-1],
            state.load,
            state.throughput,
            state.completions,
            state.state,
            state.speeds.of_window,
            strict=True,
        )
    ]


def _pair(calls: float, units: float) -> str | None:
    """Two correlations, in one cell; None where there is neither."""
    if np.isnan(calls) and np.isnan(units):
        return None
    return ", ".join("-" if np.isnan(r) else f"{r:.2f}" for r in (calls, units))


def show(listed: Sequence[Mapping[str, Any]]) -> None:
    """One line per node, and why, below."""
    columns = {
        "node": "node",
        "window_ms": "window ms",
        "unit_us": "work unit us",
        "n_star": "N*",
        "interval": "90 % interval",
        "capacity_units_per_s": "capacity units/s",
        "n_star_paper": "N* (windows)",
        "normal_pct": "normal %",
        "congested_pct": "congested %",
        "stalled_pct": "stalled %",
        "speeds": "speeds",
        "follows": "r of load with calls, units",
    }
    rows = [
        dict(r)
        | {
            "interval": f"{r['n_star_low']:.3g} to {r['n_star_high']:.3g}" if r["reached"] else "not reached",
            "speeds": len(r["speeds_units_per_s"]) or "",
            "follows": _pair(r["r_load_completions"], r["r_load_units"]),
        }
        for r in listed
    ]
    show_records("Congestion", rows, columns)
    for r in listed:
        note(f"{r['node']}: N*: {r['reason']}; window: {r['window_reason']}.")
