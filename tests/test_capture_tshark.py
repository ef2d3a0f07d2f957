"""Message counts of our captures against tshark's, where tshark is installed and can count."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from against_tshark import counted_by_tshark, counted_here, ports

from tapscope import capture

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
CAPTURES = sorted(path for pattern in ("*.pcap", "*.pcapng", "*.pcap.*") for path in PCAPS.rglob(pattern))

COMPARED = (
    "packets",
    "HTTP requests",
    "HTTP responses, interim ones too",
    "HTTP/2 requests",
    "HTTP/2 responses, interim ones too",
    "HTTP/2 promises",
    "AJP requests",
    "AJP responses",
    "retransmissions",
)
"""MySQL's commands are compared in tests/test_dissect_mysql.py: tshark does not read all of them."""

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


@pytest.mark.slow
@pytest.mark.parametrize("path", [compared(path) for path in CAPTURES])
def test_counts_equal_those_of_tshark(path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    tables = capture.read_files([path])
    here, theirs = counted_here(tables), counted_by_tshark(path, ports(tables))
    assert {name: here[name] for name in COMPARED} == {name: theirs[name] for name in COMPARED}
