"""What the mirror doubles is removed; what TCP sends again is never taken for a copy."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from capture_packets import (
    ACK,
    CLIENT,
    FIN,
    PSH,
    RST,
    SERVER,
    START_NS,
    SYN,
    Packet,
    ethernet,
    ipv4,
    ipv6,
    message_rows,
    tcp_header,
    unaccounted,
    write_pcap,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tapscope import capture

SALT = bytes(range(16))
MSS = 1000
ASK = b"GET /a HTTP/1.1\r\n\r\n"
NUMBERED, UNNUMBERED, IP6 = "numbered", "unnumbered", "ip6"


@dataclass
class Lan:
    """One connection in a LAN as a tap at the client's switch sees it: the timestamps' clock stands still,
    and hosts may leave packets unnumbered (id 0, as allowed where they must not be fragmented)."""

    numbering: str
    sack: bool = True
    now_ns: int = START_NS
    packets: list[Packet] = field(default_factory=list)
    retransmissions: int = 0
    duplicate_acks: int = 0

    def __post_init__(self) -> None:
        self.seq = [100, 900]
        self.number = [1, 1000]

    def emit(
        self,
        side: int,
        flags: int,
        data: bytes = b"",
        *,
        seq: int | None = None,
        ack: int | None = None,
        sack: int = 0,
    ) -> None:
        options = b"\x01\x01\x08\x0a" + struct.pack("!II", 7, 7)
        if sack and self.sack:
            options = b"\x01\x01\x05\x0a" + struct.pack("!II", sack, sack + MSS)
        ports = (40000, 80)
        head = tcp_header(
            ports[side],
            ports[1 - side],
            self.seq[side] if seq is None else seq,
            (self.seq[1 - side] if ack is None else ack) if flags & ACK else 0,
            flags,
            options=options,
        )
        self.number[side] += 1
        if self.numbering == IP6:
            frame = ethernet(ipv6(1 + side, 2 - side, head + data), 0x86DD)
        else:
            number = self.number[side] if self.numbering == NUMBERED else 0
            frame = ethernet(ipv4(f"10.0.0.{1 + side}", f"10.0.0.{2 - side}", head + data, number))
        self.packets.append((self.now_ns, frame))

    def wait(self, ns: int) -> None:
        self.now_ns += ns

    def open(self) -> None:
        self.emit(CLIENT, SYN)
        self.seq[CLIENT] += 1
        self.wait(50_000)
        self.emit(SERVER, SYN | ACK)
        self.seq[SERVER] += 1
        self.wait(50_000)
        self.emit(CLIENT, ACK)
        self.wait(20_000)

    def exchange(self, rng: random.Random, lose: bool) -> None:
        """A request and an answer of several segments, one of which the network loses behind the tap."""
        self.emit(CLIENT, PSH | ACK, ASK)
        self.seq[CLIENT] += len(ASK)
        self.wait(rng.randrange(50_000, 300_000))
        segments = rng.randrange(5, 12)
        body = bytes(rng.randrange(256) for _ in range(segments * MSS - 60))
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body)
        answer = head + b"X: " + b"y" * (segments * MSS - len(body) - len(head) - 7) + b"\r\n\r\n" + body
        assert len(answer) == segments * MSS
        begin = self.seq[SERVER]
        lost = rng.randrange(0, segments - 3) if lose else -1
        for number in range(segments):
            self.emit(SERVER, ACK, answer[number * MSS : (number + 1) * MSS], seq=begin + number * MSS)
            self.wait(rng.randrange(2_000, 30_000))
            if lost < 0 or number < lost:
                self.emit(CLIENT, ACK, ack=begin + (number + 1) * MSS)
            elif number > lost:
                self.emit(CLIENT, ACK, ack=begin + lost * MSS, sack=begin + number * MSS)
                self.duplicate_acks += 1
            self.wait(rng.randrange(2_000, 30_000))
        if lost >= 0:
            self.wait(rng.randrange(10_000, 1_500_000))
            self.emit(SERVER, ACK, answer[lost * MSS : (lost + 1) * MSS], seq=begin + lost * MSS)
            self.retransmissions += 1
            self.wait(rng.randrange(20_000, 100_000))
            self.emit(CLIENT, ACK, ack=begin + segments * MSS)
        self.seq[SERVER] += segments * MSS
        self.wait(rng.randrange(20_000, 300_000))

    def close(self) -> None:
        self.emit(CLIENT, FIN | ACK)
        self.seq[CLIENT] += 1
        self.wait(40_000)
        self.emit(SERVER, FIN | ACK)
        self.seq[SERVER] += 1
        self.wait(40_000)
        self.emit(CLIENT, ACK)
        self.wait(40_000)


def conversation(numbering: str, seed: int, *, lose: bool, sack: bool = True) -> Lan:
    rng = random.Random(seed)
    lan = Lan(numbering, sack)
    lan.open()
    for _ in range(6):
        lan.exchange(rng, lose and rng.random() < 0.6)
    lan.close()
    return lan


def mirrored(packets: list[Packet], seed: int, most_ns: int, share: float = 1.0) -> tuple[list[Packet], int]:
    """The first packet at once, a share of the others a little later, again; and how many copies."""
    rng = random.Random(seed)
    out, last, copies = [(at, 0, frame) for at, frame in packets], 0, 0
    for at, frame in packets:
        if not copies or rng.random() < share:
            last = max(last + 1, at + (rng.randrange(100, most_ns) if copies else 100))
            out.append((last, 1, frame))
            copies += 1
    return [(at, frame) for at, _, frame in sorted(out, key=lambda item: item[:2])], copies


def read(path: Path) -> capture.CaptureTables:
    tables = capture.read_files([path], salt=SALT)
    assert unaccounted(tables) == []
    return tables


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    numbering=st.sampled_from([NUMBERED, UNNUMBERED, IP6]),
    sack=st.booleans(),
)
def test_a_retransmission_is_never_a_copy(
    seed: int, numbering: str, sack: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lan = conversation(numbering, seed, lose=True, sack=sack)
    tables = read(write_pcap(tmp_path_factory.mktemp("r") / "a.pcap", lan.packets))
    assert tables.counter("tcp.mirror_copy") == 0
    assert tables.counter("tcp.retransmission") == lan.retransmissions
    assert tables.connections["retransmits_to_client"].tolist() == [lan.retransmissions]
    assert tables.counter("tcp.duplicate_ack") == lan.duplicate_acks


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), numbering=st.sampled_from([NUMBERED, UNNUMBERED, IP6]))
def test_a_doubled_tap_gives_the_messages_of_a_single_one(
    seed: int, numbering: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("d")
    lan = conversation(numbering, seed, lose=False)
    single = read(write_pcap(folder / "a.pcap", lan.packets))
    doubled, copies = mirrored(lan.packets, seed, 20_000)
    tables = read(write_pcap(folder / "b.pcap", doubled))
    assert message_rows(tables) == message_rows(single)
    assert tables.counter("tcp.mirror_copy") == copies
    assert tables.connections["duplicates"].tolist() == [copies]
    for name in (
        "retransmission",
        "syn_retransmission",
        "syn_ack_retransmission",
        "keep_alive",
        "duplicate_ack",
    ):
        assert tables.counter(f"tcp.{name}") == 0, name


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    numbering=st.sampled_from([NUMBERED, UNNUMBERED, IP6]),
    share=st.sampled_from([1.0, 0.5, 0.05]),
    most_ns=st.sampled_from([2_000, 50_000, 900_000]),
    sack=st.booleans(),
)
def test_retransmissions_of_a_doubled_tap_are_all_there(
    seed: int,
    numbering: str,
    share: float,
    most_ns: int,
    sack: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("m")
    lan = conversation(numbering, seed, lose=True, sack=sack)
    single = read(write_pcap(folder / "a.pcap", lan.packets))
    doubled, copies = mirrored(lan.packets, seed, most_ns, share)
    tables = read(write_pcap(folder / "b.pcap", doubled))
    assert message_rows(tables, flags=False) == message_rows(single, flags=False)
    assert tables.counter("tcp.retransmission") >= lan.retransmissions
    # Bare acknowledgements without number and SACK are alike whether doubled or sent again.
    alike = 0 if sack or numbering == NUMBERED else lan.duplicate_acks
    assert tables.counter("tcp.mirror_copy") <= copies + alike
    if numbering == NUMBERED:
        assert tables.counter("tcp.retransmission") == lan.retransmissions
        assert tables.counter("tcp.mirror_copy") == copies


def test_a_timer_that_sends_again_is_no_mirror(tmp_path: Path) -> None:
    for after_ns, copies in ((2_000_000, 0), (4_900_000, 0), (200_000_000, 0), (300_000, 1)):
        lan = Lan(UNNUMBERED)
        lan.open()
        lan.emit(CLIENT, PSH | ACK, ASK)
        lan.wait(after_ns)
        lan.emit(CLIENT, PSH | ACK, ASK)
        tables = read(write_pcap(tmp_path / "a.pcap", lan.packets))
        assert tables.counter("tcp.mirror_copy") == copies, after_ns
        assert tables.counter("tcp.retransmission") == 1 - copies


@pytest.mark.parametrize("numbering", [NUMBERED, UNNUMBERED])
def test_one_way_captures_count_what_is_sure(numbering: str, tmp_path: Path) -> None:
    lan = conversation(numbering, 3, lose=True)
    port = struct.pack("!H", 80)
    answers = [packet for packet in lan.packets if packet[1][34:36] == port]
    tables = read(write_pcap(tmp_path / "a.pcap", answers))
    assert tables.counter("tcp.mirror_copy") == 0
    assert tables.counter("tcp.retransmission") == lan.retransmissions
    doubled, copies = mirrored(answers, 3, 1_000)
    tables = read(write_pcap(tmp_path / "b.pcap", doubled))
    assert tables.counter("tcp.retransmission") >= (lan.retransmissions if numbering == NUMBERED else 0)
    assert (
        tables.counter("tcp.mirror_copy") + tables.counter("tcp.retransmission")
        == copies + lan.retransmissions
    )


def test_resets_and_keep_alives_are_copied_too(tmp_path: Path) -> None:
    lan = Lan(NUMBERED)
    lan.open()
    lan.emit(CLIENT, PSH | ACK, ASK)
    lan.seq[CLIENT] += len(ASK)
    lan.wait(50_000)
    lan.emit(SERVER, ACK)
    for probe in (b"", b"\0"):
        lan.wait(2_000_000_000)
        lan.emit(CLIENT, ACK, probe, seq=lan.seq[CLIENT] - 1)
        lan.wait(30_000)
        lan.emit(SERVER, ACK)
    lan.wait(1_000_000)
    lan.emit(CLIENT, RST | ACK)
    doubled, copies = mirrored(lan.packets, 1, 20_000)
    tables = read(write_pcap(tmp_path / "a.pcap", doubled))
    assert tables.counter("tcp.mirror_copy") == copies
    assert tables.counter("tcp.keep_alive") == 2
    assert tables.counter("tcp.rst") == 1
    assert tables.counter("tcp.retransmission") == 0
    assert tables.counter("tcp.duplicate_ack") == 0


def test_the_same_bytes_behind_an_address_translator_are_another_connection(tmp_path: Path) -> None:
    lan = conversation(NUMBERED, 1, lose=False)
    inside = lan.packets
    outside = [
        (at + 5_000, frame.replace(bytes([10, 0, 0, 1]), bytes([203, 0, 113, 9]))) for at, frame in inside
    ]
    both = sorted(inside + outside, key=lambda packet: packet[0])
    tables = read(write_pcap(tmp_path / "a.pcap", both))
    assert tables.counter("tcp.mirror_copy") == 0
    assert len(tables.connections["protocol"]) == 2
    assert len(tables.messages["conn"]) == 2 * 12


# --- several captures, one direction ---


def halves(packets: list[Packet]) -> tuple[list[Packet], list[Packet]]:
    """What each of two taps sees that watch one direction each."""
    asks = [packet for packet in packets if packet[1][36:38] == struct.pack("!H", 80)]
    return asks, [packet for packet in packets if packet not in asks]


def out_of_place(packets: list[Packet], rng: random.Random, most_ns: int) -> list[Packet]:
    """Packets in the order in which queues of a network card give them up; their times stay."""
    return sorted(packets, key=lambda packet: packet[0] + rng.randrange(most_ns))


def test_two_taps_of_a_direction_each_give_the_messages_of_one(tmp_path: Path) -> None:
    lans = [conversation(NUMBERED, seed, lose=False) for seed in range(4)]
    whole: list[Packet] = []
    for number, lan in enumerate(lans):
        port = struct.pack("!H", 40_000 + number)
        whole += [
            (at + number * 977, frame.replace(struct.pack("!H", 40_000), port)) for at, frame in lan.packets
        ]
    whole.sort(key=lambda packet: packet[0])
    one = message_rows(read(write_pcap(tmp_path / "a.pcap", whole)))
    assert len(one) == 4 * 12
    for seed in range(20):
        rng = random.Random(seed)
        paths = [
            write_pcap(tmp_path / f"{name}.pcap", out_of_place(half, rng, 300_000))
            for name, half in zip("bc", halves(whole), strict=True)
        ]
        tables = capture.read_files(paths, salt=SALT)
        assert unaccounted(tables) == []
        assert message_rows(tables) == one
        assert tables.counter("source.late_packet") == 0
        assert tables.counter("tcp.gap") == 0


def test_two_taps_on_one_path_count_copies_between_them(tmp_path: Path) -> None:
    lan = conversation(UNNUMBERED, 7, lose=False)
    behind = [(at + 40_000, frame[:22] + bytes([63]) + frame[23:]) for at, frame in lan.packets]
    paths = [write_pcap(tmp_path / "a.pcap", lan.packets), write_pcap(tmp_path / "b.pcap", behind)]
    tables = capture.read_files(paths, salt=SALT)
    assert message_rows(tables) == message_rows(read(paths[0]))
    assert tables.counter("tcp.mirror_copy") == len(lan.packets)
    assert tables.counter("tcp.retransmission") == 0


def test_a_capture_out_of_order_beyond_the_window_is_counted(tmp_path: Path) -> None:
    lan = conversation(NUMBERED, 2, lose=False)
    moved = [*lan.packets[1:], lan.packets[0]]
    path = write_pcap(tmp_path / "a.pcap", moved)
    span = max(at for at, _ in moved) - lan.packets[0][0]
    for window_ns, late in ((span - 1, 1), (span, 0)):
        tables = capture.read_files([path], limits={"reorder_window_ns": window_ns})
        assert tables.counter("source.late_packet") == late


def test_a_packet_out_of_place_does_not_hold_up_its_capture(tmp_path: Path) -> None:
    """A single packet is 9 ms early in its file; the other tap has hundreds of packets in that time."""
    ask, answer = halves(conversation(NUMBERED, 1, lose=False).packets)
    crowd = [
        (START_NS + number * 1_000, ethernet(ipv4("10.7.0.1", "10.7.0.2", bytes(30), number % 65536, 17)))
        for number in range(9_000)
    ]
    early = (START_NS + 9_000_000, crowd[0][1])
    paths = [
        write_pcap(tmp_path / "a.pcap", [ask[0], early, *ask[1:]]),
        write_pcap(tmp_path / "b.pcap", sorted(answer + crowd, key=lambda packet: packet[0])),
    ]
    tables = capture.read_files(paths, salt=SALT)
    assert tables.counter("tcp.gap") == 0
    assert tables.counter("tcp.out_of_order") == 0
    assert len(tables.messages["conn"]) == 12
    without = capture.read_files(paths, salt=SALT, limits={"reorder_window_ns": 0})
    assert without.counter("source.late_packet") > 0
    assert (
        without.counter("tcp.duplicate_ack")
        + without.counter("tcp.out_of_order")
        + without.counter("tcp.gap")
        > 0
    )


@pytest.mark.parametrize("side", [0, 1])
def test_one_direction_alone_gives_its_messages_with_their_times(side: int, tmp_path: Path) -> None:
    whole = conversation(NUMBERED, 5, lose=False).packets
    both = read(write_pcap(tmp_path / "a.pcap", whole))
    tables = read(write_pcap(tmp_path / "b.pcap", halves(whole)[side]))
    mine = both.messages["direction"] == side
    alone = tables.messages["direction"] == side
    assert alone.sum() == 6
    for name in ("begin_ns", "end_ns", "wire_bytes", "missing_bytes", "status", "tcp_seq", "kind"):
        assert tables.messages[name][alone].tolist() == both.messages[name][mine].tolist(), name
    assert (tables.messages["request"] == -1).all()
    missing = ("missing_to_client", "missing_to_server")[side]
    lost = int(both.messages["wire_bytes"][~mine].sum())
    # The FIN of the side that is not seen takes a sequence number, like a byte.
    assert tables.connections[missing][0] in (lost, lost + 1)
    assert tables.connections[("missing_to_server", "missing_to_client")[side]].tolist() == [0]
