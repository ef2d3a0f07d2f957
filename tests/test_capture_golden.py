"""Every capture of pcaps/ again: cut at every packet, shuffled in bounds, doubled, and thinned by 1 %."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from capture_packets import message_rows, unaccounted
from damaged_captures import (
    CAPTURES,
    Record,
    doubled,
    is_plain,
    name_of,
    records,
    shuffled,
    thinned,
    write,
)

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind

GOLDEN = [path for path in CAPTURES if is_plain(path)]
SALT = b"sixteen bytes ok"
MOST_CUTS = 60
"""Of a longer capture this many packets are chosen by its name."""
MOST_PACKETS = 2000
JOINED_IN_A_PIPELINE = ("memcached/meta.pcap", "redis/pipeline.pcap.gz")
"""Joined behind requests of a pipeline, their answers look like those to the next ones: docs/tcp.md."""


@pytest.fixture(params=GOLDEN, ids=name_of)
def golden(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def read(scratch: Path, link: int, packets: list[Record]) -> capture.CaptureTables:
    tables = capture.read_files([write(scratch / "a.pcap", link, packets)], salt=SALT)
    assert unaccounted(tables) == []
    return tables


Place = tuple[int, int, int, int]
"""Ports of client and server, direction, sequence number: where a message begins."""


def places(tables: capture.CaptureTables) -> list[Place]:
    m, c = tables.messages, tables.connections
    conn = m["conn"]
    columns = (c["client_port"][conn], c["server_port"][conn], m["direction"], m["tcp_seq"])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def pairs(tables: capture.CaptureTables) -> dict[Place, Place]:
    """Request of each response; where several begin in one place (or have no bytes) there is none."""
    m, at = tables.messages, places(tables)
    several = {place for place, n in Counter(at).items() if n > 1}
    answers = np.flatnonzero(
        (m["kind"] == MessageKind.RESPONSE) & (m["request"] >= 0) & (m["wire_bytes"] > 0)
    )
    found = {at[row]: at[m["request"][row]] for row in answers}
    return {a: b for a, b in found.items() if a not in several and b not in several}


def certain_pairs(tables: capture.CaptureTables) -> dict[Place, Place]:
    """Those that no flag calls an estimate."""
    m, at = tables.messages, places(tables)
    doubtful = {at[row] for row in np.flatnonzero(m["flags"] & MessageFlag.INFERRED)}
    return {a: b for a, b in pairs(tables).items() if a not in doubtful}


def wrong(found: dict[Place, Place], truth: dict[Place, Place]) -> dict[Place, Place]:
    return {a: b for a, b in found.items() if a in truth and truth[a] != b}


def cuts(path: Path, packets: list[Record]) -> list[int]:
    if len(packets) <= MOST_CUTS:
        return list(range(1, len(packets)))
    return sorted(random.Random(path.name).sample(range(1, len(packets)), MOST_CUTS))


def test_cut_at_any_packet_no_byte_is_lost_and_no_pair_is_wrong(golden: Path, tmp_path: Path) -> None:
    link, packets = records(golden)
    packets = packets[:MOST_PACKETS]
    whole = read(tmp_path, link, packets)
    truth, all_places = pairs(whole), set(places(whole))
    in_pipeline = name_of(golden) in JOINED_IN_A_PIPELINE
    for cut in cuts(golden, packets):
        begun, joined = read(tmp_path, link, packets[:cut]), read(tmp_path, link, packets[cut:])
        # What begins in the first part is read as far as it goes: nothing is there that is not in the whole.
        assert set(places(begun)) <= all_places, f"up to packet {cut}"
        assert not wrong(pairs(begun), truth), f"up to packet {cut}"
        assert in_pipeline or not wrong(certain_pairs(joined), truth), f"from packet {cut}"


@pytest.mark.parametrize("damage", [shuffled, doubled], ids=lambda damage: damage.__name__)
def test_order_and_copies_change_no_message(golden: Path, tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    link, packets = records(golden)
    packets = packets[:MOST_PACKETS]
    whole = message_rows(read(tmp_path, link, packets), flags=False)
    for seed in range(3):
        damaged = read(tmp_path, link, damage(packets, random.Random(seed)))
        assert message_rows(damaged, flags=False) == whole, f"seed {seed}"


def test_thinned_by_one_in_a_hundred_what_is_lost_is_named(golden: Path, tmp_path: Path) -> None:
    link, packets = records(golden)
    packets = packets[:MOST_PACKETS]
    whole = read(tmp_path, link, packets)
    truth = pairs(whole)
    for seed in range(10):
        kept = thinned(packets, random.Random(seed))
        tables = read(tmp_path, link, kept)
        assert not wrong(certain_pairs(tables), truth), f"seed {seed}"
        if len(kept) == len(packets):
            assert message_rows(tables) == message_rows(whole)
