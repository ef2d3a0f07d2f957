"""What `queues` and `traces` list: load series per node, transactions, and the tree of one transaction."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tapscope.analyze.tcp_events import TOUCHED_COLUMNS, touched
from tapscope.store.codes import Direction, TcpEventKind
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile


def node_row(run: RunFile, name: str) -> int:
    """Row of the node with this name."""
    names = run.node_names()
    if name not in names:
        raise TapscopeError(
            f"no node is named {name!r}",
            path=run.path,
            remedy=f"There are: {', '.join(names)}." if names else "The run has no nodes.",
            exit_code=ExitCode.USAGE,
        )
    return names.index(name)


def queue_summary(run: RunFile) -> list[dict[str, Any]]:
    """Load, throughput and point-in-time response time of each called node over its windows."""
    names = run.node_names()
    loads = run.read_table("loads")
    records = []
    for node in np.unique(loads["node"]):
        at = loads["node"] == node
        load, width = loads["load"][at], loads["width_ns"][at]
        done = loads["completions"][at]
        total = int(done.sum())
        pit = np.nan_to_num(loads["pit_mean_ns"][at])
        highest = int(np.argmax(load))
        records.append(
            {
                "node": names[node],
                "windows": int(at.sum()),
                "width_ms": float(width[0]) / 1e6,
                "mean": float(load.mean()),
                "p95": float(np.percentile(load, 95)),
                "p99": float(np.percentile(load, 99)),
                "highest": float(load[highest]),
                "highest_ns": int(loads["window_ns"][at][highest]),
                "max": int(loads["max"][at].max()),
                "arrivals": int(loads["arrivals"][at].sum()),
                "completions": total,
                "completions_per_s": float(total / (width.sum() / 1e9)),
                "mean_response_ms": float((pit * done).sum() / total / 1e6) if total else float("nan"),
                "max_response_ms": float(loads["pit_max_ns"][at].max()) / 1e6 if total else float("nan"),
            }
        )
    return records


def queue_series(
    run: RunFile, node: str | None, first_ns: int | None = None, last_ns: int | None = None
) -> list[dict[str, Any]]:
    """Windows of one node, or of all, as stored; between two times if given."""
    conditions, params = ["1"], list[Any]()
    if node is not None:
        node_row(run, node)
        conditions.append("node = ?")
        params.append(node)
    for comparison, at in (("window_start_ns >= ?", first_ns), ("window_start_ns < ?", last_ns)):
        if at is not None:
            conditions.append(comparison)
            params.append(at)
    names, rows = run.query(
        "SELECT node, window_start_ns, width_ns, load, max, arrivals, completions, pit_mean_ns, pit_max_ns "
        f"FROM v_load WHERE {' AND '.join(conditions)} ORDER BY id",
        params,
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def trace_list(
    run: RunFile, *, limit: int, contains: str = "", order: str = "slowest"
) -> list[dict[str, Any]]:
    """Transactions: the slowest first, or in order of time, or the least sure first."""
    orders = {"slowest": "response_time_ns DESC", "time": "begin_ns", "unsure": "probability"}
    names, rows = run.query(
        "SELECT id, begin_ns, response_time_ns, calls, complete, probability, status, entry, src, sport, "
        "class "
        f"FROM v_trace WHERE instr(class, ?) > 0 OR ? = '' ORDER BY {orders[order]}, id LIMIT ?",
        (contains, contains, limit),
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def trace_tree(run: RunFile, trace: int) -> list[dict[str, Any]]:
    """The calls of one transaction, each after its parent, children in order of arrival."""
    names, rows = run.query(
        "SELECT a.id AS call, nullif(l.parent, -1) AS parent, t.depth, c.server_name AS node, c.protocol, "
        "c.class, c.arrive_ns, c.depart_ns, c.response_time_ns, "
        "nullif(t.intra_node_ns, -1) AS intra_node_ns, c.status, l.probability, c.flags "
        "FROM trace_call t JOIN call a ON a.id = t.call JOIN v_call c ON c.id = a.id "
        "LEFT JOIN link l ON l.child = a.id WHERE t.trace = ? ORDER BY a.arrive_ns, a.id",
        (trace,),
    )
    calls = [dict(zip(names, row, strict=True)) for row in rows]
    if not calls:
        raise TapscopeError(
            f"there is no transaction {trace}",
            path=run.path,
            remedy="`tapscope traces RUN.db` lists them.",
            exit_code=ExitCode.USAGE,
        )
    known = {call["call"] for call in calls}
    children: dict[Any, list[dict[str, Any]]] = {}
    for call in calls:
        parent = call["parent"] if call["parent"] in known else None
        children.setdefault(parent, []).append(call)
    listed: list[dict[str, Any]] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        call = waiting.pop()
        listed.append(call)
        waiting.extend(reversed(children.get(call["call"], [])))
    begin = listed[0]["arrive_ns"]
    met = _tcp_of_calls(run, [call["call"] for call in listed])
    return [call | {"offset_ns": call["arrive_ns"] - begin, "tcp": met[call["call"]]} for call in listed]


def _tcp_of_calls(run: RunFile, rows: list[int]) -> dict[int, list[dict[str, Any]]]:
    """What TCP did on its connection while each of these calls was under way."""
    met: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}
    of_calls = "conn IN (SELECT conn FROM call WHERE id IN (SELECT value FROM json_each(?)))"
    chosen = (json.dumps(rows),)
    events = run.read_table("tcp_events", where=of_calls, params=chosen)
    if not len(events["conn"]):
        return met
    calls = run.read_table("calls", ["id", *TOUCHED_COLUMNS], of_calls, chosen)
    found = touched(events, calls, run.read_table("connections", ["syn_ns", "last_ns"]))
    for event, call in zip(found.event.tolist(), calls["id"][found.call].tolist(), strict=True):
        if call in met:
            kind, direction = TcpEventKind(events["kind"][event]), Direction(events["direction"][event])
            times = {name: int(events[name][event]) for name in ("begin_ns", "end_ns", "packets", "bytes")}
            met[call].append({"kind": kind.name.lower(), "direction": direction.name.lower()} | times)
    return met
