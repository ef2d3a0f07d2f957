"""IP headers at their limits: chains of extension headers, lengths that are not told."""

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
    ipv6,
    read,
    tcp_header,
    write_pcap,
)

REQUEST = b"GET /a HTTP/1.1\r\n\r\n"


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
