"""After a loss: who asked and who answered, said by the flags of requests and never shifted by one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from capture_packets import (
    ACK,
    CLIENT,
    PSH,
    SERVER,
    Dialogue,
    Packet,
    read_pcap,
    unaccounted,
    write_pcap,
)

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind

SALT = bytes(range(16))
PCAPS = Path(__file__).resolve().parent.parent / "pcaps"


def read(path: Path, packets: list[Packet]) -> capture.CaptureTables:
    tables = capture.read_files([write_pcap(path / "a.pcap", packets)], salt=SALT)
    assert unaccounted(tables) == []
    return tables


def requests(tables: capture.CaptureTables) -> list[tuple[str, int, bool]]:
    """Class, status of the answer (-1: none) and whether the answer is known to be lost, in order."""
    m = tables.messages
    status = {
        int(m["request"][row]): int(m["status"][row])
        for row in np.flatnonzero(m["kind"] == MessageKind.RESPONSE)
        if m["request"][row] >= 0
    }
    return [
        (
            tables.classes[m["class_id"][row]][1],
            status.get(int(row), -1),
            bool(m["flags"][row] & MessageFlag.ANSWER_LOST),
        )
        for row in np.flatnonzero(m["kind"] == MessageKind.REQUEST)
    ]


def ask(name: str) -> bytes:
    return b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name.encode()


def answer(status: int, size: int = 0) -> bytes:
    return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, size) + b"x" * size


def without(packets: list[Packet], *texts: bytes) -> list[Packet]:
    """The packets except those with one of `texts`, each of which must be there."""
    for text in texts:
        assert any(text in frame for _, frame in packets)
    return [packet for packet in packets if not any(text in packet[1] for text in texts)]


def test_the_last_answer_of_a_connection_lost_is_said_of_its_request(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    for name, status in (("a", 201), ("b", 202)):
        dialogue.send(CLIENT, ask(name)).send(SERVER, answer(status))
    packets = without(dialogue.close().packets, b"1.1 202")
    assert requests(read(tmp_path, packets)) == [("GET /a", 201, False), ("GET /b", -1, True)]


def test_a_request_that_was_never_answered_is_not_one_whose_answer_was_lost(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, ask("a")).send(SERVER, answer(201, 500))
    dialogue.send(CLIENT, ask("b"))
    packets = without(dialogue.close().packets, b"1.1 201")
    assert requests(read(tmp_path, packets)) == [("GET /a", -1, True), ("GET /b", -1, False)]


def test_the_first_answer_lost_does_not_shift_a_connection_joined_midstream(tmp_path: Path) -> None:
    dialogue = Dialogue()
    for name, status in (("a", 201), ("b", 202), ("c", 203)):
        dialogue.send(CLIENT, ask(name)).send(SERVER, answer(status))
    tables = read(tmp_path, without(dialogue.packets, b"1.1 201"))
    assert requests(tables) == [
        ("GET /a", -1, True),
        ("GET /b", 202, False),
        ("GET /c", 203, False),
    ]
    assert tables.connections["missing_to_client"].tolist() == [len(answer(201))]


def test_a_lost_login_hides_no_command_behind_it(tmp_path: Path) -> None:
    packets = read_pcap(PCAPS / "mysql_prepared_connector_j.pcap")
    whole = read(tmp_path, packets)
    login = next(
        i for i, (_, frame) in enumerate(packets) if b"mysql_native_password\0" in frame[60:] and i > 3
    )
    tables = read(tmp_path, packets[:login] + packets[login + 1 :])
    assert tables.counter("mysql.login_not_seen") == 1
    assert requests(tables) == requests(whole)[1:]


def batches(*sizes: int, seed: int = 3) -> Dialogue:
    """A client that sends several requests at once and waits for all answers; statuses count the requests."""
    rng = random.Random(seed)
    dialogue, number = Dialogue().open(), 0
    for size in sizes:
        for i in range(number, number + size):
            dialogue.emit(CLIENT, PSH | ACK, ask(f"p{i}x"))
            dialogue.seq[CLIENT] += len(ask(f"p{i}x"))
        for i in range(number, number + size):
            text = answer(200 + i, rng.choice([0, 40, 400, 1300]))
            dialogue.emit(SERVER, PSH | ACK, text)
            dialogue.seq[SERVER] += len(text)
        number += size
    return dialogue.close()


def test_any_packet_of_pipelined_batches_lost_shifts_nothing(tmp_path: Path) -> None:
    packets = batches(3, 1, 5, 4, 1, 2).packets
    for lost in range(3, len(packets) - 3):
        tables = read(tmp_path, packets[:lost] + packets[lost + 1 :])
        frame = packets[lost][1]
        for name, status, gone in requests(tables):
            expected = 200 + int(name.removeprefix("GET /p").removesuffix("x"))
            assert status in (expected, -1), (lost, name)
            assert gone == (status == -1), (lost, name)
            assert (status == -1) == (b"1.1 %d " % expected in frame), (lost, name)
        assert not (tables.messages["flags"] & MessageFlag.INFERRED).any(), lost


def test_a_client_that_keeps_requests_open_is_understood_behind_a_loss(tmp_path: Path) -> None:
    dialogue, sent = Dialogue().open(), 0
    for number in range(40):
        while sent < min(number + 4, 40):
            dialogue.emit(CLIENT, PSH | ACK, ask(f"w{sent}x"))
            dialogue.seq[CLIENT] += len(ask(f"w{sent}x"))
            sent += 1
        dialogue.emit(SERVER, PSH | ACK, answer(200 + number, 100))
        dialogue.seq[SERVER] += len(answer(200 + number, 100))
    packets = without(dialogue.close().packets, b"1.1 213 ", b"GET /w20x")
    found = {name: status for name, status, _ in requests(read(tmp_path, packets))}
    assert found == {f"GET /w{i}x": -1 if i == 13 else 200 + i for i in range(40) if i != 20}
