"""Column contracts: every table that flows between stages, with dtype, unit and meaning.

A table is a plain ``dict[str, numpy.ndarray]`` whose arrays have one length. ``check`` is called where a
table enters a stage or the store, so that a wrong dtype fails at the door and not three stages later.
Times are int64 nanoseconds since the Unix epoch, UTC, by the clock of the tap; -1 = not observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The dtype of a column is known by name (TABLES), not by type.
Table = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Column:
    """One column of a table: name, numpy dtype, unit ('' for none) and meaning."""

    name: str
    dtype: str
    unit: str
    meaning: str


def _columns(*rows: tuple[str, str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


_TAP_POINT = (
    "where the first packet was copied: 0 no tag and no tunnel; bit 31 set: a GRE key below it; else kind "
    "(TapKind) in bits 24-30 and id in bits 0-23: of VLANs the outer one in bits 0-11, the next in 12-23"
)

TABLES: dict[str, tuple[Column, ...]] = {
    "connections": _columns(
        ("client_addr", "int32", "", "index into the address list"),
        ("server_addr", "int32", "", "index into the address list"),
        ("client_port", "uint16", "", "TCP port of the side that opened (or: that sends requests)"),
        ("server_port", "uint16", "", "TCP port of the listener"),
        ("protocol", "uint8", "", "Protocol"),
        ("tap_point", "uint32", "", _TAP_POINT),
        ("first_ns", "int64", "ns", "first packet seen"),
        ("last_ns", "int64", "ns", "last packet seen"),
        ("syn_ns", "int64", "ns", "first SYN"),
        ("established_ns", "int64", "ns", "end of the handshake"),
        ("closed_ns", "int64", "ns", "first FIN or RST"),
        ("close_how", "uint8", "", "CloseHow"),
        ("midstream", "bool", "", "the handshake was not seen"),
        ("syn_retransmits", "uint32", "packets", "SYNs after the first"),
        ("retransmits_to_server", "uint32", "packets", "retransmitted segments"),
        ("retransmits_to_client", "uint32", "packets", "retransmitted segments"),
        ("zero_windows_to_server", "uint32", "packets", "segments that say: my receive buffer is full"),
        ("zero_windows_to_client", "uint32", "packets", "segments that say: my receive buffer is full"),
        ("duplicates", "uint32", "packets", "mirror duplicates removed"),
        ("bytes_to_server", "uint64", "bytes", "stream bytes seen (each byte once)"),
        ("bytes_to_client", "uint64", "bytes", "stream bytes seen (each byte once)"),
        ("missing_to_server", "uint64", "bytes", "stream bytes the tap never saw"),
        ("missing_to_client", "uint64", "bytes", "stream bytes the tap never saw"),
        ("unparsed_to_server", "uint64", "bytes", "stream bytes seen that are in no message"),
        ("unparsed_to_client", "uint64", "bytes", "stream bytes seen that are in no message"),
    ),
    "messages": _columns(
        ("conn", "int32", "", "row of connections"),
        ("direction", "uint8", "", "Direction"),
        ("protocol", "uint8", "", "Protocol"),
        ("kind", "uint8", "", "MessageKind"),
        ("begin_ns", "int64", "ns", "packet with the first byte"),
        ("end_ns", "int64", "ns", "packet with the last byte"),
        ("wire_bytes", "uint64", "bytes", "length on the stream, missing bytes included"),
        ("missing_bytes", "uint64", "bytes", "bytes of it that the tap never saw"),
        ("class_id", "int32", "", "row of classes; -1 none"),
        ("status", "int32", "", "HTTP status, MySQL error code (0 = OK); -1 none"),
        ("tcp_seq", "uint32", "", "raw TCP sequence number of the first byte"),
        ("flags", "uint32", "", "MessageFlag"),
        (
            "request",
            "int64",
            "",
            "for a response or interim: row of the message it answers; for a one-way one that gives a call "
            "up: its request; -1 none",
        ),
    ),
    "evidence": _columns(
        ("message", "int64", "", "row of messages"),
        ("slot", "uint32", "", "which parameter, place of a path (hash), literal or result column (ordinal)"),
        ("kind", "uint8", "", "TokenKind, with the ID_LIKE bit"),
        ("hash", "uint64", "", "salted hash of the value"),
    ),
    "tcp_events": _columns(
        ("conn", "int32", "", "row of connections"),
        ("kind", "uint8", "", "TcpEventKind"),
        ("direction", "uint8", "", "Direction of its packets: to_server are the client's"),
        ("begin_ns", "int64", "ns", "since when it waits: last packet before one sent again, window closed"),
        ("end_ns", "int64", "ns", "the packet; of a closed window: open again, or the connection's last"),
        ("packets", "uint32", "packets", "packets that said so"),
        ("bytes", "uint32", "bytes", "payload that was sent again"),
    ),
    "calls": _columns(
        ("conn", "int32", "", "row of connections"),
        ("request", "int64", "", "row of messages"),
        ("response", "int64", "", "row of messages; -1 none"),
        ("client_node", "int32", "", "row of nodes: who calls"),
        ("server_node", "int32", "", "row of nodes: who is called"),
        ("protocol", "uint8", "", "Protocol"),
        ("class_id", "int32", "", "row of classes; -1 none"),
        ("arrive_ns", "int64", "ns", "first byte of the request"),
        ("request_end_ns", "int64", "ns", "last byte of the request"),
        ("response_begin_ns", "int64", "ns", "first byte of the final response"),
        ("depart_ns", "int64", "ns", "last byte of the response"),
        ("status", "int32", "", "status of the response; -1 none"),
        ("flags", "uint32", "", "CallFlag"),
        ("tcp_seq", "uint32", "", "raw TCP sequence number of the first request byte"),
        ("response_bytes", "int64", "bytes", "length of the response; -1 none, or not all of it seen"),
        ("gone_ns", "int64", "ns", "when its client gave up a call without an answer; -1 it did not"),
    ),
    "nodes": _columns(
        ("addr", "int32", "", "index into the address list"),
        ("port", "uint16", "", "listener port when several nodes share one address; 0 = all ports"),
        ("protocol", "uint8", "", "Protocol that it serves; UNKNOWN for a pure client"),
        ("depth", "int32", "", "0 for a pure client, 1 for the entry tier, ..."),
    ),
    "links": _columns(
        ("child", "int64", "", "row of calls"),
        ("parent", "int64", "", "row of calls; -1 when root or unknown"),
        ("kind", "uint8", "", "LinkKind"),
        ("probability", "float64", "", "posterior probability of the edge (of being a root)"),
        ("runner_up", "int64", "", "row of calls: the likeliest other parent; -1 none"),
        ("runner_up_probability", "float64", "", "its probability"),
    ),
    "traces": _columns(
        ("root", "int64", "", "row of calls"),
        ("calls", "int32", "calls", "calls in the tree"),
        ("begin_ns", "int64", "ns", "arrival of the root call"),
        ("end_ns", "int64", "ns", "departure of the root call"),
        ("complete", "bool", "", "no call of it is incomplete, unanswered or possibly missing"),
        ("probability", "float64", "", "probability that every edge is right"),
    ),
    "trace_calls": _columns(
        ("call", "int64", "", "row of calls"),
        ("trace", "int64", "", "row of traces; -1 none"),
        ("depth", "int32", "", "0 for the root call"),
        (
            "intra_node_ns",
            "int64",
            "ns",
            "what the union of the child calls does not cover of the stay; -1 unknown",
        ),
    ),
    "loads": _columns(
        ("node", "int32", "", "row of nodes"),
        ("window_ns", "int64", "ns", "start of the window"),
        ("width_ns", "int64", "ns", "width of the window"),
        ("load", "float64", "calls", "time-weighted mean queue length"),
        ("max", "int32", "calls", "highest queue length inside the window"),
        ("arrivals", "int32", "calls", "calls that arrived"),
        ("completions", "int32", "calls", "calls that departed"),
        ("pit_mean_ns", "float64", "ns", "mean response time of calls that departed; NaN none"),
        ("pit_max_ns", "int64", "ns", "longest response time of calls that departed; -1 none"),
    ),
}


def check(name: str, table: Mapping[str, NDArray[np.generic]]) -> None:
    """Raise ValueError, naming the column, unless `table` has the columns, dtypes and one length of
    TABLES[name]."""
    length: int | None = None
    for column in TABLES[name]:
        if column.name not in table:
            raise ValueError(f"table {name}: column {column.name} is missing; it has {sorted(table)}")
        values = table[column.name]
        if values.dtype != np.dtype(column.dtype):
            raise ValueError(f"table {name}: column {column.name} is {values.dtype}, expected {column.dtype}")
        if length is None:
            length = len(values)
        elif len(values) != length:
            raise ValueError(
                f"table {name}: column {column.name} has {len(values)} rows, others have {length}"
            )


def empty(name: str) -> Table:
    """A table with the right columns and no rows."""
    return {column.name: np.empty(0, dtype=column.dtype) for column in TABLES[name]}


def rows(table: Mapping[str, NDArray[np.generic]]) -> int:
    """Number of rows of a table (0 for a table without columns)."""
    return next((len(values) for values in table.values()), 0)
