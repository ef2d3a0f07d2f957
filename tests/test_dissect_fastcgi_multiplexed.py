"""FastCGI with several requests at once on a connection: Go's server, and interleavings drawn at random."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import dissect_checks
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, displaced, message_rows, unaccounted, write_pcap
from dissect_checks import (
    calls_of,
    check_late_start,
    check_loss,
    check_segmentation,
    packets_of,
    read,
    shredded,
)
from fastcgi_records import answer, begin, end, get, multiplexed, params, read_messages, record, told

from tapscope.store.codes import MessageFlag, MessageKind, Protocol

GO = Path(__file__).resolve().parent.parent / "pcaps/fastcgi/go_multiplexed.pcap"
GO_PORT = 29000
SEEDS = range(6)
OK = b"Content-Type: text/html\r\n\r\nhello"
ESTIMATE = MessageFlag.INFERRED | MessageFlag.TRUNCATED | MessageFlag.UNFINISHED

talk = partial(dissect_checks.talk, port=9000)
calls = partial(calls_of, protocol=Protocol.FASTCGI)


def read_packets(scratch: Path, packets: list[Packet]) -> Any:
    tables = read(write_pcap(scratch / "a.pcap", packets))
    assert unaccounted(tables) == []
    return tables


def test_go_s_server_answers_several_requests_at_once() -> None:
    tables = read(GO)
    assert unaccounted(tables) == []
    truth, output = told(packets_of(GO, GO.parent), GO_PORT)
    found = [message for message, _ in read_messages(tables)]
    assert [(m.place, m.begin_ns, m.end_ns, m.size, m.request) for m in found] == [
        (m.place, m.begin_ns, m.end_ns, m.size, m.request) for m in truth
    ]
    # Every answer repeats the URI of its request.
    asked = {message.place: message.what.partition(" ")[2] for message in truth if message.request is None}
    repeated = 0
    for message in truth:
        if message.request is not None and output[message.place]:
            body = output[message.place].partition(b"\r\n\r\n")[2]
            assert not body or body.startswith(asked[message.request].encode() + b", ")
            repeated += bool(body)
    assert repeated == 24
    overtaken = [m for m in found if m.request is not None][:6]
    assert [m.request for m in overtaken] == sorted((m.request for m in overtaken), reverse=True)
    assert [m.what for m in found if m.request is not None] == [
        m.what for m in truth if m.request is not None
    ]
    assert tables.counter("fastcgi.paired_by_id") == 2
    assert tables.counter("fastcgi.abort") == 1
    assert tables.counter("fastcgi.unknown_role") == 1
    assert (
        tables.connections["unparsed_to_server"].sum() == tables.connections["unparsed_to_client"].sum() == 0
    )


def test_go_s_server_cut_up_joined_late_and_thinned(tmp_path: Path) -> None:
    check_segmentation(GO, tmp_path, (1, 7, 61))
    check_late_start(GO, tmp_path)
    check_loss(GO, tmp_path, 0.97)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_is_the_sum_of_its_records(seed: int, tmp_path: Path) -> None:
    packets = multiplexed(seed)
    tables = read_packets(tmp_path, packets)
    truth, _ = told(packets)
    found = read_messages(tables)
    assert [message for message, _ in found] == truth
    assert {flags & ESTIMATE for _, flags in found} == {0}
    assert (
        tables.connections["unparsed_to_server"].sum() == tables.connections["unparsed_to_client"].sum() == 0
    )
    assert tables.counter("pairing.orphan_response") == 0
    for size in (1, 13):
        cut = read_packets(tmp_path, shredded(packets, size))
        assert message_rows(cut, flags=False) == message_rows(tables, flags=False)
        assert sorted(cut.evidence["hash"].tolist()) == sorted(tables.evidence["hash"].tolist())
    moved = read_packets(tmp_path, displaced(packets, seed, 0.1, 8, copies=0.1))
    assert message_rows(moved, flags=False) == message_rows(tables, flags=False)


def check_losses(scratch: Path, packets: list[Packet], kept: list[Packet]) -> float:
    """What is not flagged is as it was; the share of pairs that are left."""
    truth = {message.place: message for message in told(packets)[0]}
    right = 0
    found = read_messages(read_packets(scratch, kept))
    flags_at = {message.place: flags for message, flags in found}
    for message, flags in found:
        was = truth.get(message.place)
        if was is None:
            continue
        if message.request is None:
            assert flags & ESTIMATE or was.request is not None or message == was, (message, was)
            continue
        right += message.request == was.request
        assert message.request == was.request or flags & MessageFlag.INFERRED, (message, was)
        if not (flags | flags_at[message.request]) & ESTIMATE:
            assert (message.size, message.what, message.end_ns) == (was.size, was.what, was.end_ns)
    return right / sum(message.request is not None for message in truth.values())


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_lost_packet_makes_no_wrong_pair(seed: int, tmp_path: Path) -> None:
    packets = multiplexed(seed)
    shares = [
        check_losses(tmp_path, packets, packets[:number] + packets[number + 1 :])
        for number in range(3 + seed % 2, len(packets) - 3, 2)
    ]
    assert sum(shares) > 0.97 * len(shares)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [0.02, 0.1, 0.3])
def test_where_much_is_lost_a_wrong_pair_is_flagged(seed: int, lost: float, tmp_path: Path) -> None:
    packets = multiplexed(seed, most_open=3)
    rng = random.Random(seed)
    for _ in range(15):
        check_losses(tmp_path, packets, [packet for packet in packets if rng.random() > lost])


def test_a_request_turns_up_inside_another_one(tmp_path: Path) -> None:
    one = begin(1) + params(1, REQUEST_METHOD="GET", REQUEST_URI="/one")
    tables = talk(
        tmp_path,
        (CLIENT, one[:40]),
        (CLIENT, one[40:]),
        (CLIENT, get("/two", 2)),
        (SERVER, answer(b"Status: 202 x\r\n\r\n", 2)),
        (CLIENT, record(5, b"", 1)),
        (SERVER, answer(b"Status: 201 x\r\n\r\n", 1)),
    )
    assert calls(tables) == [("GET /one", 201), ("GET /two", 202)]
    sizes = tables.messages["wire_bytes"][tables.messages["kind"] == MessageKind.REQUEST]
    assert sizes.tolist() == [len(one) + 8, len(get("/two", 2))]


def test_records_of_the_connection_are_in_no_other_message(tmp_path: Path) -> None:
    half = begin(1) + params(1, REQUEST_METHOD="GET", REQUEST_URI="/one")
    ask, result = record(9, b"\x0f\0FCGI_MPXS_CONNS", 0), record(10, b"\x0f\x011FCGI_MPXS_CONNS", 0)
    tables = talk(
        tmp_path,
        (CLIENT, half + ask + record(5)),
        (SERVER, record(6, OK) + result + end()),
    )
    assert calls(tables) == [("GET /one", 200)]
    assert tables.messages["wire_bytes"].tolist() == [
        len(half) + 8,
        len(ask),
        len(record(6, OK) + end()),
        len(result),
    ]


def test_refusals_and_ids_that_nobody_has_are_named(tmp_path: Path) -> None:
    tables = talk(
        tmp_path,
        (CLIENT, get("/a", 1) + get("/b", 2) + get("/c", 3)),
        (SERVER, end(2, protocol=1) + end(3, protocol=2) + answer(OK, 1)),
        (
            CLIENT,
            record(5, b"late", 1) + get("/d", 4) + record(5, b"late", 4) + begin(5) + record(2, request=5),
        ),
        (SERVER, answer(OK, 9) + end(5) + record(6, OK, 4)),
        (CLIENT, get("/e", 4)),
        (SERVER, answer(OK, 4)),
    )
    assert calls(tables) == [
        ("GET /a", 200),
        ("GET /b", -1),
        ("GET /c", -1),
        ("GET /d", 200),
        ("", -1),
        ("GET /e", 200),
    ]
    names = ("cannot_multiplex", "overloaded", "unknown_id", "record_after_end", "id_in_use", "abort")
    assert [tables.counter(f"fastcgi.{name}") for name in names] == [1, 1, 2, 1, 1, 1]
    assert tables.counter("pairing.orphan_response") == 1
    assert tables.connections["unparsed_to_server"].sum() == 2 * len(record(5, b"late"))


def test_of_too_many_open_requests_the_oldest_go(tmp_path: Path) -> None:
    ids = range(1, 1031)
    tables = talk(
        tmp_path,
        (CLIENT, b"".join(get("/x", n) for n in ids)),
        (SERVER, b"".join(answer(OK, n) for n in reversed(ids))),
    )
    assert [status for _, status in calls(tables)] == [None] * 6 + [200] * 1024
    assert tables.counter("fastcgi.too_many_open") == 6
    assert tables.counter("fastcgi.unknown_id") == tables.counter("pairing.orphan_response") == 6


def test_the_texts_of_all_open_requests_are_bounded(tmp_path: Path) -> None:
    large = [begin(n) + record(4, b"\x01\x01ab" * 15_000, n) for n in range(1, 41)]
    rest = [record(4, b"", n) + record(5, b"", n) for n in range(1, 41)]
    tables = talk(
        tmp_path, (CLIENT, b"".join(large + rest)), (SERVER, b"".join(answer(OK, n) for n in range(1, 41)))
    )
    assert [status for _, status in calls(tables)] == [200] * 40
    assert 20 < tables.counter("fastcgi.texts_cut") < 30


def any_record(rng: random.Random, side: int) -> bytes:
    """Of few ids, so that most records meet others."""
    n, content = rng.randrange(4), b"k" * rng.choice((0, 0, 5, 3000))
    if rng.random() < 0.4:
        return record(rng.randrange(1, 12), content, n)
    if side == SERVER:
        return rng.choice((end(n), end(n, protocol=7), record(6, OK, n)))
    return rng.choice((get("/y", n), begin(n, rng.randrange(1, 4)), record(5, b"", n), record(2, b"", n)))


@pytest.mark.parametrize("seed", range(20))
def test_any_records_are_accounted_for(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    dialogue = Dialogue(server_port=9000).open().send(CLIENT, get("/x", 1))
    for _ in range(60):
        side = rng.choice((CLIENT, SERVER))
        said = b"".join(any_record(rng, side) for _ in range(rng.randrange(1, 8)))
        dialogue.send(side, said, cuts=[rng.randrange(1, len(said)) for _ in range(2)])
    packets = dialogue.close().packets
    read_packets(tmp_path, packets)
    for _ in range(10):
        read_packets(tmp_path, [packet for packet in packets if rng.random() > 0.1])
