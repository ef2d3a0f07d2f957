"""Whatever happens to packets on the way to the tap: the same messages, or the loss by name."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
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
    displaced,
    message_rows,
    read_pcap,
    unaccounted,
    write_pcap,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tapscope import capture
from tapscope.store.codes import CloseHow, MessageFlag, MessageKind

SALT = bytes(range(16))
PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
FOUR_TIER = PCAPS / "http_ajp_mysql_groundtruth.pcap"


def read(path: Path, **options: object) -> capture.CaptureTables:
    tables = capture.read_files([path], salt=SALT, **options)  # type: ignore[arg-type]
    assert unaccounted(tables) == []
    return tables


def exchanges(count: int, seed: int = 1) -> list[tuple[bytes, bytes]]:
    """Keep-alive requests and answers of several shapes: fixed length, chunked, no body, HEAD, form."""
    rng = random.Random(seed)
    out = []
    for number in range(count):
        kind = rng.randrange(5)
        body = bytes(rng.randrange(256) for _ in range(rng.randrange(0, 3000)))
        if kind == 0:
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        elif kind == 1:
            cut = len(body) // 2
            chunks = b"".join(
                b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part
            )
            answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        elif kind == 2:
            answer = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n"
        elif kind == 3:
            answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno"
        else:
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
        if kind == 3:
            form = b"story=%d&text=a+b" % number
            ask = b"POST /bb/comment/%d HTTP/1.1\r\nHost: x\r\n" % number
            ask += (
                b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(form)
                + form
            )
        else:
            method = b"HEAD" if kind == 4 else b"GET"
            ask = b"%s /bb/story/%d?page=%d HTTP/1.1\r\nHost: x\r\nCookie: s=%d\r\n\r\n" % (
                method,
                number,
                kind,
                kind,
            )
        out.append((ask, answer))
    return out


def talk(
    dialogue: Dialogue, pairs: list[tuple[bytes, bytes]], cuts: list[int] | None = None, mss: int = 1448
) -> Dialogue:
    for ask, answer in pairs:
        dialogue.send(CLIENT, ask, cuts or (), mss)
        dialogue.send(SERVER, answer, cuts or (), mss)
    return dialogue


PAIRS = exchanges(12)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    path = write_pcap(
        tmp_path_factory.mktemp("whole") / "a.pcap", talk(Dialogue().open(), PAIRS).close().packets
    )
    rows = message_rows(read(path), times=False)
    assert len(rows) == 24 + sum(b" 100 Continue" in answer for _, answer in PAIRS)
    return rows


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(1, 4000), max_size=30), mss=st.sampled_from([7, 100, 536, 1448, 9000]))
def test_any_split_gives_the_same_messages(
    cuts: list[int], mss: int, whole: list[tuple[object, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write_pcap(
        tmp_path_factory.mktemp("split") / "a.pcap", talk(Dialogue().open(), PAIRS, cuts, mss).close().packets
    )
    assert message_rows(read(path), times=False) == whole


def test_one_byte_segments_give_the_same_messages(whole: list[tuple[object, ...]], tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "a.pcap", talk(Dialogue().open(), PAIRS, mss=1).close().packets)
    assert message_rows(read(path), times=False) == whole


def many_connections(seed: int) -> list[Packet]:
    packets: list[Packet] = []
    for number in range(6):
        dialogue = Dialogue(
            client_port=41000 + number, isn=(2**32 - 700 - number, 77), now_ns=10**18 + number * 3_000
        )
        talk(dialogue.open(), exchanges(8, seed + number), mss=700)
        packets += (dialogue.close(number % 2) if number % 3 else dialogue).packets
    return sorted(packets, key=lambda packet: packet[0])


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.01, 0.2, 1.0]))
def test_displaced_and_doubled_packets_give_the_same_messages(
    seed: int, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("displaced")
    packets = many_connections(seed % 7)
    clean = read(write_pcap(directory / "clean.pcap", packets))
    moved = displaced(packets, seed, share, places=64, copies=0.01)
    dirty = read(write_pcap(directory / "dirty.pcap", moved))
    assert message_rows(dirty) == message_rows(clean)
    assert len(dirty.connections["protocol"]) == len(clean.connections["protocol"])
    assert not dirty.connections["missing_to_server"].any()
    assert not dirty.connections["syn_retransmits"].any()


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.01, 0.3, 1.0]))
def test_displaced_packets_of_three_protocols_give_the_same_messages(
    seed: int, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("tiers")
    clean = read(FOUR_TIER)
    moved = displaced(read_pcap(FOUR_TIER), seed, share, places=64, copies=0.01)
    dirty = read(write_pcap(directory / "dirty.pcap", moved))
    assert message_rows(dirty) == message_rows(clean)


def evidence_rows(tables: capture.CaptureTables) -> list[tuple[int, ...]]:
    seq = tables.messages["tcp_seq"][tables.evidence["message"]]
    columns = (seq, tables.evidence["slot"], tables.evidence["kind"], tables.evidence["hash"])
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_displaced_packets_give_the_same_evidence(tmp_path: Path) -> None:
    clean = read(FOUR_TIER)
    dirty = read(write_pcap(tmp_path / "dirty.pcap", displaced(read_pcap(FOUR_TIER), 5, 1.0, places=64)))
    assert evidence_rows(dirty) == evidence_rows(clean)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_lost_packets_are_named_and_never_shift_the_pairing(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("lost")
    packets = many_connections(seed % 5)
    clean = read(write_pcap(directory / "clean.pcap", packets))
    truth = {row[:3]: row for row in message_rows(clean, times=False, flags=False)}
    rng = random.Random(seed)
    kept = [packet for packet in packets if rng.random() >= 0.02]
    dirty = read(write_pcap(directory / "dirty.pcap", kept))
    for row in message_rows(dirty, times=False, flags=False):
        if row[4] == MessageKind.RESPONSE and row[9] >= 0 and row[:3] in truth:
            assert row[9] == truth[row[:3]][9], "a response answers the request that it answered without loss"
    missing = sum(value for name, value, _ in dirty.counters if name.startswith("missing."))
    columns = dirty.connections
    assert missing == int(columns["missing_to_server"].sum() + columns["missing_to_client"].sum())


def test_a_lost_request_leaves_its_response_without_one(tmp_path: Path) -> None:
    dialogue = talk(
        Dialogue().open(),
        [
            (b"GET /%d HTTP/1.1\r\n\r\n" % n, b"HTTP/1.1 20%d OK\r\nContent-Length: 0\r\n\r\n" % n)
            for n in range(5)
        ],
    )
    lost = next(i for i, (_, frame) in enumerate(dialogue.packets) if b"GET /2" in frame)
    del dialogue.packets[lost]
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    pairs = {}
    for row in range(len(tables.messages["conn"])):
        if tables.messages["kind"][row] == MessageKind.RESPONSE:
            request = tables.messages["request"][row]
            text = "" if request < 0 else tables.classes[tables.messages["class_id"][request]][1]
            pairs[int(tables.messages["status"][row])] = text
    assert pairs == {200: "GET /{n}", 201: "GET /{n}", 202: "", 203: "GET /{n}", 204: "GET /{n}"}
    assert tables.counter("missing.acknowledged_but_not_seen") == len(b"GET /2 HTTP/1.1\r\n\r\n")


def test_a_lost_response_leaves_its_request_unanswered(tmp_path: Path) -> None:
    dialogue = talk(
        Dialogue().open(),
        [
            (b"GET /%d HTTP/1.1\r\n\r\n" % n, b"HTTP/1.1 20%d OK\r\nContent-Length: 0\r\n\r\n" % n)
            for n in range(5)
        ],
    )
    lost = next(i for i, (_, frame) in enumerate(dialogue.packets) if b"HTTP/1.1 202" in frame)
    del dialogue.packets[lost]
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    requests = np.nonzero(tables.messages["kind"] == MessageKind.REQUEST)[0]
    answered = set(tables.messages["request"].tolist())
    assert [int(row) in answered for row in requests] == [True, True, False, True, True]
    assert tables.counter("pairing.answer_lost") == 1


def test_a_gap_inside_a_body_is_counted_and_the_next_message_is_found(tmp_path: Path) -> None:
    body = b"x" * 10_000
    pairs = [(b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + body)] * 2
    dialogue = talk(Dialogue().open(), pairs, mss=1000)
    victims = [i for i, (_, frame) in enumerate(dialogue.packets) if frame.endswith(b"x" * 1000)]
    del dialogue.packets[victims[3]]
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    messages = tables.messages
    responses = messages["kind"] == MessageKind.RESPONSE
    assert messages["missing_bytes"][responses].tolist() == [1000, 0]
    assert messages["flags"][responses].tolist() == [MessageFlag.TRUNCATED, MessageFlag.NONE]
    assert messages["request"][responses].tolist() == np.nonzero(~responses)[0].tolist()


def test_overlap_keeps_the_bytes_seen_first(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    text = b"GET /first HTTP/1.1\r\n\r\n"
    start = dialogue.seq[CLIENT]
    dialogue.emit(CLIENT, PSH | ACK, text[4:], seq=start + 4)
    dialogue.emit(CLIENT, PSH | ACK, b"GET /other", seq=start)
    dialogue.seq[CLIENT] += len(text)
    dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    assert tables.classes == [(1, "GET /first")]
    assert tables.counter("tcp.overlap") == 6
    assert tables.counter("tcp.out_of_order") == 1, "the packet counts once, by its new bytes"
    assert tables.counter("tcp.retransmission") == 0


@pytest.mark.parametrize(
    ("later_ns", "name"), [(1_000, "tcp.out_of_order"), (10**9, "tcp.retransmission_of_unseen")]
)
def test_data_that_come_behind_their_fin_are_out_of_order_or_sent_again(
    later_ns: int, name: str, tmp_path: Path
) -> None:
    dialogue = Dialogue().open()
    dialogue.send(CLIENT, b"GET / HTTP/1.1\r\n\r\n")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    dialogue.emit(SERVER, FIN | ACK, seq=dialogue.seq[SERVER] + len(answer))
    dialogue.now_ns += later_ns
    dialogue.emit(SERVER, PSH | ACK, answer)
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert tables.messages["kind"].tolist() == [MessageKind.REQUEST, MessageKind.RESPONSE]
    assert tables.counter(name) == 1
    assert tables.counter("tcp.out_of_order") + tables.counter("tcp.retransmission") == 1


def test_a_retransmission_is_counted_and_a_mirror_copy_is_not_one(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    start = dialogue.seq[CLIENT]
    ask = b"GET /a HTTP/1.1\r\n\r\n"
    dialogue.emit(CLIENT, PSH | ACK, ask)
    dialogue.packets.append(
        (dialogue.packets[-1][0] + 900, dialogue.packets[-1][1])
    )  # the mirror's second copy
    dialogue.seq[CLIENT] += len(ask)
    dialogue.now_ns += 2_000_000
    dialogue.emit(CLIENT, PSH | ACK, ask, seq=start)  # TCP sends it again: another IP identification
    dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    assert tables.connections["duplicates"].tolist() == [1]
    assert tables.connections["retransmits_to_server"].tolist() == [1]
    assert tables.messages["flags"].tolist() == [MessageFlag.RETRANSMITTED, MessageFlag.NONE]


def test_an_unanswered_syn_is_one_connection_with_its_retransmissions(tmp_path: Path) -> None:
    dialogue = Dialogue()
    for wait_s in (1, 2, 4, 8):
        dialogue.emit(CLIENT, SYN)
        dialogue.now_ns += wait_s * 10**9
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert tables.connections["syn_retransmits"].tolist() == [3]
    assert tables.connections["established_ns"].tolist() == [-1]
    assert tables.connections["close_how"].tolist() == [CloseHow.OPEN]
    assert tables.connections["midstream"].tolist() == [False]


def test_a_port_that_is_used_again_is_a_new_connection(tmp_path: Path) -> None:
    first = talk(Dialogue(isn=(1000, 5000)).open(), PAIRS[:2])
    second = talk(Dialogue(isn=(900_000, 100_000), now_ns=first.now_ns + 10**9).open(), PAIRS[:2]).close()
    tables = read(write_pcap(tmp_path / "a.pcap", first.packets + second.packets))
    assert tables.connections["close_how"].tolist() == [CloseHow.REUSED, CloseHow.FIN]
    assert np.bincount(tables.messages["conn"]).min() >= 4


@pytest.mark.parametrize("closed", [True, False])
def test_ports_that_are_used_again_without_a_handshake_in_sight(closed: bool, tmp_path: Path) -> None:
    """The end of the first connection may be lost, too: then only its long silence tells that it is over."""
    first = talk(Dialogue(isn=(1000, 5000)).open(), PAIRS[:2])
    later_ns = first.now_ns + (10**8 if closed else 11 * 10**9)
    first = first.close() if closed else first
    second = talk(Dialogue(isn=(3 * 10**9, 2 * 10**9), now_ns=later_ns).open(), PAIRS[:2]).close()
    tables = read(write_pcap(tmp_path / "a.pcap", first.packets + second.packets[3:]))
    assert tables.connections["close_how"].tolist() == [
        CloseHow.FIN if closed else CloseHow.REUSED,
        CloseHow.FIN,
    ]
    assert tables.connections["midstream"].tolist() == [False, True]
    assert len(set(tables.messages["request"].tolist()) - {-1}) == 4
    assert tables.connections["missing_to_server"].sum() + tables.connections["missing_to_client"].sum() == 0


def test_far_numbers_on_a_connection_in_use_end_nothing(tmp_path: Path) -> None:
    dialogue = talk(Dialogue().open(), PAIRS[:2])
    stray = Dialogue(isn=(3 * 10**9, 2 * 10**9), now_ns=dialogue.now_ns).send(CLIENT, b"stray").packets
    dialogue = talk(dialogue, PAIRS[2:4]).close()
    tables = read(write_pcap(tmp_path / "a.pcap", sorted(dialogue.packets + stray)))
    assert tables.connections["close_how"].tolist() == [CloseHow.FIN]
    assert len(set(tables.messages["request"].tolist()) - {-1}) == 4


SMALL = (b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.mark.parametrize("gigabytes", [1.5, 2.5, 3.7])
def test_a_side_that_goes_on_far_away_is_joined_again(gigabytes: float, tmp_path: Path) -> None:
    """Nothing was captured meanwhile. Numbers from 2 GB ahead on look like old ones: taken for
    retransmissions, they lost every later answer of the connection."""
    dialogue = talk(Dialogue().open(), PAIRS[:2])
    dialogue.seq[SERVER] = (dialogue.seq[SERVER] + int(gigabytes * 2**30)) % 2**32
    dialogue = talk(dialogue, [SMALL, *PAIRS]).close()
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    counters = {name: count for name, count, _unit in tables.counters}
    assert tables.connections["close_how"].tolist() == [CloseHow.JUMPED, CloseHow.FIN]
    assert tables.connections["midstream"].tolist() == [False, True]
    # Only the answer that is acknowledged there is dropped, by name.
    assert len(set(tables.messages["request"].tolist()) - {-1}) == 2 + len(PAIRS)
    assert counters["tcp.seq_out_of_range"] == 1
    assert counters["discarded.seq_out_of_range"] == len(SMALL[1])
    assert counters["tcp.jumped"] == 1
    assert "tcp.retransmission" not in counters
    assert len(tables.tcp_events["conn"]) == 0


def test_both_sides_may_open_at_once(tmp_path: Path) -> None:
    """Each acknowledges the other's SYN, and neither does so again."""
    dialogue = Dialogue()
    for flags in (SYN, SYN | ACK):
        for side in (CLIENT, SERVER):
            dialogue.seq[side] = dialogue.isn[side]
            ack = dialogue.isn[1 - side] + 1
            dialogue.seq[1 - side] = ack
            dialogue.emit(side, flags)
    dialogue.seq = [dialogue.isn[CLIENT] + 1, dialogue.isn[SERVER] + 1]
    tables = read(write_pcap(tmp_path / "a.pcap", talk(dialogue, [SMALL] * 2).close().packets))
    assert len(set(tables.messages["request"].tolist()) - {-1}) == 2
    assert "tcp.syn_ack_retransmission" not in {name for name, _count, _unit in tables.counters}
    assert len(tables.tcp_events["conn"]) == 0


def test_a_connection_joined_midstream_knows_its_client(tmp_path: Path) -> None:
    dialogue = talk(Dialogue(client_port=80, server_port=40000).open(), PAIRS[:4])
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets[3:]))
    assert tables.connections["midstream"].tolist() == [True]
    assert tables.connections["client_port"].tolist() == [80]
    assert (tables.messages["kind"] == MessageKind.REQUEST).sum() == 4


def test_a_reset_ends_the_connection_and_the_open_message(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n")
    dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    dialogue.emit(SERVER, RST | ACK)
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert tables.connections["close_how"].tolist() == [CloseHow.RST]
    assert tables.messages["flags"].tolist() == [MessageFlag.NONE, MessageFlag.UNFINISHED]
    assert tables.connections["closed_ns"].tolist() == [dialogue.packets[-1][0]]


def test_times_of_a_connection_are_those_of_its_packets(tmp_path: Path) -> None:
    dialogue = talk(Dialogue().open(), PAIRS[:1]).close()
    times = [time for time, _ in dialogue.packets]
    row = read(write_pcap(tmp_path / "a.pcap", dialogue.packets)).connections
    flags = [frame[47] for _, frame in dialogue.packets]
    assert row["syn_ns"].tolist() == [times[0]]
    assert row["established_ns"].tolist() == [times[2]]
    assert row["closed_ns"].tolist() == [times[next(i for i, flag in enumerate(flags) if flag & FIN)]]
    assert (row["first_ns"].tolist(), row["last_ns"].tolist()) == ([times[0]], [times[-1]])


def test_keep_alive_probes_are_not_retransmissions(tmp_path: Path) -> None:
    dialogue = talk(Dialogue().open(), PAIRS[:1])
    dialogue.now_ns += 60 * 10**9
    dialogue.emit(CLIENT, ACK, b"\0", seq=dialogue.seq[CLIENT] - 1)
    dialogue.emit(SERVER, ACK)
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    assert tables.counter("tcp.keep_alive") == 1
    assert tables.connections["retransmits_to_server"].tolist() == [0]


def test_a_small_memory_bound_is_kept_and_named(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n")
    body = b"y" * 400_000
    dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + body)
    first = next(i for i, (_, frame) in enumerate(dialogue.packets) if b"200 OK" in frame)
    moved = dialogue.packets.pop(first + 1)
    dialogue.packets.append(moved)  # comes after everything else
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets), limits={"held_bytes": 100_000})
    assert tables.counter("reassembly.memory_bound") >= 1
    assert tables.messages["missing_bytes"].tolist() == [0, 1448]


def test_the_idlest_connections_are_dropped_at_the_bound(tmp_path: Path) -> None:
    packets: list[Packet] = []
    for number in range(300):
        dialogue = Dialogue(client_port=20000 + number, now_ns=10**18 + number * 10**6)
        packets += dialogue.open().send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n").packets
    tables = read(write_pcap(tmp_path / "a.pcap", packets), limits={"connections": 100})
    evicted = tables.connections["close_how"] == CloseHow.EVICTED
    assert evicted.sum() == tables.counter("reassembly.evicted") == 200
    assert len(tables.messages["conn"]) == 300
