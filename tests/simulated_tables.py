"""The tables of a simulated run, as a tap between the hosts would see them, and its true links.

They obey store/tables.py and agree with each other. Nothing of the product is used but the column contracts.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray
from simulated_world import APP, DB, PAGES, PROTOCOLS, START_NS, STATEMENTS, WEB, Call, World

from tapscope.store.codes import (
    CallFlag,
    Direction,
    LinkKind,
    MessageFlag,
    MessageKind,
    Protocol,
    TokenKind,
)
from tapscope.store.tables import TABLES, Table, check, empty

PORTS = (0, 80, 8009, 3306)


def open_area(begin: NDArray, end: NDArray, at: NDArray) -> NDArray:
    """Integral over time of the number of spans [begin, end) that are open, from -infinity to each `at`."""
    total = np.zeros(len(at), dtype=np.int64)
    for bound, sign in ((np.sort(begin), 1), (np.sort(end), -1)):
        count = np.searchsorted(bound, at, side="left")
        passed = np.concatenate([[0], np.cumsum(bound - START_NS)])[count]
        total += sign * (count * (at - START_NS) - passed)
    return total


def _column(values: object, name: str, table: str) -> NDArray:
    dtype = next(column.dtype for column in TABLES[table] if column.name == name)
    return np.asarray(values).astype(dtype)


def _typed(name: str, columns: dict[str, object]) -> Table:
    table = {key: _column(values, key, name) for key, values in columns.items()}
    check(name, table)
    return table


def tables(world: World, users: int, lost: set[int]) -> tuple[dict[str, Table], list[tuple[int, str]]]:
    """Tables of a world without the responses of the calls `lost`; (protocol, text) of each class."""
    records = sorted(range(len(world.calls)), key=lambda row: world.calls[row].arrive)
    place = {old: new for new, old in enumerate(records)}
    calls = [world.calls[old] for old in records]
    gone = np.array([old in lost for old in records])
    parent = np.array([-1 if call.parent < 0 else place[call.parent] for call in calls], dtype=np.int64)
    node = np.array([call.node for call in calls])
    depart = np.array([call.depart for call in calls])
    answered = depart >= 0
    seen = answered & ~gone
    classes = (
        [(int(Protocol.HTTP), text) for text, _, _ in PAGES]
        + [(int(Protocol.AJP), text) for text, _, _ in PAGES]
        + [(int(Protocol.MYSQL), text) for text, _ in STATEMENTS]
    )
    messages, request, response = _messages(calls, seen, users)
    flags = np.where(~answered, CallFlag.UNANSWERED | CallFlag.CLIPPED, 0)
    flags = np.where(gone & answered, CallFlag.UNANSWERED | CallFlag.LOST_RESPONSE, flags)
    columns: dict[str, object] = {
        "conn": [call.conn for call in calls],
        "request": request,
        "response": response,
        "client_node": node - 1,
        "server_node": node,
        "protocol": [PROTOCOLS[each] for each in node],
        "class_id": [call.class_id for call in calls],
        "arrive_ns": [call.arrive for call in calls],
        "request_end_ns": [call.request_end for call in calls],
        "response_begin_ns": np.where(seen, [call.begin for call in calls], -1),
        "depart_ns": np.where(seen, depart, -1),
        "status": np.where(seen, np.where(node == DB, 0, 200), -1),
        "flags": flags,
        "tcp_seq": messages["tcp_seq"][request],
        "response_bytes": np.where(seen, messages["wire_bytes"][response], -1),
        "gone_ns": np.full(len(calls), -1),
    }
    call_table = _typed("calls", columns)
    made = {
        "connections": _connections(call_table, messages, users),
        "messages": messages,
        "evidence": _evidence(calls, request),
        "tcp_events": empty("tcp_events"),
        "calls": call_table,
        "nodes": _typed(
            "nodes",
            {"addr": range(4), "port": (0, 0, 0, 0), "protocol": PROTOCOLS, "depth": range(4)},
        ),
        "loads": _loads(call_table, world.end),
        "links": _links(parent),
    }
    made["traces"], made["trace_calls"] = _traces(call_table, parent)
    return made, classes


def _messages(calls: list[Call], seen: NDArray, users: int) -> tuple[Table, NDArray, NDArray]:
    """Message table in time order, and the row of each call's request and response (-1: none)."""
    rows = []
    for row, call in enumerate(calls):
        size = 200 + call.story % 300
        protocol = PROTOCOLS[call.node]
        rows.append((call.arrive, row, Direction.TO_SERVER, protocol, call, call.request_end, size))
        if seen[row]:
            rows.append((call.begin, row, Direction.TO_CLIENT, protocol, call, call.depart, 10 * size))
    rows.sort(key=lambda each: (each[0], each[2]))
    request = np.full(len(calls), -1, dtype=np.int64)
    response = np.full(len(calls), -1, dtype=np.int64)
    sequence: dict[tuple[int, int], int] = {}
    seqs, answers = [], []
    for place, (_, row, direction, _, call, _, size) in enumerate(rows):
        key = (call.conn, direction)
        seqs.append(sequence.setdefault(key, 1000 + 7 * call.conn))
        sequence[key] = (seqs[-1] + size) % 2**32
        if direction == Direction.TO_SERVER:
            request[row] = place
            answers.append(-1)
        else:
            response[row] = place
            answers.append(request[row])
    to_client = np.array([each[2] == Direction.TO_CLIENT for each in rows])
    columns: dict[str, object] = {
        "conn": [each[4].conn for each in rows],
        "direction": [each[2] for each in rows],
        "protocol": [each[3] for each in rows],
        "kind": np.where(to_client, MessageKind.RESPONSE, MessageKind.REQUEST),
        "begin_ns": [each[0] for each in rows],
        "end_ns": [each[5] for each in rows],
        "wire_bytes": [each[6] for each in rows],
        "missing_bytes": np.zeros(len(rows)),
        "class_id": np.where(to_client, -1, [each[4].class_id for each in rows]),
        "status": np.where(to_client, [0 if each[3] == Protocol.MYSQL else 200 for each in rows], -1),
        "tcp_seq": seqs,
        "flags": np.full(len(rows), MessageFlag.NONE),
        "request": answers,
    }
    return _typed("messages", columns), request, response


def _connections(calls: Table, messages: Table, users: int) -> Table:
    count = users + 40 + 12
    conn = np.arange(count)
    server = np.where(conn < users, WEB, np.where(conn < users + 40, APP, DB))
    first = np.full(count, START_NS)
    size = messages["wire_bytes"].astype(np.int64)
    to_server = messages["direction"] == Direction.TO_SERVER
    sent = np.bincount(messages["conn"], weights=np.where(to_server, size, 0), minlength=count)
    back = np.bincount(messages["conn"], weights=np.where(to_server, 0, size), minlength=count)
    holes = np.bincount(calls["conn"], (calls["flags"] & CallFlag.LOST_RESPONSE) > 0, count) * 1460
    last = np.full(count, START_NS)
    np.maximum.at(last, messages["conn"], messages["end_ns"])
    nothing = np.zeros(count)
    never = np.full(count, -1)
    columns: dict[str, object] = {
        "client_addr": server - 1,
        "server_addr": server,
        "client_port": 40_000 + conn,
        "server_port": np.array(PORTS)[server],
        "protocol": np.array(PROTOCOLS)[server],
        "tap_point": nothing,
        "first_ns": first,
        "last_ns": last,
        "syn_ns": never,
        "established_ns": never,
        "closed_ns": never,
        "close_how": nothing,
        "midstream": np.ones(count),
        "bytes_to_server": sent,
        "bytes_to_client": back,
        "missing_to_client": holes,
    }
    for column in TABLES["connections"]:
        columns.setdefault(column.name, nothing)
    return _typed("connections", columns)


def _evidence(calls: list[Call], request: NDArray) -> Table:
    """One business key per request (the story), and the whole request target of HTTP and AJP."""
    rows = []
    for row, call in enumerate(calls):
        key = random.Random(call.story * 16 + 15).getrandbits(64)
        rows.append((request[row], 0 if call.node == DB else 0x8000_0002, TokenKind.NUMBER, key))
        if call.node != DB:
            page = call.class_id % len(PAGES)
            target = random.Random(call.story * 16 + page).getrandbits(64)
            rows.append((request[row], 1, TokenKind.URI, target))
    rows.sort()
    columns: dict[str, object] = {
        "message": [row[0] for row in rows],
        "slot": [row[1] for row in rows],
        "kind": [row[2] for row in rows],
        "hash": np.array([row[3] for row in rows], dtype=np.uint64),
    }
    return _typed("evidence", columns)


def _links(parent: NDArray) -> Table:
    """The true links, each certain."""
    count = len(parent)
    kind = np.where(parent < 0, LinkKind.ROOT, LinkKind.LINKED)
    return _typed(
        "links",
        {
            "child": np.arange(count),
            "parent": parent,
            "kind": kind,
            "probability": np.ones(count),
            "runner_up": np.full(count, -1),
            "runner_up_probability": np.zeros(count),
        },
    )


def _traces(calls: Table, parent: NDArray) -> tuple[Table, Table]:
    count = len(parent)
    depth = calls["server_node"].astype(np.int64) - 1
    root = np.arange(count)
    for _ in range(3):
        root = np.where(parent[root] >= 0, parent[root], root)
    stay = np.where(calls["depart_ns"] >= 0, calls["depart_ns"] - calls["arrive_ns"], -1)
    whole = stay >= 0
    # Children run one after the other here, so that the union of their stays is the sum.
    inside = np.zeros(count, dtype=np.int64)
    has = parent >= 0
    np.add.at(inside, parent[has], np.where(whole[has], stay[has], 0))
    known = whole.copy()
    np.logical_and.at(known, parent[has], whole[has])
    intra = np.where(known, stay - inside, -1)
    roots = np.flatnonzero(~has)
    trace_of = np.full(count, -1)
    trace_of[roots] = np.arange(len(roots))
    trace = trace_of[root]
    complete = np.ones(len(roots), dtype=bool)
    np.logical_and.at(complete, trace, whole)
    traces: dict[str, object] = {
        "root": roots,
        "calls": np.bincount(trace, minlength=len(roots)),
        "begin_ns": calls["arrive_ns"][roots],
        "end_ns": calls["depart_ns"][roots],
        "complete": complete,
        "probability": np.ones(len(roots)),
    }
    rows = {"call": np.arange(count), "trace": trace, "depth": depth, "intra_node_ns": intra}
    return _typed("traces", traces), _typed("trace_calls", rows)


def _loads(calls: Table, end_ns: int, width_ns: int = 50_000_000) -> Table:
    """Loads of the calls that were seen to end; a slow twin of the product's own, for comparison."""
    edges = np.arange(START_NS, end_ns + width_ns, width_ns)
    parts: dict[str, list[NDArray]] = {column.name: [] for column in TABLES["loads"]}
    for node in (WEB, APP, DB):
        mine = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
        arrive, depart = calls["arrive_ns"][mine], calls["depart_ns"][mine]
        windows = len(edges) - 1
        highest = np.searchsorted(np.sort(arrive), edges[:-1]) - np.searchsorted(np.sort(depart), edges[:-1])
        level = 0
        for when, step in sorted([(t, 1) for t in arrive] + [(t, -1) for t in depart]):
            level += step
            window = (when - START_NS) // width_ns
            if window < windows:
                highest[window] = max(highest[window], level)
        out = np.clip((depart - START_NS) // width_ns, 0, windows - 1)
        completions = np.bincount(out, minlength=windows)
        total = np.bincount(out, weights=depart - arrive, minlength=windows)
        longest = np.full(windows, -1)
        np.maximum.at(longest, out, depart - arrive)
        columns = {
            "node": np.full(windows, node),
            "window_ns": edges[:-1],
            "width_ns": np.full(windows, width_ns),
            "load": np.diff(open_area(arrive, depart, edges)) / width_ns,
            "max": highest,
            "arrivals": np.bincount((arrive - START_NS) // width_ns, minlength=windows)[:windows],
            "completions": completions,
            "pit_mean_ns": np.where(completions > 0, total / np.maximum(completions, 1), np.nan),
            "pit_max_ns": longest,
        }
        for name, values in columns.items():
            parts[name].append(values)
    return _typed("loads", {name: np.concatenate(values) for name, values in parts.items()})
