"""What `response-times` lists: the distribution of response times per node and per class of transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import CALL_COLUMNS
from tapscope.analyze.response_time import OMISSION, Histogram, Mode, modes, pit, vlrt
from tapscope.analyze.symptoms import entry_nodes, transactions
from tapscope.analyze.tcp_events import touched, trace_of_calls
from tapscope.cli.listings import node_row
from tapscope.cli.output import cell, note, utc
from tapscope.cli.show import records as show_records
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table

ALL = "(all)"
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}

Int = NDArray[np.int64]


def document(run: RunFile) -> dict[str, Any]:
    """Everything that the command knows: {"nodes", "entries", "transactions": [...], "omission": words}.

    `nodes` has a record per called node, over its calls. `entries` has one per node that clients call, of
    response times as they met them: with the wait for their connection; `transactions` the same per class,
    most frequent first.
    """
    calls, connections = run.read_table("calls", CALL_COLUMNS), run.read_table("connections")
    names, classes = run.node_names(), run.classes()
    found: dict[str, Any] = {"nodes": [], "entries": [], "transactions": [], "omission": OMISSION}
    if not len(calls["conn"]):
        return found
    took = np.where(calls["depart_ns"] >= 0, calls["depart_ns"] - calls["arrive_ns"], -1)
    met, met_by_trace = _met_tcp(run, calls, connections)
    for node in np.unique(calls["server_node"]).tolist():
        here = calls["server_node"] == node
        found["nodes"].append({"node": names[node]} | _distribution(took[here], met[here]))
    seen = transactions(calls, connections, entry_nodes(run.read_table("nodes"), calls))
    waited = seen.end_ns - seen.begin_ns
    met = met_by_trace[seen.rows]
    node, class_id = calls["server_node"][seen.rows], calls["class_id"][seen.rows]
    for one in np.unique(node).tolist():
        here = node == one
        found["entries"].append({"node": names[one], "class": ALL} | _distribution(waited[here], met[here]))
    pairs = np.stack([node, class_id], axis=1)
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    for kind, rows in enumerate(_groups(which.ravel(), len(kinds))):
        of_node, of_class = (int(value) for value in kinds[kind])
        text = classes[of_class][1] if of_class >= 0 else "(no class)"
        found["transactions"].append(
            {"node": names[of_node], "class": text} | _distribution(waited[rows], met[rows])
        )
    found["transactions"].sort(key=lambda record: -record["count"])
    return found


def _met_tcp(run: RunFile, calls: Table, connections: Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which calls TCP kept waiting or broke, and which are of a transaction of which it did one."""
    met = np.zeros(len(calls["conn"]), dtype=np.bool_)
    events = run.read_table("tcp_events")
    if not len(events["conn"]):
        return met, met
    met[touched(events, calls, connections).call] = True
    trace = trace_of_calls(run, len(met))
    return met, met | np.isin(trace, trace[met & (trace >= 0)])


def _groups(which: NDArray[np.int64], count: int) -> Iterator[Int]:
    """Positions of the members of each group."""
    if not count:
        return
    order = np.argsort(which, kind="stable")
    yield from np.split(order, np.searchsorted(which[order], np.arange(1, count)))


def _distribution(took_ns: Int, met_tcp: NDArray[np.bool_]) -> dict[str, Any]:
    """Counts, percentiles (ms) and modes of response times; those below zero were not observed. `met_tcp`:
    which of them met an event of TCP (`tapscope listeners --events`)."""
    known = took_ns[took_ns >= 0]
    late, threshold = vlrt(known)
    histogram = Histogram()
    histogram.add(known)
    longest = float(known.max()) if len(known) else float("nan")
    return {
        "count": len(known),
        "unanswered": len(took_ns) - len(known),
        "mean_ms": float(known.mean()) / 1e6 if len(known) else float("nan"),
        # The middle of the last bucket may lie above the longest of all.
        **{name: min(histogram.percentile(share), longest) / 1e6 for name, share in SHARES.items()},
        "max_ms": longest / 1e6,
        "vlrt": int(late.sum()),
        "vlrt_from_ms": threshold / 1e6,
        "tcp": int(met_tcp.sum()),
        "vlrt_tcp": int((late & met_tcp[took_ns >= 0]).sum()),
        "modes": [_mode(one) for one in modes(known)],
    }


def _mode(one: Mode) -> dict[str, Any]:
    return {
        "peak_ms": one.peak_ns / 1e6,
        "low_ms": one.low_ns / 1e6,
        "high_ms": one.high_ns / 1e6,
        "share_pct": 100 * one.share,
        "ladder": one.ladder,
    }


def point_in_time(
    run: RunFile, width_ns: int, node: str | None = None, *, by_start: bool = False
) -> list[dict[str, Any]]:
    """Response time of the calls that end (`by_start`: begin) in each window, of one node or of the entry
    nodes. Windows without a call are left out."""
    calls = run.read_table("calls", ["server_node", "arrive_ns", "depart_ns"])
    names = run.node_names()
    if not len(calls["arrive_ns"]):
        return []
    chosen = entry_nodes(run.read_table("nodes"), calls) if node is None else np.array([node_row(run, node)])
    listed = []
    for one in chosen.tolist():
        answered = (calls["depart_ns"] >= 0) & (calls["depart_ns"] >= calls["arrive_ns"])
        rows = np.flatnonzero((calls["server_node"] == one) & answered)
        begin, end = calls["arrive_ns"][rows], calls["depart_ns"][rows]
        if not len(rows):
            continue
        # Windows with calls alone, so that a pause costs nothing, however long.
        starts = np.unique((begin if by_start else end) // width_ns) * width_ns
        series = pit(begin, end, np.union1d(starts, starts + width_ns), by_start=by_start)
        listed += [
            {
                "node": names[one],
                "window_start_ns": int(series.edges_ns[at]),
                "calls": int(series.calls[at]),
                "mean_ms": float(series.mean_ns[at]) / 1e6,
                "max_ms": float(series.max_ns[at]) / 1e6,
            }
            for at in np.flatnonzero(series.calls).tolist()
        ]
    return listed


def rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """The records of a document as one flat table; the modes in words, nodes without a class."""
    keys = [
        "node",
        "class",
        "count",
        "unanswered",
        "mean_ms",
        *SHARES,
        "max_ms",
        "vlrt",
        "vlrt_from_ms",
        "tcp",
        "vlrt_tcp",
    ]
    listed = [*found["nodes"], *found["entries"], *found["transactions"]]
    return [*keys, "modes"], [[r.get(key) for key in keys] + [mode_words(r["modes"])] for r in listed]


def mode_words(listed: Sequence[Mapping[str, Any]]) -> str:
    """Modes in words, shortest first; those that a SYN sent again explains are named."""
    return "; ".join(
        f"{cell(one['peak_ms'])} ms ({one['share_pct']:.3g} %"
        + (f", {one['ladder']} behind the main one: SYN sent again)" if one["ladder"] else ")")
        for one in listed
    )


def show(found: Mapping[str, Any], limit: int) -> None:
    """Two tables, the modes below the first, and what percentiles of calls cannot say."""
    columns = {
        "node": "node",
        "class": "class",
        "count": "calls",
        "mean_ms": "mean ms",
        "p50_ms": "p50",
        "p90_ms": "p90",
        "p99_ms": "p99",
        "p999_ms": "p99.9",
        "max_ms": "max ms",
        "vlrt": "VLRT",
        "vlrt_from_ms": "from ms",
        "vlrt_tcp": "VLRT by TCP",
        "tcp": "met TCP",
    }
    of_nodes = {key: title for key, title in columns.items() if key != "class"}
    show_records("Response times per node", found["nodes"], of_nodes | {"unanswered": "unanswered"})
    classes = found["transactions"]
    shown = [*found["entries"], *classes[:limit]]
    show_records("Transactions per class, with the wait for their connection", shown, columns)
    for one in (*found["nodes"], *shown):
        if len(one["modes"]) > 1:
            of = f"{one['node']} {one['class']}" if "class" in one else one["node"]
            print(f"{of}: {len(one['modes'])} modes: {mode_words(one['modes'])}")
    if len(classes) > limit:
        note(f"{len(classes) - limit} rarer classes are not shown (--limit).")
    note(found["omission"])


def show_windows(listed: Sequence[Mapping[str, Any]], *, by_start: bool) -> None:
    """One line per window that has calls."""
    columns = {
        "node": "node",
        "at": "window (UTC)",
        "calls": "calls",
        "mean_ms": "mean ms",
        "max_ms": "max ms",
    }
    title = f"Point-in-time response time of the calls that {'begin' if by_start else 'end'} in each window"
    show_records(title, [dict(r) | {"at": utc(r["window_start_ns"])} for r in listed], columns)
