"""HTTP/1.x: bytes in, messages out. Cases follow RFC 9112; every case runs again cut after every byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from capture_packets import (
    ACK,
    CLIENT,
    FIN,
    PSH,
    SERVER,
    START_NS,
    Dialogue,
    message_rows,
    read_pcap,
    unaccounted,
    write_pcap,
)

from tapscope import capture
from tapscope.capture import _native
from tapscope.store.codes import ID_LIKE, MessageFlag, MessageKind, Protocol, TokenKind

SALT = bytes(range(16))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n\r\n"
Turn = tuple[int, bytes]


def run(path: Path, turns: Sequence[Turn], mss: int = 1448, close: bool = True) -> capture.CaptureTables:
    dialogue = Dialogue().open()
    for side, data in turns:
        dialogue.send(side, data, mss=mss)
    if close:
        dialogue.close(SERVER)
    tables = capture.read_files([write_pcap(path / "a.pcap", dialogue.packets)], salt=SALT)
    assert unaccounted(tables) == []
    return tables


def summary(tables: capture.CaptureTables) -> list[tuple[object, ...]]:
    """(kind, class or status, bytes, row of the request) of every message."""
    out: list[tuple[object, ...]] = []
    for row in range(len(tables.messages["conn"])):
        what: object = int(tables.messages["status"][row])
        if what == -1 and tables.messages["class_id"][row] == -1:
            what = None
        elif what == -1:
            what = tables.classes[tables.messages["class_id"][row]][1]
        kind = MessageKind(tables.messages["kind"][row]).name.lower()
        out.append(
            (kind, what, int(tables.messages["wire_bytes"][row]), int(tables.messages["request"][row]))
        )
    return out


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CASES: dict[str, tuple[list[Turn], list[tuple[object, ...]]]] = {
    "fixed length": (
        [(CLIENT, GET), (SERVER, BODY)],
        [("request", "GET /", 18, -1), ("response", 200, len(BODY), 0)],
    ),
    "chunked with extension and trailer": (
        [(CLIENT, GET), (SERVER, CHUNKED)],
        [("request", "GET /", 18, -1), ("response", 200, len(CHUNKED), 0)],
    ),
    "chunked overrides the length": (
        [(CLIENT, GET), (SERVER, CHUNKED.replace(b"\r\n\r\n5", b"\r\nContent-Length: 3\r\n\r\n5"))],
        [("request", "GET /", 18, -1), ("response", 200, len(CHUNKED) + 19, 0)],
    ),
    "no body after HEAD": (
        [(CLIENT, b"HEAD / HTTP/1.1\r\n\r\n"), (SERVER, BODY[:-5]), (CLIENT, GET), (SERVER, OK)],
        [
            ("request", "HEAD /", 19, -1),
            ("response", 200, len(BODY) - 5, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "no body after 204 and 304": (
        [
            (CLIENT, GET),
            (SERVER, b"HTTP/1.1 204 No\r\nContent-Length: 7\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, b"HTTP/1.1 304 No\r\nContent-Length: 7\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "GET /", 18, -1),
            ("response", 204, 38, 0),
            ("request", "GET /", 18, -1),
            ("response", 304, 38, 2),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 4),
        ],
    ),
    "interim responses do not answer": (
        [(CLIENT, GET), (SERVER, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), (SERVER, OK)],
        [("request", "GET /", 18, -1), ("interim", 103, 37, 0), ("response", 200, len(OK), 0)],
    ),
    "pipelined": (
        [
            (CLIENT, b"GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n"),
            (SERVER, BODY + BODY[:-5] + OK),
        ],
        [
            ("request", "GET /a", 19, -1),
            ("request", "HEAD /b", 20, -1),
            ("request", "GET /c", 19, -1),
            ("response", 200, len(BODY), 0),
            ("response", 200, len(BODY) - 5, 1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "until the server closes": (
        [(CLIENT, b"GET / HTTP/1.0\r\n\r\n"), (SERVER, b"HTTP/1.0 200 OK\r\n\r\nall of it\r\n")],
        [("request", "GET /", 18, -1), ("response", 200, 30, 0)],
    ),
    "bare line feeds, blank lines and folded lines": (
        [(CLIENT, b"\r\n\r\nGET / HTTP/1.1\nHost: a\nX-Long: b\n c\n\n"), (SERVER, OK)],
        [("request", "GET /", 37, -1), ("response", 200, len(OK), 0)],
    ),
    "expected body that comes": (
        [
            (CLIENT, b"PUT /f HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"),
            (SERVER, b"HTTP/1.1 100 Continue\r\n\r\n"),
            (CLIENT, b"abc"),
            (SERVER, OK),
        ],
        [("request", "PUT /f", 63, -1), ("interim", 100, 25, 0), ("response", 200, len(OK), 0)],
    ),
    "expected body that is refused": (
        [
            (CLIENT, b"PUT /f HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 300\r\n\r\n"),
            (SERVER, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "PUT /f", 62, -1),
            ("response", 417, 38, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "answer before the body is complete": (
        [
            (CLIENT, b"POST /f HTTP/1.1\r\nContent-Length: 6\r\n\r\nabc"),
            (SERVER, b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"),
            (CLIENT, b"def"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "POST /f", 45, -1),
            ("response", 413, 38, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "upgrade": (
        [
            (CLIENT, b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
            (SERVER, b"HTTP/1.1 101 Switching\r\n\r\n"),
            (CLIENT, b"\x81\x05hello"),
            (SERVER, b"\x81\x02yo"),
        ],
        [("request", "GET /ws", 40, -1), ("response", 101, 26, 0)],
    ),
    "connect": (
        [
            (CLIENT, b"CONNECT a:443 HTTP/1.1\r\n\r\n"),
            (SERVER, b"HTTP/1.1 200 OK\r\n\r\n"),
            (CLIENT, b"GET / HTTP/1.1\r\n\r\n"),
        ],
        [("request", "CONNECT a:443", 26, -1), ("response", 200, 19, 0)],
    ),
    "timeout of an idle connection": (
        [(CLIENT, GET), (SERVER, OK), (SERVER, b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n")],
        [("request", "GET /", 18, -1), ("response", 200, len(OK), 0), ("response", 408, 43, -1)],
    ),
    "equal lengths are one": (
        [(CLIENT, GET), (SERVER, BODY.replace(b": 5", b": 5, 5")), (CLIENT, GET), (SERVER, OK)],
        [
            ("request", "GET /", 18, -1),
            ("response", 200, len(BODY) + 3, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "version 0.9": (
        [(CLIENT, b"GET /old\r\n"), (SERVER, b"<html>no head, no end\n")],
        [("request", "GET /old", 10, -1), ("response", None, 22, 0)],
    ),
    "a server that answers version 0.9 with a head": (
        [(CLIENT, b"GET /old\r\n"), (SERVER, b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno")],
        [("request", "GET /old", 10, -1), ("response", 400, 41, 0)],
    ),
    "methods in lower case and methods that nobody knows": (
        [
            (CLIENT, b"get /a HTTP/1.1\r\n\r\n"),
            (SERVER, OK),
            (CLIENT, b"FROB-X /b HTTP/1.1\r\n\r\n"),
            (SERVER, OK),
        ],
        [
            ("request", "get /a", 19, -1),
            ("response", 200, len(OK), 0),
            ("request", "FROB-X /b", 22, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "other forms of the target": (
        [
            (CLIENT, b"OPTIONS * HTTP/1.1\r\n\r\n"),
            (SERVER, OK),
            (CLIENT, b"GET http://a:8080/b?c=1 HTTP/1.1\r\n\r\n"),
            (SERVER, OK),
        ],
        [
            ("request", "OPTIONS *", 22, -1),
            ("response", 200, len(OK), 0),
            ("request", "GET /b ?c", 36, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "several interim responses, pipelined": (
        [
            (CLIENT, GET + GET),
            (SERVER, b"HTTP/1.1 102 P\r\n\r\nHTTP/1.1 103 E\r\n\r\n" + OK + b"HTTP/1.1 100 C\r\n\r\n" + BODY),
        ],
        [
            ("request", "GET /", 18, -1),
            ("request", "GET /", 18, -1),
            ("interim", 102, 18, 0),
            ("interim", 103, 18, 0),
            ("response", 200, len(OK), 0),
            ("interim", 100, 18, 1),
            ("response", 200, len(BODY), 1),
        ],
    ),
    "refused CONNECT stays HTTP": (
        [
            (CLIENT, b"CONNECT a:1 HTTP/1.1\r\n\r\n"),
            (SERVER, b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "CONNECT a:1", 24, -1),
            ("response", 407, 38, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "a stream of events": (
        [
            (CLIENT, GET),
            (SERVER, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
            (SERVER, b"data: 1\n\n"),
            (SERVER, b"data: 2\n\n"),
        ],
        [("request", "GET /", 18, -1), ("response", 200, 70, 0)],
    ),
    "proxy header, version 1": (
        [(CLIENT, b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n" + GET), (SERVER, OK)],
        [("request", "GET /", 18, -1), ("response", 200, len(OK), 0)],
    ),
    "proxy header, version 2": (
        [
            (
                CLIENT,
                b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb" + GET,
            ),
            (SERVER, OK),
        ],
        [("request", "GET /", 18, -1), ("response", 200, len(OK), 0)],
    ),
}


@pytest.mark.parametrize("mss", [1448, 1])
@pytest.mark.parametrize("name", CASES)
def test_framing(name: str, mss: int, tmp_path: Path) -> None:
    turns, expected = CASES[name]
    assert summary(run(tmp_path, turns, mss)) == expected


def test_tunnel_bytes_are_named(tmp_path: Path) -> None:
    tables = run(tmp_path, CASES["upgrade"][0])
    assert tables.counter("unparsed.http.tunnel") == 11
    assert tables.counter("http.switched_to_tunnel") == 1


AMBIGUOUS = {
    "length and chunked": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "odd coding": b"Transfer-Encoding: xchunked\r\n\r\n",
    "no length": b"Content-Length: five\r\n\r\n",
    "a negative length": b"Content-Length: -5\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size with blanks": b"Transfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n",
    "blank before the colon": b"Content-Length : 5\r\n\r\nhello",
    "coding in a folded line": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_framing_is_flagged(name: str, tmp_path: Path) -> None:
    tables = run(tmp_path, [(CLIENT, b"POST / HTTP/1.1\r\n" + AMBIGUOUS[name]), (SERVER, OK)])
    assert tables.messages["flags"][0] & MessageFlag.SUSPICIOUS
    assert tables.messages["request"].tolist() == [-1, 0]


def test_version_1_0_has_no_transfer_coding(tmp_path: Path) -> None:
    tables = run(
        tmp_path, [(CLIENT, GET), (SERVER, CHUNKED.replace(b"1.1", b"1.0")), (CLIENT, GET), (SERVER, OK)]
    )
    assert (tables.messages["flags"] & MessageFlag.SUSPICIOUS).tolist() == [0, MessageFlag.SUSPICIOUS, 0, 0]
    assert tables.messages["request"].tolist() == [-1, 0, -1, 2]


@pytest.mark.parametrize(
    ("chunk", "label"),
    [
        (b"zz\r\n", "http.bad_chunk_size"),
        (b"-5\r\n", "http.bad_chunk_size"),
        (b"10000000000000000\r\n", "http.chunk_size_too_large"),
        (b"2\r\nabc", "http.bad_chunk_end"),
    ],
)
def test_broken_chunks_are_named_and_the_next_answer_is_found(
    chunk: bytes, label: str, tmp_path: Path
) -> None:
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk
    tables = run(tmp_path, [(CLIENT, GET), (SERVER, broken), (CLIENT, GET), (SERVER, OK)])
    assert tables.counter(label) == 1
    assert tables.messages["request"].tolist() == [-1, 0, -1, 2]
    assert tables.messages["flags"][1] & MessageFlag.SUSPICIOUS


def test_a_head_without_end_is_given_up_at_the_bound(tmp_path: Path) -> None:
    endless = b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 40_000
    tables = run(tmp_path, [(CLIENT, endless), (CLIENT, GET), (SERVER, OK)])
    assert tables.counter("http.head_too_long") == 1
    assert tables.messages["kind"].tolist().count(MessageKind.REQUEST) == 2


def test_times_are_those_of_first_and_last_byte(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    dialogue.send(CLIENT, GET, cuts=[5, 10])
    dialogue.send(SERVER, b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 3000)
    dialogue.close(SERVER)
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.packets)], salt=SALT)
    payload = [(time, frame[47]) for time, frame in dialogue.packets if len(frame) > 54]
    fin = next(time for time, frame in dialogue.packets if frame[47] & FIN)
    assert tables.messages["begin_ns"].tolist() == [payload[0][0], payload[3][0]]
    assert tables.messages["end_ns"].tolist() == [payload[2][0], fin]


def test_a_request_split_over_a_loss_is_still_a_request(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    dialogue.send(CLIENT, b"GET /long HTTP/1.1\r\nHost: a\r\nCookie: " + b"c" * 3000 + b"\r\n\r\n")
    dialogue.send(SERVER, OK)
    del dialogue.packets[4]
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.packets)], salt=SALT)
    assert unaccounted(tables) == []
    assert tables.messages["kind"].tolist() == [MessageKind.REQUEST, MessageKind.RESPONSE]
    assert tables.messages["flags"][0] & MessageFlag.TRUNCATED
    assert tables.messages["request"].tolist() == [-1, 0]


ROUTES = [
    ("/bb/story/5?page=1&story=3", "GET /bb/story/{n} ?page&story"),
    ("/a/123e4567-e89b-12d3-a456-426614174000", "GET /a/{uuid}"),
    ("/a/0123456789abcdef0123", "GET /a/{hex}"),
    ("/a/Zx3K9d0aQpL2mN8vB7cT/x", "GET /a/{id}/x"),
    ("/story-of-the-year-2024-part-2", "GET /story-of-the-year-2024-part-2"),
    ("/news/2026-11-21/x", "GET /news/{date}/x"),
    ("/log/2026_11_21.txt", "GET /log/{date}.txt"),
    ("/log/2026-11-21T03:04:05Z", "GET /log/{date}"),
    ("/img/17.png", "GET /img/{n}.png"),
    ("/s;jsessionid=ABC123?z&a=&a=2&m=%20", "GET /s ?a&m&z"),
    ("http://host:80/abs?x=1", "GET /abs ?x"),
    ("/", "GET /"),
    ("/q?", "GET /q"),
    ("*", "GET *"),
]


@pytest.mark.parametrize(("target", "route"), ROUTES)
def test_route_templates(target: str, route: str, tmp_path: Path) -> None:
    tables = run(tmp_path, [(CLIENT, b"GET %s HTTP/1.1\r\n\r\n" % target.encode()), (SERVER, OK)])
    assert tables.classes == [(1, route)]


def word(number: int) -> str:
    """A word that looks like any other."""
    return "".join(chr(97 + number // 26**place % 26) for place in range(3)) + "man"


@pytest.mark.parametrize("mss", [1448, 5])
def test_words_beyond_two_hundred_at_one_place_are_one_class(mss: int, tmp_path: Path) -> None:
    asked = [f"/user/{word(n)}/mail?x=1" for n in range(250)] + [
        "/user",
        f"/user/{word(7)}/mail?x=1",
        "/about/us",
    ]
    asked += [f"/user/{word(n)}/{other}" for n in (249, 3) for other in ("mail", "news")]
    asked += [f"/pages/{word(n)}.html" for n in range(201)]
    turns = [(CLIENT, b"".join(f"GET {path} HTTP/1.1\r\n\r\n".encode() for path in asked))]
    tables = run(tmp_path, turns, mss)
    found = [tables.classes[class_id][1] for class_id in tables.messages["class_id"].tolist()]
    assert found[:200] == [f"GET /user/{word(n)}/mail ?x" for n in range(200)]
    assert found[200:250] == ["GET /user/{*}/mail ?x"] * 50
    assert found[250:253] == ["GET /user", f"GET /user/{word(7)}/mail ?x", "GET /about/us"]
    assert found[253:255] == ["GET /user/{*}/mail", "GET /user/{*}/news"]
    assert found[255:257] == [f"GET /user/{word(3)}/mail", f"GET /user/{word(3)}/news"]
    assert found[-1] == "GET /pages/{*}.html"


def test_words_of_routes_are_bounded(tmp_path: Path) -> None:
    paths = [f"/{word(n % 199)}/{word(n // 199)}/{word(n % 7)}" for n in range(39_000)]
    request = "".join(f"GET {path} HTTP/1.1\r\n\r\n" for path in paths).encode()
    tables = run(tmp_path, [(CLIENT, request)])
    assert len(tables.messages["conn"]) == len(paths)
    assert 10_000 < len(tables.classes) < 40_000
    assert any("{*}" in text for _, text in tables.classes)
    assert tables.counter("classes.beyond_bound") == 0


def tokens(tables: capture.CaptureTables, row: int = 0) -> set[tuple[int, int, int]]:
    mine = tables.evidence["message"] == row
    columns = (tables.evidence[name][mine].tolist() for name in ("slot", "kind", "hash"))
    return set(zip(*columns, strict=True))


def token(kind: int, value: str, name: str | None = None, slot: int = 0) -> tuple[int, int, int]:
    return (_native.slot_of_name(name) if name else slot, int(kind), _native.token_hash(SALT, value.encode()))


def test_evidence_of_a_request(tmp_path: Path) -> None:
    form = b"comment=a+b%21&story=17&empty="
    head = b"POST /s/42/0123456789abcdef?page=2&q=%C3%A9 HTTP/1.1\r\nHost: a\r\n"
    head += b"Cookie: sid=k1; n=7\r\nX-User: bob\r\n"
    head += b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(form)
    tables = run(tmp_path, [(CLIENT, head + form), (SERVER, OK)])
    segment = 0x80000000
    assert tokens(tables) == {
        token(TokenKind.URI | ID_LIKE, "/s/42/0123456789abcdef?page=2&q=%C3%A9"),
        token(TokenKind.URI, "/s/42/{id}?page=2&q=%C3%A9"),
        token(TokenKind.NUMBER, "42", slot=segment + 1),
        token(TokenKind.TEXT | ID_LIKE, "0123456789abcdef", slot=segment + 2),
        token(TokenKind.NUMBER, "2", "page"),
        token(TokenKind.TEXT, "é", "q"),
        token(TokenKind.TEXT, "k1", "sid"),
        token(TokenKind.NUMBER, "7", "n"),
        token(TokenKind.TEXT, "bob", "x-user"),
        token(TokenKind.TEXT, "a b!", "comment"),
        token(TokenKind.NUMBER, "17", "story"),
        token(TokenKind.ENDPOINT, "10.0.0.1:40000"),
    }


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


@pytest.mark.parametrize(
    "line",
    [
        b"OPTIONS rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        b"DESCRIBE /b RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        b"OPTIONS sip:a@b SIP/2.0\r\n\r\n",
        b"set key 0 60 5\r\nhello\r\n",
        b"get /x\r\n",
    ],
)
@pytest.mark.parametrize("mss", [1448, 1])
def test_protocols_that_look_alike_are_not_taken_for_http(line: bytes, mss: int, tmp_path: Path) -> None:
    tables = run(tmp_path, [(CLIENT, line), (SERVER, b"ICY 200 OK\r\n\r\n")], mss)
    assert not (tables.messages["protocol"] == Protocol.HTTP).any()


def test_only_the_first_8_kib_of_a_form_are_looked_at(tmp_path: Path) -> None:
    form = b"a=1&long=" + b"x" * 9000 + b"&b=2"
    head = (
        b"POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
        % len(form)
    )
    tables = run(tmp_path, [(CLIENT, head + form), (SERVER, OK)])
    assert tokens(tables) == {
        token(TokenKind.URI, "/"),
        token(TokenKind.NUMBER, "1", "a"),
        token(TokenKind.ENDPOINT, "10.0.0.1:40000"),
    }
    assert tables.messages["wire_bytes"][0] == len(head + form)


def test_hashes_depend_on_the_salt_alone(tmp_path: Path) -> None:
    path = write_pcap(
        tmp_path / "a.pcap", Dialogue().open().send(CLIENT, b"GET /a?b=c HTTP/1.1\r\n\r\n").packets
    )
    first, again, other = (
        capture.read_files([path], salt=salt).evidence["hash"].tolist() for salt in (SALT, SALT, bytes(16))
    )
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("123e4567-e89b-12d3-a456-426614174000", True),
        ("0123456789abcdef", True),
        ("dGhpcyBpcyBhIHNlY3JldCB0b2tlbg1", True),
        ("A1B2C3D4E5F60718293A4B5C6D7E8F90.worker1", True),
        ("12345678901234567890", True),
        ("1234567890123456789", False),
        ("story-of-the-year-2024-part-2", False),
        ("a quite ordinary sentence with 2 numbers 3", False),
        ("internationalization", False),
        ("short1", False),
        ("", False),
    ],
)
def test_what_looks_like_an_id(value: str, expected: bool) -> None:
    assert _native.looks_like_id(value) is expected


def test_pairing_survives_a_whole_lost_body(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    for number in range(4):
        dialogue.send(CLIENT, b"GET /%d HTTP/1.1\r\n\r\n" % number)
        dialogue.emit(SERVER, PSH | ACK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        dialogue.seq[SERVER] += len(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"3e8\r\n" + b"z" * 1000 + b"\r\n0\r\n\r\n"
        if number == 1:  # the tap misses it, the client acknowledges it
            dialogue.seq[SERVER] += len(chunk)
            dialogue.emit(CLIENT, ACK)
        else:
            dialogue.send(SERVER, chunk)
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.close().packets)], salt=SALT)
    assert unaccounted(tables) == []
    assert tables.messages["request"].tolist() == [-1, 0, -1, 2, -1, 4, -1, 6]
    assert tables.messages["missing_bytes"].tolist() == [
        0,
        0,
        0,
        len(b"3e8\r\n" + b"z" * 1000 + b"\r\n0\r\n\r\n"),
        0,
        0,
        0,
        0,
    ]
    assert message_rows(tables)[0][-2] >= START_NS


@pytest.mark.parametrize("also_lost", [None, b"/3"])
def test_a_lost_head_request_does_not_swallow_the_answers_behind_it(
    also_lost: bytes | None, tmp_path: Path
) -> None:
    dialogue = Dialogue().open()
    for number in range(6):
        method = b"HEAD" if number == 2 else b"GET"
        dialogue.send(CLIENT, b"%s /%d HTTP/1.1\r\n\r\n" % (method, number))
        body = b"" if number == 2 else b"y" * 900
        dialogue.send(SERVER, b"HTTP/1.1 20%d OK\r\nContent-Length: 900\r\n\r\n" % number + body)
    lost = [b"HEAD /2"] + ([b"HTTP/1.1 203"] if also_lost else [])
    kept = [packet for packet in dialogue.packets if not any(text in packet[1] for text in lost)]
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", kept)], salt=SALT)
    assert unaccounted(tables) == []
    columns = {name: values.tolist() for name, values in tables.messages.items()}
    at = {seq: int(seq_row) for seq_row, seq in enumerate(columns["tcp_seq"])}
    pairs = {
        columns["status"][row]: columns["request"][row]
        for row in range(len(columns["kind"]))
        if columns["kind"][row] == MessageKind.RESPONSE
    }
    request_bytes = len(b"GET /0 HTTP/1.1\r\n\r\n")
    first = 1001
    expected = {200 + n: at[first + n * request_bytes + (n > 2)] for n in range(6) if n != 2}
    expected[202] = -1
    if also_lost:
        del expected[203]
    assert pairs == expected
