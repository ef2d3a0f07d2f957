"""A spool: the directory into which a capture that goes on for days puts what it has read, twice a second.

::

    NAME.spool/
      manifest.json          what was captured, by whom, and what the ring bound deleted
      salt                   16 bytes that key the evidence hashes; mode 0600
      classes.jsonl          one class per line: session, id, protocol, text, example
      000001.npz             segments: the rows of half a second each, uncompressed numpy archives
      000002-000121.npz      segments that were joined later: a day is 1500 files, not 170,000

A segment is written under another name, then renamed: a file with a segment's name is whole. Killing the
capture loses what came after the last segment. Arrays of a segment, which ``capture.segment`` makes
and reads, by name and field:

* ``connections.X``, ``messages.X``, ``evidence.X``: columns of ``store.tables.TABLES``. ``messages.request``
  and ``evidence.message`` are message ids, numbers since the start of the session; the ids of the segment's
  own messages begin with ``first_message``. ``messages.conn`` is the low half of a connection id.
* ``connections.id``: a connection is described when it is new, again from time to time, and at its end; the
  last row of an id counts. Address columns are rows of the segment's own ``addresses``.
* ``tcp_events.X``: likewise; ``conn`` is the low half of a connection id. Absent where there were none.
* ``amendments.message``, ``.column`` (row of TABLES["messages"]), ``.change`` (Change), ``.value``: what
  became of messages that an earlier segment holds, in order.
* ``about``: JSON; session, first_message, first_connection, messages, written_ns, last, and since the start
  of the session the counters, the tap points, and the sources with their drop counters.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.capture.segment import arrays_of, join_segments, load_segment, save_segment
from tapscope.store.errors import TapscopeError

FORMAT = "tapscope spool"
VERSION = 2
READ = (1, 2)
"""In version 1 each column of a segment is an array. A new session makes the spool one of version 2."""
MANIFEST, SALT, CLASSES = "manifest.json", "salt", "classes.jsonl"
SALT_BYTES = 16
SEGMENT_NAME = re.compile(r"(\d{6,})(?:-(\d{6,}))?\.npz")
UNFINISHED = ".part"
"""End of the name of a file that is being written."""
JOINED = 120
"""Segments that are joined into one, unless they have more than JOINED_BYTES."""
JOINED_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class SpoolBound:
    """How much a spool may hold before its oldest segments go; None = no bound."""

    bytes: int | None = None
    age_ns: int | None = None


@dataclass(frozen=True)
class SegmentFile:
    """A segment by its name: the numbers that it covers."""

    first: int
    last: int
    name: str


def segment_files(names: list[str]) -> list[SegmentFile]:
    """Segments among file names, in order; those that a joined one covers are left out."""
    found = []
    for name in names:
        match = SEGMENT_NAME.fullmatch(name)
        if match:
            first = int(match[1])
            found.append(SegmentFile(first, int(match[2] or first), name))
    found.sort(key=lambda segment: (segment.first, -segment.last))
    kept: list[SegmentFile] = []
    for segment in found:
        if not kept or segment.last > kept[-1].last:
            kept.append(segment)
    return kept


def is_spool(path: Path) -> bool:
    """Is this directory a spool?"""
    return path.is_dir() and (path / CLASSES).exists() and (path / MANIFEST).exists()


def fingerprint(salt: bytes) -> str:
    """Tells equal salts without telling the salt."""
    return hashlib.sha256(b"tapscope salt" + salt).hexdigest()[:16]


class Spool:
    """Writes a spool. Everything goes through the open directory, so that neither its path nor the rights to
    get there are needed later. One thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        bound: SpoolBound | None = None,
        sync: bool = False,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """Make the directory, or open it to go on with a new session. `owner`: user and group that it is
        given to (needs root). `sync`: wait for the disk after each segment. Raises TapscopeError."""
        self.path = path
        self._bound = bound or SpoolBound()
        self._sync = sync
        with _failing(path, "cannot be made or opened"):
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TapscopeError(
                    "another capture writes to this spool", path=path, remedy="Name another directory."
                ) from None
            names = os.listdir(self._folder)  # noqa: PTH208  (an open folder has no path)
            if names and MANIFEST not in names:
                raise TapscopeError(
                    "this directory is no spool and is not empty", path=path, remedy="Name another one."
                )
            self._manifest = read_manifest(path) if names else _new_manifest()
            self.salt = self._open_salt(SALT in names)
            classes = os.open(CLASSES, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640, dir_fd=self._folder)
            self._classes = os.fdopen(classes, "ab")
            end = os.fstat(classes).st_size
            if end and os.pread(classes, 1, end - 1) != b"\n":
                self._classes.write(b"\n")  # behind a line that a killed session left
            if owner is not None:
                for name in (".", SALT, CLASSES, *([MANIFEST] if names else [])):
                    os.chown(name, *owner, dir_fd=self._folder)
        self._fresh = not names
        self.segments = 0
        files = segment_files(names)
        self._next = files[-1].last + 1 if files else self._manifest["next_segment"]
        self._files = [(file, *self._size_and_time(file.name)) for file in files]
        for name in names:
            if name.endswith(UNFINISHED):
                os.unlink(name, dir_fd=self._folder)
        self.session = len(self._manifest["sessions"]) + 1

    def begin(self, about: dict[str, Any]) -> None:
        """Describe the session that begins: interface, link type, snaplen, filter, clock."""
        self._manifest["version"] = VERSION
        self._manifest["salt_fingerprint"] = fingerprint(self.salt)
        self._manifest["sessions"].append(
            {
                "session": self.session,
                "host": socket.gethostname(),
                "started_ns": time.time_ns(),
                "first_segment": self._next,
                **about,
            }
        )
        with _failing(self.path, "cannot be written"):
            self._write_manifest()

    def write(self, segment: dict[str, Any], *, last: bool = False) -> None:
        """Store what Capture.drain() returned as one segment. Raises TapscopeError."""
        arrays, about = arrays_of(segment)
        about |= {"session": self.session, "written_ns": time.time_ns(), "last": last}
        with _failing(self.path, "cannot be written"):
            # Classes first: a segment that is there never speaks of a class that is not.
            for number, protocol, text, example in segment["classes"]:
                line = {"session": self.session, "id": number, "protocol": protocol, "text": text}
                line |= {"example": example} if example else {}
                self._classes.write(json.dumps(line).encode() + b"\n")
            self._classes.flush()
            if self._sync:
                os.fsync(self._classes.fileno())
            self._put(f"{self._next:06}.npz", arrays, about)
            self._files.append(
                (SegmentFile(self._next, self._next, f"{self._next:06}.npz"), *self._size_and_time(None))
            )
            self._next += 1
            self.segments += 1
            self._join()
            self._delete_old()

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(size for _, size, _ in self._files)

    def abandon(self) -> None:
        """Nothing was captured: leave the directory as it was found."""
        self._classes.close()
        if self._fresh:
            with contextlib.suppress(OSError):
                for name in (SALT, CLASSES):
                    os.unlink(name, dir_fd=self._folder)
                self.path.rmdir()
        os.close(self._folder)

    def close(self, outcome: str) -> None:
        """The session ended: `outcome` says how, in a word or two."""
        with _failing(self.path, "cannot be written"), contextlib.ExitStack() as closing:
            closing.callback(os.close, self._folder)
            closing.callback(self._classes.close)
            self._manifest["sessions"][-1] |= {"ended_ns": time.time_ns(), "outcome": outcome}
            self._write_manifest()

    def _open_salt(self, there: bool) -> bytes:
        if there:
            with os.fdopen(os.open(SALT, os.O_RDONLY, dir_fd=self._folder), "rb") as file:
                salt = file.read()
            if len(salt) != SALT_BYTES:
                raise TapscopeError(
                    "the salt is damaged", path=self.path / SALT, remedy="Name a new directory."
                )
            return salt
        salt = secrets.token_bytes(SALT_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(SALT, flags, 0o600, dir_fd=self._folder), "wb") as file:
            file.write(salt)
        return salt

    def _put(self, name: str, arrays: dict[str, np.ndarray[Any, Any]], about: dict[str, Any]) -> None:
        with self._replacing(name) as file:
            save_segment(file, arrays, about)
            self._size, self._time_ns = file.tell(), about["written_ns"]

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Any:
        """A file that gets its name when it is whole."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(name + UNFINISHED, flags, 0o640, dir_fd=self._folder), "wb") as file:
            yield file
            file.flush()
            if self._sync:
                os.fsync(file.fileno())
        os.rename(name + UNFINISHED, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        if self._sync:
            os.fsync(self._folder)

    def _write_manifest(self) -> None:
        self._manifest["next_segment"] = self._next
        with self._replacing(MANIFEST) as file:
            file.write(json.dumps(self._manifest, indent=1).encode() + b"\n")

    def _size_and_time(self, name: str | None) -> tuple[int, int]:
        if name is None:
            return self._size, self._time_ns
        stat = os.stat(name, dir_fd=self._folder)
        return stat.st_size, stat.st_mtime_ns

    def _join(self) -> None:
        """Joins the single segments of this session when there are enough of them."""
        single = [file for file, _, _ in self._files[-JOINED:] if file.first == file.last]
        first = self._manifest["sessions"][-1]["first_segment"]
        if len(single) < JOINED or single[0].first < first or self._too_much_to_join():
            return
        parts = []
        for file in single:
            with os.fdopen(os.open(file.name, os.O_RDONLY, dir_fd=self._folder), "rb") as opened:
                parts.append(load_segment(opened))
        arrays, about = join_segments(parts)
        name = f"{single[0].first:06}-{single[-1].last:06}.npz"
        self._put(name, arrays, about)
        for file in single:
            os.unlink(file.name, dir_fd=self._folder)
        joined = SegmentFile(single[0].first, single[-1].last, name)
        self._files[-JOINED:] = [(joined, *self._size_and_time(None))]

    def _too_much_to_join(self) -> bool:
        """Joining takes memory, and joined segments are deleted at once: not when that is a good part of what
        may be kept."""
        recent = sum(size for _, size, _ in self._files[-JOINED:])
        span_ns = self._files[-1][2] - self._files[-JOINED][2]
        return (
            recent > JOINED_BYTES
            or (self._bound.bytes is not None and recent * 8 > self._bound.bytes)
            or (self._bound.age_ns is not None and span_ns * 8 > self._bound.age_ns)
        )

    def _delete_old(self) -> None:
        total = sum(size for _, size, _ in self._files)
        oldest = time.time_ns() - self._bound.age_ns if self._bound.age_ns is not None else None
        before = len(self._files)
        deleted = self._manifest["deleted"]
        while len(self._files) > 1:
            file, size, written_ns = self._files[0]
            too_many = self._bound.bytes is not None and total > self._bound.bytes
            if not too_many and (oldest is None or written_ns > oldest):
                break
            os.unlink(file.name, dir_fd=self._folder)
            total -= size
            deleted["segments"] += file.last - file.first + 1
            deleted["bytes"] += size
            deleted["until_segment"], deleted["until_ns"] = file.last, written_ns
            self._files.pop(0)
        if len(self._files) != before:
            self._write_manifest()


def _new_manifest() -> dict[str, Any]:
    nothing = {"segments": 0, "bytes": 0, "until_segment": 0, "until_ns": -1}
    return {"format": FORMAT, "version": VERSION, "next_segment": 1, "deleted": nothing, "sessions": []}


def read_manifest(path: Path) -> dict[str, Any]:
    """manifest.json of the spool at `path`. Raises TapscopeError when it is none of ours."""
    at = path / MANIFEST
    try:
        manifest = json.loads(at.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TapscopeError(
            f"the manifest of the spool cannot be read: {error}", path=at, remedy="Restore it from a copy."
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise TapscopeError(
            "this is not the manifest of a spool", path=at, offset=0, remedy="Check the path."
        )
    if manifest.get("version") not in READ:
        raise TapscopeError(
            f"the spool has version {manifest.get('version')}, this program reads {READ[0]} to {VERSION}",
            path=at,
            remedy="Use the tapscope that wrote it.",
        )
    return manifest


def class_line(raw: bytes) -> tuple[int, int, tuple[int, str, str]] | None:
    """Session, id, and protocol, text, example of a line of CLASSES; None where it is cut or damaged."""
    try:
        line = json.loads(raw)
        entry = (int(line["protocol"]), str(line["text"]), str(line.get("example", "")))
        return int(line["session"]), int(line["id"]), entry
    except (ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _failing(path: Path, what: str) -> Any:
    """Errors of the system as TapscopeError."""
    try:
        yield
    except OSError as error:
        raise TapscopeError(
            f"the spool {what}: {error.strerror or error}",
            path=path,
            remedy="Check the space and the permissions; the segments that are there can be read.",
        ) from error
