"""The scrubber: no request id survives, whatever TCP did to it, and nothing else changes."""

from __future__ import annotations

import random
import struct
import uuid
from pathlib import Path

import pytest

from tapscope.store.errors import TapscopeError
from tapscope.validate.testbed import pcapfile, scrub, truth
from tapscope.validate.testbed.streams import streams

CLIENT, SERVER = b"\x0a\x4d\x00\x0a", b"\x0a\x4d\x00\x14"
SYN, ACK = 0x02, 0x10


def checksum(data: bytes) -> int:
    """RFC 1071, the slow and plain way."""
    if len(data) % 2:
        data += b"\0"
    total = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        total += high << 8 | low
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(seq: int, payload: bytes, *, flags: int = ACK, sport: int = 40000, dport: int = 80) -> bytes:
    """Ethernet frame of one segment from client to server, with right checksums."""
    tcp = struct.pack(">HHIIBBHHH", sport, dport, seq & 0xFFFFFFFF, 1, 5 << 4, flags, 1000, 0, 0)
    pseudo = CLIENT + SERVER + struct.pack(">BBH", 0, 6, len(tcp) + len(payload))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp + payload)) + tcp[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(payload), 7, 0x4000, 64, 6, 0) + CLIENT + SERVER
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return bytes(12) + b"\x08\x00" + ip + tcp + payload


def write_pcap(path: Path, frames: list[bytes]) -> Path:
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)]
    for n, one in enumerate(frames):
        parts += [struct.pack("<IIII", 1_700_000_000, n * 1000, len(one), len(one)), one]
    path.write_bytes(b"".join(parts))
    return path


def identity(n: int) -> str:
    return str(uuid.UUID(int=random.Random(n).getrandbits(128), version=4))


def message(n: int) -> bytes:
    return f"GET /board/story?story={n} HTTP/1.1\r\nHost: x\r\nX-Request-ID: {identity(n)}\r\n\r\n".encode()


def stream_bytes(path: Path) -> bytes:
    capture = pcapfile.read(path)
    return b"".join(run.data for stream in streams(capture) for run in stream.runs(capture))


def bad_checksums(path: Path) -> int:
    capture = pcapfile.read(path)
    bad = 0
    for segments in capture.flows.values():
        for s in segments:
            tcp = capture.data[s.tcp_at : s.payload_at + s.payload_len]
            pseudo = capture.data[s.ip_at + 12 : s.ip_at + 20] + struct.pack(">BBH", 0, 6, len(tcp))
            bad += checksum(pseudo + tcp) != 0
            bad += checksum(capture.data[s.ip_at : s.ip_at + 20]) != 0
    return bad


def test_an_id_in_one_packet_becomes_the_filler_and_nothing_else_changes(tmp_path: Path) -> None:
    source = write_pcap(tmp_path / "a.pcap", [frame(99, b"", flags=SYN), frame(100, message(1))])
    done = scrub.scrub(source, tmp_path / "b.pcap", {identity(1)})
    assert (done.ids, done.packets_changed, done.ids_left) == (1, 1, 0)
    assert stream_bytes(tmp_path / "b.pcap") == message(1).replace(identity(1).encode(), scrub.FILLER)
    assert bad_checksums(tmp_path / "b.pcap") == 0


@pytest.mark.parametrize("cut", range(1, len(message(1))))
def test_an_id_is_found_wherever_the_segment_border_lies(tmp_path: Path, cut: int) -> None:
    whole = message(1)
    frames = [frame(99, b"", flags=SYN), frame(100, whole[:cut]), frame(100 + cut, whole[cut:])]
    done = scrub.scrub(write_pcap(tmp_path / "a.pcap", frames), tmp_path / "b.pcap", {identity(1)})
    at = whole.index(identity(1).encode())
    assert done.across_segments == (at < cut < at + 36)
    assert stream_bytes(tmp_path / "b.pcap") == whole.replace(identity(1).encode(), scrub.FILLER)
    assert bad_checksums(tmp_path / "b.pcap") == 0


def test_retransmissions_with_other_borders_are_scrubbed_too(tmp_path: Path) -> None:
    whole = message(1) + message(2)
    middle = whole.index(identity(1).encode()) + 10
    frames = [
        frame(99, b"", flags=SYN),
        frame(100, whole[:middle]),
        frame(100 + middle, whole[middle:]),
        frame(100, whole[: middle + 50]),
        frame(100 + middle - 5, whole[middle - 5 : middle + 3]),
        frame(100, whole[:middle]),
    ]
    source = write_pcap(tmp_path / "a.pcap", frames)
    done = scrub.scrub(source, tmp_path / "b.pcap", {identity(1), identity(2)})
    assert (done.ids, done.packets_changed) == (2, 5)
    raw = (tmp_path / "b.pcap").read_bytes()
    assert [
        part for part in (identity(1)[:10], identity(1)[10:], identity(1)[5:13]) if part.encode() in raw
    ] == []
    assert bad_checksums(tmp_path / "b.pcap") == 0


def test_what_a_capture_gap_left_of_an_id_is_scrubbed(tmp_path: Path) -> None:
    whole = message(1)
    at = whole.index(identity(1).encode())
    frames = [
        frame(99, b"", flags=SYN),
        frame(100, whole[: at + 12]),
        frame(100 + at + 20, whole[at + 20 :]),
    ]
    done = scrub.scrub(write_pcap(tmp_path / "a.pcap", frames), tmp_path / "b.pcap", {identity(1)})
    assert done.cut_by_gaps == 2
    expected = whole[:at] + b"X" * 12 + b"X" * 16 + whole[at + 36 :]
    assert stream_bytes(tmp_path / "b.pcap") == expected


def test_out_of_order_segments_and_sequence_wrap_are_put_together(tmp_path: Path) -> None:
    whole = b"".join(message(n) for n in range(20))
    first = 0xFFFFFFFF - 300
    pieces = [(first + 1 + at, whole[at : at + 37]) for at in range(0, len(whole), 37)]
    random.Random(3).shuffle(pieces)
    frames = [frame(first, b"", flags=SYN)] + [frame(seq, part) for seq, part in pieces]
    ids = {identity(n) for n in range(20)}
    done = scrub.scrub(write_pcap(tmp_path / "a.pcap", frames), tmp_path / "b.pcap", ids)
    assert done.ids == 20
    assert stream_bytes(tmp_path / "b.pcap").count(scrub.FILLER) == 20
    assert bad_checksums(tmp_path / "b.pcap") == 0


def test_other_uuids_are_left_alone(tmp_path: Path) -> None:
    source = write_pcap(tmp_path / "a.pcap", [frame(99, b"", flags=SYN), frame(100, message(1))])
    done = scrub.scrub(source, tmp_path / "b.pcap", {identity(2)})
    assert done.ids == 0
    assert (tmp_path / "b.pcap").read_bytes() == source.read_bytes()


def test_what_is_left_is_counted_in_a_capture_that_was_not_scrubbed(tmp_path: Path) -> None:
    source = write_pcap(tmp_path / "a.pcap", [frame(99, b"", flags=SYN), frame(100, message(1))])
    assert scrub.count_left(source, {identity(1)}) > 0
    assert scrub.count_left(source, {identity(2)}) == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "shorter than a pcap header"),
        (b"Nov 21 00:00:00 host kernel: hello, this is text\n", "not a pcap file"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 105), "link type 105 is not Ethernet"),
    ],
)
def test_a_file_that_is_no_ethernet_pcap_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(TapscopeError, match=expected):
        pcapfile.read(path)


def test_a_truncated_file_keeps_what_is_whole(tmp_path: Path) -> None:
    source = write_pcap(tmp_path / "a.pcap", [frame(100, message(1)), frame(100, message(2))])
    source.write_bytes(source.read_bytes()[:-10])
    capture = pcapfile.read(source)
    assert (capture.packets, capture.cut, sum(map(len, capture.flows.values()))) == (1, 1, 1)


def test_the_truth_names_the_packet_with_the_first_byte(tmp_path: Path) -> None:
    whole = message(1) + message(2)
    border = len(message(1)) - 7
    frames = [
        frame(99, b"", flags=SYN),
        frame(100, whole[:border]),
        frame(100, whole[:border]),
        frame(100 + border, whole[border:]),
    ]
    capture = pcapfile.read(write_pcap(tmp_path / "a.pcap", frames))
    found = truth.extract(capture, {identity(1), identity(2)}, {80: "http"}, {})
    assert [(c.ts_ns, c.tcp_seq, c.request_id, c.how) for c in found.calls] == [
        (1_700_000_000_000_001_000, 100, identity(1), "content"),
        (1_700_000_000_000_003_000, 100 + len(message(1)), identity(2), "content"),
    ]
