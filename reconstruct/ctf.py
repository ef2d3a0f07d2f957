"""Events of a CTF trace (LTTng and others), one by one as the program babeltrace2 prints them.

The format describes itself and has many variants; babeltrace2 is its reference reader. Only one line is held
at a time. What the tracer discarded, and where a trace is damaged, babeltrace2 says beside the events.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import TapscopeError

FOREVER_NS = 1 << 62

_BEGINS = (b"/* CTF", b"\x57\x1d\xd1\x75", b"\x75\xd1\x1d\x57")
"""Metadata as text, or in packets of either byte order (CTF 1.8, 7.1)."""

_EVENT = re.compile(r"\[(\d+)\.(\d{9})\] (?:(\S+) )?([^\s{]+): (?=\{)")
_FIELD = re.compile(r'(\w+) = ("(?:[^"\\]|\\.)*"|[^\s,}]+)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_DISCARDED = re.compile(r"racer (?:may have )?discarded (\d+) (event|packet)")
_BETWEEN = re.compile(r"between \[(\d+)\.(\d{9})\] and \[(\d+)\.(\d{9})\]")


@dataclass(frozen=True)
class Event:
    """One event: time in ns since the epoch (UTC), host ("" not recorded), provider:name, fields as text."""

    time_ns: int
    host: str
    name: str
    fields: dict[str, str]


def is_trace(path: Path) -> bool:
    """Is this a folder with a CTF trace in it, or in a folder below (as `lttng create` makes them)?"""
    return path.is_dir() and any(is_metadata(file) for file in path.rglob("metadata"))


def is_metadata(path: Path) -> bool:
    """Is this the file that describes a CTF trace?"""
    if path.name != "metadata" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(8).startswith(_BEGINS)


def events(
    path: Path, count: Callable[[str, int], None], lost: Callable[[int, int], None] = lambda begin, end: None
) -> Iterator[Event]:
    """Events of all traces in a folder, in order of time.

    count(name, how many) is told of `discarded_event`, `discarded_packet` (by the tracer, while it recorded),
    `unreadable_event` and `damaged_trace` (nothing behind the damage is read); lost(begin, end), in ns, of
    the times between which the tracer discarded something, and of those from the damage on (end: FOREVER_NS).
    Raises TapscopeError when babeltrace2 is not installed or can read nothing.
    """
    program = shutil.which("babeltrace2")
    if program is None:
        raise TapscopeError(
            "this is a CTF trace, and babeltrace2, which reads it, is not installed",
            path=path,
            remedy="Install it: apt-get install babeltrace2",
        )
    command = [
        program,
        "--no-delta",
        "--clock-seconds",
        "--fields=trace:hostname",
        "--color=never",
        str(path),
    ]
    given, at_ns = 0, -1
    # A file: what a pipe that nobody reads meanwhile cannot take in would stop the program.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        try:
            for raw in process.stdout:
                found = _event(raw.decode("utf-8", errors="replace"))
                if found is None:
                    count("unreadable_event", 1)
                    continue
                given, at_ns = given + 1, found.time_ns
                yield found
        finally:
            process.stdout.close()
            code = process.wait()
        said.seek(0)
        last = ""
        for raw in said:
            last = raw.decode("utf-8", errors="replace").strip() or last
            if told := _DISCARDED.search(last):
                count(f"discarded_{told[2]}", int(told[1]))
                if times := _BETWEEN.search(last):
                    lost(int(times[1] + times[2]), int(times[3] + times[4]))
    if code and not given:
        raise TapscopeError(
            f"babeltrace2 can read nothing of this trace: {last}",
            path=path,
            remedy=f"See what `babeltrace2 {path}` says; record it again if it is damaged.",
        )
    if code:
        count("damaged_trace", 1)
        lost(at_ns, FOREVER_NS)


def _event(line: str) -> Event | None:
    head = _EVENT.match(line)
    if head is None:
        return None
    fields = {name: _text(value) for name, value in _FIELD.findall(line, head.end())}
    return Event(int(head[1] + head[2]), head[3] or "", head[4], fields)


def _text(value: str) -> str:
    if not value.startswith('"'):
        return value
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), value[1:-1])
