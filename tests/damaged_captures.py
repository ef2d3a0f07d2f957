"""Our captures as packets, and what a tap may do to them."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
CAPTURES = sorted(
    path for path in PCAPS.rglob("*") if path.is_file() and {".pcap", ".pcapng"} & set(path.suffixes)
)

Record = tuple[int, bytes, int]
"""Time in ns, captured bytes, length on the wire."""

MAGICS = {b"\xd4\xc3\xb2\xa1": ("<", 1000), b"\x4d\x3c\xb2\xa1": ("<", 1), b"\xa1\xb2\xc3\xd4": (">", 1000)}


def name_of(path: Path) -> str:
    """For the names of tests."""
    return str(path.relative_to(PCAPS))


def contents(path: Path) -> bytes:
    """The bytes of a file, of one in gzip the packed ones."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def is_plain(path: Path) -> bool:
    """Is it a pcap file that records() reads?"""
    return contents(path)[:4] in MAGICS


def records(path: Path) -> tuple[int, list[Record]]:
    """Link type and packets of a pcap file."""
    data = contents(path)
    order, unit = MAGICS[data[:4]]
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    out, at = [], 24
    while at + 16 <= len(data):
        seconds, fraction, captured, length = struct.unpack_from(order + "IIII", data, at)
        out.append((seconds * 10**9 + fraction * unit, data[at + 16 : at + 16 + captured], length))
        at += 16 + captured
    return link, out


def write(path: Path, link: int, packets: list[Record]) -> Path:
    """A pcap file with nanoseconds."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
        for at, data, length in packets:
            out.write(struct.pack("<IIII", at // 10**9, at % 10**9, len(data), length) + data)
    return path


def thinned(packets: list[Record], rng: random.Random) -> list[Record]:
    """Without 1 % of them."""
    return [packet for packet in packets if rng.random() > 0.01]


def doubled(packets: list[Record], rng: random.Random) -> list[Record]:
    """Some of them twice or three times."""
    return [copy for packet in packets for copy in [packet] * rng.choice((1, 1, 1, 2, 3))]


def shuffled(packets: list[Record], rng: random.Random) -> list[Record]:
    """One in twenty up to 64 places later."""
    order = sorted(range(len(packets)), key=lambda i: i + rng.uniform(0, 64) * (rng.random() < 0.05))
    return [packets[i] for i in order]


def clipped(packets: list[Record], rng: random.Random) -> list[Record]:
    """Cut by changing snap lengths."""
    return [(at, data[: rng.choice((66, 90, 200, 100_000))], length) for at, data, length in packets]


def joined_late(packets: list[Record], rng: random.Random) -> list[Record]:
    """Without the first ones."""
    return packets[rng.randrange(len(packets)) :]


def cut_short(packets: list[Record], rng: random.Random) -> list[Record]:
    """Without the last ones."""
    return packets[: rng.randrange(1, len(packets) + 1)]


def garbled(packets: list[Record], rng: random.Random) -> list[Record]:
    """Some bytes behind the Ethernet and IP addresses changed: hostile headers and payload."""
    out = []
    for at, data, length in packets:
        changed = bytearray(data)
        if len(changed) > 40 and rng.random() < 0.2:
            for _ in range(3):
                changed[rng.randrange(34, len(changed))] = rng.randrange(256)
        out.append((at, bytes(changed), length))
    return out


def all_at_once(packets: list[Record], rng: random.Random) -> list[Record]:
    """The tap's bad day."""
    for damage in (thinned, doubled, shuffled, clipped):
        packets = damage(packets, rng)
    return packets
