"""What a capture of HTTP/2 holds, by a frame walk that shares nothing with the engine: the tests' oracle."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from capture_packets import CLIENT, SERVER, Dialogue, Packet

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PORT = 8080


@dataclass
class Segment:
    """A TCP segment with payload."""

    client_port: int
    side: int
    seq: int
    payload: bytes


@dataclass
class Connection:
    """The two streams of a connection, put together from all segments of an undamaged capture."""

    data: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    base: list[int] = field(default_factory=lambda: [-1, -1])
    turns: list[tuple[int, bytes]] = field(default_factory=list)


def segments(packets: Iterable[Packet]) -> Iterator[Segment]:
    """The segments with payload, in the order of the capture."""
    for _, frame in packets:
        ip = frame[14:]
        tcp = ip[(ip[0] & 15) * 4 : int.from_bytes(ip[2:4], "big")]
        source, target, seq = struct.unpack_from("!HHI", tcp)
        payload = tcp[(tcp[12] >> 4) * 4 :]
        if payload:
            side = SERVER if source == PORT else CLIENT
            yield Segment(target if side == SERVER else source, side, seq, payload)


def connections(packets: Iterable[Packet]) -> dict[int, Connection]:
    """Connections by the client's port. Segments must be in order within each direction."""
    out: dict[int, Connection] = {}
    for part in segments(packets):
        mine = out.setdefault(part.client_port, Connection())
        if mine.base[part.side] < 0:
            mine.base[part.side] = part.seq
        fresh = (mine.base[part.side] + len(mine.data[part.side]) - part.seq) % 2**32
        assert fresh <= len(part.payload) or fresh > 2**31, "a gap in the capture"
        payload = part.payload[fresh:]
        mine.data[part.side].extend(payload)
        if payload:
            mine.turns.append((part.side, payload))
    return out


def frames(data: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """(offset, type, flags, stream, payload) of every frame; HTTP/1 heads before them are left out."""
    at = 0
    while at < len(data):
        if data.startswith(PREFACE, at):
            at += len(PREFACE)
        elif data[at : at + 5] in (b"HTTP/", b"GET /"):
            at = data.index(b"\r\n\r\n", at) + 4
        else:
            size = int.from_bytes(data[at : at + 3], "big")
            kind, flags, stream = struct.unpack_from("!BBI", data, at + 3)
            yield at, kind, flags, stream, data[at + 9 : at + 9 + size]
            at += 9 + size


def stream_at(connection: Connection, side: int) -> dict[int, int]:
    """TCP sequence number of a frame's first byte -> number of the stream whose message it belongs to."""
    out = {}
    for offset, kind, flags, stream, payload in frames(bytes(connection.data[side])):
        if kind == 5:  # PUSH_PROMISE: the request of the promised stream
            padded = 1 if flags & 8 else 0
            stream = int.from_bytes(payload[padded : padded + 4], "big")
        out[(connection.base[side] + offset) % 2**32] = stream
    return out


def again(turns: Iterable[tuple[int, bytes]], mss: int) -> list[Packet]:
    """The same streams in segments of another size."""
    dialogue = Dialogue(server_port=PORT).open()
    for side, data in turns:
        dialogue.send(side, data, mss=mss)
    return dialogue.close().packets
