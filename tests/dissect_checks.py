"""What every dissector must stand: a capture cut up, joined late, or thinned by a packet."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from capture_packets import FIN, Dialogue, Packet, message_rows, read_pcap, unaccounted, write_pcap

from tapscope import capture
from tapscope.store.codes import Protocol

SALT = b"sixteen bytes ok"
REQUEST, RESPONSE, INTERIM, ONE_WAY = range(4)
ERROR = 16


def read(path: Path) -> capture.CaptureTables:
    """The tables of a capture, with hashes that do not change from run to run."""
    return capture.read_files([path], salt=SALT)


def talk_without(
    tmp_path: Path, port: int, lost: set[int], *turns: tuple[int, bytes]
) -> capture.CaptureTables:
    """A connection that says `turns`, of which the tap does not see those numbered `lost`."""
    dialogue = Dialogue(server_port=port).open()
    for number, (side, data) in enumerate(turns):
        dialogue.emit(side, 24, data)
        dialogue.seq[side] += len(data)
        if number in lost:
            dialogue.packets.pop()
    dialogue.close()
    tables = read(write_pcap(tmp_path / "lost.pcap", dialogue.packets))
    assert unaccounted(tables) == []
    return tables


def replies(tables: capture.CaptureTables) -> list[tuple[int, bool]]:
    """Length of each response, and whether its request is known."""
    where = tables.messages["kind"] == RESPONSE
    paired = tables.messages["request"][where] >= 0
    return list(zip(tables.messages["wire_bytes"][where].tolist(), paired.tolist(), strict=True))


def talk(
    scratch: Path,
    *parts: tuple[int, bytes],
    port: int,
    before: Iterable[tuple[int, bytes]] = (),
    cut: int = 0,
) -> capture.CaptureTables:
    """The tables of a connection to `port` whose sides say `before` and then `parts` in turn, in segments of
    `cut` bytes (0: as large as they can be)."""
    dialogue = Dialogue(server_port=port).open()
    for side, data in (*before, *parts):
        dialogue.send(side, data, cuts=range(0, len(data), cut) if cut else ())
    dialogue.close()
    tables = read(write_pcap(scratch / "talk.pcap", dialogue.packets))
    assert unaccounted(tables) == []
    return tables


def calls_of(tables: capture.CaptureTables, protocol: Protocol) -> list[tuple[str, int | None]]:
    """Class text of every request of `protocol` and the status of its answer (None: no answer)."""
    m = tables.messages
    answers = {int(m["request"][i]): int(m["status"][i]) for i in np.flatnonzero(m["kind"] == RESPONSE)}
    rows = np.flatnonzero((m["protocol"] == protocol) & (m["kind"] == REQUEST))
    return [
        (tables.classes[m["class_id"][i]][1] if m["class_id"][i] >= 0 else "", answers.get(int(i)))
        for i in rows
    ]


def packets_of(path: Path, scratch: Path) -> list[Packet]:
    """The packets of a .pcap or .pcap.gz."""
    if path.suffix == ".gz":
        plain = scratch / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path = plain
    return read_pcap(path)


def payload_of(frame: bytes) -> tuple[int, int]:
    """Where the TCP payload of an Ethernet/IPv4 frame begins and ends."""
    ip = 14
    head = (frame[ip] & 15) * 4
    end = ip + struct.unpack_from("!H", frame, ip + 2)[0]
    return ip + head + (frame[ip + head + 12] >> 4) * 4, end


def shredded(packets: list[Packet], size: int) -> list[Packet]:
    """Every segment cut into segments of `size` bytes of the same time."""
    out = []
    for time_ns, frame in packets:
        begin, end = payload_of(frame)
        if end - begin <= size:
            out.append((time_ns, frame))
            continue
        tcp = 14 + (frame[14] & 15) * 4
        seq = struct.unpack_from("!I", frame, tcp + 4)[0]
        for at in range(begin, end, size):
            piece = frame[at : min(at + size, end)]
            head = bytearray(frame[:begin])
            struct.pack_into("!H", head, 16, begin - 14 + len(piece))
            struct.pack_into("!I", head, tcp + 4, (seq + at - begin) % 2**32)
            if at + size < end:
                head[tcp + 13] &= ~FIN & 0xFF
            out.append((time_ns, bytes(head) + piece))
    return out


def split_at_every_packet(packets: list[Packet]) -> Iterator[tuple[int, list[Packet]]]:
    """The capture as it would be, had it begun at each packet that carries bytes."""
    for number, (_, frame) in enumerate(packets):
        begin, end = payload_of(frame)
        if end > begin:
            yield number, packets[number:]


def pairs(tables: Any) -> dict[tuple[int, int], int]:
    """(client port, sequence number of a response) -> sequence number of the request that it answers."""
    m, c = tables.messages, tables.connections
    rows = np.flatnonzero((m["kind"] == RESPONSE) & (m["request"] >= 0) & (m["wire_bytes"] > 0))
    return {
        (int(c["client_port"][m["conn"][row]]), int(m["tcp_seq"][row])): int(m["tcp_seq"][m["request"][row]])
        for row in rows
    }


def check_segmentation(path: Path, scratch: Path, sizes: tuple[int, ...] = (1, 2, 7, 61)) -> None:
    """The same messages and evidence, however the streams are cut into segments."""
    packets = packets_of(path, scratch)
    whole = read(path)
    for size in sizes:
        cut = read(write_pcap(scratch / f"cut{size}.pcap", shredded(packets, size)))
        assert message_rows(cut, flags=False) == message_rows(whole, flags=False), f"segments of {size} bytes"
        assert sorted(cut.evidence["hash"].tolist()) == sorted(whole.evidence["hash"].tolist())
        assert unaccounted(cut) == []


def check_late_start(path: Path, scratch: Path) -> None:
    """Joined at any packet: every byte is accounted for, and no answer is given to another's request."""
    packets = packets_of(path, scratch)
    truth = pairs(read(path))
    for number, rest in split_at_every_packet(packets):
        tables = read(write_pcap(scratch / "late.pcap", rest))
        assert unaccounted(tables) == [], f"from packet {number}"
        found = pairs(tables)
        wrong = {key: seq for key, seq in found.items() if key in truth and truth[key] != seq}
        assert not wrong, f"from packet {number}: {wrong}"


def check_loss(path: Path, scratch: Path, share: float) -> None:
    """Without any one packet: no wrong pair, every byte accounted for, `share` of the pairs kept."""
    packets = packets_of(path, scratch)
    truth = pairs(read(path))
    kept = tries = 0
    for number, (_, frame) in enumerate(packets):
        begin, end = payload_of(frame)
        if end == begin:
            continue
        tables = read(write_pcap(scratch / "thinned.pcap", packets[:number] + packets[number + 1 :]))
        assert unaccounted(tables) == [], f"without packet {number}"
        found = pairs(tables)
        wrong = {key: seq for key, seq in found.items() if key in truth and truth[key] != seq}
        assert not wrong, f"without packet {number}: {wrong}"
        kept += sum(key in found for key in truth)
        tries += len(truth)
    assert kept >= share * tries, f"{kept} of {tries} pairs"
