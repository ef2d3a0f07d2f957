"""PostgreSQL of which the tap lost a message: what is not known is left open, and shifts nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import dissect_checks
import numpy as np
from capture_packets import CLIENT, SERVER, Dialogue, unaccounted, write_pcap
from dissect_checks import REQUEST, RESPONSE, check_late_start, check_loss, read
from postgres_messages import (
    BOUND,
    COPIED,
    COPY_IN,
    FLUSH,
    LOGGED_IN,
    NO_DATA,
    PARSED,
    PORT,
    READY,
    SYNC,
    bind,
    calls,
    classes,
    done,
    execute,
    failed,
    message,
    parse,
    query,
    row,
    startup,
)


def test_a_lost_packet_around_copied_data_shifts_nothing(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT).open()
    copy = [
        (CLIENT, parse("", "COPY t FROM STDIN") + bind("") + execute() + SYNC),
        (SERVER, PARSED + BOUND + COPY_IN),
        (CLIENT, COPIED),
        (CLIENT, COPIED + message("c") + SYNC),
        (SERVER, done("COPY 6") + READY),
    ]
    asked = [(CLIENT, query("select 1")), (SERVER, row(b"1") + done() + READY)]
    for side, data in [
        (CLIENT, startup()),
        (SERVER, LOGGED_IN),
        *asked,
        *copy,
        *asked,
        *copy,
        *asked,
        *asked,
    ]:
        dialogue.send(side, data)
    path = write_pcap(tmp_path / "copy.pcap", dialogue.close().packets)
    check_late_start(path, tmp_path)
    check_loss(path, tmp_path, 0.8)


def test_a_flushed_request_that_was_lost_shifts_nothing(tmp_path: Path) -> None:
    """No ReadyForQuery ends its answer; the next one is not told from it, those behind it are."""
    dialogue = Dialogue(server_port=PORT).open()
    flushed = parse("s", "SELECT $1") + message("D", b"Ss\0") + FLUSH
    turns = [(CLIENT, startup()), (SERVER, LOGGED_IN), (CLIENT, query("select 1")), (SERVER, done() + READY)]
    turns += [(CLIENT, flushed), (SERVER, PARSED + message("t", b"\0\1\0\0\0\x17") + NO_DATA)]
    turns += [(CLIENT, bind("s", b"1") + execute() + SYNC), (SERVER, BOUND + done() + READY)]
    turns += [(CLIENT, query("select 2, 3")), (SERVER, done() + READY)] * 2
    for side, data in turns:
        dialogue.send(side, data)
        if data == flushed:
            del dialogue.packets[-2:]
    tables = read(write_pcap(tmp_path / "lost.pcap", dialogue.close().packets))
    assert unaccounted(tables) == []
    assert calls(tables)[1:] == [("EXECUTE (text unseen)", None), ("select ?, ?", 0), ("select ?, ?", 0)]
    m = tables.messages
    answers = [(int(m["tcp_seq"][i]), int(m["request"][i])) for i in np.flatnonzero(m["kind"] == RESPONSE)]
    assert [tables.classes[m["class_id"][row]][1] for _, row in sorted(answers)[-2:]] == ["select ?, ?"] * 2
    assert sorted(row for _, row in answers)[-2:] == [row for _, row in sorted(answers)[-2:]]


def test_a_lost_refusal_of_encryption_hides_nothing(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT).open()
    for side, data in [(CLIENT, struct.pack("!II", 8, 80877103)), (SERVER, b"N"), (CLIENT, startup())]:
        dialogue.emit(side, 24, data)
        dialogue.seq[side] += len(data)
    dialogue.send(SERVER, LOGGED_IN).send(CLIENT, query("select 1")).send(SERVER, done() + READY).close()
    tables = dissect_checks.read(
        write_pcap(tmp_path / "lost.pcap", dialogue.packets[:4] + dialogue.packets[5:])
    )
    assert unaccounted(tables) == []
    assert classes(tables, REQUEST) == ["SSL_REQUEST", "LOGIN", "select ?"]
    assert calls(tables) == [("SSL_REQUEST", None), ("select ?", 0)]


def test_a_statement_without_name_is_forgotten_where_its_successor_may_be_lost(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT).open()
    turns = [(CLIENT, startup()), (SERVER, LOGGED_IN)]
    for text in ("SELECT a", "SELECT b"):
        turns += [(CLIENT, parse("", text) + SYNC), (SERVER, PARSED + READY)]
        turns += [(CLIENT, bind("") + execute() + SYNC), (SERVER, BOUND + done() + READY)]
    for side, data in turns:
        dialogue.send(side, data)
    packets = [packet for packet in dialogue.close().packets if b"SELECT b" not in packet[1]]
    tables = dissect_checks.read(write_pcap(tmp_path / "lost.pcap", packets))
    assert calls(tables) == [("PREPARE SELECT a", 0), ("EXECUTE SELECT a", 0), ("EXECUTE (text unseen)", 0)]


def test_the_end_of_a_login_says_nothing_of_requests_lost_behind_it(tmp_path: Path) -> None:
    """The password and the first of two statements of a pipeline are lost; the login's answer is not."""
    dialogue = Dialogue(server_port=PORT).open()
    password = message("R", struct.pack("!I", 3))
    unit = parse("", "SELECT 1") + bind("") + execute()
    for side, data in [
        (CLIENT, startup()),
        (SERVER, password),
        (CLIENT, message("p", b"x\0")),
        (SERVER, LOGGED_IN),
    ]:
        dialogue.emit(side, 24, data)
        dialogue.seq[side] += len(data)
    for data in (unit, unit + SYNC):
        dialogue.emit(CLIENT, 24, data)
        dialogue.seq[CLIENT] += len(data)
    answer = PARSED + BOUND + done()
    dialogue.send(SERVER, answer + PARSED + BOUND + failed() + READY)
    dialogue.send(CLIENT, query("select 1")).send(SERVER, done() + READY).close()
    packets = dialogue.packets[:5] + dialogue.packets[6:7] + dialogue.packets[8:]
    tables = dissect_checks.read(write_pcap(tmp_path / "lost.pcap", packets))
    assert unaccounted(tables) == []
    assert calls(tables) == [("EXECUTE SELECT ?", None), ("select ?", 0)]


def test_a_lost_answer_to_a_batch_costs_few_pairs_of_a_connection_joined_late(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=PORT)
    asked = [(CLIENT, query("select 1")), (SERVER, row(b"1") + done() + READY)]
    batch = parse("s", "INSERT INTO t VALUES ($1)") + (bind("s", b"1") + execute()) * 3 + SYNC
    for side, data in asked * 20:
        dialogue.send(side, data)
    dialogue.send(CLIENT, batch)
    kept = len(dialogue.packets)
    dialogue.send(SERVER, PARSED + (BOUND + done("INSERT 0 1")) * 3 + READY)
    del dialogue.packets[kept:]
    for side, data in asked * 100:
        dialogue.send(side, data)
    tables = read(write_pcap(tmp_path / "joined.pcap", dialogue.packets))
    answers = tables.messages["kind"] == RESPONSE
    assert unaccounted(tables) == []
    assert (tables.messages["request"][answers] >= 0).sum() >= 115
