"""After a loss: who asked and who answered, said by the flags of requests and never shifted by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from capture_packets import CLIENT, SERVER, Dialogue, Packet, read_pcap, unaccounted, write_pcap

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
