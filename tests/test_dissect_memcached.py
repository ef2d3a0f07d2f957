"""memcached's text, meta and binary commands, recorded from a real server and made up for the borders."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import dissect_checks
import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, unaccounted, write_pcap
from dissect_checks import (
    ERROR,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    calls_of,
    check_late_start,
    check_loss,
    check_segmentation,
    read,
    replies,
    talk_without,
)

from tapscope.store.codes import Protocol

PCAPS = Path(__file__).resolve().parent.parent / "pcaps/memcached"
NAMES = sorted(path.name for path in PCAPS.glob("*.pcap*"))

# file: requests, one-way messages, errors
COUNTS = {
    "binary.pcap.gz": (14, 6, 1),
    "meta.pcap": (14, 7, 3),
    "pipeline.pcap": (68, 0, 0),
    "text.pcap.gz": (28, 3, 4),
}


def packet(
    magic: int, opcode: int, key: bytes = b"", value: bytes = b"", opaque: int = 0, status: int = 0
) -> bytes:
    total = len(key) + len(value)
    return struct.pack("!BBHBBHIIQ", magic, opcode, len(key), 0, 0, status, total, opaque, 0) + key + value


talk = partial(dissect_checks.talk, port=11211)


calls = partial(calls_of, protocol=Protocol.MEMCACHED)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_found_and_answered_and_no_byte_is_left(name: str) -> None:
    tables = read(PCAPS / name)
    m = tables.messages
    requests = np.flatnonzero(m["kind"] == REQUEST)
    assert m["request"][m["kind"] == RESPONSE].tolist() == requests.tolist()
    found = (len(requests), int((m["kind"] == ONE_WAY).sum()), int((m["flags"] & ERROR > 0).sum()))
    assert found == COUNTS[name]
    assert unaccounted(tables) == []
    assert tables.connections["unparsed_to_server"].sum() == 0
    assert tables.connections["unparsed_to_client"].sum() == 0


@pytest.mark.parametrize("name", NAMES)
def test_segmentation_does_not_matter(name: str, tmp_path: Path) -> None:
    check_segmentation(PCAPS / name, tmp_path, (1, 2, 7) if name.endswith(".pcap") else (17, 400))


@pytest.mark.parametrize("name", ["binary.pcap.gz", "text.pcap.gz"])
def test_joined_late_no_answer_goes_to_another_s_request(name: str, tmp_path: Path) -> None:
    check_late_start(PCAPS / name, tmp_path)


@pytest.mark.parametrize(
    ("name", "share"),
    [("binary.pcap.gz", 0.9), ("meta.pcap", 0.5), ("pipeline.pcap", 0.85), ("text.pcap.gz", 0.85)],
)
def test_a_lost_packet_leaves_a_gap_but_no_wrong_pair(name: str, share: float, tmp_path: Path) -> None:
    check_loss(PCAPS / name, tmp_path, share)


def test_when_a_lost_command_was_answered_is_seen(tmp_path: Path) -> None:
    turns = [
        (CLIENT, b"get a\r\n"),
        (SERVER, b"VALUE a 0 1\r\n1\r\nEND\r\n"),
        (CLIENT, b"set a 0 0 1\r\n2\r\nget a\r\n"),
    ]
    turns += [
        (SERVER, b"STORED\r\nVALUE a 0 1\r\n"),
        (SERVER, b"2\r\nEND\r\n"),
        (CLIENT, b"get b\r\n"),
        (SERVER, b"END\r\n"),
    ]
    assert replies(talk_without(tmp_path, 11211, {2}, *turns)) == [
        (21, True),
        (8, False),
        (21, False),
        (5, True),
    ]
    # Where the client does not wait for the end of the second, whose the others are is not told.
    turns[4:4] = [(CLIENT, b"get c\r\n")]
    assert replies(talk_without(tmp_path, 11211, {2}, *turns))[:2] == [(21, True), (8, False)]
    assert not any(paired for _, paired in replies(talk_without(tmp_path, 11211, {2}, *turns))[1:-1])


def test_classes_statuses_and_keys(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, b"get user:42\r\nget user:7 user:8\r\nset plain 0 0 3\r\nabc\r\n"),
        (SERVER, b"VALUE user:42 0 5\r\nEND\r\n\r\nEND\r\nEND\r\nNOT_STORED\r\n"),
        (CLIENT, b"incr plain 1\r\ndelete user:42\r\n"),
        (SERVER, b"CLIENT_ERROR no number\r\nNOT_FOUND\r\n"),
    )
    assert calls(tables) == [
        ("get user:*", 0),
        ("get user:*", 1),
        ("set plain"[:3], 5),
        ("incr", 4),
        ("delete user:*", 1),
    ]
    e = tables.evidence
    numbers = [set(e["hash"][(e["message"] == i) & (e["kind"] == 2)].tolist()) for i in range(3)]
    assert [len(values) for values in numbers] == [1, 2, 0]


def test_a_capture_of_the_server_s_direction_alone_has_its_answers(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=11211).open()
    dialogue.send(CLIENT, b"get user:42\r\n").send(SERVER, b"VALUE user:42 0 5\r\nEND\r\n\r\nEND\r\n")
    dialogue.send(CLIENT, b"incr a 1\r\n").send(SERVER, b"NOT_FOUND\r\n")
    dialogue.send(CLIENT, b"mg a\r\n").send(SERVER, b"EN\r\n").close()
    packets = [packet for packet in dialogue.packets if packet[1][34:36] == (11211).to_bytes(2, "big")]
    tables = dissect_checks.read(write_pcap(tmp_path / "one_way.pcap", packets))
    assert unaccounted(tables) == []
    assert tables.messages["kind"].tolist() == [1, 1, 1]
    assert tables.messages["status"].tolist() == [0, 1, 1]


def test_a_dump_of_all_keys_is_one_answer(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, b"get user:42\r\nlru_crawler metadump all\r\nlru_crawler mgdump 1,2\r\n"),
        (SERVER, b"END\r\nkey=a exp=-1 la=9 cas=2 fetch=no cls=1 size=65\nkey=b exp=-1 la=9\nEND\r\n"),
        (SERVER, b"mg a\r\nmg b\r\nEN\r\n"),
        (CLIENT, b"lru_crawler metadump all\r\nlru_crawler crawl all\r\nmg a\r\n"),
        (SERVER, b"BUSY currently processing crawler request\r\nOK\r\nEN\r\n"),
    )
    crawler = "lru_crawler"
    statuses = [("get user:*", 1), (crawler, 0), (crawler, 0), (crawler, 0x85), (crawler, 0), ("mg", 1)]
    assert calls(tables) == statuses


def test_binary_answers_find_their_request_by_opcode_and_opaque(tmp_path: Path) -> None:
    asked = b"".join(packet(0x80, 0, b"k", opaque=n) for n in range(1, 6))
    answers = [packet(0x81, 0, b"", b"value", opaque=n) for n in range(1, 6)]
    dialogue = Dialogue(server_port=11211).open()
    dialogue.send(CLIENT, asked)
    for answer in answers:
        dialogue.send(SERVER, answer)
    dialogue.close()
    for lost in (6, 8, 10):
        packets = dialogue.packets[:lost] + dialogue.packets[lost + 1 :]
        tables = read(write_pcap(tmp_path / "lost.pcap", packets))
        m = tables.messages
        pairs = [
            (int(m["tcp_seq"][i]) - 5001, int(m["request"][i])) for i in np.flatnonzero(m["kind"] == RESPONSE)
        ]
        assert all(position == 29 * request for position, request in pairs)
        assert len(pairs) >= 4


@pytest.mark.parametrize(
    "bad", [b"\x00\x01\x02\r\n", b"x" * 300 + b"\r\n", b"get " + b"k" * 70_000, b"\xff" * 50 + b"\r\n"]
)
def test_what_is_no_command_is_named(bad: bytes, tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, b"get a\r\n"),
        (SERVER, b"END\r\n"),
        (CLIENT, bad),
        (SERVER, b"ERROR\r\n"),
        (CLIENT, b"get b\r\n"),
        (SERVER, b"END\r\n"),
    )
    assert calls(tables) == [("get", 1), ("get", 1)]
    assert tables.counter("memcached.not_a_command") + tables.counter("memcached.long_line") >= 1


def test_lengths_that_cannot_be_are_named(tmp_path: Path) -> None:
    good = packet(0x80, 0, b"k"), packet(0x81, 0, b"", b"v")
    bad = struct.pack("!BBHBBHIIQ", 0x80, 0, 10, 0, 0, 0, 5, 0, 0)
    tables = talk(
        tmp_path, (CLIENT, good[0]), (SERVER, good[1]), (CLIENT, bad), (CLIENT, good[0]), (SERVER, good[1])
    )
    assert calls(tables) == [("GET", 0), ("GET", 0)]
    assert tables.counter("memcached.bad_packet") == 1


def test_a_size_that_is_no_number_announces_no_block(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, b"get z\r\nset a 0 0 99999999999999999999\r\nget b\r\n"),
        (SERVER, b"END\r\nCLIENT_ERROR bad data chunk\r\nEND\r\n"),
        (CLIENT, b"get c\r\n"),
        (SERVER, b"VALUE c 0 x\r\n"),
    )
    assert calls(tables)[:3] == [("get", 1), ("set", 4), ("get", 1)]
    assert tables.counter("memcached.bad_answer") == 1
