"""Which transactions go into the page, and everything a waterfall needs about their calls.

A page cannot hold a million transactions. It holds the slowest of the whole run, the slowest of each slice of
time (so that any place on the strips has some), and a few of every response-time bucket; the page says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.tcp_events import told, touched
from tapscope.report import encode
from tapscope.report.run import Columns, Run

SLOWEST = 100
SLICES, PER_SLICE = 60, 5
PER_BUCKET = 4
BUCKETS_PER_DECADE = 5
MAX_CALLS = 30_000
"""Calls of all waterfalls together: about 2 MB of page."""
MAX_CALLS_EACH = 2_000
PERCENT = 100.0
PROBABILITY_SCALE = 10_000.0


def transactions(run: Run, wanted: NDArray[np.int64]) -> dict[str, Any]:
    """Data for assets/transactions.js: histogram, chosen transactions and their calls. `wanted` are rows of
    traces that should be among them."""
    traces = run.traces
    ended = np.flatnonzero(traces["end_ns"] >= 0)
    stay = (traces["end_ns"] - traces["begin_ns"])[ended]
    bucket, edges = buckets(stay)
    chosen = np.union1d(
        choose(traces["begin_ns"][ended], stay, bucket), np.flatnonzero(np.isin(ended, wanted))
    )
    chosen = chosen[np.argsort(-stay[chosen], kind="stable")]
    members, first = _members(run, ended[chosen])
    keep = _within(first, MAX_CALLS)
    chosen, first = chosen[:keep], first[: keep + 1]
    members = {name: values[: first[-1]] for name, values in members.items()}
    rows = ended[chosen]
    histogram = {
        "edges_ms": (edges / 1e6).tolist(),
        "count": np.bincount(bucket, minlength=max(len(edges) - 1, 0)).tolist() if len(edges) else [],
    }
    return {
        "total": len(traces["root"]),
        "ended": len(ended),
        "histogram": histogram,
        "transactions": _rows(run, rows, bucket[chosen], first),
        "calls": _calls(run, members, first),
    }


def buckets(stay: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Response-time bucket of each transaction and the edges (ns) of the buckets, as many as used."""
    if not len(stay):
        return np.empty(0, dtype=np.int64), np.empty(0)
    index = np.floor(np.log10(np.maximum(stay, 1_000)) * BUCKETS_PER_DECADE + 1e-9).astype(np.int64)
    low, high = int(index.min()), int(index.max())
    return index - low, 10.0 ** (np.arange(low, high + 2) / BUCKETS_PER_DECADE)


def choose(begin: NDArray[np.int64], stay: NDArray[np.int64], bucket: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the transactions that go into the page, the slowest first."""
    if not len(stay):
        return np.empty(0, dtype=np.int64)
    slowest_first = np.argsort(-stay, kind="stable")
    span = max(int(begin.max() - begin.min()), 1)
    time_slice = ((begin - begin.min()) * SLICES // (span + 1))[slowest_first]
    among = {
        *slowest_first[:SLOWEST].tolist(),
        *slowest_first[_first_of_each(time_slice, PER_SLICE)].tolist(),
        *slowest_first[_first_of_each(bucket[slowest_first], PER_BUCKET)].tolist(),
    }
    chosen = np.array(sorted(among), dtype=np.int64)
    return chosen[np.argsort(-stay[chosen], kind="stable")]


def _first_of_each(group: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Positions of the first `number` members of every group, in the order given."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    return order[rank < number]


def _within(first: NDArray[np.int64], most: int) -> int:
    """How many transactions fit, at least one."""
    if len(first) <= 1:
        return 0
    return max(1, int(np.searchsorted(first, most, side="right")) - 1)


def _members(run: Run, traces: NDArray[np.int64]) -> tuple[Columns, NDArray[np.int64]]:
    """Rows of trace_calls of the given traces, in order of trace and arrival, and where each trace begins."""
    chosen = np.isin(run.members["trace"], traces)
    table = {name: values[chosen] for name, values in run.members.items()}
    place = np.full(len(run.traces["root"]), -1, dtype=np.int64)
    place[traces] = np.arange(len(traces))
    where = np.where(table["trace"] >= 0, place[table["trace"]], -1)
    rows = np.flatnonzero(where >= 0)
    arrive = run.calls["arrive_ns"][table["call"][rows]]
    rows = rows[np.lexsort((table["depth"][rows], arrive, where[rows]))]
    ordinal = np.arange(len(rows)) - np.searchsorted(where[rows], where[rows], side="left")
    rows = rows[ordinal < MAX_CALLS_EACH]
    first = np.searchsorted(where[rows], np.arange(len(traces) + 1), side="left")
    return {name: values[rows] for name, values in table.items()}, first


def _rows(
    run: Run, rows: NDArray[np.int64], bucket: NDArray[np.int64], first: NDArray[np.int64]
) -> dict[str, Any]:
    traces = run.traces
    root = traces["root"][rows].astype(np.int64)
    begin, end = traces["begin_ns"][rows], traces["end_ns"][rows]
    return {
        "trace": rows.tolist(),
        "begin": encode.column(begin - run.start_ns),
        "end": encode.column(end - run.start_ns),
        "class": [run.class_text(int(class_id)) for class_id in run.calls["class_id"][root]],
        "status": run.calls["status"][root].tolist(),
        "calls": traces["calls"][rows].tolist(),
        "complete": traces["complete"][rows].astype(int).tolist(),
        "probability": np.rint(traces["probability"][rows] * PROBABILITY_SCALE).astype(int).tolist(),
        "concurrent": concurrent(traces["begin_ns"], traces["end_ns"], begin, end).tolist(),
        "bucket": bucket.tolist(),
        "first": first.tolist(),
    }


def concurrent(
    begins: NDArray[np.int64], ends: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many others of all transactions overlap each of the given ones (that are among them).

    Times int64 ns; an end of -1 was not seen and counts as open to the end of the capture.
    """
    started = np.searchsorted(np.sort(begins), end, side="left")
    over = np.searchsorted(np.sort(ends[ends >= 0]), begin, side="right")
    others: NDArray[np.int64] = np.maximum(started - over - 1, 0)
    return others


def _calls(run: Run, members: Columns, first: NDArray[np.int64]) -> dict[str, Any]:
    """Columns of the calls of the chosen transactions in a row; times from their root's arrival."""
    call = members["call"].astype(np.int64)
    calls, links = run.calls, run.links
    root_at = calls["arrive_ns"][call[first[:-1]]] if len(call) else np.empty(0, dtype=np.int64)
    zero = np.repeat(root_at, np.diff(first))
    local = np.full(len(calls["conn"]), -1, dtype=np.int64)
    local[call] = np.arange(len(call)) - np.repeat(first[:-1], np.diff(first))
    parent = links["parent"][call]
    classes, class_index = np.unique(calls["class_id"][call], return_inverse=True)
    times, second = run.shown("calls", call), run.shown("links", call)
    runner = second["runner_up"]
    runner_probability = np.where(runner >= 0, second["runner_up_probability"], 0.0)
    runner_texts = [_runner_up(run, int(row)) if row >= 0 else "" for row in runner.tolist()]
    texts = sorted(set(runner_texts))
    number = {text: place for place, text in enumerate(texts)}

    def relative(at: NDArray[np.int64]) -> dict[str, Any]:
        return encode.column(np.where(at >= 0, at - zero, np.nan))

    return {
        "classes": [run.class_text(int(class_id)) for class_id in classes],
        "class": class_index.tolist(),
        "parent": np.where(parent >= 0, local[np.maximum(parent, 0)], -1).tolist(),
        "node": calls["server_node"][call].tolist(),
        "protocol": calls["protocol"][call].tolist(),
        "arrive": relative(calls["arrive_ns"][call]),
        "request_end": relative(times["request_end_ns"]),
        "response_begin": relative(times["response_begin_ns"]),
        "depart": relative(calls["depart_ns"][call]),
        "intra": encode.column(np.where(members["intra_node_ns"] >= 0, members["intra_node_ns"], np.nan)),
        "status": calls["status"][call].tolist(),
        "flags": calls["flags"][call].tolist(),
        "kind": links["kind"][call].tolist(),
        "probability": np.rint(links["probability"][call] * PROBABILITY_SCALE).astype(int).tolist(),
        "runner_probability": np.rint(runner_probability * PROBABILITY_SCALE).astype(int).tolist(),
        "runner_texts": texts,
        "runner": [number[text] for text in runner_texts],
        "queue": _queue_on_arrival(run, call).tolist(),
        "tcp": _tcp(run, call, zero),
    }


def _tcp(run: Run, call: NDArray[np.int64], zero: NDArray[np.int64]) -> dict[str, Any]:
    """What TCP did to these calls: for each event that touched one, its place in `call`, from when to when
    after `zero`, and in words."""
    events = run.file.read_table("tcp_events")
    busy = np.zeros(len(run.connections["syn_ns"]), dtype=np.bool_)
    busy[run.calls["conn"][call]] = True
    found = touched(events, run.calls, run.connections, np.flatnonzero(busy[events["conn"]]))
    place = np.full(len(run.calls["conn"]), -1, dtype=np.int64)
    place[call] = np.arange(len(call))
    at = place[found.call]
    event, at = found.event[at >= 0], at[at >= 0]
    kind, direction = events["kind"][event].tolist(), events["direction"][event].tolist()
    return {
        "call": at.tolist(),
        "begin": encode.column(events["begin_ns"][event] - zero[at]),
        "end": encode.column(events["end_ns"][event] - zero[at]),
        "words": [told(one, way) for one, way in zip(kind, direction, strict=True)],
    }


def _runner_up(run: Run, row: int) -> str:
    """The second best parent in words: when it arrived, and its class."""
    at = (int(run.calls["arrive_ns"][row]) - run.start_ns) / 1e9
    return f"{run.class_text(int(run.calls['class_id'][row])) or 'no class'} (arrived at {at:.6f} s)"


def _queue_on_arrival(run: Run, call: NDArray[np.int64]) -> NDArray[np.int64]:
    """Calls that each call met at its node when it arrived, itself not counted."""
    calls = run.calls
    node = calls["server_node"][call]
    met = np.zeros(len(call), dtype=np.int64)
    for each in np.unique(node):
        inside = run.read.at(int(each)).inside
        at = calls["arrive_ns"][call[node == each]]
        before = np.searchsorted(inside.begin_ns, at, side="left")
        gone = np.searchsorted(inside.end_ns, at, side="right")
        met[node == each] = np.maximum(before - gone, 0)
    return met
