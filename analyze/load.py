"""Load (queue length), throughput and point-in-time response time of every node in equal windows.

Load is the exact time-average of the number of calls that have arrived at a node and not yet left it (Wang,
ICDCS 2013, III-A: an integral of the step function, not a sample); throughput is the calls that completed in
the window (III-B, before normalisation to work units). A stay is half open, [arrive_ns, depart_ns): first
byte of the request to last byte of the response at the tap.

Edge rules, each of them counted by `stays`:
* a call without an answer that was still open when the connection or the capture ended stays until the
  earliest of: the next call on its connection, the end of the connection, the end of the capture
  (`load.open_until_end`);
* a call whose response fell into a gap of the capture left at an unknown time and is not in the load, because
  counting it to the end would raise the queue for good (`load.lost_response_excluded`); it counts as an
  arrival;
* a call that departs before it arrives is not counted at all (`load.negative_stay_excluded`);
* calls that arrived before the capture began are unknown to the tap: in the first moments, up to the longest
  response time, the load is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store import tables
from tapscope.store.codes import CallFlag
from tapscope.store.errors import TapscopeError

WINDOW_NS = 50_000_000
"""50 ms, the window of the paper (III-D)."""

MAX_ROWS = 40_000_000
"""More windows than this are refused: they would need more memory than a workstation has."""

Int = NDArray[np.int64]


@dataclass(frozen=True)
class Stays:
    """When each call was inside its node. Arrays have the length of `calls`; times int64 ns."""

    begin_ns: Int
    end_ns: Int
    arrived: NDArray[np.bool_]  # counts as an arrival
    inside: NDArray[np.bool_]  # counts in the load
    departed: NDArray[np.bool_]  # its departure was seen
    counters: list[tuple[str, int, str]]


def stays(calls: Mapping[str, NDArray[Any]], connection_end_ns: Int | None = None) -> Stays:
    """Apply the edge rules of this module to a calls table.

    `connection_end_ns` (one per row of connections) sharpens the end of unanswered calls; -1 = not closed.
    """
    begin = np.asarray(calls["arrive_ns"], dtype=np.int64)
    end = np.array(calls["depart_ns"], dtype=np.int64)
    flags = calls["flags"]
    departed = end >= 0
    negative = (departed & (end < begin)) | (begin < 0)
    lost = ~departed & ((flags & CallFlag.LOST_RESPONSE) != 0)
    still_open = ~departed & ~lost & ~negative
    if still_open.any():
        rows = np.flatnonzero(still_open)
        close = _next_on_connection(calls["conn"], begin, rows)
        np.minimum(close, max(int(begin.max()), int(end.max())), out=close)
        if connection_end_ns is not None and len(connection_end_ns):
            closed = connection_end_ns[calls["conn"][rows]]
            close = np.where(closed >= begin[rows], np.minimum(close, closed), close)
        end[rows] = close
    counters = [
        ("load.open_until_end", int(still_open.sum()), "calls"),
        ("load.lost_response_excluded", int((lost & ~negative).sum()), "calls"),
        ("load.negative_stay_excluded", int(negative.sum()), "calls"),
    ]
    return Stays(begin, end, ~negative, ~negative & ~lost, departed & ~negative, counters)


def _next_on_connection(conn: NDArray[Any], begin: Int, rows: Int) -> Int:
    """Arrival of the next call on the same connection, of calls in `rows`; the largest int64 without one.

    Only the calls on their connections are sorted: most calls are answered.
    """
    asked = np.zeros(int(conn.max()) + 1, dtype=np.bool_)
    asked[conn[rows]] = True
    these = np.flatnonzero(asked[conn])
    order = these[np.lexsort((begin[these], conn[these]))]
    following = np.full(len(order), np.iinfo(np.int64).max, dtype=np.int64)
    same = conn[order[1:]] == conn[order[:-1]]
    following[:-1][same] = begin[order[1:][same]]
    return following[np.argsort(order, kind="stable")][np.searchsorted(these, rows)]


def integral(begin_ns: Int, end_ns: Int, at_ns: Int) -> Int:
    """Call-nanoseconds spent before each time of `at_ns`: the integral of the step function, exact in int64.

    Sum over calls of max(0, t - begin) - max(0, t - end), from sorted times and prefix sums. Intermediate
    products may pass 2**63 and wrap; the difference is right modulo 2**64 and itself always fits.
    """
    return Inside(begin_ns, end_ns).integral(at_ns)


class Inside:
    """Calls of a node, sorted once for several questions: arrivals and departures, each by themselves."""

    def __init__(self, begin_ns: Int, end_ns: Int) -> None:
        self.begin_ns: Int = np.sort(begin_ns)
        self.end_ns: Int = np.sort(end_ns)
        self._sums = _sums(self.begin_ns), _sums(self.end_ns)

    def integral(self, at_ns: Int) -> Int:
        """See `integral`."""
        area: Int = _ramps(self.begin_ns, self._sums[0], at_ns) - _ramps(self.end_ns, self._sums[1], at_ns)
        return area

    def mean(self, edges_ns: Int) -> NDArray[np.float64]:
        """Time-weighted mean number of calls inside, per window between neighbouring edges."""
        mean: NDArray[np.float64] = np.diff(self.integral(edges_ns)) / np.diff(edges_ns)
        return mean


def _sums(values: Int) -> Int:
    out = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=out[1:])
    return out


def _ramps(since: Int, sums: Int, at: Int) -> Int:
    """Sum over `since` (sorted; `sums` of the first 0, 1, ...) of max(0, at - since), modulo 2**64."""
    count = np.searchsorted(since, at, side="right")
    area: Int = count * at - sums[count]
    return area


def level(begin_ns: Int, end_ns: Int, at_ns: Int) -> Int:
    """Calls inside at each time (right-continuous). `begin_ns` and `end_ns` are sorted, each by itself."""
    return np.searchsorted(begin_ns, at_ns, side="right") - np.searchsorted(end_ns, at_ns, side="right")


def window_edges(first_ns: int, last_ns: int, width_ns: int, *, nodes: int = 1) -> Int:
    """Edges of the windows that hold both times, at whole multiples of the width since the epoch.

    Raises TapscopeError for more than MAX_ROWS windows of all `nodes`: a week in windows of 1 ms would fill
    the memory.
    """
    low = first_ns // width_ns
    high = last_ns // width_ns + 1
    if (high - low) * nodes > MAX_ROWS:
        raise TapscopeError(
            f"{(high - low) * nodes} windows of {width_ns / 1e6:g} ms are too many",
            remedy="Take a wider window with --window, or cut the capture.",
        )
    return np.arange(low, high + 1, dtype=np.int64) * width_ns


def mean_inside(begin_ns: Int, end_ns: Int, edges_ns: Int) -> NDArray[np.float64]:
    """Time-weighted mean number of calls inside, per window between neighbouring edges."""
    return Inside(begin_ns, end_ns).mean(edges_ns)


def series(begin_ns: Int, end_ns: Int, edges_ns: Int) -> tuple[NDArray[np.float64], Int]:
    """Time-weighted mean and maximum number of calls inside, per window between neighbouring edges."""
    inside = Inside(begin_ns, end_ns)
    begin, end = inside.begin_ns, inside.end_ns
    load = inside.mean(edges_ns)
    highest = level(begin, end, edges_ns[:-1])
    # Between edges the step function can only rise at an arrival.
    window = np.searchsorted(edges_ns, begin, side="right") - 1
    seen = (window >= 0) & (window < len(highest))
    np.maximum.at(highest, window[seen], level(begin, end, begin[seen]))
    return load, highest


def loads(
    calls: Mapping[str, NDArray[Any]],
    nodes: Mapping[str, NDArray[Any]],
    width_ns: int = WINDOW_NS,
    *,
    connection_end_ns: Int | None = None,
    first_ns: int | None = None,
    last_ns: int | None = None,
) -> tables.Table:
    """The `loads` table (TABLES contract): a row per called node and window, node by node, in time order.

    All nodes have the same windows, aligned to multiples of `width_ns`, from `first_ns` to `last_ns`
    (default: first arrival and last event of any call). `arrivals` counts calls that arrived in the window,
    `completions` those whose departure was seen in it; `pit_*` are over the completions. O(n log n) in the
    calls, O(windows) in memory.
    """
    if width_ns <= 0:
        raise ValueError(f"width_ns is {width_ns}; it must be positive")
    called = np.unique(calls["server_node"])
    if len(called) and not 0 <= called[0] <= called[-1] < tables.rows(nodes):
        raise ValueError(f"server_node {called[0]}..{called[-1]} is outside of {tables.rows(nodes)} nodes")
    stay = stays(calls, connection_end_ns)
    if not stay.arrived.any():
        return tables.empty("loads")
    first = int(stay.begin_ns[stay.arrived].min()) if first_ns is None else first_ns
    last = (
        int(max(stay.begin_ns[stay.arrived].max(), stay.end_ns[stay.arrived].max()))
        if last_ns is None
        else last_ns
    )
    edges = window_edges(first, last, width_ns, nodes=len(called))
    parts = [_node_loads(int(node), calls["server_node"] == node, stay, edges) for node in called]
    return {c.name: np.concatenate([part[c.name] for part in parts]) for c in tables.TABLES["loads"]}


def _node_loads(node: int, here: NDArray[np.bool_], stay: Stays, edges: Int) -> tables.Table:
    windows = len(edges) - 1
    inside = here & stay.inside
    load, highest = series(stay.begin_ns[inside], stay.end_ns[inside], edges)
    arrivals = np.diff(np.searchsorted(np.sort(stay.begin_ns[here & stay.arrived]), edges, side="left"))
    done = np.flatnonzero(here & stay.departed)
    done = done[np.argsort(stay.end_ns[done], kind="stable")]
    end = stay.end_ns[done]
    response = end - stay.begin_ns[done]
    at_edge = np.searchsorted(end, edges, side="left")
    completions = np.diff(at_edge)
    total = np.diff(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(response)])[at_edge])
    pit_mean = np.full(windows, np.nan)
    np.divide(total, completions, out=pit_mean, where=completions > 0)
    pit_max = np.full(windows, -1, dtype=np.int64)
    window = np.searchsorted(edges, end, side="right") - 1
    seen = (window >= 0) & (window < windows)
    np.maximum.at(pit_max, window[seen], response[seen])
    return {
        "node": np.full(windows, node, dtype=np.int32),
        "window_ns": edges[:-1],
        "width_ns": np.diff(edges),
        "load": load,
        "max": highest.astype(np.int32),
        "arrivals": arrivals.astype(np.int32),
        "completions": completions.astype(np.int32),
        "pit_mean_ns": pit_mean,
        "pit_max_ns": pit_max,
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
