"""Smallest reader of the testbed's own captures: pcap, Ethernet, IPv4, TCP; independent of the engine.

The truth must not share code with what it judges, so this walker knows nothing of tapscope.capture.
pcap file format: draft-ietf-opsawg-pcap; Ethernet II and IPv4 headers as in RFC 894 and RFC 791, TCP as in
RFC 9293.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tapscope.store.errors import TapscopeError

_ETHERNET = 1
_IPV4 = 0x0800
_TCP = 6
FIN, SYN, RST = 0x01, 0x02, 0x04


class Flow(NamedTuple):
    """One direction of a TCP connection: addresses as 4 bytes each, ports."""

    src: bytes
    sport: int
    dst: bytes
    dport: int

    def text(self) -> tuple[str, int, str, int]:
        """(source address, source port, destination address, destination port) with dotted addresses."""
        return dotted(self.src), self.sport, dotted(self.dst), self.dport


class Segment(NamedTuple):
    """One TCP segment. Offsets count from the start of the file."""

    ts_ns: int
    seq: int
    flags: int
    ip_at: int
    tcp_at: int
    payload_at: int
    payload_len: int


@dataclass
class Capture:
    """All TCP segments of a file, per direction, in the order of capture. `data` is the mapped file."""

    data: mmap.mmap
    flows: dict[Flow, list[Segment]]
    packets: int
    not_tcp: int
    cut: int


def dotted(address: bytes) -> str:
    """Dotted decimal of an IPv4 address."""
    return ".".join(str(b) for b in address)


def _byte_order(head: bytes, path: Path) -> tuple[str, int]:
    """struct prefix and nanoseconds per unit of the fractional time stamp."""
    units = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
    for order in "<>":
        magic = struct.unpack(order + "I", head[:4])[0]
        if magic in units:
            return order, units[magic]
    raise TapscopeError("not a pcap file", path=path, offset=0)


def read(path: Path, *, writable: bool = False) -> Capture:
    """Maps a capture and lists its TCP segments.

    Packets cut short by the snapshot length or by the end of the file are counted in `cut` and left out.
    Raises TapscopeError when the file is no Ethernet pcap.
    """
    with path.open("r+b" if writable else "rb") as file:
        if path.stat().st_size < 24:
            raise TapscopeError("shorter than a pcap header", path=path, offset=0)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    order, unit = _byte_order(data[:24], path)
    link = struct.unpack(order + "I", data[20:24])[0]
    if link & 0xFFFF != _ETHERNET:
        raise TapscopeError(f"link type {link} is not Ethernet", path=path, offset=20)
    record = struct.Struct(order + "IIII")
    ports = struct.Struct(">HHI")
    flows: dict[Flow, list[Segment]] = {}
    at, end = 24, len(data)
    packets = not_tcp = cut = 0
    while at + 16 <= end:
        seconds, fraction, held, wire = record.unpack_from(data, at)
        frame = at + 16
        at = frame + held
        if at > end:
            cut += 1
            break
        packets += 1
        if held < 54 or data[frame + 12] != _IPV4 >> 8 or data[frame + 13] != 0 or data[frame + 23] != _TCP:
            not_tcp += 1
            continue
        ip = frame + 14
        tcp = ip + (data[ip] & 0x0F) * 4
        total = data[ip + 2] << 8 | data[ip + 3]
        payload = tcp + (data[tcp + 12] >> 4) * 4
        length = ip + total - payload
        if held < wire or payload + length > at or length < 0:
            cut += 1
            continue
        sport, dport, seq = ports.unpack_from(data, tcp)
        flow = Flow(data[ip + 12 : ip + 16], sport, data[ip + 16 : ip + 20], dport)
        segment = Segment(
            seconds * 1_000_000_000 + fraction * unit, seq, data[tcp + 13], ip, tcp, payload, length
        )
        flows.setdefault(flow, []).append(segment)
    return Capture(data, flows, packets, not_tcp, cut)
