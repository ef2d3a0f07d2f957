"""Span tables to the tables that a capture gives, and on to links and traces.

Of every call the callee's clock goes into `calls`, so that queue lengths are those of the node that was
called; the caller's clock goes into a table of its own, which the matcher takes the children's times from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tapscope.reconstruct import topology, traces
from tapscope.reconstruct.exact import exact_links
from tapscope.reconstruct.match.links import links
from tapscope.reconstruct.match.refusal import NOTHING_REFUSED, Refusal
from tapscope.reconstruct.run import Reconstruction
from tapscope.reconstruct.spans import Spans
from tapscope.store.codes import (
    CallFlag,
    Direction,
    EvidenceMode,
    LinkKind,
    MessageFlag,
    MessageKind,
    Protocol,
)
from tapscope.store.tables import TABLES, Table, check, empty


@dataclass
class SpanTables:
    """What a span table says, with the columns of store/tables.py. Row i of `calls` is row `row[i]` of the
    span table; `made` has the same calls' times by the clocks of their callers (arrive_ns, request_end_ns,
    response_begin_ns, depart_ns), -1 where not observed."""

    connections: Table
    messages: Table
    calls: Table
    made: Table
    row: np.ndarray[tuple[int], np.dtype[np.int64]]
    classes: list[tuple[int, str]]
    addresses: list[str]


def tables(spans: Spans) -> SpanTables:
    """Calls in order of arrival; one connection row per pair of services, because there must be one."""
    # A callee that reports nothing: the caller's clock is all there is, and the call serves as no parent.
    foreign = spans.received_ns < 0
    arrive = np.where(foreign, spans.sent_ns, spans.received_ns)
    depart = np.where(foreign, spans.answered_ns, spans.responded_ns)
    # At one time by their ids, so that the order of the rows tells nothing.
    row = np.lexsort((np.array(spans.message_id), arrive))
    arrive, depart, foreign = arrive[row], depart[row], foreign[row]
    count = len(row)
    pairs = np.stack([spans.caller[row], spans.callee[row]])
    pair, conn = np.unique(pairs, axis=1, return_inverse=True) if count else (pairs, np.empty(0, np.int64))
    connections = _connections(pair, conn.reshape(-1), arrive, depart)
    messages, request, response = _messages(conn.reshape(-1), spans.endpoint[row], arrive, depart)
    flags = np.where(depart < 0, CallFlag.UNANSWERED, 0) | np.where(foreign, CallFlag.INFERRED, 0)
    calls = _typed(
        "calls",
        count,
        {
            "conn": conn.reshape(-1),
            "request": request,
            "response": response,
            "client_node": pairs[0],
            "server_node": pairs[1],
            "class_id": spans.endpoint[row],
            "arrive_ns": arrive,
            "request_end_ns": arrive,
            "response_begin_ns": depart,
            "depart_ns": depart,
            "status": np.full(count, -1),
            "flags": flags,
            "response_bytes": np.full(count, -1),
            "gone_ns": np.full(count, -1),
        },
    )
    sent, answered = spans.sent_ns[row], spans.answered_ns[row]
    made = {
        "arrive_ns": sent,
        "request_end_ns": sent,
        "response_begin_ns": answered,
        "depart_ns": answered,
    }
    classes = [(int(Protocol.UNKNOWN), text) for text in spans.endpoints]
    return SpanTables(connections, messages, calls, made, row, classes, list(spans.services))


def trace(
    spans: Spans,
    given: SpanTables,
    *,
    refusal: Refusal = NOTHING_REFUSED,
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Links and traces of a span table, each node by its own clock only. Services are nodes. Annotated spans
    name their parents: nothing is matched then."""
    calls, made = given.calls, given.made
    serving = np.isin(calls["client_node"], calls["server_node"])
    counters: dict[str, int] = {}
    if spans.parent_id:
        found, circles = _told_links(spans, given)
        if circles:
            counters["span.parent_circle"] = circles
    else:
        found, counters = links(
            matched_calls(spans, given),
            empty("evidence"),
            EvidenceMode.TIMING,
            refusal=refusal,
            made=made,
            threads=threads,
            progress=progress,
        )
        lost = (found["kind"] == LinkKind.ROOT) & serving & (made["arrive_ns"] < 0)
        found["kind"][lost] = LinkKind.UNKNOWN
        found["probability"][lost] = 0.0
    check("links", found)
    trees, tree_calls = traces.traces(calls, found, made)
    check("traces", trees)
    check("trace_calls", tree_calls)
    nodes = _nodes(calls, len(given.addresses))
    edges = topology.edges(calls) if len(calls["conn"]) else []
    return Reconstruction(calls, nodes, given.addresses, found, trees, tree_calls, edges, counters)


def _told_links(spans: Spans, given: SpanTables) -> tuple[Table, int]:
    place = {spans.message_id[row]: call for call, row in enumerate(given.row.tolist())}
    named = [spans.parent_id[row] for row in given.row.tolist()]
    parent = np.array([place.get(name, -1) for name in named], dtype=np.int64)
    return exact_links(parent, np.array([not name for name in named], dtype=np.bool_))


def matched_calls(spans: Spans, given: SpanTables) -> Table:
    """The calls as the matcher gets them: who was not seen to send or to receive has no node there to be
    matched at, and no call shares its connection with another one."""
    calls = dict(given.calls)
    calls["conn"] = np.arange(len(given.row), dtype=np.int32)
    served_unseen = spans.received_ns[given.row] < 0
    calls["server_node"] = np.where(served_unseen, -1, calls["server_node"]).astype(np.int32)
    sent_unseen = given.made["arrive_ns"] < 0
    calls["client_node"] = np.where(sent_unseen, -2, calls["client_node"]).astype(np.int32)
    return calls


def span_rows(spans: Spans, given: SpanTables) -> dict[str, list[object]]:
    """Columns of the table `span` of a run file."""
    told = {"trace_id": spans.trace_id, "true_parent_id": spans.parent_id} if spans.parent_id else {}
    return {
        **{name: [values[row] for row in given.row.tolist()] for name, values in told.items()},
        "call": list(range(len(given.row))),
        "message_id": [spans.message_id[row] for row in given.row.tolist()],
        "sent_ns": given.made["arrive_ns"].tolist(),
        "answered_ns": given.made["depart_ns"].tolist(),
    }


def _nodes(calls: Table, count: int) -> Table:
    client, server = calls["client_node"], calls["server_node"].astype(np.int64)
    depth = topology.depths(count, client, server) if len(client) else np.zeros(count, dtype=np.int32)
    return _typed("nodes", count, {"addr": np.arange(count), "depth": depth})


def _connections(pair: np.ndarray, conn: np.ndarray, arrive: np.ndarray, depart: np.ndarray) -> Table:
    count = pair.shape[1]
    never = np.full(count, -1, dtype=np.int64)
    first = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    last = never.copy()
    np.minimum.at(first, conn, arrive)
    np.maximum.at(last, conn, np.maximum(arrive, depart))
    columns = {"client_addr": pair[0], "server_addr": pair[1], "first_ns": first, "last_ns": last}
    columns |= dict.fromkeys(("syn_ns", "established_ns", "closed_ns"), never)
    return _typed("connections", count, columns)


def _messages(
    conn: np.ndarray, endpoint: np.ndarray, arrive: np.ndarray, depart: np.ndarray
) -> tuple[Table, np.ndarray, np.ndarray]:
    """Messages without bytes in order of time, and the rows of each call's request and response (-1)."""
    answered = np.flatnonzero(depart >= 0)
    call = np.concatenate([np.arange(len(arrive)), answered])
    is_response = np.arange(len(call)) >= len(arrive)
    at = np.concatenate([arrive, depart[answered]])
    order = np.lexsort((is_response, at))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    request = place[: len(arrive)]
    response = np.full(len(arrive), -1, dtype=np.int64)
    response[answered] = place[len(arrive) :]
    call, is_response, at = call[order], is_response[order], at[order]
    columns = {
        "conn": conn[call],
        "direction": np.where(is_response, Direction.TO_CLIENT, Direction.TO_SERVER),
        "kind": np.where(is_response, MessageKind.RESPONSE, MessageKind.REQUEST),
        "begin_ns": at,
        "end_ns": at,
        "class_id": np.where(is_response, -1, endpoint[call]),
        "status": np.full(len(call), -1),
        "flags": np.full(len(call), MessageFlag.NONE),
        "request": np.where(is_response, request[call], -1),
    }
    return _typed("messages", len(call), columns), request, response


def _typed(name: str, count: int, columns: dict[str, np.ndarray]) -> Table:
    """A contract table: these columns with the contract's dtypes, zeros for the others."""
    table = {
        column.name: np.asarray(columns.get(column.name, np.zeros(count))).astype(column.dtype)
        for column in TABLES[name]
    }
    check(name, table)
    return table
