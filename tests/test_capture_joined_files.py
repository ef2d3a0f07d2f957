"""Capture files that were put one behind the other, as `cat` does, and blocks that are too long."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from capture_packets import (
    START_NS,
    Packet,
    enhanced,
    interface,
    message_rows,
    pages,
    section,
    write_pcap,
)

from tapscope import capture

SALT = bytes(16)


def read(*paths: Path) -> capture.CaptureTables:
    return capture.read_files(list(paths), salt=SALT)


@pytest.fixture
def pieces() -> list[list[Packet]]:
    return [pages(40000 + number, START_NS + number * 10**9) for number in range(3)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [True, False])
def test_files_in_one_are_read_each_in_its_own_format(
    order: str, nanoseconds: bool, pieces: list[list[Packet]], tmp_path: Path
) -> None:
    formats = [{}, {"order": order, "nanoseconds": nanoseconds}, {}]
    files = [
        write_pcap(tmp_path / f"{number}.pcap", one, **options)  # type: ignore[arg-type]
        for number, (one, options) in enumerate(zip(pieces, formats, strict=True))
    ]
    joined = tmp_path / "joined.pcap"
    joined.write_bytes(b"".join(file.read_bytes() for file in files))
    tables = read(joined)
    assert message_rows(tables) == message_rows(read(*files))
    assert tables.sources[0]["packets"] == sum(map(len, pieces))
    assert tables.sources[0]["ts_resolution"] == ("1 ns" if nanoseconds else "1 ns, 1 us")
    assert tables.counter("source.pcap_file_behind_another") == 2
    begin = files[0].stat().st_size
    assert f"behind one another in it, the second from byte {begin} on" in tables.sources[0]["warning"]


def test_files_in_one_may_be_empty_or_of_another_link_type(tmp_path: Path) -> None:
    first, second = pages(40000, START_NS), pages(40001, START_NS + 10**9)
    parts = [
        write_pcap(tmp_path / "a", []),
        write_pcap(tmp_path / "b", first),
        write_pcap(tmp_path / "c", []),
        write_pcap(tmp_path / "d", [(at, frame[14:]) for at, frame in second], link_type=101),
        write_pcap(tmp_path / "e", []),
    ]
    joined = tmp_path / "joined.pcap"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    tables = read(joined)
    assert len(tables.messages["conn"]) == 12
    assert tables.sources[0]["link_types"] == [1, 101]


def test_a_file_behind_another_that_cannot_be_read_ends_it_and_is_said(tmp_path: Path) -> None:
    first = write_pcap(tmp_path / "a", pages(40000, START_NS))
    other = write_pcap(tmp_path / "b", pages(40001, START_NS), link_type=147)
    joined = tmp_path / "joined.pcap"
    joined.write_bytes(first.read_bytes() + other.read_bytes())
    tables = read(joined)
    assert len(tables.messages["conn"]) == 6
    begin = first.stat().st_size
    (source,) = tables.sources
    assert f"another file begins at byte {begin}, of the unknown link type 147" in source["warning"]
    joined.write_bytes(first.read_bytes() + other.read_bytes()[:20])
    assert f"cut inside a packet at byte {begin}" in read(joined).sources[0]["warning"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_files_in_one_are_sections(order: str, pieces: list[list[Packet]], tmp_path: Path) -> None:
    joined = tmp_path / "joined.pcapng"
    ways = [("<", 9), (order, 6), ("<", 9)]
    joined.write_bytes(
        b"".join(
            section(way)
            + interface(way, resolution=digits)
            + b"".join(enhanced(frame, at // 10 ** (9 - digits), order=way) for at, frame in one)
            for (way, digits), one in zip(ways, pieces, strict=True)
        )
    )
    plain = [write_pcap(tmp_path / f"{number}.pcap", one) for number, one in enumerate(pieces)]
    tables = read(joined)
    assert message_rows(tables) == message_rows(read(*plain))
    assert tables.counter("source.pcapng_section") == 3


def test_a_pcapng_block_that_is_too_long_is_told_with_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    size = 20_000_000
    path.write_bytes(section() + interface() + struct.pack("<II", 0x0BAD, size) + b"\0" * 100)
    (source,) = read(path).sources
    assert f"a block of {size} bytes at byte" in source["warning"]
    assert "more than the 16781312 that are read" in source["warning"]
    path.write_bytes(section() + interface() + struct.pack("<II", 0x0BAD, 33) + b"\0" * 100)
    (source,) = read(path).sources
    assert "a block of impossible length 33 at byte" in source["warning"]
