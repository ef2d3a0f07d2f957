"""Every captured byte of every TCP stream is in a message, in a named gap or in a named remainder: on every
capture we have, whole and damaged in every way that a tap damages captures."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tapscope import capture

PCAPS = Path(__file__).parent.parent / "pcaps"
CAPTURES = sorted(
    path
    for path in PCAPS.rglob("*")
    if path.is_file() and {".pcap", ".pcapng"} & set(path.suffixes) and path.stat().st_size < 2_000_000
)

Record = tuple[int, bytes, int]
"""Time in ns, captured bytes, length on the wire."""

MAGICS = {b"\xd4\xc3\xb2\xa1": ("<", 1000), b"\x4d\x3c\xb2\xa1": ("<", 1), b"\xa1\xb2\xc3\xd4": (">", 1000)}


def is_plain(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in MAGICS


def records(path: Path) -> tuple[int, list[Record]]:
    """Link type and packets of an uncompressed pcap file."""
    data = path.read_bytes()
    order, unit = MAGICS[data[:4]]
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    out, at = [], 24
    while at + 16 <= len(data):
        seconds, fraction, captured, length = struct.unpack_from(order + "IIII", data, at)
        out.append((seconds * 10**9 + fraction * unit, data[at + 16 : at + 16 + captured], length))
        at += 16 + captured
    return link, out


def write(path: Path, link: int, packets: list[Record]) -> Path:
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
        for at, data, length in packets:
            out.write(struct.pack("<IIII", at // 10**9, at % 10**9, len(data), length) + data)
    return path


def thinned(packets: list[Record], rng: random.Random) -> list[Record]:
    return [packet for packet in packets if rng.random() > 0.02]


def doubled(packets: list[Record], rng: random.Random) -> list[Record]:
    return [copy for packet in packets for copy in [packet] * rng.choice((1, 1, 1, 2, 3))]


def shuffled(packets: list[Record], rng: random.Random) -> list[Record]:
    order = sorted(range(len(packets)), key=lambda i: i + rng.uniform(0, 64) * (rng.random() < 0.05))
    return [packets[i] for i in order]


def clipped(packets: list[Record], rng: random.Random) -> list[Record]:
    return [(at, data[: rng.choice((66, 90, 200, 100_000))], length) for at, data, length in packets]


def joined_late(packets: list[Record], rng: random.Random) -> list[Record]:
    return packets[rng.randrange(len(packets)) :]


def cut_short(packets: list[Record], rng: random.Random) -> list[Record]:
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
    for damage in (thinned, doubled, shuffled, clipped):
        packets = damage(packets, rng)
    return packets


DAMAGES = [thinned, doubled, shuffled, clipped, joined_late, cut_short, garbled, all_at_once]


def disagreements(tables: capture.CaptureTables) -> tuple[str, ...]:
    return capture.account(tables.connections, tables.messages, tables.counters).disagreements


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: str(path.relative_to(PCAPS)))
def test_every_byte_of_a_capture_is_accounted_for(path: Path) -> None:
    tables = capture.read_files([path])
    total = capture.account(tables.connections, tables.messages, tables.counters)
    assert total.disagreements == ()
    assert total.in_messages > 0, "a sample capture without a message proves nothing"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("path", [*filter(is_plain, CAPTURES)], ids=lambda path: str(path.relative_to(PCAPS)))
def test_every_byte_of_a_damaged_capture_is_accounted_for(
    tmp_path: Path, path: Path, damage: Callable[[list[Record], random.Random], list[Record]]
) -> None:
    link, packets = records(path)
    for seed in range(3):
        damaged = damage(packets[:4000], random.Random(seed))
        file = write(tmp_path / f"{seed}.pcap", link, damaged)
        assert disagreements(capture.read_files([file])) == (), f"seed {seed}"


def test_a_byte_too_many_is_noticed() -> None:
    """The check itself can fail: each sum is broken once."""
    tables = capture.read_files([CAPTURES[0]])
    whole = (tables.connections, tables.messages, tables.counters)
    assert capture.account(*whole).disagreements == ()
    for table, column in ((0, "bytes_to_server"), (0, "unparsed_to_client"), (1, "wire_bytes")):
        changed = {name: values.copy() for name, values in whole[table].items()}
        changed[column][0] += 1
        parts = list(whole)
        parts[table] = changed
        assert capture.account(*parts).disagreements != (), column
    dropped = [(name, value, unit) for name, value, unit in tables.counters if name != "tcp.payload"]
    assert capture.account(whole[0], whole[1], dropped).disagreements != ()
