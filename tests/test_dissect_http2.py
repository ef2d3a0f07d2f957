"""HTTP/2 and gRPC: captures of real servers and clients, whole and damaged, and frames made by hand."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from capture_packets import CLIENT, SERVER, Dialogue, message_rows, read_pcap, unaccounted, write_pcap
from http2_streams import PREFACE, again, connections, stream_at

from tapscope import capture
from tapscope.capture import _native
from tapscope.store.codes import MessageFlag, MessageKind, Protocol, TokenKind

PCAPS = Path(__file__).parent.parent / "pcaps" / "http2"
CAPTURES = sorted(PCAPS.glob("*.pcap"))
SMALL = [path for path in CAPTURES if path.stat().st_size < 30_000]
SALT = bytes(range(16))
Row = tuple[Any, ...]


def read(path: Path) -> capture.CaptureTables:
    tables = capture.read_files([path], salt=SALT)
    assert unaccounted(tables) == []
    return tables


def rows(tables: capture.CaptureTables) -> list[Row]:
    """(protocol, kind, class or status, row of the request) of every message."""
    messages = tables.messages
    out: list[Row] = []
    for row in range(len(messages["conn"])):
        class_id = int(messages["class_id"][row])
        what = tables.classes[class_id][1] if class_id >= 0 else int(messages["status"][row])
        kind = MessageKind(messages["kind"][row]).name.lower()
        protocol = Protocol(messages["protocol"][row]).name.lower()
        out.append((protocol, kind, what, int(messages["request"][row])))
    return out


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


# Frames made by hand. Header fields are literals without indexing unless a test is about the table.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY = 1, 4, 8, 32
Turn = tuple[int, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def fields(**pairs: str) -> bytes:
    """Literals with new names; `_` in a name stands for `-`, a leading one for `:`."""
    out = b""
    for name, value in pairs.items():
        wire = (":" + name[1:] if name.startswith("_") else name).replace("_", "-").encode()
        assert len(wire) < 127
        assert len(value) < 127
        out += b"\0" + bytes([len(wire)]) + wire + bytes([len(value)]) + value.encode()
    return out


def ask(stream: int, path: str = "/a", flags: int = END_STREAM | END_HEADERS, **more: str) -> bytes:
    # :method GET and :path are static entries 2 and 4
    block = b"\x82\x04" + bytes([len(path)]) + path.encode() + fields(**more)
    return frame(HEADERS, flags, stream, block)


def answer(stream: int, flags: int = END_STREAM | END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, b"\x88")  # :status 200


OPEN: list[Turn] = [(CLIENT, PREFACE + frame(SETTINGS, 0, 0)), (SERVER, frame(SETTINGS, 0, 0))]


def play(path: Path, turns: list[Turn], mss: int = 1448, lost: int = -1) -> capture.CaptureTables:
    """The turns as a capture; `lost`: the number of a turn whose segment the tap did not see."""
    dialogue = Dialogue(server_port=8080).open()
    for number, (side, data) in enumerate(turns):
        before = len(dialogue.packets)
        dialogue.send(side, data, mss=mss)
        if number == lost:
            del dialogue.packets[before:-1]
    return read(write_pcap(path / "a.pcap", dialogue.close().packets))


@pytest.mark.parametrize("mss", [1448, 1])
def test_streams_interleave_and_every_byte_has_its_message(mss: int, tmp_path: Path) -> None:
    turns = [
        *OPEN,
        (CLIENT, ask(1, "/up", END_HEADERS) + ask(3, "/b") + frame(DATA, 0, 1, b"x" * 50)),
        (SERVER, answer(3, END_HEADERS) + frame(DATA, 0, 3, b"y" * 70) + frame(PING, 0, 0, bytes(8))),
        (CLIENT, frame(DATA, END_STREAM, 1, b"x" * 20) + frame(WINDOW_UPDATE, 0, 3, b"\0\0\0\1")),
        (SERVER, answer(1) + frame(DATA, END_STREAM, 3, b"y" * 5)),
    ]
    tables = play(tmp_path, turns, mss)
    assert rows(tables) == [
        ("http2", "request", "GET /up", -1),
        ("http2", "request", "GET /b", -1),
        ("http2", "response", 200, 1),
        ("http2", "response", 200, 0),
    ]
    head = 9 + 1 + 2
    expected = [head + 3 + 59 + 29, head + 2, 10 + 79 + 14, 10]
    assert tables.messages["wire_bytes"].tolist() == expected
    assert tables.counter("unparsed.http2.control") == 24 + 9 + 9 + 17 + 13


def test_times_are_those_of_a_messages_own_first_and_last_byte(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=8080).open()
    for side, data in OPEN:
        dialogue.send(side, data)
    at = []
    for data in (ask(1, "/up", END_HEADERS), ask(3, "/b"), frame(DATA, END_STREAM, 1, b"x" * 3000)):
        at.append(dialogue.now_ns)
        dialogue.send(CLIENT, data)
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert tables.messages["begin_ns"].tolist() == [at[0], at[1]]
    assert tables.messages["end_ns"].tolist() == [at[2] + 2 * dialogue.step_ns, at[1]]


@pytest.mark.parametrize("mss", [1448, 1])
def test_a_header_block_in_pieces_with_padding_and_priority(mss: int, tmp_path: Path) -> None:
    block = ask(1, "/long?x=1", x_user="bob")[9:]
    first = b"\x03" + bytes(5) + block[:4] + bytes(3)
    turns = [
        *OPEN,
        (
            CLIENT,
            frame(HEADERS, END_STREAM | PADDED | WITH_PRIORITY, 1, first)
            + frame(CONTINUATION, 0, 1, block[4:9])
            + frame(CONTINUATION, 0, 1)
            + frame(CONTINUATION, END_HEADERS, 1, block[9:]),
        ),
        (
            SERVER,
            frame(HEADERS, END_HEADERS | PADDED, 1, b"\x00\x88")
            + frame(DATA, PADDED | END_STREAM, 1, b"\1ab\0"),
        ),
    ]
    tables = play(tmp_path, turns, mss)
    assert rows(tables) == [("http2", "request", "GET /long ?x", -1), ("http2", "response", 200, 0)]
    assert tables.messages["wire_bytes"].tolist() == [4 * 9 + 9 + len(block), 11 + 13]


def test_a_reset_by_the_server_is_the_answer(tmp_path: Path) -> None:
    refused = frame(RST_STREAM, 0, 1, struct.pack("!I", 7))
    tables = play(tmp_path, [*OPEN, (CLIENT, ask(1)), (SERVER, refused)])
    assert rows(tables) == [("http2", "request", "GET /a", -1), ("http2", "response", -1, 0)]
    assert tables.messages["flags"][1] == MessageFlag.ERROR
    assert tables.counter("http2.reset_by_server") == 1


def test_a_cancelled_stream_is_open_for_a_late_answer(tmp_path: Path) -> None:
    cancel = frame(RST_STREAM, 0, 1, struct.pack("!I", 8))
    late = answer(1, END_HEADERS) + frame(DATA, END_STREAM, 1, b"late")
    turns = [
        *OPEN,
        (CLIENT, ask(1, flags=END_HEADERS) + cancel),
        (CLIENT, ask(3)),
        (SERVER, answer(3) + late),
    ]
    tables = play(tmp_path, [*turns, (SERVER, frame(DATA, 0, 1, b"never"))])
    assert [row[1:] for row in rows(tables)] == [
        ("request", "GET /a", -1),
        ("request", "GET /a", -1),
        ("response", 200, 1),
        ("response", 200, 0),
    ]
    assert tables.messages["flags"].tolist() == [MessageFlag.UNFINISHED, 0, 0, 0]
    assert tables.counter("http2.cancelled") == 1
    assert tables.counter("unparsed.http2.closed_stream") == 14


def test_requests_that_the_server_never_answered_stay_unanswered(tmp_path: Path) -> None:
    goaway = frame(GOAWAY, 0, 0, struct.pack("!II", 1, 0))
    tables = play(tmp_path, [*OPEN, (CLIENT, ask(1, "/a") + ask(3, "/b")), (SERVER, answer(1) + goaway)])
    assert [row[3] for row in rows(tables)] == [-1, -1, 0]
    assert tables.counter("http2.goaway") == 1


def test_a_request_whose_answer_was_lost_says_so(tmp_path: Path) -> None:
    turns = [*OPEN, (CLIENT, ask(1) + ask(3)), (SERVER, answer(3)), (SERVER, answer(1)), (CLIENT, ask(5))]
    tables = play(tmp_path, turns, lost=3)
    assert [row[3] for row in rows(tables)] == [-1, -1, 0, -1]
    lost = (tables.messages["flags"] & MessageFlag.ANSWER_LOST) != 0
    assert lost.tolist() == [False, True, False, False]


INDEXED = b"\x82\x44\x05/once"  # :path goes into the table
AGAIN = b"\x82\xbe"  # its newest entry


def test_entries_of_a_table_that_was_not_seen_are_missing_and_nothing_else(tmp_path: Path) -> None:
    first = (CLIENT, frame(HEADERS, 5, 1, INDEXED))
    after = [
        (SERVER, answer(1)),
        (CLIENT, frame(HEADERS, 5, 3, AGAIN)),
        (SERVER, answer(3)),
        (CLIENT, frame(HEADERS, 5, 5, INDEXED.replace(b"once", b"more"))),
        (SERVER, answer(5)),
        (CLIENT, frame(HEADERS, 5, 7, AGAIN)),
        (SERVER, answer(7)),
    ]
    whole = play(tmp_path, [*OPEN, first, *after])
    assert [row[2] for row in rows(whole)][::2] == ["GET /once", "GET /once", "GET /more", "GET /more"]
    for name, tables in (
        ("joined late", play(tmp_path, after)),
        ("lost", play(tmp_path, [*OPEN, first, *after], lost=2)),
    ):
        asked = [row for row in rows(tables) if row[1] == "request"]
        assert [row[2] for row in asked] == [-1, "GET /more", "GET /more"], name
        found = rows(tables).index(asked[0])
        assert tables.messages["flags"][found] & MessageFlag.INFERRED
        # The answers to the requests that are there are theirs.
        assert [row[2] for row in rows(tables) if row[1] == "response" and row[3] >= 0] == [200] * 3


def test_a_loss_inside_a_body_costs_nothing_else(tmp_path: Path) -> None:
    body = frame(DATA, END_STREAM, 1, b"z" * 9000)
    turns = [*OPEN, (CLIENT, ask(1) + ask(3)), (SERVER, answer(1, END_HEADERS) + body + answer(3))]
    dialogue = Dialogue(server_port=8080).open()
    for side, data in turns:
        dialogue.send(side, data)
    del dialogue.packets[-5]
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert rows(tables)[2:] == [("http2", "response", 200, 0), ("http2", "response", 200, 1)]
    assert tables.messages["missing_bytes"].tolist() == [0, 0, 1448, 0]
    assert tables.messages["flags"].tolist() == [0, 0, MessageFlag.TRUNCATED, 0]


def test_a_loss_inside_a_header_block_keeps_the_borders(tmp_path: Path) -> None:
    long = ask(1, "/a", END_STREAM | END_HEADERS, **{f"x_{n}": "v" * 100 for n in range(60)})
    dialogue = Dialogue(server_port=8080).open()
    for side, data in [*OPEN, (CLIENT, long + ask(3, "/b")), (SERVER, answer(1) + answer(3))]:
        dialogue.send(side, data)
    at = next(number for number, (_, packet) in enumerate(dialogue.packets) if len(packet) > 1000)
    del dialogue.packets[at + 2]
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert [row[1:] for row in rows(tables)] == [
        ("request", "GET /a", -1),
        ("request", "GET /b", -1),
        ("response", 200, 0),
        ("response", 200, 1),
    ]
    flags = MessageFlag(int(tables.messages["flags"][0]))
    assert flags == MessageFlag.TRUNCATED | MessageFlag.INFERRED
    assert tables.messages["missing_bytes"].tolist() == [1448, 0, 0, 0]


HOSTILE = {
    "http2.bad_frame": frame(PING, 0, 0, b"short"),
    "http2.frame_too_large": b"\xff\xff\xff" + frame(DATA, 0, 1)[3:],
    "http2.bad_padding": frame(HEADERS, END_HEADERS | PADDED, 5, b"\xff\x82"),
    "http2.lone_continuation": frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
    "http2.header_block_interrupted": frame(HEADERS, 0, 5, b"\x82") + frame(PING, 0, 0, bytes(8)),
    "http2.header_block_unreadable": frame(HEADERS, END_HEADERS, 5, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("mss", [1448, 1])
@pytest.mark.parametrize("name", HOSTILE)
def test_broken_frames_are_named_and_frames_are_found_again(name: str, mss: int, tmp_path: Path) -> None:
    turns = [*OPEN, (CLIENT, ask(1)), (SERVER, answer(1)), (CLIENT, HOSTILE[name])]
    turns += [(CLIENT, ask(7, "/b")), (SERVER, answer(7))]
    tables = play(tmp_path, turns, 1448)
    assert tables.counter(name) == 1
    assert ("http2", "request", "GET /b", -1) in rows(tables)
    assert rows(tables)[-1] == (
        "http2",
        "response",
        200,
        rows(tables).index(("http2", "request", "GET /b", -1)),
    )
    play(
        tmp_path, turns, mss
    )  # in single bytes there may be nothing to find frames by; accounted for all the same


def test_open_streams_are_bounded(tmp_path: Path) -> None:
    asked = b"".join(ask(2 * number + 1, flags=END_HEADERS) for number in range(5000))
    tables = play(tmp_path, [*OPEN, (CLIENT, asked), (SERVER, answer(1) + answer(9999))])
    assert tables.counter("http2.stream_table_overflow") == 5000 - 4096
    found = rows(tables)
    assert [row[3] for row in found if row[1] == "response"] == [4999]


def test_other_protocols_are_not_taken_for_http_2(tmp_path: Path) -> None:
    for data in (bytes(200), bytes(range(200)), b"\0\0\0\5hello" * 9, b"\0\x1d\x12\x34\1\0\0\1" + bytes(21)):
        for side in (CLIENT, SERVER):
            tables = play(tmp_path, [(side, data), (1 - side, data)])
            assert not (tables.connections["protocol"] == Protocol.HTTP2).any()
