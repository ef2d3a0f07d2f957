"""TLS: opened with logged secrets it is read like what it carries; without them it is timed as opaque."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, block, write_pcap
from test_capture_accounting import Record, records, write
from tls_records import (
    AES_128_GCM_SHA256,
    APPLICATION_DATA,
    CLIENT_RANDOM,
    ENCRYPTED_EXTENSIONS,
    FINISHED,
    HANDSHAKE,
    KEY_UPDATE,
    message,
    writers,
)

from tapscope import capture
from tapscope.capture import CaptureTables
from tapscope.store.codes import Direction, MessageFlag, MessageKind, Protocol
from tapscope.store.errors import TapscopeError

TLS = Path(__file__).parent.parent / "pcaps/tls"
WEB = sorted(path.stem for path in TLS.glob("tls1*.pcap"))
SIZES = (10, 20000, 3)


def read(path: Path, keys: Path | None = None) -> CaptureTables:
    tables = capture.read_files([path], tls_keylog=keys)
    assert capture.account(tables.connections, tables.messages, tables.counters).disagreements == ()
    return tables


def class_text(tables: CaptureTables, row: int) -> str | None:
    found = int(tables.messages["class_id"][row])
    return None if found < 0 else tables.classes[found][1]


def rows(tables: CaptureTables, kind: MessageKind) -> list[int]:
    return [int(row) for row in np.flatnonzero(tables.messages["kind"] == kind)]


def pcapng(path: Path, packets: list[Record], secrets: str) -> Path:
    """The packets as a pcapng file that brings its secrets along."""
    body = secrets.encode()
    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack("<HHI", 1, 0, 0))
    out += block(10, struct.pack("<II", 0x544C534B, len(body)) + body)
    for at, data, length in packets:
        us = at // 1000
        out += block(6, struct.pack("<IIIII", 0, us >> 32, us & 0xFFFFFFFF, len(data), length) + data)
    path.write_bytes(out)
    return path


def test_there_is_a_capture_of_every_kind_of_cipher() -> None:
    assert len(WEB) == 8, "CBC with two kinds of MAC, CCM, GCM, ChaCha20 in TLS 1.2; three suites of TLS 1.3"


@pytest.mark.parametrize("name", WEB)
def test_with_secrets_the_web_is_read(name: str) -> None:
    tables = read(TLS / f"{name}.pcap", TLS / f"{name}.keys")
    messages = tables.messages
    asked, answered = rows(tables, MessageKind.REQUEST), rows(tables, MessageKind.RESPONSE)
    assert [class_text(tables, row) for row in asked] == ["GET /item/{n}"] * 3
    assert list(messages["protocol"][asked]) == [Protocol.HTTP] * 3
    assert list(messages["status"][answered]) == [200] * 3
    assert list(messages["request"][answered]) == asked
    heads = messages["wire_bytes"][answered].astype(int) - SIZES
    assert all(100 < head < 130 for head in heads), "plaintext bytes: a head and the body asked for"
    assert list(tables.connections["protocol"]) == [Protocol.HTTP]
    assert tables.counter("tls.decrypted") == 1
    assert tables.counter("tls.decryption_failed") == 0


@pytest.mark.parametrize("name", WEB)
def test_without_secrets_the_same_exchanges_are_timed(name: str) -> None:
    opened = read(TLS / f"{name}.pcap", TLS / f"{name}.keys")
    sealed = read(TLS / f"{name}.pcap")
    assert sealed.counter("tls.no_secrets") == 1
    messages = sealed.messages
    assert {class_text(sealed, row) for row in range(len(messages["kind"]))} == {"encrypted"}
    assert (messages["flags"] & MessageFlag.OPAQUE).all()
    for kind in (MessageKind.REQUEST, MessageKind.RESPONSE):
        here, there = rows(sealed, kind), rows(opened, kind)
        assert len(here) == len(there) == 3
        # A session ticket of TLS 1.3 may come between the first request and its answer: it begins the answer.
        skip = 1 if kind == MessageKind.RESPONSE and "tls13" in name else 0
        begins = [
            tables.messages["begin_ns"][which][skip:] for tables, which in ((sealed, here), (opened, there))
        ]
        assert np.array_equal(*begins)
        ends = [tables.messages["end_ns"][which] for tables, which in ((sealed, here), (opened, there))]
        assert np.array_equal(*ends)


def test_a_protocol_that_turns_to_tls_goes_on_inside() -> None:
    tables = read(TLS / "mysql_starttls.pcap", TLS / "mysql_starttls.keys")
    texts = [class_text(tables, row) for row in rows(tables, MessageKind.REQUEST)]
    assert texts[0] == "LOGIN"
    assert texts.count("INSERT INTO item VALUES (?, ?)") == 3
    assert "SELECT name FROM item WHERE id = ?" in texts
    answered = rows(tables, MessageKind.RESPONSE)
    assert list(tables.messages["request"][answered]) == rows(tables, MessageKind.REQUEST)
    assert (tables.messages["status"][answered] <= 0).all(), "every command was answered OK"
    assert set(tables.messages["protocol"]) == {Protocol.MYSQL}


def test_secrets_inside_a_pcapng_file_are_used(tmp_path: Path) -> None:
    _, packets = records(TLS / "tls13_aes128gcm.pcap")
    secrets = (TLS / "tls13_aes128gcm.keys").read_text()
    tables = read(pcapng(tmp_path / "a.pcapng", packets, secrets))
    assert tables.counter("tls.decrypted") == 1
    assert len(rows(tables, MessageKind.REQUEST)) == 3


@pytest.mark.parametrize(
    ("secrets", "counter"),
    [
        ("", "tls.no_secrets"),
        ("# a comment\n\nNOT_A_LABEL 00 00\nCLIENT_RANDOM xyz 00\nCLIENT_RANDOM\n", "tls.no_secrets"),
        ("SERVER_TRAFFIC_SECRET_0 {random} " + "ab" * 32 + "\n", "tls.secrets_not_enough"),
        ("CLIENT_RANDOM {random} " + "ab" * 48 + "\n", "tls.secrets_not_enough"),
    ],
)
def test_a_key_log_that_does_not_help_is_named(tmp_path: Path, secrets: str, counter: str) -> None:
    random = (TLS / "tls13_aes128gcm.keys").read_text().split()[-2]
    keys = tmp_path / "keys"
    keys.write_text(secrets.replace("{random}", random))
    tables = read(TLS / "tls13_aes128gcm.pcap", keys)
    assert tables.counter(counter) == 1
    assert len(rows(tables, MessageKind.REQUEST)) == 3, "still timed"


def test_wrong_secrets_are_noticed(tmp_path: Path) -> None:
    words = (TLS / "tls12_aes256gcm.keys").read_text().split()
    keys = tmp_path / "keys"
    keys.write_text(" ".join([*words[:2], "00" * 48]) + "\n")
    tables = read(TLS / "tls12_aes256gcm.pcap", keys)
    assert tables.counter("tls.decryption_failed") == 2, "each direction says so once"
    assert len(tables.messages["kind"]) == 0


def test_a_key_log_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(TapscopeError, match="key log"):
        read(TLS / "tls12_ccm.pcap", TLS / "nothing.keys")


def identity(tables: CaptureTables, row: int) -> tuple[int, int]:
    return int(tables.messages["direction"][row]), int(tables.messages["tcp_seq"][row])


@pytest.mark.parametrize("name", [*WEB, "mysql_starttls"])
def test_a_lost_packet_shifts_no_answer(tmp_path: Path, name: str) -> None:
    """Records are found again behind the gap; an answer is never given to another request."""
    link, packets = records(TLS / f"{name}.pcap")
    whole = read(TLS / f"{name}.pcap", TLS / f"{name}.keys")
    truth = {
        identity(whole, row): identity(whole, int(whole.messages["request"][row]))
        for row in rows(whole, MessageKind.RESPONSE)
    }
    found = possible = 0
    for lost in range(len(packets)):
        file = write(tmp_path / "a.pcap", link, packets[:lost] + packets[lost + 1 :])
        tables = read(file, TLS / f"{name}.keys")
        if tables.counter("tls.no_secrets"):
            continue  # a hello was lost
        for row in rows(tables, MessageKind.RESPONSE):
            request = int(tables.messages["request"][row])
            if request >= 0 and identity(tables, row) in truth:
                assert truth[identity(tables, row)] == identity(tables, request), f"packet {lost} lost"
                found += 1
        possible += len(truth)
    assert found > 0.85 * possible


@pytest.mark.parametrize("keyed", [True, False])
def test_a_capture_that_begins_or_ends_anywhere_is_read(tmp_path: Path, keyed: bool) -> None:
    name = "tls13_chacha20"
    link, packets = records(TLS / f"{name}.pcap")
    for at in range(1, len(packets)):
        for part in (packets[:at], packets[at:]):
            read(write(tmp_path / "a.pcap", link, part), TLS / f"{name}.keys" if keyed else None)


@pytest.mark.parametrize(("name", "size"), [("tls12_cbc_sha256", 7), ("early_taken", 5)])
def test_times_do_not_depend_on_how_records_were_cut_into_segments(
    name: str, size: int, tmp_path: Path
) -> None:
    """Every segment cut into pieces of a few bytes: the same plaintext, the same times."""
    link, packets = records(TLS / f"{name}.pcap")
    cut: list[Record] = []
    for at, data, length in packets:
        head = 14 + 20 + (data[14 + 20 + 12] >> 4) * 4
        if len(data) <= head or len(data) > 3000:
            cut.append((at, data, length))
            continue
        seq = struct.unpack_from("!I", data, 38)[0]
        for begin in range(head, len(data), size):
            piece = data[begin : begin + size]
            new = bytearray(data[:head] + piece)
            struct.pack_into("!H", new, 16, len(new) - 14)
            struct.pack_into("!I", new, 38, (seq + begin - head) % 2**32)
            cut.append((at, bytes(new), len(new)))
    whole = read(TLS / f"{name}.pcap", TLS / f"{name}.keys")
    pieces = read(write(tmp_path / "a.pcap", link, cut), TLS / f"{name}.keys")
    for column in ("direction", "kind", "begin_ns", "end_ns", "wire_bytes", "status", "request", "tcp_seq"):
        assert np.array_equal(whole.messages[column], pieces.messages[column]), column
    assert (whole.messages["direction"] == Direction.TO_SERVER).sum() == 3


def test_lines_of_a_key_log_that_say_nothing_are_counted_and_a_cut_last_line_still_opens(
    tmp_path: Path,
) -> None:
    lines = (TLS / f"{WEB[0]}.keys").read_text().rstrip("\n")
    log = tmp_path / "log.keys"
    log.write_text(f"# comment\nCLIENT_RANDOM zz 00\nnonsense\n{lines}")  # no end of line at the end
    tables = read(TLS / f"{WEB[0]}.pcap", log)
    assert tables.counter("tls.keylog_unreadable") == 2
    assert [class_text(tables, row) for row in rows(tables, MessageKind.REQUEST)] == ["GET /item/{n}"] * 3


def hello(kind: int, suite: int, *empty_extensions: int) -> bytes:
    """A ClientHello (1) or ServerHello (2) of TLS 1.3 with what the dissector reads."""
    client = kind == 1
    version = struct.pack("!HH", 43, 3) + b"\2\3\4" if client else struct.pack("!HHH", 43, 2, 0x0304)
    version += b"".join(struct.pack("!HH", extension, 0) for extension in empty_extensions)
    suites = struct.pack("!HHBB", 2, suite, 1, 0) if client else struct.pack("!HB", suite, 0)
    body = b"\3\3" + CLIENT_RANDOM + b"\0" + suites + struct.pack("!H", len(version)) + version
    return struct.pack("!BHHB", 22, 0x0301, 4 + len(body), kind) + len(body).to_bytes(3, "big") + body


def sealed(*sizes: int) -> bytes:
    """Records of application data of these sizes, their headers included."""
    return b"".join(struct.pack("!BHH", 23, 0x0303, size - 5) + bytes(size - 5) for size in sizes)


# What OpenSSL's client sent after the ServerHello, and the server's session tickets.
LAST_FLIGHTS = {
    "no certificate asked for": (0x1302, (74,), (255, 255)),
    "SHA-256": (0x1301, (58,), (239, 239)),
    "no certificate given": (0x1302, (30, 74), (255, 255)),
    "ECDSA": (0x1302, (403, 101, 74), (623, 623)),
    "RSA": (0x1302, (800, 286, 74), (1023, 1023)),
    "Ed25519": (0x1302, (339, 94, 74), (559, 559)),
    "all of it in one record": (0x1302, (900,), (623, 623)),
}


@pytest.mark.parametrize("cut", [0, 7])
@pytest.mark.parametrize("name", LAST_FLIGHTS)
def test_the_client_s_end_of_the_handshake_is_no_request(name: str, cut: int, tmp_path: Path) -> None:
    suite, client, tickets = LAST_FLIGHTS[name]
    dialogue = Dialogue(server_port=443).open()
    for side, data in [
        (CLIENT, hello(1, suite)),
        (SERVER, hello(2, suite) + sealed(28, 67, 403, 102, 74)),
        (CLIENT, sealed(*client)),
        (SERVER, sealed(*tickets)),
        (CLIENT, sealed(101)),  # of the size of a CertificateVerify
        (SERVER, sealed(41)),
        (CLIENT, sealed(74, 90)),
        (SERVER, sealed(500)),
    ]:
        dialogue.send(side, data, cuts=range(0, len(data), cut) if cut else ())
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    found = list(zip(tables.messages["kind"], tables.messages["wire_bytes"], strict=True))
    assert found == [
        (MessageKind.REQUEST, 101),
        (MessageKind.RESPONSE, 41),
        (MessageKind.REQUEST, 164),
        (MessageKind.RESPONSE, 500),
    ]


def test_an_alert_between_two_records_of_a_request_is_counted_once(tmp_path: Path) -> None:
    suite, client, _ = LAST_FLIGHTS["SHA-256"]
    dialogue = Dialogue(server_port=443).open()
    for side, data in [
        (CLIENT, hello(1, suite)),
        (SERVER, hello(2, suite) + sealed(28, 67, 403, 102, 74)),
        (CLIENT, sealed(*client)),
        (CLIENT, sealed(101)),
        (CLIENT, sealed(24)),  # of the size of an alert
        (CLIENT, sealed(60)),
        (SERVER, sealed(500)),
    ]:
        dialogue.send(side, data)
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets))
    assert list(tables.messages["wire_bytes"]) == [101 + 24 + 60, 500]


@pytest.mark.parametrize("lost", [None, "client", "server"])
def test_keys_that_are_changed_on_the_way_are_followed(lost: str | None, tmp_path: Path) -> None:
    """Also when the record that says so was lost."""
    client_hello, server_hello, client, server = writers(tmp_path / "keys.log")
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    dialogue = Dialogue(server_port=443).open()

    def say(side: int, data: bytes, keep: bool = True) -> None:
        dialogue.send(side, data)
        if not keep:
            del dialogue.packets[-2]  # the last one is its acknowledgement

    def ask(number: int) -> bytes:
        return client.record(APPLICATION_DATA, b"GET /%d HTTP/1.1\r\n\r\n" % number, padding=number)

    finished = message(FINISHED, bytes(32))
    say(CLIENT, hello(1, AES_128_GCM_SHA256))
    say(
        SERVER,
        hello(2, AES_128_GCM_SHA256)
        + server_hello.record(HANDSHAKE, message(ENCRYPTED_EXTENSIONS, b"\0\0") + finished),
    )
    say(CLIENT, client_hello.record(HANDSHAKE, finished))
    say(CLIENT, ask(1))
    say(SERVER, server.record(APPLICATION_DATA, ok))
    say(CLIENT, client.record(HANDSHAKE, message(KEY_UPDATE, b"\1")), keep=lost != "client")
    client = client.updated()
    say(SERVER, server.record(HANDSHAKE, message(KEY_UPDATE, b"\0")), keep=lost != "server")
    server = server.updated()
    for number in (2, 3):
        say(CLIENT, ask(number))
        say(SERVER, server.record(APPLICATION_DATA, ok[:20]) + server.record(APPLICATION_DATA, ok[20:]))
    tables = read(write_pcap(tmp_path / "a.pcap", dialogue.packets), tmp_path / "keys.log")
    asked, answered = rows(tables, MessageKind.REQUEST), rows(tables, MessageKind.RESPONSE)
    assert [class_text(tables, row) for row in asked] == ["GET /{n}"] * 3
    assert list(tables.messages["request"][answered]) == asked
    assert tables.counter("tls.decryption_failed") == 0
