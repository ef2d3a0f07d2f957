"""Recorded captures repeated over many connections, impaired like generated ones: for protocols that the
generator does not speak. The truth is what the engine reads in the repeated capture before it is impaired."""

from __future__ import annotations

import gzip
import ipaddress
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from generated import TRUTH

Packet = tuple[int, bytes]
"""Time in ns and the Ethernet frame."""
Flow = tuple[bytes, int, bytes, int]
"""Source address and port, target address and port."""

IPV4 = 14
COPY_LATEST_NS = 30_000
"""What a mirror makes of a packet comes at most so much later, as in generate/network.cpp."""


def read_packets(path: Path) -> list[Packet]:
    """The packets of a little-endian pcap file of Ethernet frames, perhaps in gzip."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    unit = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}[struct.unpack_from("<I", data)[0]]
    out, at = [], 24
    while at < len(data):
        seconds, rest, captured, _ = struct.unpack_from("<IIII", data, at)
        out.append((seconds * 10**9 + rest * unit, data[at + 16 : at + 16 + captured]))
        at += 16 + captured
    return out


def write_packets(path: Path, packets: Iterable[Packet]) -> None:
    """A pcap file with nanoseconds."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for at, frame in packets:
            out.write(struct.pack("<IIII", *divmod(at, 10**9), len(frame), len(frame)) + frame)


def tcp_of(frame: bytes) -> tuple[Flow, int, int] | None:
    """Flow, number of the first payload byte and payload size of a frame; None: no TCP on IPv4."""
    if frame[12:14] != b"\x08\x00" or frame[IPV4 + 9] != 6:
        return None
    tcp = IPV4 + (frame[IPV4] & 15) * 4
    source, target, seq = struct.unpack_from("!HHI", frame, tcp)
    size = struct.unpack_from("!H", frame, IPV4 + 2)[0] + IPV4 - tcp - (frame[tcp + 12] >> 4) * 4
    syn = frame[tcp + 13] >> 1 & 1
    flow = (frame[IPV4 + 12 : IPV4 + 16], source, frame[IPV4 + 16 : IPV4 + 20], target)
    return flow, (seq + syn) % 2**32, size


def repeated(paths: Sequence[Path], times: int, seed: int) -> list[Packet]:
    """Each capture `times` times side by side, each with addresses of its own, begun at random times."""
    rng = random.Random(seed)
    out: list[Packet] = []
    number = 0
    for path in paths:
        packets = [packet for packet in read_packets(path) if tcp_of(packet[1])]
        first = min(at for at, _ in packets)
        for _ in range(times):
            number += 1
            begin = 1_750_000_000 * 10**9 + rng.randrange(20_000_000 * times)
            middle = struct.pack("!H", number)
            for at, frame in packets:
                moved = bytearray(frame)
                for address in (IPV4 + 12, IPV4 + 16):
                    moved[address + 1 : address + 3] = middle
                out.append((begin + at - first, bytes(moved)))
    return sorted(out, key=lambda packet: packet[0])


def impaired(
    packets: Sequence[Packet],
    seed: int,
    *,
    lost: float = 0.0,
    displaced: float = 0.0,
    duplicated: float = 0.0,
    places: int = 64,
) -> tuple[list[Packet], list[Packet]]:
    """What is left, and what was lost. `displaced` of the packets move back by 1 to `places` places with
    their times unchanged; copies of `duplicated` of them are stamped up to 30 us later."""
    rng = random.Random(seed)
    keyed: list[tuple[float, int, Packet]] = []
    gone = []

    def place(index: int) -> float:
        return index + rng.randint(1, places) + 0.5 if rng.random() < displaced else index

    for index, packet in enumerate(packets):
        if rng.random() < lost:
            gone.append(packet)
            continue
        keyed.append((place(index), len(keyed), packet))
        if rng.random() < duplicated:
            copy = (packet[0] + rng.randint(1000, COPY_LATEST_NS), packet[1])
            keyed.append((place(index) + rng.randint(0, 8) + 0.25, len(keyed), copy))
    keyed.sort(key=lambda item: item[:2])
    return [packet for _, _, packet in keyed], gone


@dataclass(frozen=True)
class Ranges:
    """Stream bytes that packets carry, by flow; numbers modulo 2^32."""

    of: dict[Flow, list[tuple[int, int]]]

    @classmethod
    def carried(cls, packets: Iterable[Packet]) -> Ranges:
        out: dict[Flow, list[tuple[int, int]]] = {}
        for _, frame in packets:
            found = tcp_of(frame)
            if found is not None and found[2] > 0:
                out.setdefault(found[0], []).append(found[1:])
        return cls(out)

    def holds(self, flow: Flow, seq: int, size: int = 1) -> bool:
        """Is any byte of [seq, seq + size) in one of them?"""
        return any(
            (seq - begin) % 2**32 < length or (begin - seq) % 2**32 < size
            for begin, length in self.of.get(flow, ())
        )


def truth_of(tables: Any) -> np.ndarray:
    """The messages of a capture as rows of TRUTH, none of them lost."""
    m, c = tables.messages, tables.connections
    truth = np.zeros(len(m["conn"]), TRUTH)
    address = np.array([int(ipaddress.ip_address(text)) for text in tables.addresses], dtype=np.uint32)
    for name in ("begin_ns", "end_ns", "request", "tcp_seq", "wire_bytes", "direction", "protocol", "kind"):
        truth[name] = m[name]
    truth["connection"] = m["conn"]
    truth["client_addr"] = address[c["client_addr"][m["conn"]]]
    truth["client_port"] = c["client_port"][m["conn"]]
    truth["server_port"] = c["server_port"][m["conn"]]
    return truth


def flows_of(tables: Any) -> Iterator[tuple[Flow, Flow]]:
    """The flow to the server and the one to the client of each connection."""
    c = tables.connections
    packed = [ipaddress.ip_address(text).packed for text in tables.addresses]
    for client, port, server, server_port in zip(
        c["client_addr"], c["client_port"], c["server_addr"], c["server_port"], strict=True
    ):
        here, there = (packed[client], int(port)), (packed[server], int(server_port))
        yield (*here, *there), (*there, *here)


def mark_lost(truth: np.ndarray, tables: Any, kept: Sequence[Packet], lost: Sequence[Packet]) -> None:
    """Sets `lost` of the truth: bit 0 when no packet has the first byte, bit 1 when one of it was lost."""
    gone, there = Ranges.carried(lost), Ranges.carried(kept)
    flows = list(flows_of(tables))
    hit = [any(flow in gone.of for flow in pair) for pair in flows]
    for i in np.flatnonzero(np.array(hit, dtype=bool)[truth["connection"]]):
        row = truth[i]
        flow = flows[row["connection"]][row["direction"]]
        seq, size = int(row["tcp_seq"]), max(int(row["wire_bytes"]), 1)
        first_lost = gone.holds(flow, seq) and not there.holds(flow, seq)
        truth["lost"][i] = first_lost | gone.holds(flow, seq, size) << 1
