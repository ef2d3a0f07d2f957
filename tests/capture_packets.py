"""Builds captures for the tests of the engine: frames, TCP dialogues, pcap and pcapng files."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tapscope import capture

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
CLIENT, SERVER = 0, 1
START_NS = 1_700_000_000_000_000_000

Packet = tuple[int, bytes]
"""Time in ns and the frame."""


def _address(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))


def tcp_header(
    source_port: int,
    target_port: int,
    seq: int,
    ack: int,
    flags: int,
    window: int = 8192,
    options: bytes = b"",
) -> bytes:
    """A TCP header; `options` must be padded to four bytes."""
    offset = (5 + len(options) // 4) << 4
    head = struct.pack(
        "!HHIIBBHHH", source_port, target_port, seq % 2**32, ack % 2**32, offset, flags, window, 0, 0
    )
    return head + options


def ipv4(
    source: str, target: str, body: bytes, ip_id: int = 0, protocol: int = 6, fragment: int = 0
) -> bytes:
    """An IPv4 packet without options; checksums stay zero (a tap does not check them)."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), ip_id, fragment, 64, protocol, 0)
    return head + _address(source) + _address(target) + body


def ipv6(source: int, target: int, body: bytes, extension: bytes = b"", first: int = 6) -> bytes:
    """An IPv6 packet; `extension` are whole extension headers, `first` the type of the first header."""
    head = struct.pack("!IHBB", 6 << 28, len(extension) + len(body), first, 64)
    return head + source.to_bytes(16, "big") + target.to_bytes(16, "big") + extension + body


def ethernet(body: bytes, ether_type: int = 0x0800, tags: Sequence[tuple[int, int]] = ()) -> bytes:
    """An Ethernet frame; `tags` are (ether type, VLAN id) from the outside in."""
    out = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02"
    for kind, vlan in tags:
        out += struct.pack("!HH", kind, vlan)
    return out + struct.pack("!H", ether_type) + body


@dataclass
class Dialogue:
    """One TCP connection that writes itself down packet by packet, acknowledging like a real one."""

    client_port: int = 40000
    server_port: int = 80
    client: str = "10.0.0.1"
    server: str = "10.0.0.2"
    isn: tuple[int, int] = (1000, 5000)
    step_ns: int = 10_000
    now_ns: int = START_NS
    packets: list[Packet] = field(default_factory=list)
    tags: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        self.seq = list(self.isn)
        self.ip_id = [100, 30000]

    def emit(self, side: int, flags: int, payload: bytes = b"", seq: int | None = None) -> bytes:
        """One packet of `side` at the current time; does not move the sequence number."""
        ports = (self.client_port, self.server_port)
        hosts = (self.client, self.server)
        ack = self.seq[1 - side] if flags & ACK else 0
        head = tcp_header(ports[side], ports[1 - side], self.seq[side] if seq is None else seq, ack, flags)
        self.ip_id[side] += 1
        packet = ipv4(hosts[side], hosts[1 - side], head + payload, self.ip_id[side] % 65536)
        frame = ethernet(packet, tags=self.tags)
        self.packets.append((self.now_ns, frame))
        self.now_ns += self.step_ns
        return frame

    def open(self) -> Dialogue:
        """Three-way handshake."""
        self.emit(CLIENT, SYN)
        self.seq[CLIENT] += 1
        self.emit(SERVER, SYN | ACK)
        self.seq[SERVER] += 1
        self.emit(CLIENT, ACK)
        return self

    def send(self, side: int, data: bytes, cuts: Iterable[int] = (), mss: int = 1448) -> Dialogue:
        """`data` in segments cut at `cuts` and after `mss` bytes, acknowledged once by the other side."""
        borders = sorted({cut for cut in cuts if 0 < cut < len(data)} | {0, len(data)})
        for begin, end in pairwise(borders):
            for at in range(begin, end, mss):
                part = data[at : min(at + mss, end)]
                self.emit(side, PSH | ACK, part)
                self.seq[side] += len(part)
        self.emit(1 - side, ACK)
        return self

    def close(self, side: int = CLIENT) -> Dialogue:
        """FIN from both sides."""
        for end in (side, 1 - side):
            self.emit(end, FIN | ACK)
            self.seq[end] += 1
        self.emit(side, ACK)
        return self


def pages(client_port: int = 40000, start_ns: int = START_NS) -> list[Packet]:
    """A connection on which three pages are asked for and answered."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    dialogue = Dialogue(client_port=client_port, now_ns=start_ns).open()
    for number in range(3):
        dialogue.send(CLIENT, b"GET /page/%d HTTP/1.1\r\nHost: a\r\n\r\n" % number).send(SERVER, answer)
    return dialogue.close().packets


def write_pcap(
    path: Path,
    packets: Iterable[Packet],
    *,
    nanoseconds: bool = True,
    order: str = "<",
    link_type: int = 1,
    snaplen: int = 262144,
) -> Path:
    """A classic pcap file; `order` is "<" or ">"."""
    unit = 1 if nanoseconds else 1000
    with path.open("wb") as out:
        magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
        out.write(struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link_type))
        for time_ns, frame in packets:
            kept = frame[:snaplen]
            seconds, rest = divmod(time_ns, 10**9)
            out.write(struct.pack(order + "IIII", seconds, rest // unit, len(kept), len(frame)) + kept)
    return path


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """One pcapng block."""
    body += b"\0" * (-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """One pcapng option, padded."""
    return struct.pack(order + "HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def section(order: str = "<") -> bytes:
    """A pcapng section header block."""
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(
    order: str = "<", resolution: int | None = None, offset_s: int = 0, link_type: int = 1
) -> bytes:
    """A pcapng interface description block; `resolution` is the raw if_tsresol byte."""
    options = b""
    if resolution is not None:
        options += option(9, bytes([resolution]), order)
    if offset_s:
        options += option(14, struct.pack(order + "q", offset_s), order)
    return block(1, struct.pack(order + "HHI", link_type, 0, 0) + options, order)


def enhanced(frame: bytes, ticks: int, number: int = 0, order: str = "<") -> bytes:
    """A pcapng enhanced packet block."""
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame, order)


def read_pcap(path: Path) -> list[Packet]:
    """The packets of a little endian classic pcap."""
    data = path.read_bytes()
    unit = 1 if struct.unpack("<I", data[:4])[0] == 0xA1B23C4D else 1000
    out, at = [], 24
    while at < len(data):
        seconds, rest, captured, _ = struct.unpack("<IIII", data[at : at + 16])
        out.append((seconds * 10**9 + rest * unit, data[at + 16 : at + 16 + captured]))
        at += 16 + captured
    return out


def displaced(
    packets: Sequence[Packet], seed: int, share: float, places: int, copies: float = 0.0
) -> list[Packet]:
    """`share` of the packets moved by up to `places` places (times unchanged), `copies` of them doubled."""
    rng = random.Random(seed)
    keyed = []
    for index, packet in enumerate(packets):
        move = rng.randint(-places, places) if rng.random() < share else 0
        keyed.append((index + move, rng.random(), packet))
        if rng.random() < copies:
            keyed.append((index + rng.randint(0, 3), rng.random(), packet))
    keyed.sort(key=lambda item: item[:2])
    return [packet for _, _, packet in keyed]


def message_rows(tables: Any, times: bool = True, flags: bool = True) -> list[tuple[Any, ...]]:
    """Messages as comparable rows: who, what, how long, and which request they answer; sorted."""
    messages, connections = tables.messages, tables.connections
    columns = {name: values.tolist() for name, values in messages.items()}
    ports = list(zip(connections["client_port"].tolist(), connections["server_port"].tolist(), strict=True))
    rows = []
    for row, conn in enumerate(columns["conn"]):
        text = tables.classes[columns["class_id"][row]][1] if columns["class_id"][row] >= 0 else ""
        request = columns["request"][row]
        item: tuple[Any, ...] = (
            ports[conn],
            columns["tcp_seq"][row],
            columns["direction"][row],
            columns["protocol"][row],
            columns["kind"][row],
            text,
            columns["status"][row],
            columns["wire_bytes"][row],
            columns["missing_bytes"][row],
            columns["tcp_seq"][request] if request >= 0 else -1,
        )
        if times:
            item += (columns["begin_ns"][row], columns["end_ns"][row])
        if flags:
            item += (columns["flags"][row],)
        rows.append(item)
    return sorted(rows)


def unaccounted(tables: Any) -> list[str]:
    """What disagrees where every captured byte must be in a message, a named gap or a named remainder."""
    return list(capture.account(tables.connections, tables.messages, tables.counters).disagreements)
