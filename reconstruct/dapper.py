"""Annotated spans (Dapper; BlkKin chapters 4-6, Zipkin's four times) out of the events of CTF traces.

An event is an annotation of one span: its trace_id, span_id, parent_span_id (0: none), the span's name
(trace_name), who noted it (service_name, ip, port_no), and either `event`, noted at that time, or `key` and
`val`. The events cs, cr, sr, ss are a call's four times: client send and receive, server receive and send.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tapscope.reconstruct import ctf

CORE = ("cs", "sr", "ss", "cr")
"""In the order of the times of a row of a span table."""

CLIENT, NOT_TRACED = "client", "not traced"
"""Callers that noted nothing: of a span without a parent, and of one whose parent is not in the trace."""

REQUEST_ID = "request_id"
"""Key under which a span may note by what name others know its trace."""

_ID = 1 << 64


@dataclass
class Span:
    """One span as its annotations tell it. Times are ns UTC, -1 = not noted."""

    trace_id: str
    parent_id: str
    name: str
    times: list[int] = field(default_factory=lambda: [-1] * 4)
    services: list[str] = field(default_factory=lambda: [""] * 4)
    """Who noted each of the times."""

    hosts: list[str] = field(default_factory=lambda: [""] * 4)
    first: tuple[int, str] = (-1, "")
    last_ns: int = -1
    request_id: str = ""

    @property
    def callee(self) -> str:
        """Who served it: who noted sr or ss; a callee that noted nothing is called as its span is; a span
        without any of the four is the work of whoever noted something first."""
        served = self.services[1] or self.services[2]
        return served or (self.name if self.services[0] or self.services[3] else self.first[1])


@dataclass
class Annotations:
    """Columns of the table `annotation`, one entry per event; of equal texts one is kept."""

    keep_text: bool = False
    columns: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in ("message_id", "time_ns", "host", "service", "address", "port", "name", "value")
        }
    )
    _same: dict[str, str] = field(default_factory=dict)
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def add(self, message_id: str, event: ctf.Event) -> None:
        """Note one event. Values may be what users sent: they are hashed unless texts are to be kept."""
        fields = event.fields
        value = fields.get("val") if "key" in fields else None
        if value is not None and not self.keep_text:
            value = "#" + blake2b(value.encode(), digest_size=8, key=self._salt).hexdigest()
        cells = (
            message_id,
            event.time_ns,
            event.host,
            fields.get("service_name", ""),
            fields.get("ip", ""),
            _number(fields.get("port_no", "")),
            fields.get("key", fields.get("event", "")),
            value,
        )
        for column, cell in zip(self.columns.values(), cells, strict=True):
            column.append(self._same.setdefault(cell, cell) if isinstance(cell, str) else cell)


def read(
    path: Path,
    spans: dict[str, Span],
    count: Callable[[str, int], None],
    annotations: Annotations | None = None,
    lost: Callable[[int, int], None] = lambda begin, end: None,
) -> None:
    """Add the spans of the traces in a folder to `spans`, by message id: trace id and span id in hex digits.

    A span may be noted in several traces (one per host). count, lost : as for ctf.events, and for `add`.
    """
    for event in ctf.events(path, count, lost):
        add(event, spans, count, annotations)


def add(
    event: ctf.Event,
    spans: dict[str, Span],
    count: Callable[[str, int], None],
    annotations: Annotations | None = None,
) -> None:
    """Add one event to its span. count(name, 1) is told of `other_event` (no annotation),
    `parent_contradiction` (two parents: the first one counts) and `repeated_time` (a second cs, cr, sr or ss:
    the first counts)."""
    fields = event.fields
    try:
        trace, own, parent = (int(fields[name], 0) % _ID for name in _IDS)
    except (KeyError, ValueError):
        count("other_event", 1)
        return
    if "event" not in fields and not {"key", "val"} <= fields.keys():
        count("other_event", 1)
        return
    message_id, parent_id = _id(trace, own), _id(trace, parent) if parent else ""
    span = spans.get(message_id)
    if span is None:
        span = spans[message_id] = Span(f"{trace:016x}", parent_id, fields.get("trace_name", ""))
    elif span.parent_id != parent_id:
        count("parent_contradiction", 1)
    _note(span, event, count)
    if annotations is not None:
        annotations.add(message_id, event)


_IDS = ("trace_id", "span_id", "parent_span_id")


def caller(span: Span, spans: dict[str, Span]) -> str:
    """Who called: who noted cs or cr, else who served the parent."""
    noted = span.services[0] or span.services[3]
    if noted or not span.parent_id:
        return noted or CLIENT
    parent = spans.get(span.parent_id)
    return NOT_TRACED if parent is None else parent.callee


def times(span: Span) -> list[int]:
    """Sent, received, responded, answered, ns. A span without any of the four lasts from its first to its
    last annotation, at who served it."""
    if max(span.times) >= 0:
        return span.times
    return [-1, span.first[0], span.last_ns if span.last_ns > span.first[0] else -1, -1]


def _note(span: Span, event: ctf.Event, count: Callable[[str, int], None]) -> None:
    service = event.fields.get("service_name", "")
    if span.first[0] < 0 or event.time_ns < span.first[0]:
        span.first = (event.time_ns, service)
    span.last_ns = max(span.last_ns, event.time_ns)
    if event.fields.get("key") == REQUEST_ID:
        span.request_id = span.request_id or event.fields["val"]
    what = event.fields.get("event", "")
    if what not in CORE:
        return
    place = CORE.index(what)
    if span.times[place] >= 0:
        count("repeated_time", 1)
        return
    span.times[place], span.services[place], span.hosts[place] = event.time_ns, service, event.host


def _id(trace: int, span: int) -> str:
    return f"{trace:016x}.{span:016x}"


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else -1
