"""True calls from event monitors: the table that every log reader fills and every comparison reads.

An event monitor is a server's own log that gives, per request, upstream arrival and departure and, where it
can, downstream sending and receiving, with a request ID (milliScope 2.4.2). One row here is one request at
one server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import Protocol
from tapscope.store.tables import Column
from tapscope.validate.texts import Texts

Ints = NDArray[np.integer[Any]]
Table = dict[str, NDArray[Any]]
"""Columns of one length; which ones, with dtype and unit, says the tuple of Column that it was made from."""

TIERS = ("web", "app", "middle", "db")
"""Tier names in the order a request meets them; the index is the code in `event_call.tier`."""


def _columns(*rows: tuple[str, str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


EVENT_CALL = _columns(
    ("tier", "int32", "", "index into TIERS"),
    ("host", "int32", "", "index into hosts"),
    ("protocol", "uint8", "", "Protocol in which the server was called; UNKNOWN when the log does not say"),
    ("request_id", "int32", "", "index into request_ids; -1 the log has none"),
    ("arrive_ns", "int64", "ns", "upstream arrival by the log's clock"),
    ("depart_ns", "int64", "ns", "upstream departure by the log's clock; -1 not logged"),
    ("arrive_precision_ns", "int64", "ns", "half width of the interval in which the arrival lies"),
    ("depart_precision_ns", "int64", "ns", "half width of the interval in which the departure lies"),
    ("command", "int32", "", "index into commands; -1 none (the database's Query, Prepare, Execute ...)"),
    ("thread", "int64", "", "the server's thread or connection id; -1 none"),
    ("client_port", "int32", "", "TCP port of the requester; -1 not logged"),
    ("status", "int32", "", "status of the response; -1 not logged"),
    ("source", "int32", "", "index into sources"),
    ("line", "int64", "", "line of that file, from 1"),
)

DOWNSTREAM = _columns(
    ("call", "int64", "", "row of calls: who sent downstream"),
    ("ordinal", "int32", "", "number of the downstream call inside its call, from 0"),
    ("send_ns", "int64", "ns", "downstream sending by the log's clock"),
    ("receive_ns", "int64", "ns", "downstream receiving; -1 not logged"),
    ("precision_ns", "int64", "ns", "half width of both stamps"),
    ("thread", "int64", "", "the downstream server's connection id; -1 not logged"),
    ("command", "int32", "", "index into commands: what was sent; -1 not logged"),
)

CALLER = _columns(
    ("tier", "int32", "", "index into TIERS: which tier was called"),
    ("send_ns", "int64", "ns", "when its caller sent the request, by the caller's log"),
    ("receive_ns", "int64", "ns", "when its caller had the response"),
    ("command", "int32", "", "index into commands: what was sent; -1 not logged"),
    ("by", "int32", "", "index into TIERS: who called and logged it; -1 the client"),
    ("host", "int32", "", "index into hosts: whose clock stamped it"),
    ("request_id", "int32", "", "index into request_ids; -1 none"),
    ("thread", "int64", "", "the called server's connection id; -1 not logged"),
)
"""Calls as their callers logged them. What the wire shows of a call lies between these two times."""

LOG_GAP = _columns(
    ("tier", "int32", "", "index into TIERS"),
    ("begin_ns", "int64", "ns", "earliest time at which a lost line may have meant a call"),
    ("end_ns", "int64", "ns", "latest time"),
    ("source", "int32", "", "index into sources"),
)
"""Times for which a log is known to lack lines."""


@dataclass
class EventCalls:
    """What the event monitors of one run say.

    calls, downstream, callers, gaps : tables with the columns EVENT_CALL, DOWNSTREAM, CALLER, LOG_GAP; calls
        in order of arrival
    hosts, request_ids, commands : what the index columns mean
    sources  : one dict per file: path, monitor, tier, host, bytes, lines, calls, first_ns, last_ns, zone,
        detail
    empty    : (path, tiers it may be of) of every file without a byte whose name promises a log of calls
    counters : (name, value, unit) of every oddity; names begin with "events."
    """

    calls: Table
    downstream: Table
    callers: Table
    gaps: Table
    hosts: list[str] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    empty: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    counters: list[tuple[str, int, str]] = field(default_factory=list)

    def tiers(self) -> list[str]:
        """Names of the tiers that have at least one call."""
        return [TIERS[code] for code in np.unique(self.calls["tier"])]

    def owner(self, by: Ints, host: Ints) -> NDArray[np.int64]:
        """Number of the clock that stamped a row: one per host and kind of log (`by`: index into TIERS, -1
        the client), because files that lie flat may come from several machines."""
        return (by.astype(np.int64) + 1) * max(len(self.hosts), 1) + host.astype(np.int64)

    def owner_names(self, owner: int) -> tuple[str, str]:
        """(client or tier, host) of such a number."""
        by, host = divmod(owner, max(len(self.hosts), 1))
        return (("client", *TIERS)[by], self.hosts[host] if self.hosts else "")

    def of_tier(self, tier: str) -> NDArray[np.int64]:
        """Rows of calls of one tier, in order of arrival."""
        return np.flatnonzero(self.calls["tier"] == TIERS.index(tier))


def empty_table(columns: tuple[Column, ...]) -> Table:
    """A table with these columns and no rows."""
    return {column.name: np.empty(0, dtype=column.dtype) for column in columns}


def table_of(columns: tuple[Column, ...], rows: list[tuple[int, ...]]) -> Table:
    """Columns from rows whose values stand in the order of `columns`."""
    if not rows:
        return empty_table(columns)
    block = np.array(rows, dtype=np.int64)
    return {column.name: block[:, i].astype(column.dtype) for i, column in enumerate(columns)}


class _Codes(dict[str, int]):
    """Gives a text that it does not have the next number."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


class Names:
    """Texts to small integers, in the order of first use."""

    def __init__(self) -> None:
        self._codes = _Codes()
        self.code: Callable[[str], int] = self._codes.__getitem__
        """Index of a text; a new one is added. The dict's own method: it is called for every cell."""

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def texts(self) -> list[str]:
        """All texts; the index of each is its place."""
        return list(self._codes)

    def codes(self, texts: Texts) -> NDArray[np.int64]:
        """`code` of every text."""
        return self.codes_but(texts, frozenset())

    def codes_but(self, texts: Texts, none: Collection[str]) -> NDArray[np.int64]:
        """The same; -1 for those that stand for none."""
        different, place = texts.distinct()
        codes = [-1 if text in none else self.code(text) for text in different]
        return np.array(codes, dtype=np.int64)[place]

    def knows(self, text: str) -> bool:
        """Has this text an index already?"""
        return text in self._codes


NO_ID = frozenset(("", "-", "NULL"))
"""How servers write that a request had no ID."""

RAW_CALL = EVENT_CALL + _columns(
    ("alias", "int32", "", "index into request_ids: a second ID of the same request; -1 none"),
    ("handled_ns", "int64", "ns", "time between downstream sending and receiving; -1 not logged"),
)
"""What the readers fill; the last columns are used up when downstream intervals are joined."""

MARK = _columns(
    ("tier", "int32", "", "index into TIERS: whose request it belongs to"),
    ("host", "int32", "", "index into hosts"),
    ("kind", "int32", "", "MarkKind"),
    ("request_id", "int32", "", "index into request_ids"),
    ("at_ns", "int64", "ns", "stamp, or begin of the interval"),
    ("until_ns", "int64", "ns", "end of the interval; -1 a single stamp"),
    ("ordinal", "int32", "", "number of the downstream call; -1 none"),
    ("thread", "int64", "", "the downstream server's connection id; -1 none"),
    ("command", "int32", "", "index into commands: what was sent; -1 none"),
    ("source", "int32", "", "index into sources"),
)
"""Stamps that stand in another line or file than the call they belong to."""


class MarkKind(IntEnum):
    """What a mark tells."""

    SENDING = 0  # one downstream sending
    RECEIVING = 1  # one downstream receiving
    INSIDE = 2  # an interval inside the call, measured by the application: bounds arrival and departure
    STATEMENT = 3  # one downstream sending and receiving
    CLIENT = 4  # the whole request as its client saw it: sending and receiving


Cells = int | Ints | Sequence[int]
"""What `Collector.add` takes for a column: a value for each row, or one for all of them."""


class Growing:
    """A table to which rows are added block by block, or one by one."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._blocks: list[Table] = []
        self._rows: list[tuple[int, ...]] = []

    def row(self, values: tuple[int, ...]) -> None:
        """One row, its values in the order of the columns."""
        self._rows.append(values)

    def block(self, count: int, columns: Mapping[str, Cells]) -> None:
        """`count` rows: a value per row, or one for all of them."""
        self._settle()
        self._blocks.append(
            {
                column.name: np.array(np.broadcast_to(np.asarray(columns[column.name]), count), column.dtype)
                for column in self._columns
            }
        )

    def _settle(self) -> None:
        if self._rows:
            self._blocks.append(table_of(self._columns, self._rows))
            self._rows = []

    def table(self) -> Table:
        """All rows, in the order in which they came."""
        self._settle()
        blocks = self._blocks or [empty_table(self._columns)]
        return {c.name: np.concatenate([block[c.name] for block in blocks]) for c in self._columns}


@dataclass
class Collector:
    """Where the log readers put their rows: calls (RAW_CALL), marks (MARK) and gaps (LOG_GAP)."""

    request_ids: Names = field(default_factory=Names)
    hosts: Names = field(default_factory=Names)
    commands: Names = field(default_factory=Names)
    calls: Growing = field(default_factory=lambda: Growing(RAW_CALL))
    marks: Growing = field(default_factory=lambda: Growing(MARK))
    gaps: Growing = field(default_factory=lambda: Growing(LOG_GAP))
    sources: list[dict[str, Any]] = field(default_factory=list)
    empty: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, value: int = 1) -> None:
        """Add to the counter `events.<name>`; a value of 0 leaves no counter."""
        if value:
            self.counts[name] = self.counts.get(name, 0) + value

    def id_code(self, request_id: str) -> int:
        """Index of a request ID; -1 for the ways servers write that there is none."""
        return -1 if request_id in NO_ID else self.request_ids.code(request_id)

    def id_codes(self, request_ids: Texts) -> NDArray[np.int64]:
        """`id_code` of every one."""
        return self.request_ids.codes_but(request_ids, NO_ID)

    def command_codes(self, commands: Texts) -> NDArray[np.int64]:
        """Indices of commands; -1 for ''."""
        return self.commands.codes_but(commands, ("",))

    def add(
        self,
        *,
        tier: int,
        host: int,
        source: int,
        line: int,
        request_id: str,
        arrive_ns: int,
        depart_ns: int,
        precision_ns: tuple[int, int],
        protocol: Protocol = Protocol.UNKNOWN,
        command: str = "",
        status: int = -1,
        thread: int = -1,
    ) -> None:
        """One call, as its log line says it."""
        command_code = self.commands.code(command) if command else -1
        code = self.id_code(request_id)
        where = (command_code, thread, -1, status, source, line, -1, -1)
        self.calls.row((tier, host, int(protocol), code, arrive_ns, depart_ns, *precision_ns, *where))

    def add_rows(
        self,
        line: Ints,
        *,
        tier: int,
        host: int,
        source: int,
        request_id: Cells,
        arrive_ns: Ints,
        depart_ns: Cells,
        precision_ns: tuple[int, int],
        protocol: Cells,
        command: Cells = -1,
        thread: Cells = -1,
        client_port: Cells = -1,
        status: Cells = -1,
        alias: Cells = -1,
        handled_ns: Cells = -1,
    ) -> None:
        """The calls of these lines of one log. request_id, alias, command : codes (id_codes,
        command_codes)."""
        columns: dict[str, Cells] = {"tier": tier, "host": host, "source": source, "line": line}
        columns |= {"request_id": request_id, "arrive_ns": arrive_ns, "depart_ns": depart_ns}
        columns |= {"arrive_precision_ns": precision_ns[0], "depart_precision_ns": precision_ns[1]}
        columns |= {"protocol": protocol, "command": command, "thread": thread, "client_port": client_port}
        columns |= {"status": status, "alias": alias, "handled_ns": handled_ns}
        self.calls.block(len(line), columns)

    def mark(
        self,
        kind: MarkKind,
        *,
        tier: int,
        host: int,
        source: int,
        request_id: str,
        at_ns: int,
        until_ns: int = -1,
        ordinal: int = -1,
    ) -> None:
        """One stamp or interval that belongs to a call in another line."""
        where = (ordinal, -1, -1, source)
        self.marks.row((tier, host, int(kind), self.id_code(request_id), at_ns, until_ns, *where))

    def mark_rows(
        self,
        kind: MarkKind,
        *,
        tier: int,
        host: int,
        source: int,
        request_id: Cells,
        at_ns: Ints,
        until_ns: Cells,
        ordinal: Cells = -1,
        thread: Cells = -1,
        command: Cells = -1,
    ) -> None:
        """The same for many lines of one log. request_id, command : codes."""
        columns: dict[str, Cells] = {"tier": tier, "host": host, "kind": int(kind), "source": source}
        columns |= {"request_id": request_id, "at_ns": at_ns, "until_ns": until_ns}
        columns |= {"ordinal": ordinal, "thread": thread, "command": command}
        self.marks.block(len(at_ns), columns)

    def counters(self) -> list[tuple[str, int, str]]:
        """The counters as (name, value, unit), by name."""
        return [(f"events.{name}", value, "") for name, value in sorted(self.counts.items())]


COARSE_NS = 100_000_000
"""Half width of an arrival from which on it tells neither calls nor windows apart."""


def without_duplicates(calls: Table) -> tuple[Table, int]:
    """Calls in order of arrival without repeated rows, and how many were repeated.

    A line that stands in two files (a copied rotation) gives the same id, times, thread and port twice. Two
    different calls cannot: one connection or thread does not start two calls in the same microsecond. A log
    with stamps in whole seconds cannot tell; its rows are all kept.
    """
    key = ("client_port", "thread", "command", "depart_ns", "request_id", "host", "tier")
    order = np.argsort(calls["arrive_ns"], kind="stable")
    together = calls["arrive_ns"][order[1:]] == calls["arrive_ns"][order[:-1]]
    tied = np.flatnonzero(np.append(together, False) | np.append(False, together))
    # Few arrive at the same time: only these are sorted by the other columns.
    rows = order[tied]
    order[tied] = rows[np.lexsort([*(calls[name][rows] for name in key), calls["arrive_ns"][rows]])]
    ordered = {name: values[order] for name, values in calls.items()}
    same = together & (ordered["arrive_precision_ns"][1:] < COARSE_NS)
    for name in key:
        same &= ordered[name][1:] == ordered[name][:-1]
    keep = np.concatenate([np.ones(min(len(order), 1), dtype=bool), ~same])
    return {name: values[keep] for name, values in ordered.items()}, int(np.count_nonzero(~keep))
