"""Spools: the tables of a capture that is handed over in pieces are those of the capture as a whole."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from tapscope.capture import CaptureTables, _native, read_files, read_spool
from tapscope.capture import spool as spools
from tapscope.capture.segment import join_segments, load_segment
from tapscope.cli.main import run
from tapscope.store.errors import ExitCode, TapscopeError
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
    for name in ("connections", "messages", "evidence", "tcp_events"):
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
    a, b = (
        {name: value for name, value, _ in tables.counters if name != "spool.segments"}
        for tables in (one, other)
    )
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


SAMPLE = PCAPS / "http_ajp_mysql_groundtruth.pcap"


@pytest.fixture
def folder(tmp_path):
    """A spool of about twenty segments."""
    path = tmp_path / "x.spool"
    write(SAMPLE, spools.Spool(path), lambda: 25)
    return path


def counter(tables: CaptureTables, name: str) -> int:
    return tables.counter(f"spool.{name}")


def test_a_spool_of_before_is_read_and_gone_on_with(tmp_path):
    """Its columns are arrays of their own, and it knows no events of TCP."""
    folder = tmp_path / "x.spool"
    write(PCAPS / "http2" / "apache_prior_knowledge.pcap", spools.Spool(folder), lambda: 25)
    whole = read_spool(folder)
    assert len(whole.tcp_events["conn"]) > 0
    for file in sorted(folder.glob("*.npz")):
        arrays, about = load_segment(file)
        kept = {name: values for name, values in arrays.items() if not name.startswith("tcp_events.")}
        np.savez(file, about=np.array(json.dumps(about)), **kept)
    manifest = json.loads((folder / spools.MANIFEST).read_text())
    (folder / spools.MANIFEST).write_text(json.dumps(manifest | {"version": 1}))
    before = read_spool(folder)
    assert [len(before.tcp_events[name]) for name in ("conn", "end_ns")] == [0, 0]
    assert len(before.messages["conn"]) == len(whole.messages["conn"])
    write(PCAPS / "http2" / "apache_prior_knowledge.pcap", spools.Spool(folder), lambda: 25)
    both = read_spool(folder)
    assert len(both.messages["conn"]) == 2 * len(whole.messages["conn"])
    assert len(both.tcp_events["conn"]) == len(whole.tcp_events["conn"])
    assert json.loads((folder / spools.MANIFEST).read_text())["version"] == spools.VERSION


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_segment_is_named_and_left_out(folder, harm):
    whole = read_spool(folder)
    victim = max(sorted(folder.glob("*.npz"))[4:-4], key=lambda file: file.stat().st_size)
    inside = load_segment(victim)[1]["messages"]
    content = bytearray(victim.read_bytes())
    if harm == "cut":
        content = content[: len(content) // 2]
    elif harm == "flipped":
        at = content.index(b"evidence.npy") + 200
        content[at] ^= 0xFF
    elif harm == "empty":
        content = bytearray()
    else:
        content = bytearray(b"not a segment")
    victim.write_bytes(content)
    left = read_spool(folder)
    assert counter(left, "damaged_segments") == 1
    assert str(victim) in left.sources[0]["warning"]
    assert "Restore it" in left.sources[0]["warning"]
    assert len(left.messages["conn"]) == len(whole.messages["conn"]) - inside
    assert (left.messages["request"] < len(left.messages["conn"])).all()
    assert (left.evidence["message"] < len(left.messages["conn"])).all()
    assert (left.messages["conn"] < len(left.connections["midstream"])).all()
    # What is left is what was there: every message of the rest is one of the whole.
    columns = ("begin_ns", "kind", "tcp_seq", "wire_bytes")
    rows = lambda tables: set(zip(*(tables.messages[name].tolist() for name in columns), strict=True))  # noqa: E731
    unfinished = {row for row in rows(left) if row[3] == 0}
    assert rows(left) - unfinished <= rows(whole)


def test_a_missing_segment_is_named(folder):
    sorted(folder.glob("*.npz"))[8].unlink()
    left = read_spool(folder)
    assert counter(left, "missing_segments") == 1
    assert "segment 000009 is missing" in left.sources[0]["warning"]


def test_too_many_lost_segments_make_the_trace_one_of_low_quality(folder, tmp_path, capsys):
    assert run(["trace", str(folder), "-o", str(tmp_path / "whole.db")]) == ExitCode.DONE
    capsys.readouterr()
    sorted(folder.glob("*.npz"))[8].write_bytes(b"")
    assert run(["trace", str(folder), "-o", str(tmp_path / "left.db")]) == ExitCode.LOW_QUALITY
    assert "segments of the spool are damaged or missing" in capsys.readouterr().err


def test_what_reads_packets_cannot_be_chosen_for_a_spool(folder, tmp_path, capsys):
    words = ["trace", str(folder), "-o", str(tmp_path / "x.db"), "--port-map", "80=http"]
    assert run(words) == ExitCode.USAGE
    assert "come too late" in capsys.readouterr().err
    words = ["trace", str(folder), str(SAMPLE), "-o", str(tmp_path / "y.db")]
    assert run(words) == ExitCode.USAGE
    assert "cannot be traced together" in capsys.readouterr().err


def test_spools_are_put_behind_one_another(tmp_path):
    for name in ("a", "b"):
        write(SAMPLE, spools.Spool(tmp_path / name), lambda: 100)
    one, two = read_spool(tmp_path / "a"), read_spool([tmp_path / "a", tmp_path / "b"])
    count = len(one.messages["conn"])
    assert len(two.messages["conn"]) == 2 * count
    assert two.classes == one.classes
    assert two.addresses == one.addresses
    asked = one.messages["request"]
    assert (two.messages["request"][count:] == np.where(asked >= 0, asked + count, -1)).all()
    assert (two.messages["class_id"][count:] == one.messages["class_id"]).all()
    assert two.counter("packets") == 2 * one.counter("packets")
    # Values are hashed under another salt.
    assert set(two.evidence["hash"][: len(one.evidence["hash"])]).isdisjoint(
        two.evidence["hash"][len(one.evidence["hash"]) :]
    )


def test_the_oldest_segments_go_when_the_spool_is_full(tmp_path):
    path = tmp_path / "x.spool"
    whole = read_files([SAMPLE])
    write(SAMPLE, spools.Spool(path, bound=spools.SpoolBound(bytes=200_000)), lambda: 10)
    assert sum(file.stat().st_size for file in path.glob("*.npz")) <= 200_000
    deleted = spools.read_manifest(path)["deleted"]
    left = read_spool(path)
    assert deleted["segments"] == counter(left, "deleted_segments") > 10
    assert counter(left, "missing_segments") == 0
    assert 0 < len(left.messages["conn"]) < len(whole.messages["conn"])
    assert left.messages["begin_ns"].max() == whole.messages["begin_ns"].max()
    assert left.counter("packets") == whole.counter("packets")


def test_joined_segments_hold_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(spools, "JOINED", 8)
    tables = spooled(SAMPLE, tmp_path / "x.spool", lambda: 11)
    names = sorted(file.name for file in (tmp_path / "x.spool").glob("*.npz"))
    assert "000001-000008.npz" in names
    assert len(names) < 15
    whole = read_files([SAMPLE], salt=(tmp_path / "x.spool" / "salt").read_bytes())
    assert differences(whole, tables) == []


def test_a_killed_joining_leaves_no_segment_twice(folder):
    """The joined file is there, and those that it covers are not yet removed."""
    whole = read_spool(folder)
    parts = [load_segment(file) for file in sorted(folder.glob("*.npz"))[:4]]
    arrays, about = join_segments(parts)
    np.savez(folder / "000001-000004.npz", about=np.array(json.dumps(about)), **arrays)
    assert differences(whole, read_spool(folder)) == []


def test_a_folder_that_is_no_spool_is_refused(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(TapscopeError, match="is no spool and is not empty"):
        spools.Spool(tmp_path)
    spools.Spool(tmp_path / "new.spool")
    with pytest.raises(TapscopeError, match="manifest of the spool cannot be read"):
        read_spool(tmp_path / "new.spool")


def test_a_spool_that_cannot_be_made_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TapscopeError, match="the spool cannot be made or opened: Not a directory"):
        spools.Spool(tmp_path / "file" / "x.spool")


def test_two_captures_cannot_write_to_one_spool(tmp_path):
    first = spools.Spool(tmp_path / "x.spool")
    with pytest.raises(TapscopeError, match="another capture writes to this spool"):
        spools.Spool(tmp_path / "x.spool")
    first.abandon()
    assert not (tmp_path / "x.spool").exists()


def test_the_memory_of_closed_connections_goes(tmp_path):
    """Short connections from ever new addresses: what the process holds does not grow with them."""
    path = tmp_path / "churn.pcap"
    churn(path, connections=60_000)
    spool = spools.Spool(tmp_path / "x.spool")
    spool.begin({})
    capture = _native.Capture.of_files(
        paths=[str(path)], salt=spool.salt, keep_text=False, port_map={}, limits={}
    )
    resident = []
    packets, more = 0, True
    while more:
        packets += 10_000
        while capture.run(0, packets):
            pass
        more = capture.status()["packets"] == packets
        spool.write(capture.drain())
        resident.append(resident_kb())
    spool.close("done")
    assert len(resident) > 30
    assert max(resident[15:]) < resident[14] + 3_000, resident
    assert len(read_spool(tmp_path / "x.spool").connections["midstream"]) == 60_000


def churn(path: Path, connections: int) -> None:
    """Connections of one request each, from addresses of their own, ten a millisecond."""
    pack = struct.Struct("!BBHHHBBH4s4sHHIIBBHHH").pack
    ether = bytes(12) + b"\x08\x00"
    server = bytes([10, 0, 0, 1])
    asked = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    answered = b"HTTP/1.1 204 No Content\r\n\r\n"
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for number in range(connections):
            client = bytes([20 + (number >> 16 & 63), number >> 8 & 255, number & 255, 1])
            at_ns = number * 100_000
            seq = {client: 1000, server: 5000}
            steps = (
                (client, 0x02, b""),
                (server, 0x12, b""),
                (client, 0x10, b""),
                (client, 0x18, asked),
                (server, 0x18, answered),
                (client, 0x11, b""),
                (server, 0x11, b""),
                (client, 0x10, b""),
            )
            for step, (source, flags, data) in enumerate(steps):
                other = server if source == client else client
                ports = (40000, 80) if source == client else (80, 40000)
                ack = seq[other] if flags & 0x10 else 0
                head = pack(
                    0x45, 0, 40 + len(data), number * 8 + step & 0xFFFF, 0, 64, 6, 0, source, other,
                    *ports, seq[source], ack, 0x50, flags, 65535, 0, 0,
                )  # fmt: skip
                frame = ether + head + data
                seconds, rest = divmod(1_700_000_000_000_000_000 + at_ns + step * 1000, 1_000_000_000)
                file.write(struct.pack("<IIII", seconds, rest, len(frame), len(frame)) + frame)
                seq[source] += len(data) + (1 if flags & 0x03 else 0)


def resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
