"""IP at its limits: chains of extension headers, lengths that are not told, fragments that were cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_packets import (
    ACK,
    CLIENT,
    PSH,
    SERVER,
    START_NS,
    Dialogue,
    ethernet,
    ipv4,
    ipv6,
    tcp_header,
    unaccounted,
    write_pcap,
)

from tapscope import capture

REQUEST = b"GET /a HTTP/1.1\r\n\r\n"


def read(path: Path) -> capture.CaptureTables:
    return capture.read_files([path])


@pytest.mark.parametrize(("headers", "read_on"), [(0, True), (16, True), (17, False)])
def test_sixteen_ipv6_extension_headers_are_followed(headers: int, read_on: bool, tmp_path: Path) -> None:
    chain = [60] * headers + [6]  # destination options, then TCP
    extension = b"".join(bytes([following]) + b"\x00\x01\x04\0\0\0\0" for following in chain[1:])
    segment = tcp_header(40000, 80, 1, 1, PSH | ACK) + REQUEST
    frame = ethernet(ipv6(1, 2, segment, extension, first=chain[0]), 0x86DD)
    tables = read(write_pcap(tmp_path / "a.pcap", [(START_NS, frame)]))
    assert len(tables.messages["conn"]) == read_on
    assert tables.counter("decode.too_many_ipv6_extensions") == (not read_on)


def test_padding_is_no_payload_where_the_ip_length_is_zero(tmp_path: Path) -> None:
    """A host that captures what it hands to its card's segmentation leaves the length at 0."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000
    dialogue = Dialogue().open().send(CLIENT, REQUEST).send(SERVER, answer, mss=4000).close()
    packets = [(at, frame[:16] + b"\0\0" + frame[18:]) for at, frame in dialogue.packets]
    packets = [(at, frame.ljust(60, b"\xee")) for at, frame in packets]
    tables = read(write_pcap(tmp_path / "a.pcap", packets))
    # Here the request is longer than a shortest frame: 54 bytes of headers and 19 of its own.
    assert tables.counter("tcp.payload") == len(REQUEST) + len(answer)
    assert tables.messages["wire_bytes"].tolist() == [len(REQUEST), len(answer)]
    assert not [name for name, _, _ in tables.counters if name.startswith(("discarded.", "missing."))]


def test_captured_bytes_of_fragments_behind_one_that_was_cut_are_named(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 800\r\n\r\n" + b"x" * 800
    dialogue = Dialogue().open().send(CLIENT, REQUEST).send(SERVER, answer).close()
    packets, parts = [], []
    for at, frame in dialogue.packets:
        if len(frame) < 500:
            packets.append((at, frame))
            continue
        for place in range(34, len(frame), 400):
            more = 0x2000 if place + 400 < len(frame) else 0
            part = ipv4(
                "10.0.0.2", "10.0.0.1", frame[place : place + 400], 9, fragment=more | (place - 34) // 8
            )
            parts.append(ethernet(part))
            packets.append((at, parts[-1]))
    snaplen = 300
    captured = [min(len(part), snaplen) - 34 for part in parts]
    assert len(captured) == 3
    assert captured[2] == len(parts[2]) - 34, "the last one is short and was not cut"
    tables = read(write_pcap(tmp_path / "a.pcap", packets, snaplen=snaplen))
    assert ("decode.fragment_behind_cut", captured[1] + captured[2], "bytes") in tables.counters
    assert tables.counter("missing.cut_by_snaplen") == 20 + len(answer) - captured[0]
    assert unaccounted(tables) == []
