"""Every encapsulation gives the messages of the plain exchange, and says where it was seen."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest
from capture_packets import (
    CLIENT,
    SERVER,
    START_NS,
    Dialogue,
    Packet,
    ethernet,
    ipv4,
    ipv6,
    message_rows,
    read_pcap,
    tcp_header,
    unaccounted,
    write_pcap,
)

from tapscope import capture
from tapscope.store.codes import TapKind, tap_point_text

SALT = bytes(range(16))
OVERLAYS = Path(__file__).resolve().parent.parent / "pcaps" / "overlays"

TAP_POINTS = {
    "erspan1": "erspan 0",
    "erspan2": "erspan 12",
    "erspan2_in_vlan_of_vlan": "erspan 12",
    "erspan3": "erspan 12",
    "erspan3_switch_time": "erspan 12",
    "ether_ip": "ip-in-ip",
    "geneve": "geneve 5001",
    "gre": "gre",
    "gre_bridged": "gre key 4242",
    "gre_in_udp": "gre",
    "gre_key_sequence_checksum": "gre key 4242",
    "gre_over_ipv6": "gre",
    "ip4_in_ip6": "ip-in-ip",
    "ip6_in_ip4": "ip-in-ip",
    "ip6_in_ip6": "ip-in-ip",
    "ip_in_ip": "ip-in-ip",
    "link_pppoe": "pppoe 77",
    "mpls": "mpls 3000",
    "mpls_in_udp": "mpls 3000",
    "mpls_pseudowire": "mpls 3000",
    "mpls_pseudowire_control_word": "mpls 3000",
    "nvgre": "nvgre 5001",
    "pppoe": "pppoe 77",
    "pptp": "gre",
    "qinq": "vlan 100.20",
    "twice_two_vlans": "vlan 10",
    "tzsp": "tzsp",
    "vlan": "vlan 100",
    "vxlan": "vxlan 5001",
    "vxlan_gpe": "vxlan 5001",
    "vxlan_in_erspan2": "erspan 12",
    "vxlan_in_ip_fragments": "vxlan 5001",
    "vxlan_linux_port": "vxlan 5001",
}
"""What is not named is untagged."""

NAMES = sorted(path.stem for path in OVERLAYS.glob("*.pcap") if path.stem != "overlapping_tenants")
ALONE = {"decode.erspan_timestamp_not_utc", "decode.erspan_timestamp", "decode.datagram_joined"}
ALONE |= {"decode.fragments_joined"}


def read(path: Path, **options: object) -> capture.CaptureTables:
    tables = capture.read_files([path], salt=SALT, **options)  # type: ignore[arg-type]
    assert unaccounted(tables) == []
    return tables


@pytest.fixture(scope="module")
def plain() -> list[tuple[object, ...]]:
    rows = message_rows(read(OVERLAYS / "plain.pcap"))
    assert len(rows) == 10
    return rows


def test_every_capture_is_named_here() -> None:
    assert set(TAP_POINTS) <= set(NAMES)
    assert len(NAMES) > 45


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_those_of_the_plain_exchange(name: str, plain: list[tuple[object, ...]]) -> None:
    tables = read(OVERLAYS / f"{name}.pcap")
    assert message_rows(tables) == plain
    taps = {tap_point_text(code) for code in tables.connections["tap_point"].tolist()}
    assert taps == {TAP_POINTS.get(name, "untagged")}
    places = {"twice": 2, "thrice": 3}.get(name.partition("_")[0], 1)
    packets = 22 * places
    odd = {n: v for n, v, _ in tables.counters if n.startswith("decode.") and n not in ALONE}
    assert odd == {}
    assert tables.counter("tcp.segments") == packets
    assert tables.counter("tcp.mirror_copy") == packets - 22
    assert tables.connections["duplicates"].sum() == packets - 22
    for name_ in ("retransmission", "syn_retransmission", "syn_ack_retransmission", "duplicate_ack"):
        assert tables.counter(f"tcp.{name_}") == 0, name_
    assert sum(row[1] for row in tables.tap_points) == tables.sources[0]["packets"]
    assert sum(row[2] for row in tables.tap_points) == tables.sources[0]["bytes"]
    assert sum(row[3] for row in tables.tap_points) == packets - 22


def test_captures_come_out_of_their_generator(tmp_path: Path) -> None:
    pytest.importorskip("scapy")
    spec = importlib.util.spec_from_file_location("overlays", OVERLAYS / "overlays.py")
    assert spec is not None
    assert spec.loader is not None
    overlays = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(overlays)
    overlays.main(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.pcap")}
    assert made == {path.name: path.read_bytes() for path in OVERLAYS.glob("*.pcap")}


@pytest.mark.parametrize("name", [*NAMES, "overlapping_tenants"])
def test_cut_at_any_length_every_byte_is_named(name: str, tmp_path: Path) -> None:
    path = OVERLAYS / f"{name}.pcap"
    link = struct.unpack("<I", path.read_bytes()[20:24])[0]
    packets = read_pcap(path)
    longest = max(len(frame) for _, frame in packets)
    for snaplen in [*range(1, min(longest, 140)), *range(140, longest, 37)]:
        tables = read(write_pcap(tmp_path / "a.pcap", packets, snaplen=snaplen, link_type=link))
        assert tables.counter("packets") == len(packets)


def test_tenants_with_the_same_addresses_are_two_connections() -> None:
    tables = read(OVERLAYS / "overlapping_tenants.pcap")
    assert [tap_point_text(code) for code in tables.connections["tap_point"].tolist()] == [
        "vxlan 5001",
        "vxlan 5002",
    ]
    assert tables.messages["wire_bytes"].tolist() == [43, 43, 42, 42]
    assert tables.messages["request"].tolist() == [-1, -1, 0, 1]
    assert tables.connections["close_how"].tolist() == [1, 1]
    assert tables.counter("tcp.same_addresses_elsewhere") == 1
    assert tables.counter("tcp.port_reused") == 0


def request_frames(count: int = 3, client_port: int = 40000) -> list[Packet]:
    dialogue = Dialogue(client_port=client_port, step_ns=1000).open()
    for number in range(count):
        dialogue.send(CLIENT, b"GET /a/%d HTTP/1.1\r\n\r\n" % number)
        dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 800\r\n\r\n" + b"x" * 800)
    return dialogue.close().packets


def vxlan(frame: bytes, port: int = 4789, flags: int = 8, vni: int = 7) -> bytes:
    body = struct.pack("!BxxxI", flags, vni << 8) + frame
    return ethernet(
        ipv4("10.9.9.1", "10.9.9.2", struct.pack("!HHHH", 5, port, 8 + len(body), 0) + body, 1, 17)
    )


def test_a_tunnel_without_a_packet_is_named(tmp_path: Path) -> None:
    gre = ethernet(ipv4("10.9.9.1", "10.9.9.2", b"\0\0\x12\x34" + b"\0" * 40, 1, 47))
    frames = [vxlan(ethernet(b"\0" * 50, 0x1234)), gre, vxlan(b"\0" * 6)]
    tables = read(write_pcap(tmp_path / "a.pcap", [(START_NS, frame) for frame in frames]))
    assert tables.counter("decode.tunnel_without_packet.vxlan") == 2
    assert tables.counter("decode.tunnel_without_packet.gre") == 1
    assert tables.counter("decode.unknown_ethertype") == 2
    assert tables.counter("decode.short_ethernet") == 1


def test_udp_that_only_has_the_port_of_a_tunnel_is_udp(tmp_path: Path) -> None:
    frames = [vxlan(ethernet(b"\0" * 50), flags=0), vxlan(request_frames()[0][1], port=4000)]
    path = write_pcap(tmp_path / "a.pcap", [(START_NS, frame) for frame in frames])
    assert read(path).counter("decode.udp") == 2
    tables = read(path, limits={"vxlan_port": 4000})
    assert tables.counter("decode.udp") == 1
    assert tables.counter("tcp.segments") == 1


def test_tunnels_inside_tunnels_end_somewhere(tmp_path: Path) -> None:
    packet = ipv4("10.0.0.1", "10.0.0.2", tcp_header(1, 2, 3, 4, 2))
    deep = []
    for depth in range(12):
        deep.append((START_NS + depth, ethernet(packet)))
        packet = ipv4("10.0.0.1", "10.0.0.2", packet, protocol=4)
    tables = read(write_pcap(tmp_path / "a.pcap", deep))
    assert tables.counter("tcp.segments") == 9
    assert tables.counter("decode.too_deep") == 3


def test_a_packet_that_the_mirror_cut_misses_bytes_by_name(tmp_path: Path) -> None:
    frames = [(at, vxlan(frame[:300])) for at, frame in request_frames(1)]
    tables = read(write_pcap(tmp_path / "a.pcap", frames))
    cut = 14 + 20 + 20 + 40 + 800 - 300
    assert tables.counter("missing.cut_by_snaplen") == cut
    assert tables.messages["missing_bytes"].tolist() == [0, cut]


# --- fragments ---


def fragments(frame: bytes, size: int, ip_id: int) -> list[bytes]:
    """An IPv4 frame in pieces of `size` bytes of payload."""
    payload = frame[34:]
    addresses = [".".join(str(byte) for byte in frame[at : at + 4]) for at in (26, 30)]
    out = []
    for at in range(0, len(payload), size):
        more = 0x2000 if at + size < len(payload) else 0
        part = payload[at : at + size]
        out.append(ethernet(ipv4(*addresses, part, ip_id, frame[23], more | at // 8)))
    return out


def fragmented(packets: list[Packet], size: int = 64) -> list[Packet]:
    out = []
    for number, (at, frame) in enumerate(packets, start=1):
        parts = fragments(frame, size, number) if len(frame) > 34 + size else [frame]
        out += [(at + i, part) for i, part in enumerate(parts)]
    return out


def without_times(tables: capture.CaptureTables) -> list[tuple[object, ...]]:
    return message_rows(tables, times=False)


def test_fragments_in_any_order_and_twice_give_the_same_messages(tmp_path: Path) -> None:
    whole = without_times(read(write_pcap(tmp_path / "whole.pcap", request_frames())))
    rng = np.random.default_rng(5)
    for _ in range(20):
        shuffled: list[Packet] = []
        for number, (at, frame) in enumerate(request_frames(), start=1):
            parts = fragments(frame, 8 * int(rng.integers(1, 40)), number)
            parts += [parts[int(i)] for i in rng.integers(0, len(parts), 3)]
            shuffled += [(at, parts[int(i)]) for i in rng.permutation(len(parts))]
        tables = read(write_pcap(tmp_path / "a.pcap", shuffled))
        assert without_times(tables) == whole
        assert tables.counter("decode.fragment_overlap") == 0
        assert tables.counter("decode.fragment_incomplete") == 0


def test_numbers_used_again_are_no_copies_where_the_clock_was_set_back(tmp_path: Path) -> None:
    again = [(at - 60 * 10**9, frame) for at, frame in fragmented(request_frames(client_port=41000))]
    tables = read(write_pcap(tmp_path / "a.pcap", fragmented(request_frames()) + again))
    assert tables.counter("decode.fragment_copy") == 0
    assert len(tables.messages["conn"]) == 12


def test_a_message_is_there_when_its_last_fragment_is(tmp_path: Path) -> None:
    frames = fragmented(request_frames(1))
    begin = {frame: at for at, frame in frames}
    last = max(at for frame, at in begin.items() if b"x" * 20 in frame)
    tables = read(write_pcap(tmp_path / "a.pcap", frames))
    assert tables.messages["begin_ns"][1] == last


def test_a_lost_fragment_loses_its_datagram_by_name(tmp_path: Path) -> None:
    frames = fragmented(request_frames(2), 400)
    gone = next(i for i, (_, frame) in enumerate(frames) if frame.endswith(b"x" * 300))
    tables = read(write_pcap(tmp_path / "a.pcap", frames[:gone] + frames[gone + 1 :]))
    assert tables.counter("decode.fragment_incomplete") == 2
    assert tables.counter("missing.acknowledged_but_not_seen") == 840
    assert tables.messages["request"].tolist() == [-1, -1, 1]


def test_overlapping_fragments_keep_the_bytes_that_came_first(tmp_path: Path) -> None:
    frames = request_frames(1)
    at, request = next(packet for packet in frames if b"GET" in packet[1])
    parts = fragments(request, 8, 77)
    teardrop = ethernet(ipv4("10.0.0.1", "10.0.0.2", b"!" * 24, 77, 6, 0x2000 | 2))
    index = frames.index((at, request))
    for place, texts, spoilt in (
        (1, [], len(b"GET /a/0 HTTP/1.1\r\n\r\n")),
        (len(parts) - 1, ["GET /a/{n}"], 0),
    ):
        mixed = [(at, part) for part in [*parts[:place], teardrop, *parts[place:]]]
        path = write_pcap(tmp_path / "a.pcap", frames[:index] + mixed + frames[index + 1 :])
        tables = read(path)
        assert tables.counter("decode.fragment_overlap") >= 1
        assert tables.counter("tcp.segments") == len(frames)
        assert [text for _, text in tables.classes] == texts
        assert tables.connections["unparsed_to_server"].tolist() == [spoilt]


def test_floods_of_fragments_are_bounded(tmp_path: Path) -> None:
    half = [
        (
            START_NS + i,
            ethernet(ipv4("10.0.0.1", "10.0.0.2", b"z" * 1200, i % 65536, 6, 0x2000 | i % 7 * 1024)),
        )
        for i in range(30_000)
    ]
    tables = read(write_pcap(tmp_path / "a.pcap", half))
    assert tables.counter("decode.fragment_bound") > 20_000
    assert tables.counter("decode.fragment_incomplete") == 30_000
    late = [half[0], (START_NS + 31 * 10**9, half[1][1])]
    tables = read(write_pcap(tmp_path / "b.pcap", late))
    assert tables.counter("decode.fragment_incomplete") == 2
    assert tables.counter("decode.fragment_bound") == 0


def test_fragments_of_impossible_size_are_refused(tmp_path: Path) -> None:
    frames = [
        ethernet(ipv4("10.0.0.1", "10.0.0.2", b"z" * 13, 1, 6, 0x2000)),
        ethernet(ipv4("10.0.0.1", "10.0.0.2", b"z" * 64, 2, 6, 0x1FFF)),
        ethernet(ipv4("10.0.0.1", "10.0.0.2", b"", 3, 6, 0x2001)),
        ethernet(ipv6(1, 2, b"z" * 9, b"\x06\0\0\x01\0\0\0\x05", first=44), 0x86DD),
    ]
    tables = read(write_pcap(tmp_path / "a.pcap", [(START_NS, frame) for frame in frames]))
    assert tables.counter("decode.bad_fragment") == 4


# --- switch time ---


def erspan3(frame: bytes, granularity: int, stamp: int, platform: int | None, upper: int = 0) -> bytes:
    flags = 0x8000 | granularity << 1 | (platform is not None)
    head = struct.pack("!HHIHH", 0x2000, 12, stamp, 0, flags)
    if platform is not None:
        head += struct.pack("!II", platform << 26, upper)
    gre = struct.pack("!HHI", 0x1000, 0x22EB, 1)
    return ethernet(ipv4("10.9.9.1", "10.9.9.2", gre + head + frame, 1, 47))


ARRIVED = START_NS + 5_000_000
SECONDS = START_NS // 10**9


@pytest.mark.parametrize(
    ("granularity", "stamp", "platform", "upper", "time_ns"),
    [
        (2, 1234, 5, SECONDS, START_NS + 1234),  # IEEE 1588 with UTC
        (2, 1234, 6, SECONDS + 37, START_NS + 1234),  # IEEE 1588 with TAI
        (2, 1234, 5, SECONDS - 4, ARRIVED),  # a clock that nobody set
        (2, 1234, None, 0, ARRIVED),  # no seconds
        (2, 10**9, 5, SECONDS, ARRIVED),  # no nanoseconds
        (1, (START_NS // 100) % 2**32, 3, (START_NS // 100) >> 32, START_NS),
        (1, (START_NS // 100) % 2**32, None, 0, ARRIVED),
        (0, (START_NS // 100_000) % 2**32, 7, (START_NS // 100_000) >> 32, START_NS),
        (3, 1234, 5, SECONDS, ARRIVED),  # in units that are not told
        (2, 1234, 1, SECONDS, ARRIVED),  # a platform without time
    ],
)
def test_switch_time_is_taken_where_it_is_utc(
    granularity: int, stamp: int, platform: int | None, upper: int, time_ns: int, tmp_path: Path
) -> None:
    request = ethernet(ipv4("10.0.0.1", "10.0.0.2", tcp_header(1, 80, 5, 5, 24) + b"GET /a HTTP/1.1\r\n\r\n"))
    frame = erspan3(request, granularity, stamp, platform, upper)
    tables = read(write_pcap(tmp_path / "a.pcap", [(ARRIVED, frame)]))
    assert tables.messages["begin_ns"].tolist() == [time_ns]
    taken = time_ns != ARRIVED
    assert tables.counter("decode.erspan_timestamp") == taken
    assert tables.counter("decode.erspan_timestamp_not_utc") == (not taken)


def test_tap_points_have_names() -> None:
    assert tap_point_text(0) == "untagged"
    assert tap_point_text(TapKind.VLAN << 24 | 100) == "vlan 100"
    assert tap_point_text(TapKind.VLAN << 24 | 20 << 12 | 100) == "vlan 100.20"
    assert tap_point_text(TapKind.VXLAN << 24 | 0xFFFFFF) == "vxlan 16777215"
    assert tap_point_text(0x80000007) == "gre key 7"
    assert tap_point_text(77 << 24) == "unknown 77.0"


def test_stats_show_what_came_from_each_tap_point(tmp_path: Path) -> None:
    from tapscope.cli import pipeline
    from tapscope.report.account import tap_points
    from tapscope.store.runfile import RunFile

    path = pipeline.trace([OVERLAYS / "twice_two_vlans.pcap"], tmp_path / "run.db")
    with RunFile.open(path) as run:
        records = tap_points(run)
    assert [(r["tap_point"], r["packets"], r["connections"], r["duplicates"]) for r in records] == [
        ("vlan 10", 22, 2, 0),
        ("vlan 20", 22, 0, 22),
    ]


def in_pppoe(frame: bytes) -> bytes:
    """The IPv4 packet of a frame in PPPoE (RFC 2516), and behind it padding up to 64 bytes, which a careless
    device counted as part of the packet."""
    packet = bytearray(frame[14:])
    padding = bytes(max(0, 64 - 14 - 8 - len(packet)))
    struct.pack_into("!H", packet, 2, len(packet) + len(padding))
    head = struct.pack("!BBHHH", 0x11, 0, 77, 2 + len(packet), 0x0021)
    return ethernet(head + packet + padding, 0x8864)


def test_padding_behind_the_length_of_pppoe_is_no_data(tmp_path: Path) -> None:
    dialogue = Dialogue().open()
    for number in range(4):
        dialogue.send(CLIENT, b"GET /%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % number)
        dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    plain = capture.read_files([write_pcap(tmp_path / "a.pcap", dialogue.close().packets)], salt=SALT)
    wrapped = [(at, in_pppoe(frame)) for at, frame in dialogue.packets]
    tables = capture.read_files([write_pcap(tmp_path / "b.pcap", wrapped)], salt=SALT)
    assert message_rows(tables) == message_rows(plain)
    assert tables.counter("decode.ipv4_longer_than_frame") > 0
    assert tables.counter("tcp.retransmission") == 0
    assert unaccounted(tables) == []
