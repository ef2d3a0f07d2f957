"""Every captured byte of every TCP stream is in a message, in a named gap or in a named remainder: on every
capture we have, whole and damaged in every way that a tap damages captures."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_captures import (
    CAPTURES,
    Record,
    all_at_once,
    clipped,
    cut_short,
    doubled,
    garbled,
    is_plain,
    joined_late,
    name_of,
    records,
    shuffled,
    thinned,
    write,
)

from tapscope import capture

DAMAGES = [thinned, doubled, shuffled, clipped, joined_late, cut_short, garbled, all_at_once]


def disagreements(tables: capture.CaptureTables) -> tuple[str, ...]:
    return capture.account(tables.connections, tables.messages, tables.counters).disagreements


@pytest.mark.parametrize("path", CAPTURES, ids=name_of)
def test_every_byte_of_a_capture_is_accounted_for(path: Path) -> None:
    tables = capture.read_files([path])
    total = capture.account(tables.connections, tables.messages, tables.counters)
    assert total.disagreements == ()
    assert total.in_messages > 0, "a sample capture without a message proves nothing"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("path", [*filter(is_plain, CAPTURES)], ids=name_of)
def test_every_byte_of_a_damaged_capture_is_accounted_for(
    tmp_path: Path, path: Path, damage: Callable[[list[Record], random.Random], list[Record]]
) -> None:
    link, packets = records(path)
    for seed in range(3):
        damaged = damage(packets[:4000], random.Random(seed))
        file = write(tmp_path / f"{seed}.pcap", link, damaged)
        assert disagreements(capture.read_files([file])) == (), f"seed {seed}"


def test_a_byte_too_many_is_noticed() -> None:
    """The check itself can fail: each sum is broken once."""
    tables = capture.read_files([CAPTURES[0]])
    whole = (tables.connections, tables.messages, tables.counters)
    assert capture.account(*whole).disagreements == ()
    for table, column in ((0, "bytes_to_server"), (0, "unparsed_to_client"), (1, "wire_bytes")):
        changed = {name: values.copy() for name, values in whole[table].items()}
        changed[column][0] += 1
        parts = list(whole)
        parts[table] = changed
        assert capture.account(*parts).disagreements != (), column
    dropped = [(name, value, unit) for name, value, unit in tables.counters if name != "tcp.payload"]
    assert capture.account(whole[0], whole[1], dropped).disagreements != ()
