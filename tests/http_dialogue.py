"""Conversations of HTTP over TCP as captures, and what is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capture_packets import SERVER, Dialogue, unaccounted, write_pcap

from tapscope import capture
from tapscope.capture import _native
from tapscope.store.codes import MessageKind

SALT = bytes(range(16))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n\r\n"
Turn = tuple[int, bytes]


def run(path: Path, turns: Sequence[Turn], mss: int = 1448, close: bool = True) -> capture.CaptureTables:
    dialogue = Dialogue().open()
    for side, data in turns:
        dialogue.send(side, data, mss=mss)
    if close:
        dialogue.close(SERVER)
    tables = capture.read_files([write_pcap(path / "a.pcap", dialogue.packets)], salt=SALT)
    assert unaccounted(tables) == []
    return tables


def summary(tables: capture.CaptureTables) -> list[tuple[object, ...]]:
    """(kind, class or status, bytes, row of the request) of every message."""
    out: list[tuple[object, ...]] = []
    for row in range(len(tables.messages["conn"])):
        what: object = int(tables.messages["status"][row])
        if what == -1 and tables.messages["class_id"][row] == -1:
            what = None
        elif what == -1:
            what = tables.classes[tables.messages["class_id"][row]][1]
        kind = MessageKind(tables.messages["kind"][row]).name.lower()
        out.append(
            (kind, what, int(tables.messages["wire_bytes"][row]), int(tables.messages["request"][row]))
        )
    return out


def tokens(tables: capture.CaptureTables, row: int = 0) -> set[tuple[int, int, int]]:
    mine = tables.evidence["message"] == row
    columns = (tables.evidence[name][mine].tolist() for name in ("slot", "kind", "hash"))
    return set(zip(*columns, strict=True))


def token(kind: int, value: str, name: str | None = None, slot: int = 0) -> tuple[int, int, int]:
    return (_native.slot_of_name(name) if name else slot, int(kind), _native.token_hash(SALT, value.encode()))
