"""Thread logs as tables: which thread sent or received how many bytes of which connection, and when.

A log is one file per process, written by the recorder (validate/threads/recorder/format.h, docs/threads.md):
a header and records of 56 bytes. Times are the host's CLOCK_REALTIME in int64 ns. Bad input is counted: files
that are no logs, a cut last record, records of a kind that is not known, calls of connections whose first
record is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapscope.store.errors import TapscopeError
from tapscope.store.tables import Table

SUFFIX = ".threads"
MAGIC = b"TAPSTHR1"
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("pid", "<u4"),
        ("parent", "<u4"),
        ("started_ns", "<i8"),
        ("network", "<u8"),
        ("slots", "<u4"),
        ("reserved", "<u4"),
        ("host", "S64"),
        ("program", "S64"),
    ]
)
RECORD = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("connection", "<u4"),
        ("thread", "<u4"),
        ("kind", "u1"),
        ("what", "u1"),
        ("direction", "u1"),
        ("reserved", "u1"),
        ("detail", "V4"),
        ("body", "V32"),
    ]
)
_CALL = np.dtype([("end_ns", "<i8"), ("offset", "<i8"), ("bytes", "<i8"), ("reserved", "<i8")])
_OPEN = np.dtype([("own", "V16"), ("peer", "V16")])
_CLOSE = np.dtype(
    [("received", "<i8"), ("sent", "<i8"), ("counted_received", "<i8"), ("counted_sent", "<i8")]
)

UNSEEN_SLACK = 2
"""Bytes by which the kernel's counts are higher: they take SYN and FIN for a byte each."""


EVENT_COLUMNS = {
    "connection": np.int32,
    "thread": np.int64,
    "way": np.int8,
    "begin_ns": np.int64,
    "end_ns": np.int64,
    "offset": np.int64,
    "bytes": np.int64,
}
CHUNK = 1 << 18
"""Records that are looked at together."""


class Kind(IntEnum):
    """Kinds of records."""

    CALL = 1
    OPEN = 2
    CLOSE = 3
    STILL = 4
    LOST = 5
    END = 6
    PAUSED = 7
    RESUMED = 8


class How(IntEnum):
    """How a process came by a connection."""

    ACCEPTED = 1
    CONNECTED = 2
    FOUND = 3  # inherited, or opened by a call that the recorder does not see


class Way(IntEnum):
    """Direction of a call, seen from the process."""

    RECEIVED = 0
    SENT = 1


@dataclass
class Process:
    """One log. lost: records that the ring had no room for; ended: the log has its end."""

    path: str
    pid: int
    program: str
    host: str
    lost: int = 0
    ended: bool = False

    def title(self) -> str:
        """Name for messages."""
        return f"{self.program} (process {self.pid})"


@dataclass
class ThreadLogs:
    """All logs of a run.

    connections : process (row), own, peer (index into addresses), own_port, peer_port, how (How), begin_ns,
        end_ns (-1: open at the end), received, sent (bytes until its end, -1 not known), counted_received,
        counted_sent (the same as the kernel counts them)
    events : sends and receives of at least one byte: connection (row), thread (row of no table: process << 32
        | thread id), way (Way), begin_ns, end_ns, offset, bytes; log by log, in the order of their records
    """

    processes: list[Process]
    addresses: list[str]
    connections: Table
    events: Table
    counters: dict[str, int] = field(default_factory=dict)


def log_files(paths: Sequence[str | Path]) -> list[Path]:
    """Logs below the paths (files, or folders searched to the bottom). TapscopeError when there is none."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise TapscopeError("there is no such file", path=path, remedy="Check the path.")
        found += sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not found:
        raise TapscopeError(
            "there are no thread logs here",
            path=paths[0] if paths else None,
            remedy="Record some: tapscope threads record -o DIR -- COMMAND.",
        )
    return found


def read(paths: Sequence[str | Path], *, progress: Callable[[int, int], None] | None = None) -> ThreadLogs:
    """Read thread logs (files or folders). Raises TapscopeError when none of them can be used."""
    files = log_files(paths)
    reader = _Reader()
    for done, path in enumerate(files):
        reader.add(path)
        if progress is not None:
            progress(done + 1, len(files))
    if not reader.processes:
        raise TapscopeError(
            f"none of {len(files)} files is a thread log that can be read",
            path=files[0],
            remedy="Record new ones with this version: tapscope threads record -o DIR -- COMMAND.",
        )
    return reader.logs()


class _Reader:
    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.addresses: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.connections: list[Table] = []
        self.events: list[Table] = []
        self.rows = 0

    def count(self, name: str, number: int = 1) -> None:
        if number:
            self.counters[f"threads.{name}"] = self.counters.get(f"threads.{name}", 0) + number

    def add(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(HEADER.itemsize)
        if len(head) < HEADER.itemsize or not head.startswith(MAGIC):
            self.count("files_that_are_no_logs")
            return
        header = np.frombuffer(head, HEADER, 1)[0]
        if header["record_bytes"] != RECORD.itemsize or not HEADER.itemsize <= header["header_bytes"] <= 4096:
            self.count("logs_of_another_version")
            return
        begin = int(header["header_bytes"])
        whole, rest = divmod(max(path.stat().st_size - begin, 0), RECORD.itemsize)
        self.count("cut_records", int(rest > 0))
        records = np.memmap(path, RECORD, "r", begin, (whole,)) if whole else np.empty(0, RECORD)
        process = Process(
            str(path),
            int(header["pid"]),
            header["program"].decode("utf-8", "replace"),
            header["host"].decode("utf-8", "replace"),
        )
        process.ended = bool((records["kind"] == Kind.END).any())
        self.count("logs_without_end", int(not process.ended))
        lost = records[records["kind"] == Kind.LOST]
        process.lost = int(_body(lost, _CLOSE)["received"].sum())
        self.count("records_lost", process.lost)
        self.count("pauses", int((records["kind"] == Kind.PAUSED).sum()))
        self.count("records_not_known", int((~np.isin(records["kind"], list(Kind))).sum()))
        number = len(self.processes)
        self.processes.append(process)
        rows = self._connections(number, records)
        for first in range(0, whole, CHUNK):
            self._events(number, records[first : first + CHUNK], rows)

    def _address(self, packed: bytes, version: int) -> int:
        text = str(IPv4Address(packed[:4]) if version == 4 else IPv6Address(packed))
        return self.addresses.setdefault(text, len(self.addresses))

    def _connections(self, process: int, records: NDArray[np.void]) -> NDArray[np.int64]:
        """Adds the connections of a process; row of each by its number, -1 for those that are not known."""
        opened = records[(records["kind"] == Kind.OPEN) & np.isin(records["direction"], (4, 6))]
        ends = _body(opened, _OPEN)
        ports = np.frombuffer(opened["detail"].tobytes(), "<u2").reshape(-1, 2)
        versions = opened["direction"].tolist()
        table: Table = {
            "process": np.full(len(opened), process, dtype=np.int64),
            "own": np.array(
                [self._address(bytes(a), v) for a, v in zip(ends["own"], versions, strict=True)], np.int64
            ),
            "peer": np.array(
                [self._address(bytes(a), v) for a, v in zip(ends["peer"], versions, strict=True)], np.int64
            ),
            "own_port": ports[:, 0].astype(np.int64),
            "peer_port": ports[:, 1].astype(np.int64),
            "how": opened["what"].astype(np.int64),
            "begin_ns": opened["begin_ns"].astype(np.int64),
            "end_ns": np.full(len(opened), -1, dtype=np.int64),
            "received": np.full(len(opened), -1, dtype=np.int64),
            "sent": np.full(len(opened), -1, dtype=np.int64),
            "counted_received": np.full(len(opened), -1, dtype=np.int64),
            "counted_sent": np.full(len(opened), -1, dtype=np.int64),
        }
        size = int(records["connection"].max(initial=0)) + 1 if len(opened) else 1
        if size > len(records) + 1:  # a broken number must not ask for memory
            self.count("records_not_known", int((records["connection"] > len(records)).sum()))
            size = len(records) + 1
        rows = np.full(size, -1, dtype=np.int64)
        usable = opened["connection"] < size
        rows[opened["connection"][usable]] = np.flatnonzero(usable)
        self._ends(records, rows, table)
        self.connections.append(table)
        begin, self.rows = self.rows, self.rows + len(opened)
        return np.where(rows >= 0, rows + begin, -1)

    def _ends(self, records: NDArray[np.void], rows: NDArray[np.int64], table: Table) -> None:
        """When connections were closed, and how many bytes had passed."""
        closed = records[np.isin(records["kind"], (Kind.CLOSE, Kind.STILL))]
        closed = closed[closed["connection"] < len(rows)]
        closed = closed[rows[closed["connection"]] >= 0]
        row = rows[closed["connection"]]
        ended = closed["kind"] == Kind.CLOSE
        table["end_ns"][row[ended]] = closed["begin_ns"][ended]
        sums = _body(closed, _CLOSE)
        for name in ("received", "sent", "counted_received", "counted_sent"):
            table[name][row] = sums[name]

    def _events(self, process: int, records: NDArray[np.void], rows: NDArray[np.int64]) -> None:
        calls = records[records["kind"] == Kind.CALL]
        number = calls["connection"].astype(np.int64)
        row = np.where(number < len(rows), rows[np.minimum(number, len(rows) - 1)], -1)
        self.count("calls_of_unknown_connections", int((row < 0).sum()))
        body = _body(calls, _CALL)
        sound = (body["bytes"] >= 0) & (body["offset"] >= 0) & (calls["direction"] <= Way.SENT)
        self.count("calls_that_make_no_sense", int((~sound).sum()))
        keep = sound & (row >= 0) & (body["bytes"] > 0)
        columns = {
            "connection": row,
            "thread": (np.int64(process) << 32) | calls["thread"].astype(np.int64),
            "way": calls["direction"],
            "begin_ns": calls["begin_ns"],
            "end_ns": body["end_ns"],
            "offset": body["offset"],
            "bytes": body["bytes"],
        }
        self.events.append({name: columns[name][keep].astype(EVENT_COLUMNS[name]) for name in columns})

    def logs(self) -> ThreadLogs:
        events = {  # the parts go as their columns are taken
            name: np.concatenate([np.empty(0, dtype), *(part.pop(name) for part in self.events)])
            for name, dtype in EVENT_COLUMNS.items()
        }
        names = list(self.connections[0])
        connections = {name: np.concatenate([part[name] for part in self.connections]) for name in names}
        self.count("bytes_not_seen", _unseen(connections))
        return ThreadLogs(
            self.processes,
            list(self.addresses),
            connections,
            events,
            self.counters,
        )


def _body(records: NDArray[np.void], layout: np.dtype[np.void]) -> NDArray[np.void]:
    """What follows the common part of records, in one of its layouts."""
    return np.frombuffer(records["body"].tobytes(), layout)


def _unseen(connections: Table) -> int:
    """Bytes that the kernel moved and no recorder saw: raw system calls, io_uring. What a child moves over a
    connection that it inherited, its parent does not see; the child's log has it."""
    ends = np.stack([connections[name] for name in ("own", "own_port", "peer", "peer_port")])
    _, group = np.unique(ends, axis=1, return_inverse=True)
    group = group.reshape(-1)
    shared = np.isin(group, group[connections["how"] == How.FOUND])
    missing = 0
    for way in ("received", "sent"):
        seen = connections[way].copy()
        most = np.zeros(len(group), dtype=np.int64)
        np.maximum.at(most, group, seen)
        seen[shared] = most[group[shared]]
        counted = connections[f"counted_{way}"]
        gap = np.where((counted >= 0) & (connections[way] >= 0), counted - seen, 0)
        missing += int(gap[gap > UNSEEN_SLACK].sum())
    return missing
