"""Writes the captures of this folder: one small exchange, HTTP and MySQL, in every encapsulation.

Needs scapy (`pip install tapscope[test]`): python pcaps/overlays/overlays.py [FOLDER]
Addresses, times and contents are fixed, so that the files come out the same each time.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import GRE, IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, fragment6
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

START_NS = 1_750_000_000_000_000_000
STEP_NS = 100_000
CLIENT, WEB, DATABASE = 1, 2, 3
FIN, SYN, PSH, ACK = 1, 2, 8, 16
DETOUR_NS = 3_000_000
"""How much later than its switch the capture sees a packet that carries the switch's time."""
TAI_AHEAD_NS = 37_000_000_000


def mysql(sequence: int, payload: bytes) -> bytes:
    """One packet of the MySQL protocol."""
    return len(payload).to_bytes(3, "little") + bytes([sequence]) + payload


def mysql_dialogue() -> list[tuple[int, bytes]]:
    """Greeting, login, one text query with two rows, quit: (sender, bytes)."""
    capabilities = 0x0000_A20D  # long password, schema, 4.1 protocol, transactions, secure connection
    greeting = b"\x0a8.0.36\0" + struct.pack("<I", 7) + b"12345678\0"
    greeting += struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, 0, 21) + b"\0" * 10 + b"123456789012\0"
    login = (
        struct.pack("<IIB", capabilities, 1 << 24, 45)
        + b"\0" * 23
        + b"shop\0"
        + b"\x14"
        + b"h" * 20
        + b"bb\0"
    )
    ok = b"\0\0\0" + struct.pack("<HH", 2, 0)
    column = b"\x03def\x02bb\x05story\x05story\x02id\x02id\x0c" + struct.pack("<HIBHBH", 63, 11, 3, 0, 0, 0)
    end = b"\xfe" + struct.pack("<HH", 0, 2)
    rows = mysql(4, b"\x0242") + mysql(5, b"\x0243")
    answer = mysql(1, b"\x01") + mysql(2, column) + mysql(3, end) + rows + mysql(6, end)
    return [
        (DATABASE, mysql(0, greeting)),
        (WEB, mysql(1, login)),
        (DATABASE, mysql(2, ok)),
        (WEB, mysql(0, b"\x03SELECT id FROM story WHERE author = 7 AND day > '2025-06-01'")),
        (DATABASE, answer),
        (WEB, mysql(0, b"\x01")),
    ]


HTTP_DIALOGUE = [
    (CLIENT, b"GET /bb/story/42?page=2 HTTP/1.1\r\nHost: shop\r\nCookie: s=abc\r\n\r\n"),
    (WEB, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 600\r\n\r\n" + b"story " * 100),
    (CLIENT, b"POST /bb/comment HTTP/1.1\r\nHost: shop\r\nContent-Length: 9\r\n\r\ntext=fine"),
    (WEB, b"HTTP/1.1 302 Found\r\nLocation: /bb/story/42\r\nContent-Length: 0\r\n\r\n"),
]


class Exchange:
    """Writes down one TCP connection as (sender, TCP segment)."""

    def __init__(self, ends: tuple[int, int], ports: tuple[int, int]) -> None:
        self.ends = ends
        self.ports = dict(zip(ends, ports, strict=True))
        self.seq = dict(zip(ends, (1000, 5000), strict=True))
        self.segments: list[tuple[int, int, Packet]] = []

    def emit(self, sender: int, flags: int, data: bytes = b"") -> None:
        other = self.ends[1] if sender == self.ends[0] else self.ends[0]
        head = TCP(
            sport=self.ports[sender],
            dport=self.ports[other],
            seq=self.seq[sender],
            ack=self.seq[other] if flags & ACK else 0,
            flags=flags,
            window=8192,
        )
        self.segments.append((sender, other, head / Raw(data) if data else head))
        self.seq[sender] += len(data) + (1 if flags & (SYN | FIN) else 0)

    def run(self, dialogue: list[tuple[int, bytes]]) -> Exchange:
        client, server = self.ends
        self.emit(client, SYN)
        self.emit(server, SYN | ACK)
        self.emit(client, ACK)
        for sender, data in dialogue:
            self.emit(sender, PSH | ACK, data)
        self.emit(client, FIN | ACK)
        self.emit(server, FIN | ACK)
        self.emit(client, ACK)
        return self


def exchange() -> list[tuple[int, int, int, Packet]]:
    """(time, sender, receiver, TCP segment); the database is asked inside the first web request."""
    http = Exchange((CLIENT, WEB), (40001, 80)).run(HTTP_DIALOGUE).segments
    database = Exchange((WEB, DATABASE), (40002, 3306)).run(mysql_dialogue()).segments
    ordered = http[:4] + database + http[4:]
    return [(START_NS + i * STEP_NS, *segment) for i, segment in enumerate(ordered)]


def ip4(sender: int, receiver: int, segment: Packet, number: int = 0) -> Packet:
    return IP(src=f"10.0.0.{sender}", dst=f"10.0.0.{receiver}", id=number, ttl=64) / segment


def ip6(sender: int, receiver: int, segment: Packet, number: int = 0) -> Packet:
    return IPv6(src=f"fd00::{sender}", dst=f"fd00::{receiver}") / segment


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def frame(packet: Packet, sender: int = 8, receiver: int = 9) -> Packet:
    return Ether(src=mac(sender), dst=mac(receiver)) / packet


def tunnel(packet: Packet) -> Packet:
    """The way from the mirroring switch to the tap."""
    return frame(IP(src="192.0.2.1", dst="192.0.2.2", ttl=60) / packet)


def tunnel6(packet: Packet) -> Packet:
    return frame(IPv6(src="2001:db8::1", dst="2001:db8::2") / packet)


def udp(port: int, payload: Packet | bytes) -> Packet:
    return tunnel(UDP(sport=49152, dport=port) / (Raw(payload) if isinstance(payload, bytes) else payload))


def erspan3(packet: Packet, time_ns: int, seconds: bool) -> Packet:
    """Type III; with `seconds` the switch's IEEE 1588 time (TAI) in a subheader, else a counter of 100 ns."""
    tai = time_ns + TAI_AHEAD_NS
    stamp = tai % 10**9 if seconds else (time_ns // 100) % 2**32
    granularity = 2 if seconds else 1
    head = ERSPAN_III(session_id=12, timestamp=stamp, gra=granularity, p=1, o=int(seconds))
    subheader = Raw(struct.pack("!II", 5 << 26 | 3 << 16 | 7, tai // 10**9)) if seconds else b""
    flat = bytes(head)[:12] + bytes(subheader) + bytes(packet)
    return tunnel(GRE(proto=0x22EB, seqnum_present=1, sequence_number=1) / Raw(flat))


def pptp(packet: Packet) -> Packet:
    ppp = b"\xff\x03\x00\x21" + bytes(packet)
    return frame(IP(src="192.0.2.1", dst="192.0.2.2", proto=47) / Raw(pptp_header(len(ppp)) + ppp))


def pptp_header(size: int) -> bytes:
    return struct.pack("!HHHHI", 0x3001, 0x880B, size, 99, 1)


def tzsp(packet: Packet) -> Packet:
    tags = b"\0" + b"\x0a\x01\x05" + b"\x01"  # padding, a tag with one byte, the end
    return udp(37008, struct.pack("!BBH", 1, 0, 1) + tags + bytes(packet))


def vxlan_gpe(packet: Packet) -> Packet:
    return udp(4790, struct.pack("!BBBBI", 0x0C, 0, 0, 1, 5001 << 8) + bytes(packet))


def nvgre(packet: Packet) -> Packet:
    return tunnel(GRE(proto=0x6558, key_present=1, key=5001 << 8 | 77) / packet)


Make = Callable[[Packet, int], Packet | list[Packet]]
"""A packet of the exchange (IPv4) and its time -> what the tap sees."""


def extension_headers(packet: Packet) -> Packet:
    whole = packet.copy()
    segment = whole[TCP].copy()
    return frame(
        IPv6(src=whole.src, dst=whole.dst)
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / IPv6ExtHdrFragment(id=1)  # offset 0 and no more: a whole packet
        / segment
    )


def fragments6(packet: Packet) -> list[Packet]:
    if len(packet) <= 300:
        return [frame(packet)]
    parts = fragment6(IPv6(src=packet.src, dst=packet.dst) / IPv6ExtHdrFragment(id=7) / packet[TCP], 300)
    return [frame(part) for part in parts]


def fragments_of_tunnel(packet: Packet) -> list[Packet]:
    whole = udp(4789, VXLAN(vni=5001, flags=8) / frame(packet))[IP]
    whole.id = packet.id + 100
    return [frame(part) for part in fragment(IP(bytes(whole)), 256)]


ETHERNET: dict[str, Make] = {
    "plain": lambda p, t: frame(p),
    "vlan": lambda p, t: frame(Dot1Q(vlan=100) / p),
    "qinq": lambda p, t: Ether(src=mac(8), dst=mac(9)) / Dot1AD(vlan=100) / Dot1Q(vlan=20) / p,
    "mpls": lambda p, t: frame(MPLS(label=17, s=0) / MPLS(label=3000, s=1) / p),
    "mpls_pseudowire": lambda p, t: frame(MPLS(label=3000, s=1) / Raw(bytes(frame(p)))),
    "mpls_pseudowire_control_word": lambda p, t: frame(
        MPLS(label=3000, s=1) / Raw(b"\0" * 4 + bytes(frame(p)))
    ),
    "pppoe": lambda p, t: frame(PPPoE(sessionid=77) / PPP(proto=0x21) / p),
    "gre": lambda p, t: tunnel(GRE() / p),
    "gre_key_sequence_checksum": lambda p, t: tunnel(
        GRE(chksum_present=1, key_present=1, seqnum_present=1, key=4242, sequence_number=5) / p
    ),
    "gre_bridged": lambda p, t: tunnel(GRE(proto=0x6558, key_present=1, key=4242) / frame(p)),
    "gre_over_ipv6": lambda p, t: tunnel6(GRE() / p),
    "nvgre": lambda p, t: nvgre(frame(p)),
    "pptp": lambda p, t: pptp(p),
    "erspan1": lambda p, t: tunnel(GRE(proto=0x88BE) / ERSPAN_I() / frame(p)),
    "erspan2": lambda p, t: tunnel(
        GRE(proto=0x88BE, seqnum_present=1, sequence_number=1) / ERSPAN_II(session_id=12, vlan=20) / frame(p)
    ),
    "erspan2_in_vlan_of_vlan": lambda p, t: frame(
        Dot1Q(vlan=900)
        / IP(src="192.0.2.1", dst="192.0.2.2")
        / GRE(proto=0x88BE, seqnum_present=1)
        / ERSPAN_II(session_id=12)
        / frame(Dot1Q(vlan=20) / p)
    ),
    "erspan3": lambda p, t: erspan3(frame(p), t, seconds=False),
    "erspan3_switch_time": lambda p, t: erspan3(frame(p), t, seconds=True),
    "vxlan": lambda p, t: udp(4789, VXLAN(vni=5001, flags=8) / frame(p)),
    "vxlan_linux_port": lambda p, t: udp(8472, VXLAN(vni=5001, flags=8) / frame(p)),
    "vxlan_gpe": lambda p, t: vxlan_gpe(p),
    "vxlan_in_erspan2": lambda p, t: tunnel(
        GRE(proto=0x88BE, seqnum_present=1)
        / ERSPAN_II(session_id=12)
        / udp(4789, VXLAN(vni=5001, flags=8) / frame(p))
    ),
    "geneve": lambda p, t: udp(
        6081, GENEVE(vni=5001, proto=0x6558, options=[GeneveOptions(data=b"abcdefgh")]) / frame(p)
    ),
    "ip_in_ip": lambda p, t: tunnel(p),
    "ip4_in_ip6": lambda p, t: tunnel6(p),
    "ether_ip": lambda p, t: frame(
        IP(src="192.0.2.1", dst="192.0.2.2", proto=97) / Raw(b"\x30\0" + bytes(frame(p)))
    ),
    "gre_in_udp": lambda p, t: udp(4754, bytes(GRE() / p)),
    "mpls_in_udp": lambda p, t: udp(6635, bytes(MPLS(label=3000, s=1) / p)),
    "tzsp": lambda p, t: tzsp(frame(p)),
    "ip_fragments": lambda p, t: [frame(part) for part in fragment(IP(bytes(p)), 256)],
    "vxlan_in_ip_fragments": lambda p, t: fragments_of_tunnel(p),
    "snap": lambda p, t: Raw(
        bytes(frame(p))[:12] + struct.pack("!H", len(p) + 8) + b"\xaa\xaa\x03\0\0\0\x08\0" + bytes(p)
    ),
}
"""Encapsulations in Ethernet frames, of IPv4."""

ETHERNET6: dict[str, Make] = {
    "ip6": lambda p, t: frame(p),
    "ip6_extension_headers": lambda p, t: extension_headers(p),
    "ip6_in_ip4": lambda p, t: tunnel(p),
    "ip6_in_ip6": lambda p, t: tunnel6(p),
    "ip6_fragments": lambda p, t: fragments6(p),
}
"""Of IPv6."""

LINKS: dict[str, tuple[int, Make]] = {
    "link_loopback": (0, lambda p, t: Raw(b"\x02\0\0\0" + bytes(p))),
    "link_ppp": (9, lambda p, t: Raw(b"\xff\x03\x00\x21" + bytes(p))),
    "link_ppp_compressed": (9, lambda p, t: Raw(b"\x21" + bytes(p))),
    "link_ppp_serial": (50, lambda p, t: Raw(b"\xff\x03\x00\x21" + bytes(p))),
    "link_pppoe": (51, lambda p, t: Raw(bytes(PPPoE(sessionid=77) / PPP(proto=0x21) / p))),
    "link_raw": (101, lambda p, t: p),
    "link_cisco_hdlc": (104, lambda p, t: Raw(b"\x0f\0\x08\0" + bytes(p))),
    "link_linux_cooked": (113, lambda p, t: CookedLinux(proto=0x800) / p),
    "link_ppi": (192, lambda p, t: Raw(struct.pack("<BBHI", 0, 0, 16, 1) + b"\0" * 8 + bytes(frame(p)))),
    "link_linux_cooked2": (276, lambda p, t: CookedLinuxV2(proto=0x800) / p),
}
"""Link types by their number, of IPv4."""

SEVERAL: dict[str, tuple[Make, ...]] = {
    "twice_two_ports": (lambda p, t: frame(p), lambda p, t: frame(p)),
    "twice_routed": (lambda p, t: frame(p), lambda p, t: frame(hop(p), 18, 19)),
    "twice_two_vlans": (
        lambda p, t: frame(Dot1Q(vlan=10) / p),
        lambda p, t: frame(Dot1Q(vlan=20) / hop(p), 18, 19),
    ),
    "twice_untagged_and_vxlan": (
        lambda p, t: frame(p),
        lambda p, t: udp(4789, VXLAN(vni=5001, flags=8) / frame(p)),
    ),
    "thrice_offloaded_checksum": (
        lambda p, t: frame(offloaded(p)),
        lambda p, t: frame(p),
        lambda p, t: tunnel(GRE(proto=0x88BE, seqnum_present=1) / ERSPAN_II(session_id=12) / frame(p)),
    ),
}
"""Every packet seen at several places, copies 30 us behind one another."""
COPY_LAG_NS = 30_000


def hop(packet: Packet) -> Packet:
    """The packet behind a router: one less to live, another checksum."""
    further = packet.copy()
    further.ttl -= 1
    del further.chksum
    return further


def offloaded(packet: Packet) -> Packet:
    """The packet as its sender's host sees it, before the network card fills in the checksum."""
    early = packet.copy()
    early[TCP].chksum = 0x1234
    return early


def seen(
    makes: tuple[Make, ...], network: Callable[..., Packet], delay_ns: int = 0
) -> Iterator[tuple[int, bytes]]:
    for number, (time_ns, sender, receiver, segment) in enumerate(exchange(), start=1):
        for place, make in enumerate(makes):
            packet = network(sender, receiver, segment, number)
            packet = type(packet)(bytes(packet))
            made = make(packet, time_ns)
            for part in made if isinstance(made, list) else [made]:
                yield time_ns + place * COPY_LAG_NS + delay_ns, bytes(part)


def overlapping_tenants() -> Iterator[tuple[int, bytes]]:
    """Two tenants with the same addresses and ports at the same time: two connections, not one."""
    for vni, first in ((5001, 1000), (5002, 900_000_000)):
        dialogue = Exchange((CLIENT, WEB), (40001, 80))
        dialogue.seq = {CLIENT: first, WEB: first + 77_000_000}
        path = b"/bb/story/%d" % vni
        ask = b"GET " + path + b" HTTP/1.1\r\nHost: shop\r\n\r\n"
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n%d" % vni
        dialogue.run([(CLIENT, ask), (WEB, answer)])
        for number, (sender, receiver, segment) in enumerate(dialogue.segments, start=1):
            packet = udp(4789, VXLAN(vni=vni, flags=8) / frame(ip4(sender, receiver, segment, number)))
            yield START_NS + number * STEP_NS + vni, bytes(packet)


def write(path: Path, packets: Iterator[tuple[int, bytes]] | list[tuple[int, bytes]], link: int = 1) -> None:
    """A classic capture with nanoseconds."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
        for time_ns, data in packets:
            seconds, rest = divmod(time_ns, 10**9)
            out.write(struct.pack("<IIII", seconds, rest, len(data), len(data)) + data)


def captures() -> Iterator[tuple[str, list[tuple[int, bytes]], int]]:
    """Name, packets, link type."""
    for name, make in ETHERNET.items():
        yield name, list(seen((make,), ip4, DETOUR_NS if name == "erspan3_switch_time" else 0)), 1
    for name, make in ETHERNET6.items():
        yield name, list(seen((make,), ip6)), 1
    for name, (link, make) in LINKS.items():
        yield name, list(seen((make,), ip4)), link
    for name, makes in SEVERAL.items():
        yield name, sorted(seen(makes, ip4)), 1
    yield "overlapping_tenants", sorted(overlapping_tenants()), 1


def main(folder: Path) -> None:
    for name, packets, link in captures():
        write(folder / f"{name}.pcap", packets, link)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
