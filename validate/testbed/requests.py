"""Where each request message begins in the client side of an HTTP, AJP13, FastCGI or MySQL connection.

Deliberately simple readers for traffic that the testbed itself makes (no pipelining over gaps, no TLS, no
compression); what they do not understand is counted, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .streams import Run

_HTTP_LINE = re.compile(rb"(GET|POST|HEAD|PUT|DELETE|OPTIONS) \S+ HTTP/1\.[01]\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
_AJP_METHODS = {1: "OPTIONS", 2: "GET", 3: "HEAD", 4: "POST", 5: "PUT", 6: "DELETE"}
_AJP_LENGTH = re.compile(rb"\xa0\x08\x00(.)(\d+)\x00", re.S)
_FCGI_METHOD = re.compile(rb"REQUEST_METHOD([A-Z]{3,7})")
_COMMANDS = {
    0x01: "COM_QUIT",
    0x02: "COM_INIT_DB",
    0x03: "COM_QUERY",
    0x0E: "COM_PING",
    0x11: "COM_CHANGE_USER",
    0x16: "COM_STMT_PREPARE",
    0x17: "COM_STMT_EXECUTE",
    0x18: "COM_STMT_SEND_LONG_DATA",
    0x19: "COM_STMT_CLOSE",
    0x1A: "COM_STMT_RESET",
    0x1B: "COM_SET_OPTION",
    0x1C: "COM_STMT_FETCH",
    0x1F: "COM_RESET_CONNECTION",
}


@dataclass
class Request:
    """One request message: offsets in its run, and the protocol's own name for its kind."""

    begin: int
    end: int
    kind: str


@dataclass
class Unread:
    """Bytes that no reader understood."""

    size: int


def http(run: Run) -> Iterator[Request | Unread]:
    """HTTP/1.x requests with their bodies (by Content-Length)."""
    data, at = run.data, 0
    while at < len(data):
        line = _HTTP_LINE.match(data, at)
        head_end = data.find(b"\r\n\r\n", at) if line else -1
        if line is None or head_end < 0:
            resume = _resume(run, at, lambda p: _HTTP_LINE.match(data, p) is not None)
            yield Unread(resume - at)
            at = resume
            continue
        length = _LENGTH.search(data, at, head_end + 2)
        end = head_end + 4 + (int(length[1]) if length else 0)
        yield Request(at, min(end, len(data)), line[1].decode())
        at = end


def ajp(run: Run) -> Iterator[Request | Unread]:
    """AJP13 FORWARD_REQUEST messages with their body packets. CPING is skipped: it asks no servlet."""
    data, at = run.data, 0

    def head(p: int) -> bool:
        return data[p : p + 2] == b"\x12\x34" and p + 5 <= len(data) and data[p + 4] in (2, 10)

    while at < len(data):
        if not head(at):
            resume = _resume(run, at, head)
            yield Unread(resume - at)
            at = resume
            continue
        end = at + 4 + (data[at + 2] << 8 | data[at + 3])
        if data[at + 4] == 2:
            length = _AJP_LENGTH.search(data, at, min(end, len(data)))
            left = int(length[2]) if length else 0
            begin = at
            # Body packets carry no type: count down what the content-length header announced.
            while left > 0 and end + 4 <= len(data) and data[end : end + 2] == b"\x12\x34":
                size = data[end + 2] << 8 | data[end + 3]
                if size < 2:
                    end += 4 + size
                    break
                left -= data[end + 4] << 8 | data[end + 5]
                end += 4 + size
            yield Request(begin, min(end, len(data)), _AJP_METHODS.get(data[begin + 5], "OTHER"))
        at = end


def fastcgi(run: Run) -> Iterator[Request | Unread]:
    """FastCGI requests: from FCGI_BEGIN_REQUEST to the empty FCGI_STDIN (FastCGI 1.0, 3.3 and 5)."""
    data, at = run.data, 0

    def head(p: int) -> bool:
        return data[p : p + 2] == b"\x01\x01" and p + 8 <= len(data)

    while at < len(data):
        if not head(at):
            resume = _resume(run, at, head)
            yield Unread(resume - at)
            at = resume
            continue
        begin, last = at, False
        while at + 8 <= len(data) and not last:
            size = data[at + 4] << 8 | data[at + 5]
            last = data[at + 1] == 5 and size == 0
            at += 8 + size + data[at + 6]
        method = _FCGI_METHOD.search(data, begin, min(at, len(data)))
        yield Request(begin, min(at, len(data)), method[1].decode() if method else "OTHER")


def mysql(run: Run) -> Iterator[Request | Unread]:
    """MySQL commands: client packets with sequence number 0. The log-in packets have higher numbers."""
    data, at = run.data, 0
    if run.after_gap:
        at = _resume(run, -1, lambda p: _command_at(data, p))
        if at:
            yield Unread(at)
    while at + 4 < len(data):
        size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        if data[at + 3] == 0:
            yield Request(
                at, min(at + 4 + size, len(data)), _COMMANDS.get(data[at + 4], f"COM_{data[at + 4]:#04x}")
            )
        at += 4 + size
    if at < len(data):
        yield Unread(len(data) - at)


def _command_at(data: bytes, p: int) -> bool:
    return p + 5 <= len(data) and data[p + 3] == 0 and data[p + 4] in _COMMANDS


def _resume(run: Run, at: int, plausible: object) -> int:
    """Next packet border behind `at` where a message can begin, or the end of the run."""
    assert callable(plausible)
    for start in run.segment_starts():
        if start > at and plausible(start):
            return start
    return len(run.data)


READERS: dict[str, Callable[[Run], Iterator[Request | Unread]]] = {
    "http": http,
    "avatica": http,
    "ajp": ajp,
    "fastcgi": fastcgi,
    "mysql": mysql,
}
"""By protocol. Avatica is HTTP with a JDBC call in every body."""
