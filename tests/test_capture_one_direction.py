"""A tap that sees one direction: every capture of pcaps/ cut to either one, against what is read of both."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, unaccounted, write_pcap
from damaged_captures import name_of
from dissect_checks import payload_of
from one_direction import PCAPS, SAID, SIDES, Told, captures, messages_of, read, table, totals
from recorded import impaired, read_packets

from tapscope import capture
from tapscope.store.codes import Direction, MessageFlag, MessageKind, Protocol

SALT = b"sixteen bytes ok"
TO_SERVER, TO_CLIENT = SIDES
COMPRESSED = sorted(PCAPS.glob("mysql_compressed_*.pcap"))
PLAIN_MYSQL = sorted(path for path in PCAPS.glob("mysql_*.pcap") if path not in COMPRESSED)

# What one direction tells at least: requests found and classed as with both, answers found and whole; and
# where that is not all, why.
AT_LEAST = {
    Protocol.HTTP: ((97, 97), (97, 97)),
    Protocol.AJP: ((87, 87), (87, 87)),
    # Statements of connections whose login was not seen, and three with a backslash before a quote, which
    # only the server explains; answers before the first that says that it is MySQL.
    Protocol.MYSQL: ((684, 669), (678, 678)),
    # One number is not enough to know the protocol by; a dialect shows by the answer to the first message.
    Protocol.CJDBC: ((73, 70), (72, 72)),
    # The single byte that answers SSLRequest.
    Protocol.POSTGRES: ((387, 387), (364, 364)),
    Protocol.FASTCGI: ((51, 51), (52, 52)),
    Protocol.HTTP2: ((137, 137), (150, 150)),
    # Timed as sealed; tickets begin some first answers too early, and early data looks like a request.
    Protocol.TLS: ((33, 33), (33, 33)),
    # Short answers look like nothing in particular, and what a subscriber gets like an answer.
    Protocol.REDIS: ((388, 388), (215, 209)),
    # The same, and an END of several gets is one answer or several.
    Protocol.MEMCACHED: ((137, 137), (111, 101)),
    # What a statement's number means is in an answer.
    Protocol.AVATICA: ((120, 102), (119, 119)),
    Protocol.GRPC: ((12, 12), (11, 11)),
}


def sides_of(path: Path, scratch: Path) -> dict[Direction, list[Packet]]:
    """The packets of a capture by direction."""
    ways = {}
    for side in SIDES:
        read(path, side, scratch)
        ways[side] = read_packets(scratch / "one.pcap")
    return ways


def read_of(packets: list[Packet], scratch: Path) -> capture.CaptureTables:
    return capture.read_files([write_pcap(scratch / "cut.pcap", packets)], salt=SALT)


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name.lower())
@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_nothing_is_told_that_both_directions_do_not_tell(
    path: Path, side: Direction, tmp_path: Path
) -> None:
    reading = read(path, side, tmp_path)
    assert unaccounted(reading.tables) == []
    assert reading.unsaid == []


def test_each_protocol_is_told_from_either_direction(tmp_path: Path) -> None:
    """With -s: the table of docs/tcp.md."""
    print("", *table(tmp_path), sep="\n")
    found = totals(tmp_path)
    assert {protocol for protocol, _ in found} == set(AT_LEAST)
    for protocol, (requests, answers) in AT_LEAST.items():
        asked, answered = found.get((protocol, TO_SERVER), Told()), found.get((protocol, TO_CLIENT), Told())
        assert asked.found >= requests[0], protocol.name
        assert asked.classed >= requests[1], protocol.name
        assert answered.found >= answers[0], protocol.name
        assert answered.whole >= answers[1], protocol.name


@pytest.mark.parametrize(
    ("protocol", "answers", "whole"), [(Protocol.REDIS, 393, 387), (Protocol.MEMCACHED, 127, 115)]
)
def test_the_port_map_tells_short_answers(
    protocol: Protocol, answers: int, whole: int, tmp_path: Path
) -> None:
    told = Told()
    for path in captures():
        if path.parent.name == protocol.name.lower():
            told += read(path, TO_CLIENT, tmp_path, protocol).told[protocol]
    assert (told.there, told.found) == (answers, answers)
    assert told.whole >= whole


@pytest.mark.parametrize(
    ("name", "answers"),
    [("jdbc_batch", 35), ("jdbc_cursor", 8), ("psycopg_pipeline", 11), ("pgbench", 197), ("replication", 21)],
)
def test_answers_of_a_pipeline_are_those_that_the_requests_tell(
    name: str, answers: int, tmp_path: Path
) -> None:
    reading = read(PCAPS / "postgres" / f"{name}.pcap", TO_CLIENT, tmp_path)
    assert reading.told[Protocol.POSTGRES] == Told(answers, answers, answers, answers)
    m = reading.tables.messages
    assert (m["flags"] & MessageFlag.INFERRED > 0).all()
    assert (m["request"] == -1).all()


@pytest.mark.parametrize("path", COMPRESSED, ids=name_of)
@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name.lower())
def test_compression_shows_in_either_direction(path: Path, side: Direction, tmp_path: Path) -> None:
    told = read(path, side, tmp_path).told[Protocol.MYSQL]
    assert told == Told(told.there, told.there, told.there, told.there)


@pytest.mark.parametrize("path", COMPRESSED, ids=name_of)
def test_compression_shows_in_answers_joined_late(path: Path, tmp_path: Path) -> None:
    """From any packet of the server on: what is found is in the whole capture, or flagged."""
    right = {message.place: message for message in messages_of(capture.read_files([path], salt=SALT))}
    packets = sides_of(path, tmp_path)[TO_CLIENT]
    found = there = 0
    for number, (time_ns, frame) in enumerate(packets):
        begin, end = payload_of(frame)
        if end == begin:
            continue
        tables = read_of(packets[number:], tmp_path)
        assert unaccounted(tables) == []
        messages = messages_of(tables)
        assert [m for m in messages if m.place not in right and not m.flags & SAID] == []
        found += sum(right[m.place].rest == m.rest for m in messages if m.place in right)
        there += sum(place[2] > time_ns and m.direction == TO_CLIENT for place, m in right.items())
    assert found > 0.5 * there, f"{found} of {there}"


@pytest.mark.parametrize("path", PLAIN_MYSQL, ids=name_of)
def test_plain_answers_are_not_taken_for_compressed(path: Path, tmp_path: Path) -> None:
    packets = sides_of(path, tmp_path)[TO_CLIENT]
    for number in range(0, len(packets), 1 + len(packets) // 40):
        assert read_of(packets[number:], tmp_path).counter("mysql.compression_inferred") == 0


def packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


GREETING = packet(
    0, b"\x0a8.0.36\0" + bytes(4) + b"saltsalt\0" + b"\xff\xff\x2d\x02\0\xff\xff\x15" + bytes(10) + bytes(13)
)


@pytest.mark.parametrize("prefixed", [False, True])
def test_no_ok_is_taken_for_compressed(prefixed: bool, tmp_path: Path) -> None:
    """A server that offers compression, and answers OK with 256 warnings and a status that says how long it
    is: the numbers are those of a compressed packet, the text is not."""
    dialogue = Dialogue(server_port=3306).open()
    dialogue.send(SERVER, GREETING).send(CLIENT, packet(1, bytes(40))).send(SERVER, packet(2, bytes(7)))
    statuses = range(4, 240)
    for status in statuses:
        room = status + 4 - 7
        text = bytes([room - 1]) + b"R" * (room - 1) if prefixed else b"R" * room
        dialogue.send(CLIENT, packet(0, b"\x03DO 1"))
        dialogue.send(SERVER, packet(1, bytes([0, 0, 0, status, 0, 0, 1]) + text))
    port = (3306).to_bytes(2, "big")
    tables = read_of([p for p in dialogue.packets if p[1][34:36] == port], tmp_path)
    assert tables.counter("mysql.compression_inferred") == 0
    assert {message.rest[0] for message in messages_of(tables)} == {MessageKind.ONE_WAY, MessageKind.RESPONSE}


def test_an_id_means_the_one_statement_that_was_prepared(tmp_path: Path) -> None:
    """Without answers an id is told where one PREPARE only can have got it."""

    def execute(number: int) -> bytes:
        return packet(0, b"\x17" + number.to_bytes(4, "little") + b"\0" + (1).to_bytes(4, "little"))

    dialogue = Dialogue(server_port=3306).open().send(SERVER, GREETING)
    for said in (
        packet(1, (0x0000A200).to_bytes(4, "little") + bytes(4) + b"\x2d" + bytes(23) + b"me\0\0"),
        packet(0, b"\x16SELECT a FROM t"),
        execute(1),
        packet(0, b"\x16SELECT b FROM t"),
        execute(1),
        execute(2),
        execute(7),
        packet(0, b"\x16SELECT c FROM t"),
        packet(0, b"\x16SELECT d FROM t"),
        execute(8),
    ):
        dialogue.send(CLIENT, said).send(SERVER, packet(1, bytes(7)))
    port = (3306).to_bytes(2, "big")
    tables = read_of([p for p in dialogue.packets if p[1][36:38] == port], tmp_path)
    texts = [message.text for message in messages_of(tables) if message.text.startswith("EXECUTE")]
    unseen = "EXECUTE (text unseen)"
    assert texts == [f"EXECUTE SELECT {c} FROM t" for c in "aab"] + [unseen, unseen]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name.lower())
@pytest.mark.parametrize(
    "name", ["mysql_compressed_cli.pcap", "postgres/jdbc_batch.pcap", "postgres/psycopg_pipeline.pcap"]
)
def test_losses_in_one_direction_are_accounted_for(name: str, side: Direction, tmp_path: Path) -> None:
    right = {message.place for message in messages_of(capture.read_files([PCAPS / name], salt=SALT))}
    packets = sides_of(PCAPS / name, tmp_path)[side]
    for seed in range(40):
        kept, _ = impaired(packets, seed, lost=random.Random(seed).uniform(0.02, 0.2))
        tables = read_of(kept, tmp_path)
        assert unaccounted(tables) == []
        assert [m for m in messages_of(tables) if m.place not in right and not m.flags & SAID] == []
