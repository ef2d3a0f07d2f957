"""A segment: the rows that a capture handed over at one time, as named arrays; ``capture.spool`` lists them.

Where a capture is followed without a spool, its pieces are the same arrays and never become files.
"""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tapscope.store.tables import TABLES, Table, empty

AMENDMENTS = ("message", "column", "change", "value")


class Change(IntEnum):
    """How an amendment's value applies to the column."""

    SET = 0
    ADD = 1
    SET_BITS = 2
    LOWER = 3


def arrays_of(segment: dict[str, Any]) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Arrays and description of what Capture.drain() returned."""
    new, again = segment["connections"], segment["connections_again"]
    arrays = {f"connections.{name}": np.concatenate([new[name], again[name]]) for name in new}
    first = segment["first_connection"]
    fresh = len(new["midstream"])
    arrays["connections.id"] = np.concatenate([np.arange(first, first + fresh), segment["again"]])
    # Half a second without an event is usual: their columns would be a good part of an idle segment.
    happened = ("tcp_events",) if len(segment["tcp_events"]["conn"]) else ()
    for table in ("messages", "evidence", "amendments", *happened):
        arrays |= {f"{table}.{name}": values for name, values in segment[table].items()}
    arrays["addresses"] = np.array(segment["addresses"], dtype="S39")
    about = {
        "first_message": segment["first_message"],
        "messages": len(segment["messages"]["conn"]),
        "first_connection": first,
        "counters": segment["counters"],
        "sources": segment["sources"],
        "tap_points": segment["tap_points"],
    }
    return arrays, about


def save_segment(file: BinaryIO, arrays: dict[str, np.ndarray[Any, Any]], about: dict[str, Any]) -> None:
    """Write an uncompressed numpy archive. A table is one array with a field per column: with an array for
    each of fifty columns, most of the time went into their headers."""
    columns: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    packed = {}
    for name, values in arrays.items():
        table, _, column = name.partition(".")
        if column:
            columns.setdefault(table, {})[column] = values
        else:
            packed[name] = values
    for table, of_table in columns.items():
        rows = len(next(iter(of_table.values())))
        packed[table] = np.empty(rows, [(column, values.dtype) for column, values in of_table.items()])
        for column, values in of_table.items():
            packed[table][column] = values
    np.savez(file, about=np.array(json.dumps(about)), **packed)  # type: ignore[arg-type]  # names are ours


def load_segment(file: BinaryIO | Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Arrays and description of a segment. Raises ValueError, KeyError, OSError or zipfile.BadZipFile when it
    is damaged."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            values = archive[name]
            columns = values.dtype.names
            if columns is None:  # also each column of a table, in spools of version 1
                arrays[name] = values
            else:
                arrays |= {f"{name}.{column}": np.ascontiguousarray(values[column]) for column in columns}
    about = json.loads(str(arrays.pop("about")))
    if "tcp_events.conn" not in arrays:
        arrays |= {f"tcp_events.{name}": values for name, values in empty("tcp_events").items()}
    rows: dict[str, int] = {}
    for table in ("connections", "messages", "evidence", "tcp_events"):
        for column in TABLES[table]:
            values = arrays[f"{table}.{column.name}"]
            if values.dtype != np.dtype(column.dtype) or len(values) != rows.setdefault(table, len(values)):
                raise ValueError(f"{table}.{column.name} is not as expected")
    amendments = {len(arrays[f"amendments.{name}"]) for name in AMENDMENTS}
    if len(amendments) != 1 or len(arrays["connections.id"]) != rows["connections"]:
        raise ValueError("its tables have different lengths")
    if about["messages"] != rows["messages"]:
        raise ValueError("it has not the messages that it should have")
    return arrays, about


def join_segments(
    parts: list[tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]],
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """One segment with all the rows of consecutive ones of a session."""
    base = parts[0][1]["first_connection"]
    addresses: dict[bytes, int] = {}
    for arrays, _ in parts:
        local = [addresses.setdefault(text, len(addresses)) for text in arrays["addresses"].tolist()]
        index = np.array(local, dtype=np.int32)
        for side in ("client_addr", "server_addr"):
            arrays[f"connections.{side}"] = index[arrays[f"connections.{side}"]]
    names = [name for name in parts[0][0] if name != "addresses"]
    joined = {name: np.concatenate([arrays[name] for arrays, _ in parts]) for name in names}
    # Of each connection only the last row is needed.
    ids = joined["connections.id"]
    _, from_end = np.unique(ids[::-1], return_index=True)
    last = np.sort(len(ids) - 1 - from_end)
    for name in names:
        if name.startswith("connections."):
            joined[name] = joined[name][last]
    joined["addresses"] = np.array(list(addresses), dtype="S39")
    about = parts[-1][1] | {
        "first_message": parts[0][1]["first_message"],
        "first_connection": base,
        "messages": sum(about["messages"] for _, about in parts),
    }
    return joined, about


def table_of(arrays: dict[str, np.ndarray[Any, Any]], name: str) -> Table:
    """One table of a segment."""
    return {column.name: arrays[f"{name}.{column.name}"] for column in TABLES[name]}
