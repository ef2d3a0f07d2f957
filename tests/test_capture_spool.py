"""Spools: the tables of a capture that is handed over in pieces are those of the capture as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tapscope.capture import CaptureTables, _native, read_files, read_spool
from tapscope.capture import spool as spools
from tapscope.store.tables import TABLES

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
SAMPLES = sorted(
    path for path in PCAPS.rglob("*.pcap*") if path.suffix in (".pcap", ".pcapng", ".gz", ".zst")
)


def spooled(path: Path, folder: Path, steps, **options) -> CaptureTables:
    """Reads `path` into a spool, a segment after each number of packets that `steps()` gives."""
    write(path, spools.Spool(folder, **options), steps)
    return read_spool(folder)


def write(path: Path, spool: spools.Spool, steps) -> None:
    spool.begin({"interface": path.name})
    capture = _native.Capture.of_files(
        paths=[str(path)], salt=spool.salt, keep_text=False, port_map={}, limits={}
    )
    packets = 0
    more = True
    while more:
        packets += steps()
        while capture.run(0, packets):
            pass
        more = capture.status()["packets"] == packets
        spool.write(capture.drain())
    capture.finish()
    spool.write(capture.drain(), last=True)
    spool.close("end of file")


def plain(tables: CaptureTables) -> dict:
    """Everything of the tables, with ids that depend on order put into words."""
    out = {}
    for name in ("connections", "messages", "evidence"):
        out[name] = {column.name: getattr(tables, name)[column.name] for column in TABLES[name]}
    for side in ("client_addr", "server_addr"):
        out["connections"][side] = np.array(tables.addresses)[out["connections"][side]]
    texts = np.array([f"{protocol} {text}" for protocol, text in tables.classes] + ["none"])
    out["messages"]["class_id"] = texts[out["messages"]["class_id"]]
    return out


def differences(one: CaptureTables, other: CaptureTables) -> list[str]:
    left, right = plain(one), plain(other)
    found = []
    for table, columns in left.items():
        for column, values in columns.items():
            other_values = right[table][column]
            if len(values) != len(other_values):
                found.append(f"{table}: {len(values)} rows and {len(other_values)}")
                break
            differ = np.flatnonzero(values != other_values)
            if len(differ):
                at = differ[0]
                found.append(f"{table}.{column}[{at}]: {values[at]} and {other_values[at]} ({len(differ)})")
    a, b = ({name: value for name, value, _ in tables.counters} for tables in (one, other))
    found += [
        f"counter {name}: {a.get(name)} and {b.get(name)}"
        for name in a.keys() | b.keys()
        if a.get(name) != b.get(name)
    ]
    if one.tap_points != other.tap_points:
        found.append(f"tap points: {one.tap_points} and {other.tap_points}")
    return found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_handing_over_after_any_packet_changes_nothing(path, tmp_path):
    choose = random.Random(path.name)
    packets = read_files([path]).sources[0]["packets"]
    for most in (packets // 100 + 1, packets // 10 + 1):
        folder = tmp_path / f"{most}.spool"
        tables = spooled(path, folder, lambda most=most: choose.randint(1, most))
        whole = read_files([path], salt=(folder / spools.SALT).read_bytes())
        assert differences(whole, tables) == []
