"""Records of FastCGI, connections of them drawn at random, and an obvious twin of the dissector."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from capture_packets import CLIENT, SERVER, SYN, Dialogue, Packet
from dissect_checks import payload_of

from tapscope.store.codes import MessageKind

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR = range(1, 8)


def record(kind: int, content: bytes = b"", request: int = 1, padding: int = 0) -> bytes:
    head = struct.pack("!BBHHBB", 1, kind, request, len(content), padding, 0)
    return head + content + b"\0" * padding


def begin(request: int = 1, role: int = 1, keep: int = 1) -> bytes:
    return record(BEGIN, struct.pack("!HB5x", role, keep), request)


def length(n: int) -> bytes:
    return bytes([n]) if n < 128 else struct.pack("!I", n | 0x80000000)


def params(request: int = 1, **values: str) -> bytes:
    body = b"".join(length(len(k)) + length(len(v)) + k.encode() + v.encode() for k, v in values.items())
    return record(PARAMS, body, request, -len(body) % 8) + record(PARAMS, b"", request)


def get(uri: str, request: int = 1, **more: str) -> bytes:
    return (
        begin(request)
        + params(request, REQUEST_METHOD="GET", REQUEST_URI=uri, **more)
        + record(STDIN, b"", request)
    )


def answer(text: bytes, request: int = 1) -> bytes:
    return record(STDOUT, text, request, -len(text) % 8) + record(STDOUT, b"", request) + end(request)


def end(request: int = 1, application: int = 0, protocol: int = 0) -> bytes:
    return record(END, struct.pack("!IB3x", application, protocol), request)


@dataclass(frozen=True)
class Message:
    """A request (`what`: method and URI) or an answer (`what`: its status)."""

    place: tuple[int, int, int]  # port of the client, direction, sequence number
    begin_ns: int
    end_ns: int
    size: int
    what: str
    request: tuple[int, int, int] | None  # place of what it answers


class Stream:
    """What one side of a connection sent, nothing lost: the bytes and the packet of each."""

    def __init__(self) -> None:
        self.first = self.ahead = 0
        self.data = bytearray()
        self.ends: list[int] = []
        self.times: list[int] = []

    def add(self, seq: int, payload: bytes, time_ns: int) -> None:
        if not self.data:
            self.first = seq
        assert seq == self.first + len(self.data)
        self.data += payload
        self.ends.append(len(self.data))
        self.times.append(time_ns)

    def time(self, at: int) -> int:
        return self.times[bisect_right(self.ends, at)]

    def last_time(self, to: int) -> int:
        return self.times[bisect_left(self.ends, to)]

    def records(self) -> Iterator[tuple[int, int, int, int, bytes]]:
        """Type, id, where it begins and ends, content."""
        at = 0
        while at < len(self.data):
            _, kind, request, size, padding, _ = struct.unpack_from("!BBHHBB", self.data, at)
            next_ = at + 8 + size + padding
            yield kind, request, at, next_, bytes(self.data[at + 8 : at + 8 + size])
            at = next_


def streams(packets: list[Packet], port: int) -> dict[tuple[int, int], Stream]:
    """By port of the client and direction."""
    out: dict[tuple[int, int], Stream] = {}
    for time_ns, frame in packets:
        at, stop = payload_of(frame)
        source, target, seq = struct.unpack_from("!HHI", frame, 34)
        if stop > at and not frame[47] & SYN:
            key = (target, SERVER) if source == port else (source, CLIENT)
            out.setdefault(key, Stream()).add(seq, frame[at:stop], time_ns)
    return out


def values_of(text: bytes) -> dict[str, str]:
    """What PARAMS say."""
    out, at = {}, 0

    def number() -> int:
        nonlocal at
        long = text[at] >= 128
        n = struct.unpack_from("!I", text, at)[0] & 0x7FFFFFFF if long else text[at]
        at += 4 if long else 1
        return int(n)

    while at < len(text):
        name, value = number(), number()
        out[text[at : at + name].decode()] = text[at + name : at + name + value].decode()
        at += name + value
    return out


def status_of(text: bytes) -> str:
    """What the CGI head in STDOUT says."""
    head = text.partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n"):
        if line.startswith(b"Status: "):
            return line[8:11].decode()
    return "200" if text else "-1"


Part = tuple[int, int, int, bytes]
"""Type of a record, where it begins and ends, content."""


def runs(stream: Stream) -> Iterator[tuple[int, list[Part]]]:
    """The records of each message and its id."""
    open_: dict[int, list[Part]] = {}
    for kind, request, at, next_, content in stream.records():
        if request == 0:
            continue
        open_.setdefault(request, []).append((kind, at, next_, content))
        if kind in (END, ABORT) or (kind == STDIN and not content):
            yield request, open_.pop(request)
    yield from open_.items()


def told(packets: list[Packet], port: int = 9000) -> tuple[list[Message], dict[tuple[int, int, int], bytes]]:
    """The messages of whole, well-formed connections (no ABORT_REQUEST behind a request), and STDOUT of the
    answers: the n-th answer of an id is that to its n-th request."""
    out: list[Message] = []
    output: dict[tuple[int, int, int], bytes] = {}
    asked: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    every = streams(packets, port)
    for (client, side), stream in sorted(every.items()):  # the client's side first
        for request, parts in sorted(runs(stream), key=lambda run: run[1][0][1]):
            place = (client, side, stream.first + parts[0][1])
            texts = b"".join(part[3] for part in parts if part[0] in (PARAMS, STDOUT))
            of = None
            if side == CLIENT:
                asked.setdefault((client, request), []).append(place)
                values = values_of(texts)
                what = f"{values.get('REQUEST_METHOD', '')} {values.get('REQUEST_URI', '')}".strip()
            else:
                of, what, output[place] = asked[client, request].pop(0), status_of(texts), texts
            size = sum(part[2] - part[1] for part in parts)
            times = stream.time(parts[0][1]), stream.last_time(parts[-1][2])
            out.append(Message(place, *times, size, what, of))
    return sorted(out, key=lambda message: message.place), output


def read_messages(tables: Any) -> list[tuple[Message, int]]:
    """The requests and answers that the engine read, each with its flags."""
    m, ports = tables.messages, tables.connections["client_port"]

    def place(row: int) -> tuple[int, int, int]:
        return int(ports[m["conn"][row]]), int(m["direction"][row]), int(m["tcp_seq"][row])

    out = []
    for row in range(len(m["conn"])):
        if m["kind"][row] not in (MessageKind.REQUEST, MessageKind.RESPONSE):
            continue
        asks = m["kind"][row] == MessageKind.REQUEST
        named = asks and m["class_id"][row] >= 0
        what = (tables.classes[m["class_id"][row]][1] if named else "") if asks else str(m["status"][row])
        of = int(m["request"][row])
        times = int(m["begin_ns"][row]), int(m["end_ns"][row])
        found = Message(place(row), *times, int(m["wire_bytes"][row]), what, place(of) if of >= 0 else None)
        out.append((found, int(m["flags"][row])))
    return sorted(out, key=lambda item: item[0].place)


def word(number: int) -> str:
    """A path segment that is no number and stays as it is in a class."""
    letters = "abcdefghij"
    return "page" + "".join(letters[int(digit)] for digit in str(number))


def request_parts(rng: random.Random, request: int, number: int) -> list[bytes]:
    """The records of a request, its parameters in one or several of them."""
    pairs = {"REQUEST_METHOD": rng.choice(["GET", "POST"]), "REQUEST_URI": f"/{word(number)}"}
    if rng.random() < 0.3:
        pairs["HTTP_X_LONG"] = "v" * rng.randrange(3000)
    body = params(request, **pairs)
    body = body[8 : 8 + struct.unpack_from("!H", body, 4)[0]]
    cuts = sorted({0, len(body), *(rng.randrange(1, len(body)) for _ in range(rng.choice((0, 0, 1, 3))))})
    spread = [record(PARAMS, body[a:b], request, rng.randrange(9)) for a, b in pairwise(cuts)]
    stdin = [record(STDIN, b"s" * rng.randrange(1, 2500), request) for _ in range(rng.choice((0, 0, 1, 4)))]
    return [begin(request), *spread, record(PARAMS, b"", request), *stdin, record(STDIN, b"", request)]


def answer_parts(rng: random.Random, request: int) -> list[bytes]:
    """The records of an answer."""
    status = rng.choice((b"", b"Status: 404 no\r\n", b"Status: 201 x\r\n", b"Status: 500 x\r\n"))
    head = status + b"Content-Type: a/b\r\n\r\n"
    stdout = [record(STDOUT, b"o" * rng.randrange(1, 4000), request, 3) for _ in range(rng.choice((0, 1, 4)))]
    said = [record(STDERR, b"said", request)] if rng.random() < 0.2 else []
    return [*said, record(STDOUT, head, request), *stdout, record(STDOUT, b"", request), end(request)]


def multiplexed(seed: int, calls: int = 40, most_open: int = 6) -> list[Packet]:
    """A connection of `calls` requests, `most_open` of them at once, records in an order drawn at random."""
    rng = random.Random(seed)
    dialogue = Dialogue(server_port=9000).open()
    ids = rng.sample(range(1, 65536), most_open + 2)
    asking: dict[int, list[bytes]] = {}
    answering: dict[int, list[bytes]] = {}
    begun = 0
    while begun < calls or asking or answering:
        side, said = rng.choice((CLIENT, SERVER)), b""
        for _ in range(rng.choice((1, 2, 6))):
            if side == CLIENT:
                free = [n for n in ids if n not in asking and n not in answering]
                if begun < calls and len(ids) - len(free) < most_open and rng.random() < 0.5:
                    request = rng.choice(free)
                    asking[request] = request_parts(rng, request, begun)
                    begun += 1
                    first = True
                elif asking:
                    request, first = rng.choice(list(asking)), False
                else:
                    continue
                said += asking[request].pop(0)
                if first and rng.random() < 0.8:
                    answering[request] = answer_parts(rng, request)  # it may come before the request is over
                elif not asking[request]:
                    del asking[request]
                    answering.setdefault(request, answer_parts(rng, request))
            elif answering:
                request = rng.choice(list(answering))
                if len(answering[request]) == 1 and request in asking:
                    continue
                said += answering[request].pop(0)
                if not answering[request]:
                    del answering[request]
        if said:
            dialogue.send(
                side, said, cuts=[rng.randrange(1, len(said)) for _ in range(rng.choice((0, 1, 3)))]
            )
    return dialogue.close().packets
