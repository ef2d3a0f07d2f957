"""IP headers at their limits: chains of extension headers, lengths that are not told."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_packets import ACK, PSH, START_NS, ethernet, ipv6, read, tcp_header, write_pcap

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
