"""Rows of tcp_events: each kind with the times that a user would want; sums that agree with the counters."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from capture_packets import ACK, CLIENT, FIN, PSH, RST, SERVER, SYN, Dialogue, Packet, displaced, write_pcap

from tapscope import capture
from tapscope.store.codes import Direction, MessageFlag, TcpEventKind

MS = 1_000_000
ASK = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"a" * 2000
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
WINDOW_AT = 14 + 20 + 14  # of a frame

Row = tuple[TcpEventKind, Direction, int, int, int, int]


def closed(dialogue: Dialogue) -> None:
    """The last packet says that the receive window is closed."""
    time_ns, frame = dialogue.packets[-1]
    dialogue.packets[-1] = time_ns, frame[:WINDOW_AT] + b"\0\0" + frame[WINDOW_AT + 2 :]


def read(path: Path, packets: Iterable[Packet], threads: int = 1) -> capture.CaptureTables:
    return capture.read_files([write_pcap(path / "a.pcap", packets)], salt=bytes(16), threads=threads)


def events(tables: capture.CaptureTables, start_ns: int) -> list[Row]:
    """Kind, direction, begin and end after `start_ns`, packets, bytes."""
    found = tables.tcp_events
    return [
        (
            TcpEventKind(kind),
            Direction(direction),
            int(begin) - start_ns,
            int(end) - start_ns,
            int(n),
            int(size),
        )
        for kind, direction, begin, end, n, size in zip(
            *(found[name] for name in ("kind", "direction", "begin_ns", "end_ns", "packets", "bytes")),
            strict=True,
        )
    ]


def test_a_quiet_connection_has_none(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, ANSWER).close()
    assert events(read(tmp_path, dialogue.packets), 0) == []


def test_a_syn_sent_again_waits_since_the_last_one(tmp_path: Path) -> None:
    dialogue = Dialogue()
    start = dialogue.now_ns
    for wait_ms in (1000, 2000):
        dialogue.emit(CLIENT, SYN)
        dialogue.now_ns += wait_ms * MS - dialogue.step_ns
    dialogue.open().send(CLIENT, ASK).send(SERVER, EMPTY).close()
    assert events(read(tmp_path, dialogue.packets), start) == [
        (TcpEventKind.SYN_AGAIN, Direction.TO_SERVER, 0, 1000 * MS, 1, 0),
        (TcpEventKind.SYN_AGAIN, Direction.TO_SERVER, 1000 * MS, 3000 * MS, 1, 0),
    ]


def test_an_answer_to_a_syn_that_comes_again(tmp_path: Path) -> None:
    dialogue = Dialogue()
    dialogue.emit(CLIENT, SYN)
    dialogue.seq[CLIENT] += 1
    start = dialogue.now_ns
    dialogue.emit(SERVER, SYN | ACK)
    dialogue.now_ns = start + 1000 * MS
    dialogue.emit(SERVER, SYN | ACK)
    dialogue.seq[SERVER] += 1
    dialogue.emit(CLIENT, ACK)
    dialogue.send(CLIENT, ASK).send(SERVER, EMPTY).close()
    assert events(read(tmp_path, dialogue.packets), start) == [
        (TcpEventKind.SYN_ANSWER_AGAIN, Direction.TO_CLIENT, 0, 1000 * MS, 1, 0)
    ]


@pytest.mark.parametrize(
    ("acknowledgements", "acknowledged", "kind"),
    [
        (0, False, TcpEventKind.RESENT),
        (3, False, TcpEventKind.RESENT_ASKED),
        (0, True, TcpEventKind.RESENT_NEEDLESS),
    ],
)
def test_data_sent_again_by_cause(
    tmp_path: Path, acknowledgements: int, acknowledged: bool, kind: TcpEventKind
) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    start = dialogue.seq[SERVER]
    for at in (0, 1000):
        dialogue.emit(SERVER, PSH | ACK, ANSWER[at : at + 1000], seq=start + at)
    for _ in range(acknowledgements):  # what the server sent has not come
        dialogue.emit(CLIENT, ACK)
    if acknowledged:
        dialogue.seq[SERVER] = start + 2000
        dialogue.emit(CLIENT, ACK)
    before = dialogue.packets[-1][0]
    dialogue.now_ns = before + 150 * MS
    dialogue.emit(SERVER, PSH | ACK, ANSWER[:1000], seq=start)
    dialogue.seq[SERVER] = start + 2000
    dialogue.send(SERVER, ANSWER[2000:]).close()
    tables = read(tmp_path, dialogue.packets)
    assert events(tables, before) == [(kind, Direction.TO_CLIENT, 0, 150 * MS, 1, 1000)]


def test_data_whose_first_sending_was_lost_before_the_tap(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    start = dialogue.seq[SERVER]
    dialogue.emit(SERVER, PSH | ACK, ANSWER[1000:], seq=start + 1000)
    before = dialogue.packets[-1][0]
    dialogue.now_ns = before + 200 * MS
    dialogue.emit(SERVER, PSH | ACK, ANSWER[:1000], seq=start)
    dialogue.seq[SERVER] = start + len(ANSWER)
    dialogue.emit(CLIENT, ACK)
    assert events(read(tmp_path, dialogue.close().packets), before) == [
        (TcpEventKind.RESENT_UNSEEN, Direction.TO_CLIENT, 0, 200 * MS, 1, 1000)
    ]


@pytest.mark.parametrize("lost", [0, 1])
def test_what_came_only_again_was_first_sent_before_what_is_behind_it(tmp_path: Path, lost: int) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    start = dialogue.seq[SERVER]
    pieces = [(at, ANSWER[at : at + 800]) for at in (0, 800, 1600)]
    times = {}
    for number, (at, piece) in enumerate(pieces):
        if number != lost:
            dialogue.emit(SERVER, PSH | ACK, piece, seq=start + at)
            times[number] = dialogue.packets[-1][0]
    dialogue.now_ns += 200 * MS
    dialogue.emit(SERVER, PSH | ACK, pieces[lost][1], seq=start + pieces[lost][0])
    dialogue.seq[SERVER] = start + len(ANSWER)
    dialogue.emit(CLIENT, ACK)
    messages = read(tmp_path, dialogue.close().packets).messages
    # It began before the first byte of it that the tap saw at once, and ended with the last.
    assert messages["begin_ns"][1] == min(times.values())
    assert messages["end_ns"][1] == max(times.values())
    assert messages["flags"][1] == MessageFlag.RETRANSMITTED


@pytest.mark.parametrize("tail", [1, 2])
def test_the_last_byte_of_an_answer_sent_again_by_a_timer_is_no_keep_alive(tmp_path: Path, tail: int) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    start = dialogue.seq[SERVER]
    cut = len(ANSWER) - tail
    dialogue.emit(SERVER, PSH | ACK, ANSWER[:cut], seq=start)
    dialogue.emit(SERVER, PSH | ACK, ANSWER[cut:], seq=start + cut)
    dialogue.seq[SERVER] = start + cut
    dialogue.emit(CLIENT, ACK)  # of all but the tail, which was lost behind the tap
    before = dialogue.packets[-1][0]
    dialogue.now_ns = before + 200 * MS
    dialogue.emit(SERVER, PSH | ACK, ANSWER[cut:], seq=start + cut)
    dialogue.seq[SERVER] = start + len(ANSWER)
    dialogue.emit(CLIENT, ACK)
    tables = read(tmp_path, dialogue.close().packets)
    assert events(tables, before) == [(TcpEventKind.RESENT, Direction.TO_CLIENT, 0, 200 * MS, 1, tail)]
    assert tables.messages["flags"][1] == MessageFlag.RETRANSMITTED
    assert tables.counter("tcp.keep_alive") == 0


def test_a_fin_sent_again_has_no_bytes(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, EMPTY)
    before = dialogue.now_ns
    dialogue.emit(CLIENT, FIN | ACK)
    dialogue.now_ns = before + 300 * MS
    dialogue.emit(CLIENT, FIN | ACK)
    assert events(read(tmp_path, dialogue.packets), before) == [
        (TcpEventKind.RESENT, Direction.TO_SERVER, 0, 300 * MS, 1, 0)
    ]


def test_a_closed_window_lasts_until_its_side_says_otherwise(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, ANSWER)
    closed(dialogue)
    start = dialogue.packets[-1][0]
    for wait_ms in (200, 400):  # probes, and what is answered to them
        dialogue.now_ns = start + wait_ms * MS
        dialogue.emit(SERVER, ACK, seq=dialogue.seq[SERVER] - 1)
        dialogue.emit(CLIENT, ACK)
        closed(dialogue)
    dialogue.now_ns = start + 650 * MS
    dialogue.emit(CLIENT, ACK)
    tables = read(tmp_path, dialogue.send(CLIENT, ASK).send(SERVER, EMPTY).close().packets)
    assert events(tables, start) == [(TcpEventKind.ZERO_WINDOW, Direction.TO_SERVER, 0, 650 * MS, 3, 0)]
    assert tables.connections["zero_windows_to_server"].tolist() == [3]
    assert tables.messages["end_ns"].min() >= 0  # what follows is read as ever


def test_a_window_that_stays_closed_lasts_to_the_end(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK).send(SERVER, ANSWER)
    closed(dialogue)
    start = dialogue.packets[-1][0]
    dialogue.now_ns = start + 900 * MS
    dialogue.emit(SERVER, ACK)
    assert events(read(tmp_path, dialogue.packets), start) == [
        (TcpEventKind.ZERO_WINDOW, Direction.TO_SERVER, 0, 900 * MS, 1, 0)
    ]


def test_a_segment_of_before_does_not_open_the_window(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    old = dialogue.packets[-1]
    dialogue.emit(CLIENT, ACK)
    displaced_one = dialogue.packets.pop()
    dialogue.send(SERVER, ANSWER)
    closed(dialogue)
    start = dialogue.packets[-1][0]
    dialogue.packets.append(displaced_one)  # acknowledges less
    dialogue.now_ns = start + 50 * MS
    dialogue.emit(CLIENT, ACK)
    assert old[0] < displaced_one[0] < start
    assert events(read(tmp_path, dialogue.packets), start) == [
        (TcpEventKind.ZERO_WINDOW, Direction.TO_SERVER, 0, 50 * MS, 1, 0)
    ]


def test_a_reset_has_the_side_that_sent_it(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    at = dialogue.now_ns
    dialogue.emit(SERVER, RST | ACK)
    refused = Dialogue(client_port=40001, now_ns=at + MS)
    refused.emit(CLIENT, SYN)
    refused.seq[CLIENT] += 1
    refused.emit(SERVER, RST | ACK)
    assert events(read(tmp_path, dialogue.packets + refused.packets), at) == [
        (TcpEventKind.RST, Direction.TO_CLIENT, 0, 0, 1, 0),
        (TcpEventKind.RST, Direction.TO_CLIENT, MS + refused.step_ns, MS + refused.step_ns, 1, 0),
    ]


def test_a_connection_of_nothing_else_has_a_bound(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ASK)
    for _ in range(10_100):
        dialogue.emit(SERVER, ACK)
        closed(dialogue)
        dialogue.emit(SERVER, ACK)
    tables = read(tmp_path, dialogue.packets)
    assert (len(tables.tcp_events["kind"]), tables.counter("tcp.events_not_kept")) == (10_000, 100)


def busy(seed: int) -> list[Packet]:
    """Connections in which segments are lost, come again, windows close and connections break."""
    rng = random.Random(seed)
    packets: list[Packet] = []
    for port in range(30):
        dialogue = Dialogue(client_port=40000 + port)
        dialogue.now_ns += rng.randrange(100 * MS)
        if rng.random() < 0.3:
            dialogue.emit(CLIENT, SYN)
            dialogue.now_ns += 1000 * MS
        dialogue.open()
        for _ in range(rng.randrange(1, 6)):
            dialogue.send(CLIENT, ASK)
            begin = dialogue.seq[SERVER]
            dialogue.send(SERVER, ANSWER)
            for _ in range(rng.randrange(3)):
                dialogue.now_ns += rng.randrange(400) * MS
                what = rng.random()
                if what < 0.5:
                    at = rng.randrange(1000)
                    dialogue.emit(SERVER, PSH | ACK, ANSWER[at : at + 900], seq=begin + at)
                else:
                    dialogue.emit(rng.choice([CLIENT, SERVER]), ACK)
                    if what < 0.8:
                        closed(dialogue)
        if rng.random() < 0.3:
            dialogue.emit(rng.choice([CLIENT, SERVER]), RST | ACK)
        else:
            dialogue.close()
        packets += dialogue.packets
    return sorted(packets)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("moved", [0.0, 0.05])
def test_events_are_as_many_as_was_counted(tmp_path: Path, seed: int, moved: float) -> None:
    tables = read(tmp_path, displaced(busy(seed), seed, moved, 20, copies=moved))
    found = tables.tcp_events
    kind, packets = found["kind"], found["packets"]
    resent = np.isin(kind, [k for k in TcpEventKind if k.name.startswith("RESENT")])
    assert packets[resent].sum() == tables.counter("tcp.retransmission")
    for counter, one in (
        ("tcp.zero_window", TcpEventKind.ZERO_WINDOW),
        ("tcp.rst", TcpEventKind.RST),
        ("tcp.syn_retransmission", TcpEventKind.SYN_AGAIN),
        ("tcp.syn_ack_retransmission", TcpEventKind.SYN_ANSWER_AGAIN),
        ("tcp.retransmission_of_unseen", TcpEventKind.RESENT_UNSEEN),
    ):
        assert packets[kind == one].sum() == tables.counter(counter), counter
    assert tables.counter("tcp.zero_window") > 0
    assert tables.counter("tcp.retransmission") > 0
    for side in ("to_server", "to_client"):
        mine = found["direction"] == Direction[side.upper()]
        for column, rows in (("retransmits", resent), ("zero_windows", kind == TcpEventKind.ZERO_WINDOW)):
            chosen = rows & mine
            total = np.bincount(found["conn"][chosen], packets[chosen], len(tables.connections["syn_ns"]))
            np.testing.assert_array_equal(total, tables.connections[f"{column}_{side}"])
    assert (found["begin_ns"] <= found["end_ns"]).all()
    assert (np.diff(found["end_ns"]) >= 0).all()
