"""Early data of TLS 1.3: requests that came with the hello, taken by the server or not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, Dialogue, write_pcap
from test_capture_accounting import records, write
from test_dissect_tls import class_text, hello, read, rows
from tls_records import (
    AES_128_GCM_SHA256,
    APPLICATION_DATA,
    CLIENT_RANDOM,
    EARLY_DATA,
    ENCRYPTED_EXTENSIONS,
    END_OF_EARLY_DATA,
    FINISHED,
    HANDSHAKE,
    Writer,
    message,
    writers,
)

from tapscope.capture import CaptureTables
from tapscope.store.codes import MessageKind, Protocol

TLS = Path(__file__).parent.parent / "pcaps/tls"
TAKEN = ["GET /early/{n}", "GET /early/{n}", "GET /later/{n}"]
CAPTURES = {"early_taken": TAKEN, "early_refused": TAKEN[:2] + TAKEN, "early_retried": TAKEN[:2] + TAKEN}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def pairs(tables: CaptureTables) -> list[int]:
    """For each request by number: which answer it got, -1 none."""
    asked, answered = rows(tables, MessageKind.REQUEST), rows(tables, MessageKind.RESPONSE)
    of = {int(tables.messages["request"][row]): number for number, row in enumerate(answered)}
    return [of.get(row, -1) for row in asked]


@pytest.mark.parametrize("name", CAPTURES)
def test_what_the_server_does_not_take_is_unanswered_and_what_comes_again_is_answered(name: str) -> None:
    """nginx and OpenSSL's client; refused for a forgotten session, and by a HelloRetryRequest."""
    tables = read(TLS / f"{name}.pcap", TLS / f"{name}.keys")
    assert [class_text(tables, row) for row in rows(tables, MessageKind.REQUEST)] == CAPTURES[name]
    refused = name != "early_taken"
    assert pairs(tables) == ([-1, -1, 0, 1, 2] if refused else [0, 1, 2])
    assert (tables.messages["status"][rows(tables, MessageKind.RESPONSE)] == 200).all()
    assert tables.counter("tls.early_data_refused") == refused
    assert tables.counter("tls.decryption_failed") == 0
    assert tables.counter("unparsed.tls.early_data") == 0
    # The earliest request came before the server said anything.
    _, packets = records(TLS / f"{name}.pcap")
    from_server = [at for at, data, _ in packets if data[34:36] == packets[1][1][34:36] and len(data) > 80]
    assert tables.messages["begin_ns"][0] < from_server[0]


@pytest.mark.parametrize("name", CAPTURES)
def test_without_its_secret_early_data_is_named_and_the_rest_is_read(name: str, tmp_path: Path) -> None:
    lines = (TLS / f"{name}.keys").read_text().splitlines(keepends=True)
    keys = tmp_path / "keys"
    keys.write_text("".join(line for line in lines if not line.startswith("CLIENT_EARLY")))
    tables = read(TLS / f"{name}.pcap", keys)
    asked = [class_text(tables, row) for row in rows(tables, MessageKind.REQUEST)]
    assert asked == (TAKEN[2:] if name == "early_taken" else TAKEN)
    assert tables.counter("unparsed.tls.early_data") > 84, "two requests, sealed"
    assert tables.counter("tls.decryption_failed") == 0


@pytest.mark.parametrize("name", CAPTURES)
def test_a_lost_packet_shifts_no_answer(name: str, tmp_path: Path) -> None:
    link, packets = records(TLS / f"{name}.pcap")
    whole = read(TLS / f"{name}.pcap", TLS / f"{name}.keys")

    def answers(tables: CaptureTables) -> dict[int, int]:
        seq = tables.messages["tcp_seq"]
        of = tables.messages["request"]
        return {
            int(seq[row]): int(seq[of[row]]) for row in rows(tables, MessageKind.RESPONSE) if of[row] >= 0
        }

    truth = answers(whole)
    for lost in range(len(packets)):
        file = write(tmp_path / "a.pcap", link, packets[:lost] + packets[lost + 1 :])
        tables = read(file, TLS / f"{name}.keys")
        if tables.counter("tls.no_secrets"):
            continue  # a hello was lost
        for answer, request in answers(tables).items():
            assert truth.get(answer, request) == request, f"packet {lost} lost"


def early_dialogue(tmp_path: Path, lost: int | None, taken: bool) -> CaptureTables:
    """Four records of early data, one request each, of which `lost` is lost; then two requests more."""
    client_hello, server_hello, client, server = writers(tmp_path / "keys.log")
    secret = hashlib.sha256(b"early").digest()
    with (tmp_path / "keys.log").open("a") as log:
        log.write(f"CLIENT_EARLY_TRAFFIC_SECRET {CLIENT_RANDOM.hex()} {secret.hex()}\n")
    early = Writer(secret)
    dialogue = Dialogue(server_port=443).open()

    def ask(writer: Writer, number: int) -> bytes:
        return writer.record(APPLICATION_DATA, b"GET /%d HTTP/1.1\r\n\r\n" % number)

    dialogue.send(CLIENT, hello(1, AES_128_GCM_SHA256, EARLY_DATA) + b"\x14\3\3\0\1\1")
    for number in range(4):
        dialogue.send(CLIENT, ask(early, number))
        if number == lost:
            del dialogue.packets[-2]  # the last one is its acknowledgement
    extensions = b"\0\4\0\x2a\0\0" if taken else b"\0\0"
    flight = server_hello.record(HANDSHAKE, message(ENCRYPTED_EXTENSIONS, extensions))
    flight += server_hello.record(HANDSHAKE, message(FINISHED, bytes(32)))
    dialogue.send(SERVER, hello(2, AES_128_GCM_SHA256) + flight)
    answers = server.record(APPLICATION_DATA, OK)
    if taken:
        dialogue.send(SERVER, answers + b"".join(server.record(APPLICATION_DATA, OK) for _ in range(3)))
        dialogue.send(CLIENT, early.record(HANDSHAKE, message(END_OF_EARLY_DATA, b"")))
    else:
        dialogue.send(CLIENT, ask(early, 4))  # it was on its way
    dialogue.send(CLIENT, client_hello.record(HANDSHAKE, message(FINISHED, bytes(32))))
    for number in (5, 6):
        dialogue.send(CLIENT, ask(client, number))
        answer = answers if not taken and number == 5 else server.record(APPLICATION_DATA, OK)
        dialogue.send(SERVER, answer)
    return read(write_pcap(tmp_path / "a.pcap", dialogue.packets), tmp_path / "keys.log")


@pytest.mark.parametrize("lost", [None, 0, 1, 3])
def test_records_of_early_data_are_found_again_behind_a_loss(lost: int | None, tmp_path: Path) -> None:
    tables = early_dialogue(tmp_path, lost, taken=True)
    asked = rows(tables, MessageKind.REQUEST)
    assert len(asked) == (6 if lost is None else 5)
    assert len(rows(tables, MessageKind.RESPONSE)) == 6
    assert pairs(tables)[-2:] == [4, 5]
    assert set(tables.messages["protocol"]) == {Protocol.HTTP}
    if lost is None:
        assert pairs(tables) == list(range(6))


@pytest.mark.parametrize("lost", [None, 0, 3])
def test_early_data_behind_the_server_s_refusal_is_no_message(lost: int | None, tmp_path: Path) -> None:
    tables = early_dialogue(tmp_path, lost, taken=False)
    before = 4 if lost is None else 3
    assert pairs(tables) == [*[-1] * before, 0, 1]
    assert tables.counter("tls.early_data_refused") == 1
    assert tables.counter("unparsed.tls.early_data") > 20


def test_a_second_hello_that_offers_it_again_loses_no_bytes(tmp_path: Path) -> None:
    """No client may do so. What the first one carried, half a request, stays accounted for."""
    writers(tmp_path / "keys.log")
    secret = hashlib.sha256(b"early").digest()
    with (tmp_path / "keys.log").open("a") as log:
        log.write(f"CLIENT_EARLY_TRAFFIC_SECRET {CLIENT_RANDOM.hex()} {secret.hex()}\n")
    early = Writer(secret)
    dialogue = Dialogue(server_port=443).open()
    for half in (b"GET /1 HT", b"GET /2 HTTP/1.1\r\n\r\n"):
        dialogue.send(CLIENT, hello(1, AES_128_GCM_SHA256, EARLY_DATA))
        dialogue.send(CLIENT, early.record(APPLICATION_DATA, half))
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets), tmp_path / "keys.log")
    assert tables.counter("packets") == len(dialogue.packets)
