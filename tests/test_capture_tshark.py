"""Message counts of our captures against tshark's, where tshark is installed and can count."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from capture_packets import unaccounted

from tapscope import capture
from tapscope.store.codes import MessageKind, Protocol

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
CAPTURES = sorted(path for pattern in ("*.pcap", "*.pcapng", "*.pcap.*") for path in PCAPS.rglob(pattern))

ADDRESS_READ_AS_CONTROL_WORD = (
    "tshark guesses the control word of an MPLS pseudo-wire; MAC addresses with 00 mislead it"
)
COPIES_READ_AS_RETRANSMISSIONS = "tshark counts the copies that a second mirror port makes as retransmissions"
EXCEPTIONS = {
    "mpls_pseudowire.pcap": ADDRESS_READ_AS_CONTROL_WORD,
    "mpls_pseudowire_control_word.pcap": ADDRESS_READ_AS_CONTROL_WORD,
    "overlapping_tenants.pcap": "tshark joins connections of two tenants with equal addresses and ports",
    "thrice_offloaded_checksum.pcap": "tshark counts a response again in each of its copies",
    "twice_routed.pcap": COPIES_READ_AS_RETRANSMISSIONS,
    "twice_two_ports.pcap": COPIES_READ_AS_RETRANSMISSIONS,
    "twice_two_vlans.pcap": COPIES_READ_AS_RETRANSMISSIONS,
    "twice_untagged_and_vxlan.pcap": COPIES_READ_AS_RETRANSMISSIONS,
    "vxlan_linux_port.pcap": "tshark knows VXLAN by UDP 4789 only, not by 8472, where Linux sends it",
}
"""Captures where tshark differs, and why; tests/test_capture_overlays.py demands the right messages."""


def compared(path: Path):  # type: ignore[no-untyped-def]  # the type is private to pytest
    reason = EXCEPTIONS.get(path.name)
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(path, id=path.name, marks=marks)


def test_exceptions_are_captures_that_exist() -> None:
    assert EXCEPTIONS.keys() <= {path.name for path in CAPTURES}


def tshark(path: Path, ports: dict[int, str], *fields: str) -> list[list[str]]:
    """One row per packet with the values of `fields`, each value a comma-separated list.

    tshark finds protocols by port; `ports` says what speaks where.
    """
    decode_as = [argument for port, name in ports.items() for argument in ("-d", f"tcp.port=={port},{name}")]
    arguments = [argument for field in fields for argument in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), *decode_as, "-T", "fields", "-E", "occurrence=a", *arguments]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in listing.splitlines()]


def count(rows: list[list[str]], column: int) -> int:
    return sum(len(row[column].split(",")) for row in rows if row[column])


@pytest.mark.parametrize("path", CAPTURES, ids=[path.name for path in CAPTURES])
def test_every_byte_of_every_stream_is_accounted_for(path: Path) -> None:
    assert unaccounted(capture.read_files([path])) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", [compared(path) for path in CAPTURES])
def test_counts_equal_those_of_tshark(path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    tables = capture.read_files([path])
    names = {Protocol.HTTP: "http", Protocol.AJP: "ajp13", Protocol.MYSQL: "mysql"}
    upgraded = (tables.messages["protocol"] == Protocol.HTTP).any()
    names[Protocol.HTTP2] = "http" if upgraded else "http2"
    found = zip(
        tables.connections["server_port"].tolist(), tables.connections["protocol"].tolist(), strict=True
    )
    rows = tshark(
        path,
        {port: names[Protocol(protocol)] for port, protocol in found if protocol in names},
        "http.request.method",
        "http.response.code",
        "ajp13.code",
        "tcp.analysis.retransmission",
        "http2.headers.method",
        "http2.headers.status",
        "http2.type",
        "frame.number",
    )
    messages = tables.messages
    assert tables.counter("packets") == len(rows)

    def ours(protocol: Protocol, *kinds: MessageKind) -> int:
        wanted = [int(kind) for kind in kinds]
        rows = messages["protocol"] == protocol
        if protocol == Protocol.HTTP:
            rows |= messages["protocol"] == Protocol.AVATICA  # HTTP to tshark
        return int((rows & [kind in wanted for kind in messages["kind"].tolist()]).sum())

    assert ours(Protocol.HTTP, MessageKind.REQUEST) == count(rows, 0)
    assert ours(Protocol.HTTP, MessageKind.RESPONSE, MessageKind.INTERIM) == count(rows, 1)
    promises = [kind for row in rows for kind in row[6].split(",")].count("5")
    http2 = (Protocol.HTTP2, Protocol.GRPC)
    assert sum(ours(each, MessageKind.REQUEST) for each in http2) == count(rows, 4) - promises
    answers = (MessageKind.RESPONSE, MessageKind.INTERIM)
    assert sum(ours(each, *answers) for each in http2) == count(rows, 5)
    assert ours(Protocol.HTTP2, MessageKind.ONE_WAY) == promises
    codes = [code for row in rows for code in row[2].split(",") if code]
    assert ours(Protocol.AJP, MessageKind.REQUEST) == codes.count("2")
    assert ours(Protocol.AJP, MessageKind.RESPONSE) == codes.count("5")
    retransmissions = tables.connections["retransmits_to_server"].sum()
    retransmissions += tables.connections["retransmits_to_client"].sum()
    assert int(retransmissions) == count(rows, 3)
