"""Captures with packets displaced, duplicated and lost: the same messages, or the loss named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, write_pcap
from damaged_captures import PCAPS
from generated import KINDS
from generated_captures import Read, assert_exact
from impairment import MOVED, TRAFFIC, Judged, Traffic, judge
from recorded import impaired, repeated

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind

BYTES = 12e6
SEEDS = (1, 2, 3)
ASK = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
FIRST_BYTE = 1001  # sequence number, of a Dialogue's client


@pytest.mark.parametrize("kind", KINDS)
def test_displaced_and_duplicated_packets_change_nothing(generator: Path, tmp_path: Path, kind: str) -> None:
    read = Read(generator, tmp_path, kind, bytes=BYTES, **MOVED)
    assert_exact(read)
    assert read.tables.counter("tcp.out_of_order") > 0
    assert read.tables.counter("tcp.mirror_copy") > 0
    assert read.tables.counter("tcp.retransmission") == 0


def recorded_traffic() -> list[object]:
    return [pytest.param(traffic, id=traffic.name) for traffic in TRAFFIC if traffic.captures]


@pytest.mark.parametrize("traffic", recorded_traffic())
def test_displaced_and_duplicated_packets_of_recorded_captures_change_nothing(
    tmp_path: Path, traffic: Traffic
) -> None:
    read = traffic.read(Path(), tmp_path, 0, 1, **MOVED)
    rows = read.rows
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(read.truth)))
    for column in ("begin_ns", "end_ns", "wire_bytes", "kind", "protocol"):
        np.testing.assert_array_equal(read.tables.messages[column], read.truth[column][rows], err_msg=column)
    paired = read.tables.messages["request"]
    np.testing.assert_array_equal(np.where(paired >= 0, rows[paired], -1), read.truth["request"][rows])


@pytest.mark.parametrize("traffic", [pytest.param(traffic, id=traffic.name) for traffic in TRAFFIC])
def test_lost_packets_cost_only_messages_whose_first_byte_was_lost(
    generator: Path, tmp_path: Path, traffic: Traffic
) -> None:
    total = Judged()
    for seed in SEEDS:
        read = traffic.read(generator, tmp_path, BYTES, seed, lost=0.002, **MOVED)
        total += judge(read.tables, read.truth)
    if traffic.kind != "http_large":  # of its packets hardly one has a first byte
        assert total.lost > 0
    # Lines of memcached, which carry no length, can only be told at the start of a packet after a loss.
    bar = 0.998 if traffic.name == "memcached" else 0.9994
    assert total.requests_found >= bar * total.requests, total
    assert total.responses_found >= 0.9897 * total.responses, total
    assert total.commands_found >= 0.9994 * total.commands, total
    # A request whose answer was lost stays unanswered: no response takes another one's request.
    assert total.wrong == 0, total
    assert total.wrong_inferred + total.unpaired <= 0.001 * total.pairs, total
    # What begins at no message's first byte says so.
    assert total.invented <= 0.001 * total.requests, total


def test_with_four_requests_open_an_answer_is_right_or_flagged(generator: Path, tmp_path: Path) -> None:
    """Where the first requests of a connection are lost, the pairs of all others would be shifted."""
    window = next(traffic for traffic in TRAFFIC if traffic.kind == "http_window")
    total = Judged()
    for seed in SEEDS:
        read = window.read(generator, tmp_path, BYTES / 3, seed, lost=0.02, **MOVED)
        total += judge(read.tables, read.truth)
    assert total.wrong == 0, total
    assert total.right > 0.97 * total.pairs, total


def visits(seed: int) -> list[Packet]:
    """Connections of three requests that are answered and a fourth that never is."""
    rng = np.random.default_rng(seed)
    packets: list[Packet] = []
    for number in range(400):
        start = 10**18 + int(rng.integers(0, 10**9))
        dialogue = Dialogue(client_port=10_000 + number, now_ns=start).open()
        for step in range(4):
            dialogue.send(CLIENT, ASK % step)
            if step < 3:
                size = int(rng.integers(0, 3000))
                head = b"HTTP/1.1 20%d OK\r\nContent-Length: %d\r\n\r\n" % (step, size)
                dialogue.send(SERVER, head + b"x" * size)
        packets += dialogue.close().packets
    return sorted(packets, key=lambda packet: packet[0])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [0.0, 0.002, 0.02])
def test_a_request_that_was_never_answered_is_unanswered(tmp_path: Path, seed: int, lost: float) -> None:
    kept, gone = impaired(visits(seed), seed, lost=lost, **MOVED)
    assert bool(gone) == (lost > 0)
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", kept)], salt=bytes(16))
    m = tables.messages
    ports = tables.connections["client_port"][m["conn"]]
    for port in np.unique(ports):
        asked = np.flatnonzero((ports == port) & (m["kind"] == MessageKind.REQUEST))
        answered = {int(m["request"][row]): int(m["status"][row]) for row in np.flatnonzero(ports == port)}
        answered.pop(-1, None)
        for row in asked:
            # Its place in the stream tells which request it is: all are of one size.
            step, rest = divmod(int(m["tcp_seq"][row]) - FIRST_BYTE, len(ASK % 0))
            assert rest == 0
            assert answered.get(int(row), 200 + step) == 200 + step, f"port {port}"
            if step == 3:
                assert int(row) not in answered, f"port {port}"
                if lost == 0.0:
                    assert not m["flags"][row] & MessageFlag.ANSWER_LOST


@pytest.mark.parametrize(
    "name", ["http2/nginx.pcap", "fastcgi/go_multiplexed.pcap", "mediawiki_http_mysql.pcap"]
)
def test_no_message_begins_behind_its_end(tmp_path: Path, name: str) -> None:
    """Where packets stand in any order, and copies are read in place of what they are copies of, the first
    piece of a message may be stamped behind its last one."""
    packets = repeated([PCAPS / name], 4, seed=1)[:800]
    for seed in range(60):
        mixed, _ = impaired(packets, seed, displaced=0.5, duplicated=0.5, places=(8, 64, 200)[seed % 3])
        m = capture.read_files([write_pcap(tmp_path / "a.pcap", mixed)]).messages
        ended = m["end_ns"] >= 0
        assert ended.any()
        assert (m["begin_ns"] <= m["end_ns"])[ended].all(), f"seed {seed}"
