"""Where each request message begins in the client side of a connection, for the protocols of the testbed.

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
_POSTGRES_UNITS = {0x50: "PREPARE", 0x42: "BIND", 0x44: "DESCRIBE", 0x43: "CLOSE"}
_POSTGRES_ALONE = {0x51: "QUERY", 0x46: "FUNCTION_CALL", 0x58: "TERMINATE"}
_POSTGRES_TYPES = b"PBDCEQFXSHdcfp"
_REDIS_HEAD = re.compile(rb"\*(\d+)\r\n")
_REDIS_ARGUMENT = re.compile(rb"\$(\d+)\r\n")
_MEMCACHED_LINE = re.compile(rb"([a-z_]+)([^\r\n]*)\r\n")
_MEMCACHED_BLOCK = {"set", "add", "replace", "append", "prepend", "cas"}


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


def postgres(run: Run) -> Iterator[Request | Unread]:
    """PostgreSQL: a Query; of the extended protocol all up to an Execute, or up to the Sync or Flush of
    messages without one. The log-in is no request; a Sync or Flush behind an Execute belongs to that."""
    data, at = run.data, 0

    def head(p: int) -> bool:
        size = int.from_bytes(data[p + 1 : p + 5], "big")
        return p + 5 <= len(data) and data[p] in _POSTGRES_TYPES and 4 <= size < 1 << 24

    # The messages that begin a connection have no type: length, version or code, parameters.
    while not run.after_gap and at + 8 <= len(data) and data[at] == 0:
        at += max(8, int.from_bytes(data[at : at + 4], "big"))
    begin, first = -1, 0
    while at < len(data):
        if not head(at):
            resume = _resume(run, at, head)
            yield Unread(resume - at)
            at, begin = resume, -1
            continue
        kind, end = data[at], min(at + 1 + int.from_bytes(data[at + 1 : at + 5], "big"), len(data))
        if kind in _POSTGRES_ALONE:
            yield Request(at, end, _POSTGRES_ALONE[kind])
            begin = -1
        elif kind in _POSTGRES_UNITS and begin < 0:
            begin, first = at, kind
        elif kind == ord("E"):
            yield Request(at if begin < 0 else begin, end, "EXECUTE")
            begin = -1
        elif kind in b"SH" and begin >= 0:
            yield Request(begin, end, _POSTGRES_UNITS[first])
            begin = -1
        at = end


def redis(run: Run) -> Iterator[Request | Unread]:
    """Redis commands (RESP arrays of bulk strings)."""
    data, at = run.data, 0
    while at < len(data):
        head = _REDIS_HEAD.match(data, at)
        end, words = head.end() if head else at, []
        for _ in range(int(head[1]) if head else 0):
            size = _REDIS_ARGUMENT.match(data, end)
            if size is None:
                break
            words.append(data[size.end() : size.end() + int(size[1])])
            end = size.end() + int(size[1]) + 2
        if head is None or len(words) < int(head[1]):
            end = _resume(run, at, lambda p: _REDIS_HEAD.match(data, p) is not None)
            yield Unread(end - at)
        else:
            yield Request(at, min(end, len(data)), words[0].decode(errors="replace").upper() if words else "")
        at = end


def memcached(run: Run) -> Iterator[Request | Unread]:
    """memcached's text commands with their data blocks. What asks for no answer is of a kind of its own."""
    data, at = run.data, 0
    while at < len(data):
        line = _MEMCACHED_LINE.match(data, at)
        if line is None:
            resume = _resume(run, at, lambda p: _MEMCACHED_LINE.match(data, p) is not None)
            yield Unread(resume - at)
            at = resume
            continue
        kind, words, end = line[1].decode(), line[2].split(), line.end()
        if kind in _MEMCACHED_BLOCK and len(words) > 3 and words[3].isdigit():
            end += int(words[3]) + 2
        quiet = " noreply" if words[-1:] == [b"noreply"] else ""
        yield Request(at, min(end, len(data)), kind + quiet)
        at = end


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
    "postgres": postgres,
    "redis": redis,
    "memcached": memcached,
}
"""By protocol. Avatica is HTTP with a JDBC call in every body."""
