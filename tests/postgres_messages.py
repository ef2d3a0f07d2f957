"""Messages of PostgreSQL, and what was read of them."""

from __future__ import annotations

import struct
from pathlib import Path

import dissect_checks
import numpy as np
from capture_packets import CLIENT, SERVER
from dissect_checks import calls_of

from tapscope import capture
from tapscope.store.codes import Protocol

PCAPS = Path(__file__).resolve().parent.parent / "pcaps/postgres"
PORT = 5432


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack("!I", 4 + len(body)) + body


def startup(user: bytes = b"tap") -> bytes:
    body = struct.pack("!I", 3 << 16) + b"user\0" + user + b"\0\0"
    return struct.pack("!I", 4 + len(body)) + body


def query(text: str) -> bytes:
    return message("Q", text.encode() + b"\0")


def parse(name: str, text: str, *oids: int) -> bytes:
    body = name.encode() + b"\0" + text.encode() + b"\0" + struct.pack("!H", len(oids))
    return message("P", body + b"".join(struct.pack("!I", oid) for oid in oids))


def bind(name: str, *values: bytes | None, portal: str = "", binary: bool = False) -> bytes:
    body = portal.encode() + b"\0" + name.encode() + b"\0" + struct.pack("!HHH", 1, binary, len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!I", len(value)) + value
    return message("B", body + struct.pack("!H", 0))


def execute(portal: str = "", rows: int = 0) -> bytes:
    return message("E", portal.encode() + b"\0" + struct.pack("!I", rows))


SYNC, FLUSH = message("S"), message("H")
READY = message("Z", b"I")
LOGGED_IN = message("R", b"\0\0\0\0") + message("K", b"\0\0\0\1\0\0\0\2") + READY
PARSED, BOUND, CLOSED, NO_DATA = (message(kind) for kind in "123n")
COPY_IN = message("G", b"\0\0\1\0\0")
COPIED = message("d", b"1\n") * 3


def done(tag: str = "SELECT 1") -> bytes:
    return message("C", tag.encode() + b"\0")


def failed(state: str = "42P01", severity: str = "ERROR") -> bytes:
    return message("E", f"S{severity}\0V{severity}\0C{state}\0Mno\0".encode() + b"\0")


def row(*values: bytes) -> bytes:
    body = struct.pack("!H", len(values))
    return message("D", body + b"".join(struct.pack("!I", len(value)) + value for value in values))


def talk(tmp_path: Path, *parts: tuple[int, bytes], login: bool = True) -> capture.CaptureTables:
    """A connection whose sides say `parts` in turn."""
    before = ((CLIENT, startup()), (SERVER, LOGGED_IN)) if login else ()
    return dissect_checks.talk(tmp_path, *parts, port=PORT, before=before)


def calls(tables: capture.CaptureTables) -> list[tuple[str, int | None]]:
    """Class text of every request but the login, and the status of its answer (None: no answer)."""
    return [call for call in calls_of(tables, Protocol.POSTGRES) if call[0] != "LOGIN"]


def classes(tables: capture.CaptureTables, *kinds: int) -> list[str]:
    m = tables.messages
    rows = np.flatnonzero(
        (m["protocol"] == Protocol.POSTGRES) & np.isin(m["kind"], kinds) & (m["class_id"] >= 0)
    )
    return [tables.classes[m["class_id"][i]][1] for i in rows]
