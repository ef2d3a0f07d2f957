"""A capture in pieces, as it comes: the segments of spools, numbered as rows of the whole capture's tables.

What `spool_read` puts together at once is here put together piece by piece, with the same row numbers
wherever no segment is lost: a message's row is its place among all messages, a connection's likewise, a
class's the order in which they were first told. Addresses are numbered as they come, which depends on the
pieces."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.capture.segment import AMENDMENTS, Change, table_of
from tapscope.store.codes import MessageFlag
from tapscope.store.tables import TABLES, Table, empty

Ids = NDArray[np.int64]
ClassLines = dict[int, tuple[int, str, str]]
"""By a session's number of a class: protocol, text, example."""

LIVE_NS = 5_000_000_000
"""What a live capture saw so long ago was handed over."""

_COLUMNS = {column.name: at for at, column in enumerate(TABLES["messages"])}


@dataclass
class Chunk:
    """What came since the chunk before. Row numbers are those of the whole capture."""

    connections: Table
    """New ones and, with what became of them, known ones."""
    connection_rows: Ids
    messages: Table
    message_rows: Ids
    evidence: Table
    tcp_events: Table
    amendments: dict[str, Ids]
    """message (row), column (of TABLES["messages"]), change, value: what became of messages of earlier
    chunks, in order."""
    now_ns: int
    """The latest time that any of it tells; everything the tap read before is in this chunk or an earlier
    one, but for bytes that wait for others."""


class Runs:
    """Ids of a session to rows: runs of consecutive ones, since nearly all are."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._row: list[int] = []
        self._count: list[int] = []

    def add(self, ids: Ids, row: int) -> None:
        """Ascending new `ids` get the rows from `row` on."""
        for part in np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1):
            if not len(part):
                continue
            first, count = int(part[0]), len(part)
            at = bisect.bisect(self._first, first) - 1
            joins = at >= 0 and self._first[at] + self._count[at] == first
            if joins and self._row[at] + self._count[at] == row:
                self._count[at] += count
            else:
                for column, value in ((self._first, first), (self._row, row), (self._count, count)):
                    column.insert(at + 1, value)
            row += count

    def rows(self, ids: Ids) -> Ids:
        """Row of each id; -1 where there is none."""
        if not self._first:
            return np.full(len(ids), -1, dtype=np.int64)
        first, row, count = (np.array(part, dtype=np.int64) for part in (self._first, self._row, self._count))
        at = np.maximum(np.searchsorted(first, ids, side="right") - 1, 0)
        offset = ids - first[at]
        return np.where((offset >= 0) & (offset < count[at]), row[at] + offset, -1)


@dataclass
class Chunks:
    """Segments in, chunks out; and what belongs to the capture as a whole, as of the last one."""

    classes: list[tuple[int, str]] = field(default_factory=list)
    examples: dict[int, str] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)
    now_ns: int = -1
    messages: int = 0
    connections: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    """What segments that were lost had told: by name of the counter."""

    def __post_init__(self) -> None:
        self._class_row: dict[tuple[int, str], int] = {}
        self._address_row: dict[str, int] = {}
        self._class_of: dict[int, int] = {}
        self._before: list[dict[str, Any]] = []
        self._brought_ns = -1
        self._by_one_clock = False
        self._begin_session()

    def _begin_session(self) -> None:
        self._about: dict[str, Any] = {"counters": [], "sources": [], "tap_points": []}
        self._runs = Runs()
        self._known = Runs()
        self._class_of = {}
        self._open: Ids = np.zeros(0, dtype=np.int64)

    def next_session(self) -> dict[str, Ids]:
        """The session that the segments came from is over, and another one's will come. Returns amendments:
        messages that it left without an end have none."""
        rows = self._open
        self._before.append(self._about)
        self._begin_session()
        return {
            "message": rows,
            "column": np.full(len(rows), _COLUMNS["flags"], dtype=np.int64),
            "change": np.full(len(rows), Change.SET_BITS, dtype=np.int64),
            "value": np.full(len(rows), MessageFlag.UNFINISHED, dtype=np.int64),
        }

    def learn_classes(self, lines: ClassLines) -> None:
        """Classes of the session, also some that are known."""
        for number in sorted(lines):
            protocol, text, example = lines[number]
            row = self._class_row.setdefault((protocol, text), len(self.classes))
            if row == len(self.classes):
                self.classes.append((protocol, text))
            if example:
                self.examples.setdefault(row, example)
            self._class_of[number] = row

    def add(self, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> Chunk:
        """The next segment of the session; its classes are known."""
        self._about = about
        connections, connection_rows = self._connections(arrays)
        first = about["first_connection"]
        messages, kept, ids = self._messages(arrays, about, first)
        rows = np.arange(self.messages, self.messages + len(ids), dtype=np.int64)
        self._runs.add(ids, self.messages)
        self.messages += len(ids)
        request = messages["request"][kept]
        messages = {name: values[kept] for name, values in messages.items()}
        messages["request"] = self._runs.rows(request)
        self._count("spool.references_lost", (request >= 0) & (messages["request"] < 0))
        amendments = {name: arrays[f"amendments.{name}"].astype(np.int64) for name in AMENDMENTS}
        amendments = self._amendments(amendments)
        self._follow_open(messages, rows, amendments)
        evidence = table_of(arrays, "evidence")
        of = self._runs.rows(evidence["message"])
        self._count("spool.references_lost", of < 0)
        evidence = {name: values[of >= 0] for name, values in evidence.items()} | {"message": of[of >= 0]}
        events = table_of(arrays, "tcp_events") if "tcp_events.conn" in arrays else empty("tcp_events")
        at = self._known.rows(_whole(events["conn"], first))
        self._count("spool.references_lost", at < 0)
        events = {name: values[at >= 0] for name, values in events.items()}
        events["conn"] = at[at >= 0].astype(np.int32)
        self._advance(connections, messages, amendments)
        self._wait_with_the_clock(about.get("written_ns", -1))
        return Chunk(connections, connection_rows, messages, rows, evidence, events, amendments, self.now_ns)

    def counters(self) -> list[tuple[str, int, str]]:
        """Counters of all sessions, as of their last segments."""
        sums: dict[str, tuple[int, str]] = {}
        told = [entry for about in (*self._before, self._about) for entry in about["counters"]]
        told += [(name, value, "messages") for name, value in self.lost.items()]
        for name, value, unit in told:
            sums[name] = (sums.get(name, (0, unit))[0] + value, unit)
        return [(name, value, unit) for name, (value, unit) in sorted(sums.items())]

    def sources(self) -> list[dict[str, Any]]:
        """Sources of all sessions, as of their last segments."""
        return [
            source | ({"session": about["session"]} if "session" in about else {})
            for about in (*self._before, self._about)
            for source in about["sources"]
        ]

    def tap_points(self) -> list[tuple[int, int, int, int]]:
        """Tap points of all sessions, as of their last segments."""
        sums: dict[int, NDArray[np.int64]] = {}
        for about in (*self._before, self._about):
            for code, *counts in about["tap_points"]:
                sums[code] = sums.get(code, np.zeros(3, dtype=np.int64)) + counts
        return [(code, int(found[0]), int(found[1]), int(found[2])) for code, found in sums.items()]

    def _count(self, name: str, where: NDArray[np.bool_]) -> None:
        if where.any():
            self.lost[name] = self.lost.get(name, 0) + int(where.sum())

    def _connections(self, arrays: dict[str, NDArray[Any]]) -> tuple[Table, Ids]:
        told = table_of(arrays, "connections")
        ids = arrays["connections.id"].astype(np.int64)
        # Of an id that is told twice the last row counts.
        _, from_end = np.unique(ids[::-1], return_index=True)
        last = len(ids) - 1 - from_end
        ids = ids[last]
        told = {name: values[last] for name, values in told.items()}
        index = np.array(
            [self._address(text.decode("ascii", "replace")) for text in arrays["addresses"].tolist()],
            dtype=np.int32,
        )
        for side in ("client_addr", "server_addr"):
            told[side] = index[told[side]] if len(index) else told[side]
        fresh = ids[self._known.rows(ids) < 0]
        self._known.add(fresh, self.connections)
        self.connections += len(fresh)
        return told, self._known.rows(ids)

    def _messages(
        self, arrays: dict[str, NDArray[Any]], about: dict[str, Any], first: int
    ) -> tuple[Table, NDArray[np.bool_], Ids]:
        messages = dict(table_of(arrays, "messages"))
        conn = self._known.rows(_whole(messages["conn"], first))
        kept = conn >= 0
        self._count("spool.messages_without_connection", ~kept)
        ids = about["first_message"] + np.flatnonzero(kept)
        messages["conn"] = conn.astype(np.int32)
        numbers, inverse = np.unique(messages["class_id"], return_inverse=True)
        rows = [-1 if number < 0 else self._class(number) for number in numbers.tolist()]
        messages["class_id"] = np.array(rows, dtype=np.int32)[inverse]
        return messages, kept, ids.astype(np.int64)

    def _class(self, number: int) -> int:
        if number not in self._class_of:
            self.learn_classes({number: (0, f"(text of class {number} lost)", "")})
        return self._class_of[number]

    def _address(self, text: str) -> int:
        row = self._address_row.setdefault(text, len(self.addresses))
        if row == len(self.addresses):
            self.addresses.append(text)
        return row

    def _amendments(self, amendments: dict[str, Ids]) -> dict[str, Ids]:
        rows = self._runs.rows(amendments["message"])
        self._count("spool.references_lost", rows < 0)
        amendments["message"] = rows
        value, column = amendments["value"], amendments["column"]
        of = np.flatnonzero((column == _COLUMNS["request"]) & (value >= 0))
        value[of] = self._runs.rows(value[of])
        for at in np.flatnonzero((column == _COLUMNS["class_id"]) & (value >= 0)).tolist():
            value[at] = self._class(int(value[at]))
        return {name: values[rows >= 0] for name, values in amendments.items()}

    def _follow_open(self, messages: Table, rows: Ids, amendments: dict[str, Ids]) -> None:
        """Messages without an end, should the session end here."""
        ended = amendments["message"][
            (amendments["column"] == _COLUMNS["end_ns"]) & (amendments["value"] >= 0)
        ]
        opened = np.concatenate([self._open, rows[messages["end_ns"] < 0]])
        self._open = opened[~np.isin(opened, ended)]

    def _advance(self, connections: Table, messages: Table, amendments: dict[str, Ids]) -> None:
        times = np.isin(amendments["column"], (_COLUMNS["begin_ns"], _COLUMNS["end_ns"]))
        for values in (
            connections["last_ns"],
            messages["begin_ns"],
            messages["end_ns"],
            amendments["value"][times],
        ):
            self.now_ns = max(self.now_ns, int(values.max(initial=-1)))

    def _wait_with_the_clock(self, written_ns: int) -> None:
        """On a tap that is silent time goes on all the same, where its clock is the one that segments are
        written by: where those that brought something were written soon after."""
        if written_ns < 0:
            return
        if self.now_ns > self._brought_ns:
            self._brought_ns = self.now_ns
            self._by_one_clock = 0 <= written_ns - self.now_ns < LIVE_NS
        elif self._by_one_clock:
            self.now_ns = self._brought_ns = max(self.now_ns, written_ns - LIVE_NS)


def _whole(low_half: NDArray[Any], first: int) -> Ids:
    """Connection ids of which the low half is given, made whole by the first id of their segment."""
    return first + (low_half - np.int64(first)).astype(np.int32).astype(np.int64)
