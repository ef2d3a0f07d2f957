"""HTTP/1.x: bytes in, messages out. Cases follow RFC 9112; every case runs again cut after every byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_packets import (
    CLIENT,
    FIN,
    SERVER,
    Dialogue,
    write_pcap,
)
from http_dialogue import GET, OK, SALT, Turn, run, summary

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind, Protocol

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FORM = b"POST /f HTTP/1.1\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\n"
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
    "expected form that is refused": (
        [
            (CLIENT, FORM + b"Content-Length: 300\r\n\r\n"),
            (SERVER, b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "POST /f", len(FORM) + 23, -1),
            ("response", 401, 38, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "expected form that comes": (
        [
            (CLIENT, FORM + b"Content-Length: 3\r\n\r\n"),
            (SERVER, b"HTTP/1.1 100 Continue\r\n\r\n"),
            (CLIENT, b"a=b"),
            (SERVER, OK),
        ],
        [
            ("request", "POST /f", len(FORM) + 24, -1),
            ("interim", 100, 25, 0),
            ("response", 200, len(OK), 0),
        ],
    ),
    "expected chunks that are refused": (
        [
            (CLIENT, FORM + b"Transfer-Encoding: chunked\r\n\r\n"),
            (SERVER, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "POST /f", len(FORM) + 30, -1),
            ("response", 417, 38, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
    ),
    "expected chunks that come although they were refused": (
        [
            (CLIENT, FORM + b"Transfer-Encoding: chunked\r\n\r\n"),
            (SERVER, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"),
            (CLIENT, b"5\r\nhello\r\n0\r\n\r\n"),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "POST /f", len(FORM) + 45, -1),
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
    "the coding of no coding": (
        [
            (CLIENT, GET),
            (SERVER, BODY.replace(b": 5", b": 5\r\nTransfer-Encoding: identity")),
            (CLIENT, GET),
            (SERVER, OK),
        ],
        [
            ("request", "GET /", 18, -1),
            ("response", 200, len(BODY) + 29, 0),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 2),
        ],
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
    "version 0.9 with an empty line": (
        [(CLIENT, b"GET /old\r\n\r\n"), (SERVER, b"<html>no head, no end\n")],
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
    "length in a folded line": (
        [
            (CLIENT, b"POST /a HTTP/1.1\r\nContent-Length:\r\n\t3\r\n\r\nabc" + GET),
            (SERVER, OK + b"HTTP/1.1 200 OK\r\nContent-Length: \r\n \r\n  5 \r\nA: b\r\n 7\r\n\r\nhello"),
        ],
        [
            ("request", "POST /a", 44, -1),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 0),
            ("response", 200, 61, 1),
        ],
    ),
    "a folded line behind a length": (
        [(CLIENT, b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n 9\r\n\r\nabc" + GET), (SERVER, OK + OK)],
        [
            ("request", "POST /a", 46, -1),
            ("request", "GET /", 18, -1),
            ("response", 200, len(OK), 0),
            ("response", 200, len(OK), 1),
        ],
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
    "one length twice": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a negative length": b"Content-Length: -5\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size with blanks": b"Transfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n",
    "blank before the colon": b"Content-Length : 5\r\n\r\nhello",
    "length in a folded line": b"Content-Length:\r\n 5\r\n\r\nhello",
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
    # What came up to the bound is the message's, and nothing was lost behind it.
    taken = int(tables.messages["wire_bytes"][0])
    assert 200 * 1024 < taken < 200 * 1024 + 1448
    assert tables.messages["end_ns"][0] > tables.messages["begin_ns"][0]
    assert tables.messages["flags"][0] & MessageFlag.UNFINISHED
    assert tables.counter("unparsed.http.head_too_long") == len(endless) - taken
    assert tables.counter("unparsed.http.after_loss") == 0


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
