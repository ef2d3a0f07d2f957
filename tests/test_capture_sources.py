"""Capture files of every kind give the same packets; what is not a capture says so."""

from __future__ import annotations

import gzip
import lzma
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from capture_packets import (
    ACK,
    CLIENT,
    FIN,
    SERVER,
    START_NS,
    SYN,
    Dialogue,
    block,
    enhanced,
    ethernet,
    interface,
    ipv4,
    ipv6,
    message_rows,
    option,
    pages,
    section,
    tcp_header,
    write_pcap,
)

from tapscope import capture
from tapscope.capture import _native
from tapscope.capture.accounting import account
from tapscope.store import codes
from tapscope.store.errors import TapscopeError
from tapscope.store.tables import check

SALT = bytes(16)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def read(*paths: Path) -> capture.CaptureTables:
    return capture.read_files(list(paths), salt=SALT)


@pytest.fixture
def rows(tmp_path: Path) -> list[tuple[object, ...]]:
    return message_rows(read(write_pcap(tmp_path / "plain.pcap", pages())))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [True, False])
def test_classic_pcap_of_any_byte_order_and_resolution(
    order: str, nanoseconds: bool, rows: list[tuple[object, ...]], tmp_path: Path
) -> None:
    tables = read(write_pcap(tmp_path / "a.pcap", pages(), order=order, nanoseconds=nanoseconds))
    assert message_rows(tables) == rows
    assert tables.sources[0]["ts_resolution"] == ("1 ns" if nanoseconds else "1 us")
    assert tables.sources[0]["first_ns"] == START_NS


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "per_second"),
    [(6, 10**6), (9, 10**9), (None, 10**6), (0x80 | 30, 2**30), (10, 10**10), (0x80, 1)],
)
def test_pcapng_resolutions_and_offsets(
    order: str, resolution: int | None, per_second: int, tmp_path: Path
) -> None:
    offset_s = 1000
    body = section(order) + interface(order, resolution, offset_s)
    for time_ns, frame in pages():
        body += enhanced(frame, (time_ns - offset_s * 10**9) * per_second // 10**9, order=order)
    path = tmp_path / "a.pcapng"
    path.write_bytes(body)
    tables = read(path)
    assert (tables.messages["kind"] == codes.MessageKind.REQUEST).sum() == 3
    assert abs(tables.sources[0]["first_ns"] - START_NS) <= max(10**9 // per_second, 1000)
    assert tables.sources[0]["format"] == "pcapng"


def test_pcapng_blocks_of_all_kinds_and_two_interfaces(tmp_path: Path) -> None:
    frames = pages()
    body = section() + interface(resolution=9) + interface(resolution=6) + block(0x0BAD, b"unknown!")
    for index, (time_ns, frame) in enumerate(frames):
        if index % 3 == 2:  # the obsolete packet block: interface u16, drops u16
            ticks = time_ns
            head = (
                b"\0\0\0\0" + (ticks >> 32).to_bytes(4, "little") + (ticks & 0xFFFFFFFF).to_bytes(4, "little")
            )
            head += len(frame).to_bytes(4, "little") * 2
            body += block(2, head + frame)
        else:
            body += enhanced(frame, time_ns if index % 3 else time_ns // 1000, number=0 if index % 3 else 1)
    counters = option(4, (500).to_bytes(8, "little")) + option(5, (3).to_bytes(8, "little"))
    counters += option(7, (7).to_bytes(8, "little"))
    body += block(5, (0).to_bytes(12, "little") + counters)
    path = tmp_path / "a.pcapng"
    path.write_bytes(body)
    tables = read(path)
    assert tables.sources[0]["packets"] == len(frames)
    assert (tables.sources[0]["dropped_by_interface"], tables.sources[0]["dropped_by_kernel"]) == (3, 7)
    assert tables.sources[0]["received"] == 500
    assert tables.counter("source.other_block") == 1
    assert (tables.messages["kind"] == codes.MessageKind.REQUEST).sum() == 3


@pytest.mark.parametrize("statistics", [False, True])
def test_drops_that_packets_tell_of_are_counted_once(statistics: bool, tmp_path: Path) -> None:
    """Packets lost before one of them, in its block; an interface's statistics count the same again."""
    (time_ns, frame), *_ = pages()
    head = (time_ns >> 32).to_bytes(4, "little") + (time_ns & 0xFFFFFFFF).to_bytes(4, "little")
    head += len(frame).to_bytes(4, "little") * 2
    padding = b"\0" * (-len(frame) % 4)
    told = option(2, b"\0\0\0\1") + option(4, (5).to_bytes(8, "little")) + option(0, b"")
    body = section() + interface(resolution=9)
    body += block(6, b"\0" * 4 + head + frame + padding + told)
    body += block(2, b"\0\0" + (2).to_bytes(2, "little") + head + frame)
    body += block(2, b"\0\0\xff\xff" + head + frame)  # not known
    if statistics:
        body += block(5, (0).to_bytes(12, "little") + option(7, (7).to_bytes(8, "little")))
    path = tmp_path / "a.pcapng"
    path.write_bytes(body)
    source = read(path).sources[0]
    assert (source["packets"], source["dropped_by_kernel"], source["dropped_by_interface"]) == (3, 7, 0)


def test_interfaces_of_differing_resolution_are_both_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    every = [interface(resolution=9), interface(resolution=6), interface(resolution=9)]
    path.write_bytes(section() + b"".join(every) + enhanced(pages()[0][1], START_NS))
    assert read(path).sources[0]["ts_resolution"] == "1 ns, 1 us"


def test_compressed_files_are_read_as_they_are(rows: list[tuple[object, ...]], tmp_path: Path) -> None:
    plain = write_pcap(tmp_path / "a.pcap", pages()).read_bytes()
    half = len(plain) // 2
    (tmp_path / "a.gz").write_bytes(gzip.compress(plain[:half]) + gzip.compress(plain[half:]))
    (tmp_path / "a.xz").write_bytes(lzma.compress(plain))
    files = {"gzip": tmp_path / "a.gz", "xz": tmp_path / "a.xz"}
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", tmp_path / "a.pcap", "-o", tmp_path / "a.zst"], check=True)
        files["zstd"] = tmp_path / "a.zst"
    for name, path in files.items():
        tables = read(path)
        assert message_rows(tables) == rows
        assert tables.sources[0]["format"] == f"pcap+{name}"


def test_several_files_are_merged_in_time_order(tmp_path: Path) -> None:
    every = pages()
    first, second = every[0::2], every[1::2]  # one connection, its packets dealt out to two files
    whole = message_rows(read(write_pcap(tmp_path / "whole.pcap", every)))
    parts = [write_pcap(tmp_path / "1.pcap", first), write_pcap(tmp_path / "2.pcap", second, order=">")]
    tables = read(*parts)
    assert message_rows(tables) == whole
    assert [source["packets"] for source in tables.sources] == [len(first), len(second)]
    assert tables.counter("tcp.out_of_order") == 0


def test_standard_input_is_a_source(tmp_path: Path, rows: list[tuple[object, ...]]) -> None:
    path = write_pcap(tmp_path / "a.pcap", pages())
    code = "from tapscope import capture; print(len(capture.read_files(['-']).messages['conn']))"
    with path.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-c", code], stdin=stdin, capture_output=True, text=True, check=True
        )
    assert done.stdout.strip() == str(len(rows))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (b"just some text, no packets at all", "this is not a capture file"),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "the pcap file header is cut"),
        (b"\x0a\x0d\x0d\x0a\x1c\0\0\0", "the pcapng section header is cut"),
        (b"ab", "the file ends before a capture header"),
        (b"\x28\xb5\x2f\xfd\x04\x58", "the compressed data are cut"),
    ],
)
def test_what_is_not_a_capture_is_refused_with_path_and_remedy(
    content: bytes, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(TapscopeError) as raised:
        read(path)
    assert raised.value.what == what
    assert raised.value.path == str(path)
    assert raised.value.remedy


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TapscopeError, match="No such file"):
        read(tmp_path / "nowhere.pcap")
    with pytest.raises(TapscopeError, match="is a directory"):
        read(tmp_path)


def test_an_unknown_link_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TapscopeError, match="unknown link type 147"):
        read(write_pcap(tmp_path / "a.pcap", pages(), link_type=147))
    path = tmp_path / "a.pcapng"
    path.write_bytes(section() + interface(link_type=147) + enhanced(pages()[0][1], 1))
    with pytest.raises(TapscopeError, match="unknown link type 147"):
        read(path)


def test_a_capture_without_packets_is_no_error(tmp_path: Path) -> None:
    tables = read(write_pcap(tmp_path / "a.pcap", []))
    assert len(tables.messages["conn"]) == len(tables.connections["protocol"]) == 0
    for name in ("connections", "messages", "evidence", "tcp_events"):
        check(name, getattr(tables, name))


def test_a_file_cut_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    data = write_pcap(tmp_path / "a.pcap", pages()).read_bytes()
    whole = len(pages())
    seen = set()
    for size in range(24, len(data)):
        path = tmp_path / "cut.pcap"
        path.write_bytes(data[:size])
        tables = read(path)
        seen.add(tables.sources[0]["packets"])
        at_border = "warning" not in tables.sources[0]
        assert tables.counter("source.truncated_file") == (0 if at_border else 1)
    assert seen == set(range(whole))


def test_a_cut_compressed_file_is_read_up_to_there(tmp_path: Path) -> None:
    data = gzip.compress(write_pcap(tmp_path / "a.pcap", pages() * 50).read_bytes())
    (tmp_path / "a.gz").write_bytes(data[: len(data) // 2])
    tables = read(tmp_path / "a.gz")
    assert tables.counter("source.truncated_file") == 1
    assert "warning" in tables.sources[0]


def request_frame(tags: tuple[tuple[int, int], ...] = (), six: bool = False) -> bytes:
    body = tcp_header(40000, 80, 1, 1, 0x18) + b"GET /a HTTP/1.1\r\n\r\n"
    if six:
        hop_by_hop = b"\x06\x00\x01\x04\0\0\0\0"
        return ethernet(ipv6(1, 2, body, hop_by_hop, first=0), 0x86DD, tags)
    return ethernet(ipv4("10.0.0.1", "10.0.0.2", body), tags=tags)


@pytest.mark.parametrize(
    ("link_type", "cut", "prefix"),
    [
        (1, 0, b""),
        (101, 14, b""),
        (228, 14, b""),
        (12, 14, b""),
        (0, 14, b"\x02\0\0\0"),
        (0, 14, b"\0\0\0\x02"),
        (108, 14, b"\0\0\0\x02"),
        (113, 12, b"\0" * 14),
        (276, 14, b"\x08\0" + b"\0" * 18),
    ],
)
def test_link_layers(link_type: int, cut: int, prefix: bytes, tmp_path: Path) -> None:
    frame = prefix + request_frame()[cut:]
    tables = read(write_pcap(tmp_path / "a.pcap", [(START_NS, frame)], link_type=link_type))
    assert tables.classes == [(1, "GET /a")]
    assert sorted(tables.addresses) == ["10.0.0.1", "10.0.0.2"]


def test_vlan_tags_name_the_tap_point_and_ipv6_extensions_are_passed(tmp_path: Path) -> None:
    tagged = request_frame(((0x88A8, 7), (0x8100, 9)))
    frames = [(START_NS, tagged), (START_NS + 1, request_frame(six=True))]
    tables = read(write_pcap(tmp_path / "a.pcap", frames))
    assert [codes.tap_point_text(tap) for tap in sorted(tables.connections["tap_point"].tolist())] == [
        "untagged",
        "vlan 7.9",
    ]
    assert "::1" in tables.addresses
    assert len(tables.messages["conn"]) == 2


def test_what_is_not_tcp_is_counted_by_name(tmp_path: Path) -> None:
    host = ("10.0.0.1", "10.0.0.2")
    frames = [
        ethernet(b"\0" * 28, 0x0806),
        ethernet(b"", 0x1234),
        ethernet(ipv4(*host, b"\0" * 8, protocol=17)),
        ethernet(ipv4(*host, b"\0" * 8, fragment=0x2000)),
        ethernet(ipv4(*host, b"\0" * 8)),
        b"\0" * 6,
    ]
    tables = read(write_pcap(tmp_path / "a.pcap", [(START_NS, frame) for frame in frames]))
    for name in ("arp", "unknown_ethertype", "udp", "fragment_incomplete", "short_tcp", "short_ethernet"):
        assert tables.counter(f"decode.{name}") == 1, name
    assert tables.counter("packets") == 6


def test_bytes_cut_by_the_snap_length_are_missing_by_name(tmp_path: Path) -> None:
    dialogue = Dialogue().open().send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n")
    dialogue.send(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b"x" * 900).close()
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets, snaplen=200))
    cut = 54 + 40 + 900 - 200
    assert tables.counter("missing.cut_by_snaplen") == cut
    assert tables.messages["missing_bytes"].tolist() == [0, cut]
    assert tables.sources[0]["truncated_packets"] == 1


def test_a_snap_length_inside_the_tcp_options_leaves_the_connection(tmp_path: Path) -> None:
    options = b"\x01\x01\x08\x0a" + b"\0" * 8
    request, answer = b"GET /a HTTP/1.1\r\n\r\n", ANSWER
    segments = [
        (CLIENT, SYN, 100, 0, b""),
        (SERVER, SYN | ACK, 500, 101, b""),
        (CLIENT, ACK, 101, 501, request),
        (SERVER, ACK, 501, 101 + len(request), answer),
        (CLIENT, FIN | ACK, 101 + len(request), 501 + len(answer), b""),
        (SERVER, FIN | ACK, 501 + len(answer), 102 + len(request), b""),
    ]
    hosts, ports = ("10.0.0.1", "10.0.0.2"), (40000, 80)
    frames = [
        ethernet(
            ipv4(
                hosts[side],
                hosts[1 - side],
                tcp_header(ports[side], ports[1 - side], seq, ack, flags, options=options) + payload,
                number,
            )
        )
        for number, (side, flags, seq, ack, payload) in enumerate(segments, 1)
    ]
    timed = [(START_NS + 10_000 * number, frame) for number, frame in enumerate(frames)]
    assert len(read(write_pcap(tmp_path / "whole.pcap", timed)).messages["conn"]) == 2
    tables = read(write_pcap(tmp_path / "a.pcap", timed, snaplen=64))
    assert tables.counter("decode.tcp_options_cut") == len(frames)
    assert tables.counter("missing.cut_by_snaplen") == len(request) + len(answer)
    assert tables.connections["missing_to_server"].tolist() == [len(request)]
    assert tables.connections["missing_to_client"].tolist() == [len(answer)]
    assert tables.connections["server_port"].tolist() == [80]
    assert not account(tables.connections, tables.messages, tables.counters).disagreements


def test_columns_are_views_that_outlive_their_tables(tmp_path: Path) -> None:
    tables = read(write_pcap(tmp_path / "a.pcap", pages()))
    for name in ("connections", "messages", "evidence", "tcp_events"):
        check(name, getattr(tables, name))
    column = tables.messages["begin_ns"]
    assert not column.flags.owndata
    kept = column.copy()
    del tables
    assert np.array_equal(column, kept)


def test_codes_are_those_of_the_store() -> None:
    engine = _native.codes()
    for name in (
        "Protocol",
        "Direction",
        "MessageKind",
        "MessageFlag",
        "CloseHow",
        "TcpEventKind",
        "TokenKind",
    ):
        ours = {item.name: int(item) for item in getattr(codes, name).__members__.values()}
        assert engine[name] == ours, name
    assert engine["Dissected"] == list(codes.DISSECTED)
    assert engine["ID_LIKE"] == codes.ID_LIKE


def test_progress_is_told_and_its_errors_come_through(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "a.pcap", pages())
    told: list[tuple[int, int]] = []
    capture.read_files([path], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)

    def fail(done: int, total: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        capture.read_files([path], progress=fail)


def test_port_map_overrides_content(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "a.pcap", pages())
    tables = capture.read_files([path], port_map={80: codes.Protocol.AJP})
    assert tables.connections["protocol"].tolist() == [codes.Protocol.AJP]
    with pytest.raises(TapscopeError, match="no dissector"):
        capture.read_files([path], port_map={80: codes.Protocol.GRPC})
    with pytest.raises(TapscopeError, match="not a TCP port"):
        capture.read_files([path], port_map={0: codes.Protocol.HTTP})


def test_a_protocol_that_is_not_known_is_unparsed_by_name(tmp_path: Path) -> None:
    dialogue = Dialogue(server_port=22).open().send(SERVER, b"SSH-2.0-x\r\n").send(CLIENT, b"SSH-2.0-y\r\n")
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.close().packets))
    assert tables.connections["protocol"].tolist() == [codes.Protocol.UNKNOWN]
    assert tables.counter("unparsed.unknown_protocol") == 22


def test_text_is_kept_only_on_demand(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "a.pcap", pages())
    assert capture.read_files([path]).examples == [""]
    assert capture.read_files([path], keep_text=True).examples == ["/page/0"]


@pytest.mark.root
def test_live_capture_gives_what_a_file_gives(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            for _ in range(20):
                peer.recv(4096)
                peer.sendall(ANSWER)

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            for number in range(20):
                client.sendall(b"GET /live/%d HTTP/1.1\r\n\r\n" % number)
                client.recv(4096)

    threading.Thread(target=serve, daemon=True).start()
    threading.Timer(0.5, ask).start()
    written = tmp_path / "live.pcap"
    tables = capture.capture_live("lo", seconds=2.0, filter=f"tcp port {port}", write=written, salt=SALT)
    server.close()
    assert (tables.messages["kind"] == codes.MessageKind.REQUEST).sum() == 20
    assert tables.sources[0]["dropped_by_kernel"] == 0
    assert message_rows(tables) == message_rows(read(written))


@pytest.mark.root
def test_live_capture_names_what_is_wrong() -> None:
    with pytest.raises(TapscopeError, match="cannot capture"):
        capture.capture_live("no-such-interface", seconds=0.1)
    with pytest.raises(TapscopeError, match="filter is not valid"):
        capture.capture_live("lo", seconds=0.1, filter="tcp prt 80")
