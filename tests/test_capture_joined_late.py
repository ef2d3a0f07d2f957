"""A tap that is attached while the system runs: recordings cut at half, against what is read of the whole.

Connections of pools are older than such a capture, and so are the statements that were prepared on them.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
from capture_packets import unaccounted
from one_direction import PCAPS, SALT, Message, Place, messages_of
from recorded import flows_of, read_packets, write_packets

from tapscope import capture

UNSEEN = "EXECUTE (text unseen"

SAME_VALUES = {"testbed_light": 1.0, "testbed_shop": 0.98}
"""Share of the executions with all values that the whole capture gives, at least. Types of binary values of
PostgreSQL stand in the Parse that was not seen."""


@dataclass(frozen=True)
class Halves:
    """A recording read as a whole, and from its middle on."""

    name: str
    whole: capture.CaptureTables
    late: capture.CaptureTables

    def unseen(self) -> list[tuple[Message, Message]]:
        """Executions of statements that were prepared before, as both readings have them."""
        right = {message.place: message for message in messages_of(self.whole)}
        late = [message for message in messages_of(self.late) if message.text.startswith(UNSEEN)]
        return [(right[message.place], message) for message in late if message.place in right]


@pytest.fixture(scope="module", params=["testbed_light", "testbed_shop"])
def halves(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Halves:
    folder = tmp_path_factory.mktemp("late")
    whole, late = folder / "whole.pcap", folder / "late.pcap"
    packed = PCAPS / request.param / "capture" / "tap.pcap.zst"
    subprocess.run(["zstd", "-dq", packed, "-o", whole], check=True)
    packets = read_packets(whole)
    write_packets(late, packets[len(packets) // 2 :])
    tables = (capture.read_files([path], salt=SALT) for path in (whole, late))
    return Halves(request.param, *tables)


def values_of(tables: Any) -> dict[Place, set[tuple[int, int, int]]]:
    """Evidence by the message that it is of: slot, kind and hash."""
    flows, m = list(flows_of(tables)), tables.messages
    names = ("conn", "direction", "tcp_seq", "begin_ns")
    places = [
        (flows[conn][side], seq, begin)
        for conn, side, seq, begin in zip(*(m[name].tolist() for name in names), strict=True)
    ]
    out = defaultdict(set)
    columns = (tables.evidence[name].tolist() for name in ("message", "slot", "kind", "hash"))
    for row, *value in zip(*columns, strict=True):
        out[places[row]].add(tuple(value))
    return out


def test_a_statement_prepared_before_has_one_class_on_all_connections(halves: Halves) -> None:
    told, all_told = defaultdict(set), 0
    pairs = halves.unseen()
    for right, late in pairs:
        if late.text != "EXECUTE (text unseen)":
            told[right.text].add(late.text)
            all_told += 1
    assert len(pairs) > 500
    assert all_told > 0.99 * len(pairs)  # a SELECT without rows may tell nothing
    # "karma + 1" and "karma + ?" are two statements, with one fingerprint.
    assert sum(len(classes) > 1 for classes in told.values()) <= 1
    # Statements that change something have no columns; other ones are mostly told apart.
    assert len(set().union(*told.values())) > 0.6 * len(told)


def test_its_values_are_read_as_if_it_had_been_seen(halves: Halves) -> None:
    right, late = values_of(halves.whole), values_of(halves.late)
    pairs = halves.unseen()
    same = sum(right[each.place] == late[each.place] for each, _ in pairs)
    print(f"\n{halves.name}: {same} of {len(pairs)} executions")  # with -s
    assert same >= SAME_VALUES[halves.name] * len(pairs)
    for each, _ in pairs:
        assert late[each.place] <= right[each.place]


def test_every_byte_is_accounted_for(halves: Halves) -> None:
    assert unaccounted(halves.late) == []
