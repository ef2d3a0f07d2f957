"""Imported span tables against their truth: which row's call was made on behalf of which other one.

The truth is a CSV file with a header, also gzipped: message_id, true_parent_id (empty: the first call of its
transaction), true_trace_id and, if there is a scope, tw_scope (1: the edge counts for end-to-end accuracy as
TraceWeaver defines it, the share of transactions of which every edge in scope is right; without the column
every edge is in scope). Only validate/ reads it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import LinkKind
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table
from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.csv_files import csv_rows
from tapscope.validate.edges import Pairs, busy, by_crowd, by_pair, calibration, rate, roots
from tapscope.validate.validation import plain

NEEDED = ("message_id", "true_parent_id", "true_trace_id")

IN_SCOPE = {"": True, "1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
"""What stands under tw_scope, in small letters: programs write a column of 0 and 1 in three ways."""

Ints = NDArray[np.int64]


@dataclass
class SpanTruth:
    """Rows of a truth file. parent: id of the true parent, '' none; trace: id of the transaction; in_scope:
    whether the edge counts for end-to-end accuracy."""

    message_id: list[str]
    parent: list[str]
    trace: list[str]
    in_scope: list[bool]
    counters: dict[str, int]


@dataclass
class JudgedCalls:
    """What is judged, one row per call: ids and names of services, links, and times of the two clocks.

    caller, callee : index into services; parent : row, -1 none; kind : LinkKind; sent_ns : by the caller's
    clock; received_ns, responded_ns : by the callee's; -1 not observed
    """

    message_id: list[str]
    services: list[str]
    caller: Ints
    callee: Ints
    parent: Ints
    kind: Ints
    probability: NDArray[np.float64]
    sent_ns: Ints
    received_ns: Ints
    responded_ns: Ints


@dataclass(frozen=True)
class SpanAccuracy:
    """Result of `judge`. calls: those that the truth knows, and so are judged; end_to_end: share of the
    transactions of which every edge in scope is right."""

    paths: PathAccuracy
    calls: int
    traces: int
    traces_right_in_scope: int
    end_to_end: float

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def read(path: str | Path) -> SpanTruth:
    """Read a truth file; rows that are too short or name an id again are counted and left out. Blanks around
    a cell are no part of it.

    Raises TapscopeError for a file that is no truth, also where tw_scope holds something else than 0 and 1: a
    scope that is misread makes an accuracy that is another one.
    """
    counters: dict[str, int] = {}
    truth = SpanTruth([], [], [], [], counters)
    seen: set[str] = set()
    for row in csv_rows(Path(path), NEEDED, counters, "span_truth"):
        message_id, parent, trace = (row[name].strip() for name in NEEDED)
        if message_id in seen:
            counters["span_truth.repeated_message_id"] = counters.get("span_truth.repeated_message_id", 0) + 1
            continue
        seen.add(message_id)
        scope = row.get("tw_scope", "").strip()
        if scope.lower() not in IN_SCOPE:
            raise TapscopeError(
                f"row of message_id {message_id}: tw_scope is {scope!r}; expected 0 or 1",
                path=path,
                remedy="Write 1 where the edge counts, 0 where it does not (docs/spans.md).",
            )
        truth.message_id.append(message_id)
        truth.parent.append(parent)
        truth.trace.append(trace)
        truth.in_scope.append(bool(parent) and IN_SCOPE[scope.lower()])
    return truth


def from_run(run: RunFile) -> JudgedCalls:
    """The calls of a run file that was made of span tables."""
    span = run.read_columns("span")
    if not span["call"]:
        raise TapscopeError(
            "this run was not made of span tables",
            path=run.path,
            remedy="Make one with `tapscope trace --spans FILE.csv`, or validate with --events.",
        )
    calls = run.read_table("calls", ["client_node", "server_node", "arrive_ns", "depart_ns"])
    return judged_calls(
        span["message_id"], run.node_names(), calls, run.read_table("links"), np.array(span["sent_ns"])
    )


def judged_calls(
    message_id: list[str], services: list[str], calls: Table, links: Table, sent_ns: Ints
) -> JudgedCalls:
    """One row per call from the tables of a reconstruction; links are in order of calls."""
    return JudgedCalls(
        message_id,
        services,
        calls["client_node"].astype(np.int64),
        calls["server_node"].astype(np.int64),
        links["parent"].astype(np.int64),
        links["kind"].astype(np.int64),
        links["probability"],
        sent_ns.astype(np.int64),
        calls["arrive_ns"].astype(np.int64),
        calls["depart_ns"].astype(np.int64),
    )


def judge(calls: JudgedCalls, truth: SpanTruth) -> SpanAccuracy:
    """Judge links by the truth. A path is right when every call in it is there, none is there that does not
    belong, and every parent is right (METHOD 1). Calls that the truth does not know are not judged."""
    row_of = {own: row for row, own in enumerate(calls.message_id)}
    count = len(calls.message_id)
    true_parent = np.full(count, -1, dtype=np.int64)
    trace = np.full(count, -1, dtype=np.int64)
    in_scope = np.zeros(count, dtype=bool)
    known = np.zeros(count, dtype=bool)
    counters = dict(truth.counters)
    traces: dict[str, int] = {}
    broken: dict[int, bool] = {}  # transactions of which a call or parent is not in the table: one in scope?
    for own, parent_id, trace_id, scoped in zip(
        truth.message_id, truth.parent, truth.trace, truth.in_scope, strict=True
    ):
        number = traces.setdefault(trace_id, len(traces))
        row = row_of.get(own, -1)
        above = row_of.get(parent_id, -1) if parent_id else -1
        if row < 0 or (parent_id and above < 0):
            broken[number] = broken.get(number, False) or scoped
            name = "truth_without_call" if row < 0 else "parent_not_in_table"
            counters[name] = counters.get(name, 0) + 1
        if row >= 0:
            known[row], trace[row], true_parent[row] = True, number, above
            in_scope[row] = scoped and above >= 0
    counters["calls_without_truth"] = int(np.count_nonzero(~known))
    edge = known & (true_parent >= 0)
    right = np.where(edge, calls.parent == true_parent, calls.parent < 0)

    bad = np.zeros(len(traces), dtype=bool)
    bad[list(broken)] = True
    bad_in_scope = np.zeros(len(traces), dtype=bool)
    bad_in_scope[trace[in_scope & ~right]] = True
    bad_in_scope[[number for number, scoped in broken.items() if scoped]] = True
    bad[trace[known & ~right]] = True
    top = roots(calls.parent)
    strange = known & known[top] & (trace[top] != trace)
    bad[trace[top[strange]]] = True  # a call too many
    is_root = known & (true_parent < 0)
    bad[trace[is_root & (calls.kind != LinkKind.ROOT)]] = True
    correct = int(np.count_nonzero(~bad))
    reported = int(np.count_nonzero(known & (calls.kind == LinkKind.ROOT)))

    rows = np.flatnonzero(edge)
    parents = true_parent[rows]
    pair = Pairs.of(calls.caller[rows], calls.callee[rows], calls.services)
    claimed = edge & (calls.kind == LinkKind.LINKED)
    worth = calibration(calls.probability[claimed], right[claimed])
    in_flight = busy(
        calls.callee, calls.received_ns, calls.responded_ns, calls.callee[parents], calls.sent_ns[rows]
    )
    paths = PathAccuracy(
        edges=by_pair(pair, right[rows], calls.parent[rows] >= 0),
        paths_exist=len(traces),
        paths_reported=reported,
        paths_correct=correct,
        completeness=rate(correct, len(traces)),
        accuracy=rate(correct, reported),
        calibration=worth.bins,
        calibration_error=worth.error,
        sure_edges=worth.sure_edges,
        sure_wrong=worth.sure_wrong,
        concurrency=by_crowd(pair, right[rows], in_flight),
        counters={name: value for name, value in sorted(counters.items()) if value},
    )
    whole = int(np.count_nonzero(~bad_in_scope))
    return SpanAccuracy(paths, int(np.count_nonzero(known)), len(traces), whole, rate(whole, len(traces)))


def validate(run_path: str | Path, truth_path: str | Path) -> SpanAccuracy:
    """Judge a run file that was made of span tables, and store the result in it (meta span_validation)."""
    truth = read(truth_path)
    with RunFile.open(run_path, write=True) as run:
        found = judge(from_run(run), truth)
        run.set_meta("span_validation", plain(found.as_json()))
    return found
