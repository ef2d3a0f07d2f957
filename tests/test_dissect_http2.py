"""HTTP/2 and gRPC: captures of real servers and clients, whole and damaged."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, message_rows, read_pcap, write_pcap
from http2_rows import SALT, Row, read, rows
from http2_streams import again, connections, stream_at

from tapscope import capture
from tapscope.analyze.calls import Read
from tapscope.analyze.load import loads
from tapscope.capture import _native
from tapscope.reconstruct import pair, run
from tapscope.store.codes import MessageFlag, MessageKind, Protocol, TokenKind

PCAPS = Path(__file__).parent.parent / "pcaps" / "http2"
CAPTURES = sorted(PCAPS.glob("*.pcap"))
SMALL = [path for path in CAPTURES if path.stat().st_size < 30_000]


def test_streams_at_once_with_push_and_upload() -> None:
    tables = read(PCAPS / "nghttp_streams.pcap")
    story = ("http2", "request", "GET /story/{n}.html ?page", -1)
    assert rows(tables) == [
        *[story] * 8,
        ("http2", "request", "GET /nothing/{n}", -1),
        *[("http2", "response", 200, request) for request in range(8)],
        ("http2", "response", 404, 8),
        ("http2", "request", "GET /index.html", -1),
        ("http2", "one_way", "GET /style.css", -1),
        ("http2", "response", 200, 18),
        ("http2", "response", 200, 19),
        ("http2", "request", "POST /echo ?id", -1),
        ("http2", "response", 200, 22),
    ]
    assert tables.messages["flags"].tolist() == [0] * len(tables.messages["flags"])
    assert (tables.messages["end_ns"] >= tables.messages["begin_ns"]).all()


def test_an_upgrade_goes_on_as_stream_1() -> None:
    tables = read(PCAPS / "apache_upgrade.pcap")
    found = rows(tables)
    assert found[:4] == [
        ("http", "request", "GET /story/{n}.html", -1),
        ("http", "interim", 101, 0),
        ("http2", "response", 200, 0),
        ("http2", "request", "GET /story/{n}.html ?x", -1),
    ]
    upgraded = [at for at, row in enumerate(found) if row[:2] == ("http", "request")]
    assert len(upgraded) == 4
    for asked in upgraded:
        answers = [row for row in found if row[3] == asked]
        assert [row[:2] for row in answers] == [("http", "interim"), ("http2", "response")]
    assert (tables.connections["protocol"] == Protocol.HTTP2).all()


def test_interim_responses_and_a_promise() -> None:
    found = rows(read(PCAPS / "apache_push_and_hints.pcap"))
    assert found[:3] == [
        ("http2", "request", "GET /story/{n}.html", -1),
        ("http2", "request", "GET /story/{n}.html", -1),
        ("http2", "one_way", "GET /style.css", -1),
    ]
    for asked in range(3):  # the promise is answered as if it had been a request
        answers = [row for row in found if row[3] == asked]
        assert answers == [("http2", "interim", 103, asked), ("http2", "response", 200, asked)]


def test_calls_of_grpc_have_the_status_of_their_trailer() -> None:
    tables = read(PCAPS / "grpc.pcap")
    called = ["Read"] * 5 + ["List", "Write", "Talk", "Fail", "Unknown", "Slow", "Slow"]
    requests = [row for row in rows(tables) if row[1] == "request"]
    assert requests == [("grpc", "request", f"/tap.Stories/{name}", -1) for name in called]
    messages = tables.messages
    answers = messages["kind"] == MessageKind.RESPONSE
    assert (messages["protocol"][answers] == Protocol.GRPC).all()
    # The client gave two calls up; one was answered all the same, too late.
    assert messages["status"][answers].tolist() == [0] * 8 + [5, 12, 4]
    errors = (messages["flags"][answers] & MessageFlag.ERROR) != 0
    assert errors.tolist() == [False] * 8 + [True] * 3
    assert tables.counter("http2.cancelled") == 2
    given_up = messages["kind"] == MessageKind.ONE_WAY
    found = rows(tables)
    asked = [found[row][2] for row in messages["request"][given_up].tolist()]
    assert asked == ["/tap.Stories/Slow"] * 2
    calls = pair.calls(tables.connections, tables.messages)
    silent = calls["response"] < 0
    assert silent.sum() == 1
    assert calls["gone_ns"][silent].tolist() == [int(messages["begin_ns"][given_up].max())]
    assert (calls["gone_ns"][~silent] == -1).all()


def test_evidence_is_that_of_http_1(tmp_path: Path) -> None:
    tables = read(PCAPS / "nghttp_streams.pcap")

    def tokens(row: int) -> set[tuple[int, int, int]]:
        mine = tables.evidence["message"] == row
        columns = (tables.evidence[name][mine].tolist() for name in ("slot", "kind", "hash"))
        return set(zip(*columns, strict=True))

    def token(kind: int, value: str, name: str | None = None, slot: int = 0) -> tuple[int, int, int]:
        slot = _native.slot_of_name(name) if name else slot
        return slot, int(kind), _native.token_hash(SALT, value.encode())

    connection = int(tables.messages["conn"][0])
    port = int(tables.connections["client_port"][connection])
    assert tokens(2) == {
        token(TokenKind.URI, "/story/3.html?page=3"),
        token(TokenKind.NUMBER, "3", slot=0x80000001),
        token(TokenKind.NUMBER, "3", "page"),
        token(TokenKind.TEXT, "k1", "sid"),
        token(TokenKind.NUMBER, "7", "n"),
        token(TokenKind.TEXT, "bob", "x-user"),
        token(TokenKind.ENDPOINT, f"127.0.0.1:{port}"),
    }
    form = {token(TokenKind.TEXT, "well done", "comment"), token(TokenKind.NUMBER, "17", "story")}
    assert form < tokens(rows(tables).index(("http2", "request", "POST /echo ?id", -1)))


@cache
def truth(path: Path) -> tuple[dict[tuple[int, int], dict[int, int]], dict[tuple[int, int], Row]]:
    """Streams by (client port, side) and sequence number; (class, status) by (client port, stream)."""
    streams = {
        (port, side): stream_at(connection, side)
        for port, connection in connections(read_pcap(path)).items()
        for side in (CLIENT, SERVER)
    }
    return streams, known(read(path), streams)


def known(
    tables: capture.CaptureTables, streams: dict[tuple[int, int], dict[int, int]]
) -> dict[tuple[int, int], Row]:
    messages = tables.messages
    out: dict[tuple[int, int], Row] = {}
    for row, conn in enumerate(messages["conn"].tolist()):
        port = int(tables.connections["client_port"][conn])
        side = int(messages["direction"][row])
        stream = streams[port, side].get(int(messages["tcp_seq"][row]))
        if stream is None or messages["kind"][row] == MessageKind.INTERIM:
            continue
        text, status = out.get((port, stream), ("", -1))
        if messages["class_id"][row] >= 0:
            text = tables.classes[messages["class_id"][row]][1]
        if messages["kind"][row] == MessageKind.RESPONSE and messages["status"][row] >= 0:
            status = int(messages["status"][row])
        out[port, stream] = (text, status)
    return out


def check_damaged(path: Path, tables: capture.CaptureTables) -> int:
    """Nothing is wrong with what is left; returns how many responses still have their request."""
    streams, whole = truth(path)
    messages = tables.messages
    paired = 0
    for row, conn in enumerate(messages["conn"].tolist()):
        port = int(tables.connections["client_port"][conn])
        request = int(messages["request"][row])
        stream = streams[port, int(messages["direction"][row])].get(int(messages["tcp_seq"][row]))
        if request >= 0 and stream is not None:
            of = streams[port, int(messages["direction"][request])].get(int(messages["tcp_seq"][request]), 1)
            assert of == stream, f"message {row} of stream {stream} is paired with one of stream {of}"
            paired += messages["kind"][row] == MessageKind.RESPONSE
    for key, (text, status) in known(tables, streams).items():
        assert text in ("", whole[key][0]), f"stream {key}: class {text}, not {whole[key][0]}"
        if status >= 0 and whole[key][1] > 16:  # the one of a gRPC call may be in a trailer that was lost
            assert status == whole[key][1]
    return paired


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_joined_midstream_at_every_packet(path: Path, tmp_path: Path) -> None:
    packets = read_pcap(path)
    whole = len(read(path).messages["conn"])
    for cut in range(1, len(packets)):
        tables = read(write_pcap(tmp_path / "a.pcap", packets[cut:]))
        check_damaged(path, tables)
        assert len(tables.messages["conn"]) <= whole


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_cut_off_at_every_packet(path: Path, tmp_path: Path) -> None:
    packets = read_pcap(path)
    for cut in range(1, len(packets)):
        check_damaged(path, read(write_pcap(tmp_path / "a.pcap", packets[:cut])))


def test_streams_that_a_capture_cuts_off_were_open_side_by_side(tmp_path: Path) -> None:
    packets = read_pcap(PCAPS / "apache_prior_knowledge.pcap")
    tables = read(write_pcap(tmp_path / "a.pcap", packets[:108]))
    made = run.trace(tables)
    last = made.calls["conn"] == made.calls["conn"][-1]
    assert (made.calls["depart_ns"][last] < 0).tolist() == [False, True, True, True, True]
    found = loads(Read(made.calls, tables.connections, made.calls["depart_ns"]), made.nodes)
    assert found["max"].max() == 5


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_without_any_one_packet(path: Path, tmp_path: Path) -> None:
    packets = read_pcap(path)
    kinds = read(path).messages["kind"]
    answers = int((kinds == MessageKind.RESPONSE).sum())
    left = []
    for lost in range(len(packets)):
        tables = read(write_pcap(tmp_path / "a.pcap", packets[:lost] + packets[lost + 1 :]))
        left.append(check_damaged(path, tables))
    # One lost packet of a few dozen takes its own messages and little more.
    assert sum(left) > 0.8 * answers * len(packets)


@pytest.mark.parametrize("mss", [1, 7, 100])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_the_size_of_segments_does_not_matter(path: Path, mss: int, tmp_path: Path) -> None:
    for connection in connections(read_pcap(path)).values():
        expected = read(write_pcap(tmp_path / "a.pcap", again(connection.turns, 60_000)))
        split = read(write_pcap(tmp_path / "b.pcap", again(connection.turns, mss)))
        assert message_rows(split, times=False) == message_rows(expected, times=False)
        assert sorted(split.evidence["hash"].tolist()) == sorted(expected.evidence["hash"].tolist())
