"""Corners of TCP: what the engine does where a stream is unusual, by name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from capture_packets import (
    ACK,
    CLIENT,
    FIN,
    PSH,
    RST,
    SERVER,
    SYN,
    Dialogue,
    Packet,
    unaccounted,
    write_pcap,
)

from tapscope import capture
from tapscope.store.codes import CloseHow, MessageKind

ASK = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
TCP_AT = 14 + 20  # of the header in a frame


def read(path: Path, packets: list[Packet], **limits: int) -> capture.CaptureTables:
    tables = capture.read_files([write_pcap(path / "a.pcap", packets)], salt=bytes(16), limits=limits)
    assert unaccounted(tables) == []
    return tables


def answered(tables: capture.CaptureTables) -> list[bool]:
    asked = (tables.messages["kind"] == MessageKind.REQUEST).nonzero()[0]
    return [bool((tables.messages["request"] == row).any()) for row in asked]


def with_header(packet: Packet, at: int, value: bytes) -> Packet:
    """The packet with `value` at byte `at` of its TCP header."""
    frame = bytearray(packet[1])
    frame[TCP_AT + at : TCP_AT + at + len(value)] = value
    return packet[0], bytes(frame)


@pytest.mark.parametrize("threads", [1, 2])
def test_no_message_ends_before_it_begins_where_a_part_of_it_came_earlier(
    threads: int, tmp_path: Path
) -> None:
    """Packets stand out of the order of their stamps; the earlier one repeats the request's end alone."""
    dialogue = Dialogue().open()
    dialogue.now_ns += 1_000_000
    dialogue.emit(CLIENT, PSH | ACK, ASK)
    dialogue.now_ns -= 100_000
    dialogue.emit(CLIENT, PSH | ACK, ASK[5:], seq=dialogue.seq[CLIENT] + 5)
    dialogue.now_ns += 1_000_000
    dialogue.seq[CLIENT] += len(ASK)
    dialogue.send(SERVER, EMPTY)
    path = write_pcap(tmp_path / "a.pcap", dialogue.close().packets)
    tables = capture.read_files([path], salt=bytes(16), threads=threads)
    at = dialogue.packets[3][0]
    assert (tables.messages["begin_ns"][0], tables.messages["end_ns"][0]) == (at, at)


def test_a_stream_beyond_4_gb_wraps_twice_and_is_counted(tmp_path: Path) -> None:
    size, step = 9 * 2**30, 2**28
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    dialogue = Dialogue(isn=(5, 2**32 - 20)).open().send(CLIENT, ASK).send(SERVER, head)
    for _ in range(size // step):
        dialogue.seq[SERVER] += step - 100
        dialogue.emit(SERVER, PSH | ACK, b"z" * 100)
        dialogue.seq[SERVER] += 100
        dialogue.emit(CLIENT, ACK)
    dialogue.send(CLIENT, ASK).send(SERVER, EMPTY)
    tables = read(tmp_path, dialogue.close().packets, reorder_packets=2)
    answers = tables.messages["kind"] == MessageKind.RESPONSE
    assert tables.messages["wire_bytes"][answers].tolist() == [len(head) + size, len(EMPTY)]
    assert tables.messages["missing_bytes"][answers].tolist() == [size - 100 * (size // step), 0]
    assert answered(tables) == [True, True]


def test_data_in_a_syn_are_the_start_of_the_stream(tmp_path: Path) -> None:
    dialogue = Dialogue()
    dialogue.emit(CLIENT, SYN, ASK)  # RFC 7413
    dialogue.seq[CLIENT] += 1 + len(ASK)
    dialogue.emit(SERVER, SYN | ACK)
    dialogue.seq[SERVER] += 1
    dialogue.emit(CLIENT, ACK)
    dialogue.send(SERVER, EMPTY)
    tables = read(tmp_path, dialogue.close().packets)
    assert answered(tables) == [True]
    assert tables.messages["tcp_seq"].tolist() == [1001, 5001]


def test_both_sides_may_open_at_once(tmp_path: Path) -> None:
    dialogue = Dialogue()
    dialogue.emit(CLIENT, SYN)
    dialogue.emit(SERVER, SYN)
    for side in (CLIENT, SERVER):
        dialogue.seq[side] += 1
    dialogue.emit(CLIENT, SYN | ACK, seq=dialogue.seq[CLIENT] - 1)
    dialogue.emit(SERVER, SYN | ACK, seq=dialogue.seq[SERVER] - 1)
    dialogue.send(CLIENT, ASK).send(SERVER, EMPTY)
    tables = read(tmp_path, dialogue.close().packets)
    assert answered(tables) == [True]
    assert len(tables.connections["protocol"]) == 1


def test_data_behind_a_fin_are_named(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, EMPTY)
    dialogue.emit(SERVER, FIN | ACK)
    dialogue.seq[SERVER] += 1
    dialogue.emit(SERVER, PSH | ACK, b"behind the end")
    tables = read(tmp_path, dialogue.packets)
    assert tables.counter("discarded.after_fin") == len(b"behind the end")
    assert answered(tables) == [True]


def test_a_reset_far_from_the_window_ends_nothing(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    dialogue.emit(CLIENT, RST, seq=dialogue.seq[CLIENT] + 2**30)
    dialogue.send(SERVER, EMPTY)
    tables = read(tmp_path, dialogue.close().packets)
    assert tables.counter("tcp.rst_out_of_window") == 1
    assert tables.connections["close_how"].tolist() == [CloseHow.FIN]
    assert answered(tables) == [True]


def test_closed_windows_are_counted_by_direction(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, EMPTY)
    for _ in range(3):
        dialogue.now_ns += 10**9
        dialogue.emit(CLIENT, ACK)
        dialogue.packets[-1] = with_header(dialogue.packets[-1], 14, b"\0\0")
    tables = read(tmp_path, dialogue.close().packets)
    assert tables.connections["zero_windows_to_server"].tolist() == [3]
    assert tables.connections["zero_windows_to_client"].tolist() == [0]
    assert tables.counter("tcp.zero_window") == 3


def test_urgent_data_are_read_in_line(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, EMPTY)
    at = next(i for i, (_, frame) in enumerate(dialogue.packets) if ASK in frame)
    flags_and_pointer = struct.pack("!B", PSH | ACK | 32)
    dialogue.packets[at] = with_header(dialogue.packets[at], 13, flags_and_pointer)
    tables = read(tmp_path, dialogue.close().packets)
    assert tables.counter("tcp.urgent") == 1
    assert answered(tables) == [True]


def late(tmp_path: Path, after_ns: int) -> capture.CaptureTables:
    """The first of two segments of a request is seen `after_ns` behind the second one."""
    dialogue = Dialogue().open()
    start = dialogue.seq[CLIENT]
    dialogue.emit(CLIENT, PSH | ACK, ASK[9:], seq=start + 9)
    dialogue.now_ns += after_ns
    dialogue.emit(CLIENT, PSH | ACK, ASK[:9], seq=start)
    dialogue.seq[CLIENT] += len(ASK)
    return read(tmp_path, dialogue.send(SERVER, EMPTY).close().packets)


def test_a_late_segment_is_out_of_order_within_a_round_trip_and_sent_again_behind_it(tmp_path: Path) -> None:
    soon = late(tmp_path, 0)
    assert (soon.counter("tcp.out_of_order"), soon.counter("tcp.retransmission")) == (1, 0)
    again = late(tmp_path, 200_000_000)
    assert (again.counter("tcp.out_of_order"), again.counter("tcp.retransmission_of_unseen")) == (0, 1)
    assert again.connections["retransmits_to_server"].tolist() == [1]
    assert answered(again) == [True]


@pytest.mark.parametrize("step_s", [0, -5, -40, -3600])
@pytest.mark.parametrize("corrupt", [False, True])
def test_a_clock_that_is_set_back_gives_no_hole_up(tmp_path: Path, step_s: int, corrupt: bool) -> None:
    before = Dialogue(client_port=41000).open().send(CLIENT, ASK).send(SERVER, EMPTY).close()
    if corrupt:  # one stamp an hour ahead
        time_ns, frame = before.packets[-1]
        before.packets[-1] = time_ns + 3600 * 10**9, frame
    now_ns = before.now_ns + step_s * 10**9
    holed = Dialogue(client_port=42000)
    holed.now_ns = now_ns
    holed.open().send(CLIENT, ASK)
    start = holed.seq[SERVER]
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"a" * 2000
    holed.emit(SERVER, PSH | ACK, answer[1000:], seq=start + 1000)
    others = Dialogue(client_port=43000)
    others.now_ns = holed.now_ns
    others.open()
    for _ in range(300):  # more packets than a hole that somebody acknowledges waits for
        others.send(CLIENT, ASK).send(SERVER, EMPTY)
    holed.now_ns = others.now_ns
    holed.emit(SERVER, PSH | ACK, answer[:1000], seq=start)
    holed.seq[SERVER] = start + len(answer)
    holed.emit(CLIENT, ACK)
    later = sorted(holed.close().packets + others.close().packets)
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", before.packets + later)])
    assert tables.counter("tcp.gap") == 0
    assert tables.connections["missing_to_client"].sum() == 0
    assert tables.counter("tcp.retransmission_of_unseen") == 1
