"""PROXY headers (versions 1 and 2) in front of a connection: the client that they name is its endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_packets import (
    CLIENT,
    SERVER,
    Dialogue,
    read_pcap,
    unaccounted,
    write_pcap,
)
from http_dialogue import GET, OK, SALT, Turn, run, summary, token, tokens
from test_capture_http import CASES

from tapscope import capture
from tapscope.store.codes import Protocol, TokenKind


def test_the_proxy_header_gives_the_endpoint(tmp_path: Path) -> None:
    for version in ("1", "2"):
        tables = run(tmp_path, CASES[f"proxy header, version {version}"][0])
        assert token(TokenKind.ENDPOINT, "192.0.2.7:56324") in tokens(tables)


PROXY_2 = b"\r\n\r\n\0\r\nQUIT\n"
HEADERS_WITH_AN_ADDRESS = [
    (b"PROXY TCP6 2001:db8:0:0::7 2001:db8::1 56324 443\r\n", "2001:db8::7:56324"),
    (PROXY_2 + b"\x21\x21\0\x24" + bytes(15) + b"\7" + bytes(16) + b"\xdc\x04\x01\xbb", "::7:56324"),
    (PROXY_2 + b"\x21\x11\0\x0f\xc0\0\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb\4\0\0", "192.0.2.7:56324"),
]
HEADERS_WITHOUT = [
    b"PROXY UNKNOWN\r\n",
    b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
    b"PROXY TCP4 not-an-address 198.51.100.1 56324 443\r\n",
    PROXY_2 + b"\x20\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb",  # LOCAL
    PROXY_2 + b"\x21\x00\0\0",  # unspecified family
]


@pytest.mark.parametrize("mss", [1448, 1])
@pytest.mark.parametrize(
    ("header", "endpoint"), HEADERS_WITH_AN_ADDRESS + [(h, "10.0.0.1:40000") for h in HEADERS_WITHOUT]
)
def test_the_proxy_header_in_all_its_forms(header: bytes, endpoint: str, mss: int, tmp_path: Path) -> None:
    tables = run(tmp_path, [(CLIENT, header + GET), (SERVER, OK)], mss)
    assert token(TokenKind.ENDPOINT, endpoint) in tokens(tables)
    assert tables.counter("unparsed.proxy_header") == len(header)
    assert summary(tables) == [("request", "GET /", 18, -1), ("response", 200, len(OK), 0)]


@pytest.mark.parametrize("ports", [{}, {80: "mysql"}])
def test_the_proxy_header_stands_before_any_protocol(ports: dict[int, str], tmp_path: Path) -> None:
    """The server speaks first here, and has to wait for the header."""
    mysql = read_pcap(Path(__file__).parent.parent / "pcaps" / "mysql_local_infile.pcap")
    streams: dict[tuple[int, int], list[bytes]] = {}
    turns: list[Turn] = []
    for _, frame in mysql:
        ip = frame[14:]
        tcp = ip[(ip[0] & 15) * 4 : int.from_bytes(ip[2:4], "big")]
        payload = tcp[(tcp[12] >> 4) * 4 :]
        side = SERVER if int.from_bytes(tcp[:2], "big") < int.from_bytes(tcp[2:4], "big") else CLIENT
        client_port = int.from_bytes(tcp[2:4] if side == SERVER else tcp[:2], "big")
        if payload and (not streams or (client_port, 0) in streams):
            streams.setdefault((client_port, 0), []).append(payload)
            turns.append((side, payload))
    header = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 3306\r\n"

    def rows(turns: list[Turn], mapped: dict[int, str]) -> list[tuple[object, ...]]:
        dialogue = Dialogue().open()
        for side, data in turns:
            dialogue.send(side, data)
        path = write_pcap(tmp_path / "b.pcap", dialogue.packets)
        tables = capture.read_files(
            [path], salt=SALT, port_map={p: Protocol[n.upper()] for p, n in mapped.items()}
        )
        assert unaccounted(tables) == []
        assert (tables.messages["protocol"] == Protocol.MYSQL).all()
        return summary(tables)

    plain = rows(turns, {})
    assert len(plain) > 4
    assert rows([(CLIENT, header), *turns], ports) == plain
