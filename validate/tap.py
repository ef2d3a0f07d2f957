"""What the tap says, as the comparisons need it: calls with both ends, and when its view had holes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.stays import stays
from tapscope.store.codes import CallFlag, MessageFlag, MessageKind, Protocol
from tapscope.store.runfile import RunFile
from tapscope.validate.event_calls import Table

Ints = NDArray[np.int64]

COMMANDS_WITHOUT_STATEMENT = frozenset(
    """SLEEP QUIT INIT_DB FIELD_LIST CREATE_DB DROP_DB REFRESH SHUTDOWN STATISTICS PROCESS_INFO CONNECT
    PROCESS_KILL DEBUG PING TIME DELAYED_INSERT CHANGE_USER BINLOG_DUMP TABLE_DUMP CONNECT_OUT REGISTER_SLAVE
    STMT_PREPARE STMT_SEND_LONG_DATA STMT_CLOSE STMT_RESET SET_OPTION STMT_FETCH DAEMON BINLOG_DUMP_GTID
    RESET_CONNECTION LOGIN""".split()  # noqa: SIM905 - a list of 30 quoted names is harder to read
)
"""Class texts of MySQL calls that run no statement (names of the protocol's command bytes)."""


CALLS = (
    *("conn", "client_node", "server_node", "protocol", "class_id"),
    *("arrive_ns", "depart_ns", "flags", "gone_ns", "tcp_seq"),
)
"""Columns that are read: a run of a million calls is worth leaving the others out."""


@dataclass
class Tap:
    """Tables of a run file, and what was derived from them.

    calls : the columns CALLS of the contract table
    begin_ns, end_ns : its stays under the edge rules of analyze.load, end_ns = -1 unknown
    capture_ns : first and last packet; holes : node, begin_ns, end_ns of times in which calls may be missing
        or wrong
    """

    calls: Table
    connections: Table
    addresses: list[str]
    classes: list[tuple[int, str]]
    node_names: list[str]
    begin_ns: Ints
    end_ns: Ints
    still_open: NDArray[np.bool_]
    capture_ns: tuple[int, int]
    holes: Table
    counters: list[tuple[str, int, str]]

    def statement(self) -> NDArray[np.bool_]:
        """Per call: does it run an SQL statement (COM_QUERY, COM_STMT_EXECUTE)? False for other protocols."""
        runs = np.array(
            [
                protocol == Protocol.MYSQL
                and text not in COMMANDS_WITHOUT_STATEMENT
                and not text.startswith("PREPARE ")
                for protocol, text in self.classes
            ]
            + [False],  # class_id -1
            dtype=bool,
        )
        return np.asarray(runs[self.calls["class_id"]], dtype=bool)


def read(run: RunFile) -> Tap:
    """Read what validation needs from a run file."""
    calls = run.read_table("calls", CALLS)
    connections = run.read_table("connections")
    stay = stays(calls, connections)
    captures = [s for s in run.sources() if s.get("kind") == "capture" and s.get("first_ns", -1) >= 0]
    known = np.concatenate([stay.begin_ns, stay.end_ns[stay.end_ns >= 0]])
    first = min((s["first_ns"] for s in captures), default=int(known.min()) if len(known) else 0)
    last = max((s["last_ns"] for s in captures), default=int(known.max()) if len(known) else 0)
    if any(name == "load.far_stamp_excluded" for name, _, _ in stay.counters):
        first, last = stay.span_ns
    holes, counters = _holes(run, calls, connections)
    return Tap(
        calls=calls,
        connections=connections,
        addresses=run.addresses(),
        classes=run.classes(),
        node_names=run.node_names(),
        begin_ns=stay.begin_ns,
        end_ns=np.where(stay.inside, stay.end_ns, -1),
        still_open=stay.inside & ~stay.departed,
        capture_ns=(int(first), int(last)),
        holes=holes,
        counters=counters,
    )


def _following(calls: Table, connections: Table, rows: Ints) -> Ints:
    """When the next call of the same connection arrived; of the last one when the connection was over."""
    mine = np.flatnonzero(np.isin(calls["conn"], calls["conn"][rows]))
    order = mine[np.lexsort((calls["arrive_ns"][mine], calls["conn"][mine]))]
    following = connections["last_ns"][calls["conn"]].astype(np.int64)
    same = calls["conn"][order[1:]] == calls["conn"][order[:-1]]
    following[order[:-1][same]] = calls["arrive_ns"][order[1:][same]]
    return following[rows]


def _holes(run: RunFile, calls: Table, connections: Table) -> tuple[Table, list[tuple[str, int, str]]]:
    """Times in which the queue length of a node is not to be trusted, with the reason counted.

    * a response in a gap of the capture: its call left at some time before the next call of the connection;
    * a response without a request: a call is missing since the message before it on the connection;
    * the first message after a gap: anything may have happened since the message before it.
    """
    node_of = np.full(len(connections["first_ns"]), -1, dtype=np.int64)
    node_of[calls["conn"]] = calls["server_node"]
    lost = np.flatnonzero((calls["flags"] & CallFlag.LOST_RESPONSE) != 0)
    parts = [
        (
            calls["server_node"][lost].astype(np.int64),
            calls["arrive_ns"][lost],
            _following(calls, connections, lost),
        )
    ]

    orphan_row = f"(kind = {int(MessageKind.RESPONSE)} AND request < 0)"
    resumed_row = f"(flags & {int(MessageFlag.RESYNCHRONISED)}) <> 0"
    messages: Table = run.read_table(
        "messages",
        ["conn", "kind", "begin_ns", "end_ns", "flags", "request"],
        where=f"conn IN (SELECT conn FROM message WHERE {orphan_row} OR {resumed_row})",
    )
    order = np.lexsort((messages["begin_ns"], messages["conn"]))
    messages = {name: values[order] for name, values in messages.items()}
    orphan = (messages["kind"] == MessageKind.RESPONSE) & (messages["request"] < 0)
    resumed = (messages["flags"] & MessageFlag.RESYNCHRONISED) != 0
    rows = np.flatnonzero(orphan | resumed)
    before = np.maximum(rows - 1, 0)
    has_before = (rows > 0) & (messages["conn"][before] == messages["conn"][rows])
    conn = messages["conn"][rows]
    begin = np.where(has_before, messages["end_ns"][before], connections["first_ns"][conn])
    parts.append((node_of[conn], begin, messages["end_ns"][rows]))
    holes: dict[str, NDArray[Any]] = {
        name: np.concatenate([part[i] for part in parts]).astype(np.int64)
        for i, name in enumerate(("node", "begin_ns", "end_ns"))
    }
    counters = [
        ("tap.lost_responses", len(lost), "calls"),
        ("tap.responses_without_request", int(np.count_nonzero(orphan)), "messages"),
        ("tap.resynchronised", int(np.count_nonzero(resumed)), "messages"),
        (
            "tap.missing_bytes",
            int(connections["missing_to_server"].sum() + connections["missing_to_client"].sum()),
            "bytes",
        ),
    ]
    return holes, counters
