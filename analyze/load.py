"""Load (queue length), throughput and point-in-time response time of every node in equal windows.

Load is the exact time-average of the number of calls that have arrived at a node and not yet left it (Wang,
ICDCS 2013, III-A: an integral of the step function, not a sample); throughput is the calls that completed in
the window (III-B, before normalisation to work units). A stay is half open, [arrive_ns, depart_ns): first
byte of the request to last byte of the response at the tap.

Which calls count is told by `tapscope.analyze.stays`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import Read
from tapscope.analyze.inside import Int, by_window
from tapscope.analyze.node_calls import NodeCalls
from tapscope.store import tables
from tapscope.store.errors import TapscopeError

WINDOW_NS = 50_000_000
"""50 ms, the window of the paper (III-D)."""

MAX_ROWS = 40_000_000
"""More windows than this are refused: they would need more memory than a workstation has."""


def window_edges(first_ns: int, last_ns: int, width_ns: int, *, nodes: int = 1) -> Int:
    """Edges of the windows that hold both times, at whole multiples of the width since the epoch.

    Raises TapscopeError for more than MAX_ROWS windows of all `nodes`: a week in windows of 1 ms would fill
    the memory.
    """
    low = first_ns // width_ns
    high = last_ns // width_ns + 1
    _refuse_too_many((high - low) * nodes, width_ns)
    return np.arange(low, high + 1, dtype=np.int64) * width_ns


def _refuse_too_many(windows: int, width_ns: int) -> None:
    if windows > MAX_ROWS:
        raise TapscopeError(
            f"{windows} windows of {width_ns / 1e6:g} ms are too many",
            remedy="Take a wider window with --window, or cut the capture.",
        )


def loads(
    read: Read,
    nodes: Mapping[str, NDArray[Any]],
    width_ns: int = WINDOW_NS,
    *,
    first_ns: int | None = None,
    last_ns: int | None = None,
) -> tables.Table:
    """The `loads` table (TABLES contract): a row per called node and window, node by node, in time order.

    All nodes have the same windows, aligned to multiples of `width_ns`, from `first_ns` to `last_ns`
    (default: first arrival and last event of any call; where each node has its own clock, in span tables, of
    any call of the node, since by another clock its calls may lie hours away). `arrivals` counts calls that
    arrived in the window, `completions` those whose departure was seen in it; `pit_*` are over the
    completions. O(n log n) in the calls, O(windows) in memory.
    """
    if width_ns <= 0:
        raise ValueError(f"width_ns is {width_ns}; it must be positive")
    called = read.nodes
    if called and not 0 <= called[0] <= called[-1] < tables.rows(nodes):
        raise ValueError(f"server_node {called[0]}..{called[-1]} is outside of {tables.rows(nodes)} nodes")
    spans = {}
    for node in called:
        if (span := read.span_ns(node)) is not None:
            first, last = span
            spans[node] = first if first_ns is None else first_ns, last if last_ns is None else last_ns
    if not spans:
        return tables.empty("loads")
    _refuse_too_many(
        sum(last // width_ns - first // width_ns + 1 for first, last in spans.values()), width_ns
    )
    edges = {span: window_edges(*span, width_ns) for span in set(spans.values())}
    parts = read.of_each(
        lambda node: _node_loads(read.at(node), read.unknown_end(node), edges[spans[node]]), spans
    )
    return {c.name: np.concatenate([parts[node][c.name] for node in spans]) for c in tables.TABLES["loads"]}


def _node_loads(at: NodeCalls, arrived_too_ns: Int, edges: Int) -> tables.Table:
    windows = len(edges) - 1
    inside = at.inside
    arrivals = np.diff(np.searchsorted(inside.begin_ns, edges))
    arrivals += np.diff(np.searchsorted(arrived_too_ns, edges))
    end, response = inside.end_ns, inside.end_ns - inside.begin_ns[at.by_end]
    if not at.departed.all():
        seen = at.departed[at.by_end]
        end, response = end[seen], response[seen]
    cuts = np.searchsorted(end, edges)
    completions = np.diff(cuts)
    pit_mean = np.full(windows, np.nan)
    np.divide(by_window(np.add, response, cuts), completions, out=pit_mean, where=completions > 0)
    return {
        "node": np.full(windows, at.node, dtype=np.int32),
        "window_ns": edges[:-1],
        "width_ns": np.diff(edges),
        "load": inside.mean(edges),
        "max": inside.highest(edges).astype(np.int32),
        "arrivals": arrivals.astype(np.int32),
        "completions": completions.astype(np.int32),
        "pit_mean_ns": pit_mean,
        "pit_max_ns": by_window(np.maximum, response, cuts, -1),
    }


def throughput_per_s(table: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Completions per second of each row of a loads table (the straightforward throughput of III-B)."""
    rate: NDArray[np.float64] = table["completions"] * 1e9 / table["width_ns"]
    return rate


def coarser(table: Mapping[str, NDArray[Any]], factor: int) -> tables.Table:
    """The same loads in windows `factor` times as wide, aligned to the epoch.

    Means are weighted, maxima and sums kept. Exact up to float64 rounding of the means; windows that the
    input covers only in part keep the covered mean.
    """
    if factor < 1:
        raise ValueError(f"factor is {factor}; it must be at least 1")
    if not len(table["node"]):
        return tables.empty("loads")
    width = table["width_ns"] * factor
    start = table["window_ns"] // width * width
    new = np.ones(len(start), dtype=np.bool_)
    new[1:] = (start[1:] != start[:-1]) | (table["node"][1:] != table["node"][:-1])
    at = np.flatnonzero(new)
    covered = np.add.reduceat(table["width_ns"], at)
    completions = np.add.reduceat(table["completions"], at)
    summed = np.add.reduceat(np.nan_to_num(table["pit_mean_ns"]) * table["completions"], at)
    pit_mean = np.full(len(at), np.nan)
    np.divide(summed, completions, out=pit_mean, where=completions > 0)
    return {
        "node": table["node"][at],
        "window_ns": start[at],
        "width_ns": width[at],
        "load": np.add.reduceat(table["load"] * table["width_ns"], at) / covered,
        "max": np.maximum.reduceat(table["max"], at),
        "arrivals": np.add.reduceat(table["arrivals"], at),
        "completions": completions,
        "pit_mean_ns": pit_mean,
        "pit_max_ns": np.maximum.reduceat(table["pit_max_ns"], at),
    }
