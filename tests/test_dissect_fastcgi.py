"""FastCGI between nginx and php-fpm, and records made up for what those two never do."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import dissect_checks
import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, unaccounted
from dissect_checks import (
    ERROR,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    calls_of,
    check_late_start,
    check_loss,
    check_segmentation,
    read,
)
from fastcgi_records import answer, begin, end, get, params, record

from tapscope.store.codes import Protocol

PCAPS = Path(__file__).resolve().parent.parent / "pcaps/fastcgi"
NAMES = sorted(path.name for path in PCAPS.glob("nginx_*.pcap*"))
OK = b"Content-Type: text/html\r\n\r\nhello"


talk = partial(dissect_checks.talk, port=9000)


calls = partial(calls_of, protocol=Protocol.FASTCGI)


@pytest.mark.parametrize("name", NAMES)
def test_requests_are_those_of_http_with_the_same_statuses_and_evidence(name: str) -> None:
    tables = read(PCAPS / name)
    assert unaccounted(tables) == []
    assert calls(tables) == calls(tables, protocol=Protocol.HTTP)
    assert [status for _, status in calls(tables)] == [200, 200, 404, 302, 503, *[200] * 7]
    assert tables.connections["unparsed_to_server"].sum() == 0
    assert tables.connections["unparsed_to_client"].sum() == 0
    m, e = tables.messages, tables.evidence

    def tokens(protocol: Protocol) -> list[set[tuple[int, int, int]]]:
        rows = np.flatnonzero((m["protocol"] == protocol) & (m["kind"] == REQUEST))
        return [
            {
                (int(e["slot"][i]), int(e["kind"][i]), int(e["hash"][i]))
                for i in np.flatnonzero(e["message"] == row)
            }
            for row in rows
        ]

    assert tokens(Protocol.FASTCGI) == tokens(Protocol.HTTP)
    errors = (m["protocol"] == Protocol.FASTCGI) & (m["flags"] & ERROR > 0)
    assert m["status"][errors].tolist() == [503]
    assert tables.counter("fastcgi.stderr") == 1


@pytest.mark.parametrize("name", NAMES)
def test_segmentation_does_not_matter(name: str, tmp_path: Path) -> None:
    check_segmentation(PCAPS / name, tmp_path, (13, 200))


@pytest.mark.parametrize("name", NAMES)
def test_joined_late_no_answer_goes_to_another_s_request(name: str, tmp_path: Path) -> None:
    check_late_start(PCAPS / name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_packet_leaves_a_gap_but_no_wrong_pair(name: str, tmp_path: Path) -> None:
    check_loss(PCAPS / name, tmp_path, 0.97)


def test_cut_at_every_byte_nothing_changes(tmp_path: Path) -> None:
    form = params(
        REQUEST_METHOD="POST",
        SCRIPT_NAME="/story",
        QUERY_STRING="id=7",
        CONTENT_TYPE="application/x-www-form-urlencoded",
    )
    parts = [
        (CLIENT, begin() + form + record(5, b"a=1&b=2") + record(5)),
        (SERVER, record(7, b"a warning") + answer(b"Status: 404 Not Found\r\n\r\nno")),
        (CLIENT, get("/story/17", HTTP_X_ID="v" * 200)),
        (SERVER, record(6, b"Content-Type: a/b\r\n") + record(6, b"Status: 500 no\r\n\r\n") + end()),
    ]
    whole = talk(tmp_path, *parts)
    assert calls(whole) == [("POST /story ?id", 404), ("GET /story/{n}", 500)]
    for cut in (1, 2, 3, 7):
        pieces = talk(tmp_path, *parts, cut=cut)
        assert calls(pieces) == calls(whole)
        assert sorted(pieces.evidence["hash"].tolist()) == sorted(whole.evidence["hash"].tolist())
        assert pieces.messages["wire_bytes"].tolist() == whole.messages["wire_bytes"].tolist()


def test_a_connection_that_begins_with_get_values_is_known_however_it_is_cut(tmp_path: Path) -> None:
    asked = record(9, b"\x0e\0FCGI_MAX_CONNS", request=0)
    told = record(10, b"\x0e\1FCGI_MAX_CONNS5", request=0)
    parts = [(CLIENT, asked), (SERVER, told), (CLIENT, get("/a")), (SERVER, answer(OK))]
    for cut in (1, 2, 3, 7, 8, 100):
        tables = talk(tmp_path, *parts, cut=cut)
        assert calls(tables) == [("GET /a", 200)]
        assert len(tables.messages["kind"]) == 4


def test_parameters_may_be_spread_over_records(tmp_path: Path) -> None:
    whole = params(REQUEST_METHOD="GET", REQUEST_URI="/story/17?page=2")
    body = whole[8 : 8 + struct.unpack_from("!H", whole, 4)[0]]
    spread = b"".join(record(4, body[i : i + 9]) for i in range(0, len(body), 9)) + record(4)
    tables = talk(tmp_path, (CLIENT, begin() + spread + record(5)), (SERVER, answer(OK)))
    assert calls(tables) == [("GET /story/{n} ?page", 200)]


@pytest.mark.parametrize(
    "head", [b"Status: 503 no\r\n\r\nx", b"X-A: b\nLocation: /c\n\nx", b"X-A: b\r\n\r\nStatus: 404 x\r\n"]
)
def test_the_head_of_an_answer_may_be_spread_over_records(tmp_path: Path, head: bytes) -> None:
    """STDOUT is a stream: where its records end means nothing (specification, 3.3)."""
    expected = 503 if b"503" in head else 302 if b"Location" in head else 200
    for size in (1, 2, 5, 9, len(head)):
        spread = b"".join(record(6, head[i : i + size]) for i in range(0, len(head), size))
        tables = talk(tmp_path, (CLIENT, get("/a")), (SERVER, spread + record(6) + end()))
        assert calls(tables) == [("GET /a", expected)]


def test_the_trace_of_a_traceparent_is_the_same_evidence_as_in_http(tmp_path: Path) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    behind = talk(tmp_path, (CLIENT, get("/", HTTP_TRACEPARENT=trace)), (SERVER, answer(OK)))
    head = b"GET / HTTP/1.1\r\ntraceparent: %s\r\n\r\n" % trace.replace("b7ad", "0000").encode()
    front = dissect_checks.talk(tmp_path, (CLIENT, head), port=80)
    assert len(behind.evidence["hash"]) == 2  # the URI is the other one
    assert set(behind.evidence["hash"].tolist()) < set(front.evidence["hash"].tolist())


def test_an_answer_lasts_until_its_request_is_ended(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, get("/a")),
        (SERVER, record(6, OK) + record(6)),
        (SERVER, end()),
        (CLIENT, get("/b")),
        (SERVER, answer(OK)),
    )
    m = tables.messages
    assert calls(tables) == [("GET /a", 200), ("GET /b", 200)]
    first = int(np.flatnonzero(m["kind"] == RESPONSE)[0])
    assert m["end_ns"][first] > m["begin_ns"][first]


def test_refusal_application_status_and_abort(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, get("/a")),
        (SERVER, end(protocol=2)),
        (CLIENT, get("/b")),
        (SERVER, record(6, OK) + end(application=1)),
        (CLIENT, get("/c") + record(2)),
        (SERVER, end()),
        (CLIENT, record(9, b"\x0e\0FCGI_MAX_CONNS", 0)),
        (SERVER, record(10, b"\x0e\x01FCGI_MAX_CONNS9", 0)),
    )
    m = tables.messages
    assert calls(tables) == [("GET /a", -1), ("GET /b", 200), ("GET /c", -1)]
    assert (m["flags"][m["kind"] == RESPONSE] & ERROR > 0).tolist() == [True, True, False]
    assert (m["kind"] == ONE_WAY).sum() == 3
    assert tables.counter("fastcgi.abort") == 1


def test_multiplexed_answers_are_told_apart_by_their_id(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, get("/a", 1) + get("/b", 2)),
        (SERVER, answer(b"Status: 201 x\r\n\r\n", 1) + answer(b"Status: 202 x\r\n\r\n", 2)),
        (CLIENT, get("/c", 1) + get("/d", 2)),
        (SERVER, answer(b"Status: 204 x\r\n\r\n", 2) + answer(b"Status: 203 x\r\n\r\n", 1)),
    )
    assert calls(tables) == [("GET /a", 201), ("GET /b", 202), ("GET /c", 203), ("GET /d", 204)]
    assert tables.counter("fastcgi.paired_by_id") == 1
    assert tables.counter("fastcgi.multiplexed") == 2


@pytest.mark.parametrize("bad", [b"\x02" + get("/x")[1:], b"\x01\x63" + get("/x")[2:]])
def test_records_that_cannot_be_are_named(bad: bytes, tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, get("/a")),
        (SERVER, answer(OK)),
        (CLIENT, bad),
        (CLIENT, get("/b")),
        (SERVER, answer(OK)),
    )
    assert tables.counter("fastcgi.bad_record") == 1
    assert calls(tables) == [("GET /a", 200), ("GET /b", 200)]


def test_lengths_of_parameters_beyond_the_record_are_named(tmp_path: Path) -> None:
    body = b"\xff\xff\xff\xff\xff\xff\xff\xffx"
    tables = talk(tmp_path, (CLIENT, begin() + record(4, body) + record(4) + record(5)), (SERVER, answer(OK)))
    assert calls(tables) == [("UNKNOWN ", 200)]
    assert tables.counter("fastcgi.bad_params") == 1
