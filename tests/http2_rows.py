"""What the engine says of a capture of HTTP/2, as rows that a test can name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capture_packets import unaccounted

from tapscope import capture
from tapscope.store.codes import MessageKind, Protocol

SALT = bytes(range(16))
Row = tuple[Any, ...]


def read(path: Path) -> capture.CaptureTables:
    tables = capture.read_files([path], salt=SALT)
    assert unaccounted(tables) == []
    return tables


def rows(tables: capture.CaptureTables) -> list[Row]:
    """(protocol, kind, class or status, row of the request) of every message."""
    messages = tables.messages
    out: list[Row] = []
    for row in range(len(messages["conn"])):
        class_id = int(messages["class_id"][row])
        what = tables.classes[class_id][1] if class_id >= 0 else int(messages["status"][row])
        kind = MessageKind(messages["kind"][row]).name.lower()
        protocol = Protocol(messages["protocol"][row]).name.lower()
        out.append((protocol, kind, what, int(messages["request"][row])))
    return out
