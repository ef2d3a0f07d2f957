"""HTTP/2 from frames made by hand: borders, resets, tables, losses and what is no HTTP/2."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, Dialogue, write_pcap
from http2_rows import read, rows
from http2_streams import PREFACE

from tapscope import capture
from tapscope.store.codes import MessageFlag, Protocol

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


def test_paths_of_grpc_are_classes_as_they_are_and_others_are_routes(tmp_path: Path) -> None:
    many = 300
    paths = [f"/tap.S/M{n % 150}" for n in range(many)] + [f"/tap.S{n}/M" for n in range(many)]
    paths += (
        [f"/users/{n}/x" for n in range(many)]
        + [f"/users/u{n}" for n in range(many)]
        + ["/S/M?x=1", "/a.b/7"]
    )
    asked = b"".join(ask(2 * n + 1, path, content_type="application/grpc") for n, path in enumerate(paths))
    tables = play(tmp_path, [*OPEN, (CLIENT, asked)])
    found = [row[2] for row in rows(tables) if row[0] == "grpc"]
    assert found[: 2 * many] == paths[: 2 * many]
    assert found[2 * many : 3 * many] == ["GET /users/{n}/x"] * many
    assert found[3 * many : 3 * many + 200] == paths[3 * many : 3 * many + 200]
    assert found[3 * many + 200 :] == ["/users/{*}"] * 100 + ["/S/M", "GET /a.b/{n}"]


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


@pytest.mark.parametrize("code", [0, 7])
def test_a_reset_by_the_server_is_the_answer(tmp_path: Path, code: int) -> None:
    """Whatever its code: the stream is closed by NO_ERROR, too (RFC 9113, 5.1), a library's default."""
    refused = frame(RST_STREAM, 0, 1, struct.pack("!I", code))
    tables = play(tmp_path, [*OPEN, (CLIENT, ask(1)), (SERVER, refused)])
    assert rows(tables) == [("http2", "request", "GET /a", -1), ("http2", "response", -1, 0)]
    assert tables.messages["flags"][1] == MessageFlag.ERROR
    assert tables.counter("http2.reset_by_server") == 1


def test_an_upload_that_the_server_cuts_short_is_unfinished(tmp_path: Path) -> None:
    """RFC 9113, 8.1: the whole answer, then a reset without error; or the reset alone."""
    cut = frame(RST_STREAM, 0, 1, bytes(4))
    upload = ask(1, "/up", END_HEADERS) + frame(DATA, 0, 1, b"x" * 50)
    for reply, flags in ((answer(1) + cut, 0), (cut, MessageFlag.ERROR)):
        tables = play(tmp_path, [*OPEN, (CLIENT, upload), (SERVER, reply)])
        assert tables.messages["flags"].tolist() == [MessageFlag.UNFINISHED, flags]


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
        ("one_way", -1, 0),
        ("request", "GET /a", -1),
        ("response", 200, 2),
        ("response", 200, 0),
    ]
    assert tables.messages["flags"].tolist() == [MessageFlag.UNFINISHED, 0, 0, 0, 0]
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
