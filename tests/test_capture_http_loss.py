"""HTTP/1.x behind bytes that the tap never saw: messages, and who answers whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capture_packets import (
    ACK,
    CLIENT,
    PSH,
    SERVER,
    START_NS,
    Dialogue,
    Packet,
    message_rows,
    unaccounted,
    write_pcap,
)
from dissect_checks import check_late_start, check_loss, pairs, read
from http_dialogue import GET, OK, SALT

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind


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


@pytest.mark.parametrize("cut", [1, 7, 11])
def test_a_status_line_in_pieces_is_found_behind_a_loss(cut: int, tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    for number in range(3):
        dialogue.send(CLIENT, b"GET /%d HTTP/1.1\r\n\r\n" % number)
        if number == 0:
            dialogue.seq[SERVER] += len(OK)
            dialogue.emit(CLIENT, ACK)
        else:
            dialogue.send(SERVER, OK, cuts=range(0, len(OK), cut))
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.close().packets)], salt=SALT)
    assert unaccounted(tables) == []
    assert tables.messages["request"].tolist() == [-1, -1, 1, -1, 3]
    assert tables.messages["wire_bytes"].tolist()[2::2] == [len(OK)] * 2


def test_a_lost_packet_around_bodies_that_ask_for_leave_shifts_nothing(tmp_path: Path) -> None:
    head = b"POST /f HTTP/1.1\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    form, chunks = head + b"Content-Length: 20\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\n"
    no, leave = b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"
    asked = [(CLIENT, b"GET /a HTTP/1.1\r\n\r\n"), (SERVER, OK)]
    dialogue = Dialogue().open()
    for side, data in [
        *asked,
        *[(CLIENT, form), (SERVER, no), *asked],
        *[(CLIENT, chunks), (SERVER, no), *asked],
        *[(CLIENT, form), (SERVER, leave), (CLIENT, b"comment=a+form+of+20"), (SERVER, OK), *asked],
        *[(CLIENT, chunks), (SERVER, leave), (CLIENT, b"3\r\na=b\r\n0\r\n\r\n"), (SERVER, OK), *asked],
    ]:
        dialogue.send(side, data)
    path = write_pcap(tmp_path / "expect.pcap", dialogue.close().packets)
    check_late_start(path, tmp_path)
    check_loss(path, tmp_path, 0.8)


def test_chunks_that_never_come_belong_to_a_head_that_was_not_seen(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for request, answer in [(b"HEAD", chunked), (b"GET", OK), (b"GET", OK)]:
        dialogue.send(CLIENT, request + b" / HTTP/1.1\r\n\r\n")
        dialogue.send(SERVER, answer)
    packets = dialogue.close().packets[5:]  # from the answer to HEAD on
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", packets)], salt=SALT)
    assert unaccounted(tables) == []
    assert tables.messages["wire_bytes"].tolist() == [len(chunked), 18, len(OK), 18, len(OK)]
    assert tables.messages["request"].tolist() == [-1, -1, 1, -1, 3]


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


def keeps_open(count: int, total: int) -> Dialogue:
    """A client that always has `count` requests open: it sends one for each answer, `total` in all."""
    dialogue = Dialogue().open()
    asks = [b"GET /story/%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % (1000 + number) for number in range(total)]
    dialogue.send(CLIENT, b"".join(asks[:count]))
    for number in range(total):
        dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nanswer%3d" % number)
        if number + count < total:
            dialogue.send(CLIENT, asks[number + count])
    return dialogue


def shifts(tables: capture.CaptureTables, lost: int) -> list[int | None]:
    """Of each response by how many requests its pair is off, None where it has none; `lost` requests are not
    there."""
    rows = {kind: np.flatnonzero(tables.messages["kind"] == kind) for kind in MessageKind}
    place = {row: number + lost for number, row in enumerate(rows[MessageKind.REQUEST].tolist())}
    answered = tables.messages["request"][rows[MessageKind.RESPONSE]].tolist()
    return [place[row] - number if row >= 0 else None for number, row in enumerate(answered)]


@pytest.mark.parametrize("count", [2, 4])
def test_requests_that_were_open_and_lost_at_the_start_show_at_the_end(count: int, tmp_path: Path) -> None:
    dialogue = keeps_open(count, 12)
    del dialogue.packets[3]
    closed = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.close().packets)], salt=SALT)
    assert unaccounted(closed) == []
    assert shifts(closed, count) == [None] * count + [0] * (12 - count)


def test_without_an_end_the_pairs_behind_a_start_with_room_for_several_are_flagged(tmp_path: Path) -> None:
    dialogue = keeps_open(4, 12)
    del dialogue.packets[3]
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.packets[:16])], salt=SALT)
    paired = tables.messages["request"] >= 0
    assert paired.any()
    assert (tables.messages["flags"][paired] & MessageFlag.INFERRED).all()


@pytest.mark.parametrize("end", [True, False])
def test_one_request_at_a_time_is_sure_behind_a_lost_start(end: bool, tmp_path: Path) -> None:
    dialogue = keeps_open(1, 12)
    del dialogue.packets[3]
    packets = dialogue.close().packets if end else dialogue.packets
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", packets)], salt=SALT)
    assert shifts(tables, 1) == [None] + [0] * 11
    assert not (tables.messages["flags"] & MessageFlag.INFERRED).any()


def packets_of_four_open(total: int, lost: set[str], handshake: bool) -> list[Packet]:
    """A client that has four requests open; of "Q0", "A0", "Q1", ... those in `lost` are not there."""
    dialogue = Dialogue()
    dialogue.open()
    if not handshake:
        dialogue.packets.clear()

    def emit(side: int, name: str, data: bytes) -> None:
        dialogue.emit(side, PSH | ACK, data)
        dialogue.seq[side] += len(data)
        if name in lost:
            dialogue.packets.pop()

    def ask(number: int) -> None:
        emit(CLIENT, f"Q{number}", b"GET /story/%d HTTP/1.1\r\n\r\n" % (1000 + number))

    for number in range(4):
        ask(number)
    for number in range(total):
        emit(SERVER, f"A{number}", b"HTTP/1.1 %d OK\r\nContent-Length: 9\r\n\r\nanswer   " % (200 + number))
        if number + 4 < total:
            ask(number + 4)
    return dialogue.close().packets


@pytest.mark.parametrize(
    ("lost", "handshake"),
    [
        pytest.param({"Q0", "Q1", "Q2", "Q3"}, False, id="joined before the first answer"),
        pytest.param({"Q4", "Q6", "Q7"}, True, id="requests only"),
        pytest.param({"Q4", "A1", "Q5"}, True, id="requests around an answer"),
        pytest.param({"Q0", "Q1", "Q2", "A0", "Q7"}, True, id="the start of both sides"),
    ],
)
def test_with_four_requests_open_no_pair_behind_a_loss_is_wrong_without_a_flag(
    lost: set[str], handshake: bool, tmp_path: Path
) -> None:
    packets = packets_of_four_open(24, lost, handshake)
    m = capture.read_files([write_pcap(tmp_path / "a.pcap", packets)], salt=SALT).messages
    size = len(b"GET /story/1000 HTTP/1.1\r\n\r\n")
    number = (m["tcp_seq"].astype(np.int64) - 1001) // size  # of a request: all are of one size
    answers = np.flatnonzero(m["request"] >= 0)
    assert len(answers) > 10
    right = number[m["request"][answers]] == m["status"][answers] - 200
    flagged = (m["flags"][answers] & MessageFlag.INFERRED) != 0
    assert (right | flagged).all()


@pytest.mark.parametrize("before", [0, 5])
def test_a_client_that_goes_on_before_all_answers_loses_the_one_that_was_lost(
    before: int, tmp_path: Path
) -> None:
    """Three requests are open at a time, behind some one by one."""
    dialogue = Dialogue().open()

    def say(side: int, data: bytes) -> None:
        dialogue.emit(side, ACK | PSH, data)
        dialogue.seq[side] += len(data)
        dialogue.now_ns += 100_000

    for _ in range(before):
        say(CLIENT, GET)
        say(SERVER, OK)
    for _ in range(3):
        say(CLIENT, GET)
    for number in range(10):
        if number == 4:
            lost = len(dialogue.packets)
        say(SERVER, OK)
        say(CLIENT, GET)
    for _ in range(3):
        say(SERVER, OK)
    whole = pairs(read(write_pcap(tmp_path / "whole.pcap", dialogue.packets)))
    del dialogue.packets[lost]
    found = pairs(read(write_pcap(tmp_path / "lost.pcap", dialogue.packets)))
    assert all(whole[answer] == request for answer, request in found.items())
    assert len(found) >= len(whole) - 1
