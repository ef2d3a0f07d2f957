"""Captures that grow while they are read: files and pipes by an engine of our own, spools by their segments.

Both give pieces: what `segment.arrays_of` makes of half a second or so, and the classes that are new in it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.capture import _native
from tapscope.capture.chunks import ClassLines
from tapscope.capture.descriptors import make_room
from tapscope.capture.follow import DESCRIPTORS, Followed, followed
from tapscope.capture.read import as_tapscope_error, checked_keylog, checked_ports, checked_salt
from tapscope.capture.segment import AMENDMENTS, arrays_of, load_segment
from tapscope.capture.spool import CLASSES, JOINED, SegmentFile, class_line, read_manifest, segment_files
from tapscope.store.errors import TapscopeError
from tapscope.store.tables import TABLES

PIECE_SECONDS = 0.5
PIECE_ROWS = 500_000
"""A piece is handed over after so long, or when it has so many rows."""
RUN_MS = 50
LOOK_SECONDS = 0.25
WAITING_PIECES = 2
_DAMAGE = (OSError, ValueError, KeyError, EOFError)


@dataclass
class Piece:
    """A segment, and the session (counted from 1) that it is of."""

    session: int
    arrays: dict[str, NDArray[Any]]
    about: dict[str, Any]
    classes: ClassLines


class GrowingFiles:
    """Capture files that are being written, and pipes. Use it as a context manager."""

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        keep_text: bool = False,
        port_map: Mapping[int, int] | None = None,
        limits: Mapping[str, int] | None = None,
        tls_keylog: str | os.PathLike[str] | None = None,
    ) -> None:
        """Arguments are those of `read_files`."""
        self._names = [os.fspath(path) for path in paths]
        self._settings: dict[str, Any] = {
            "salt": checked_salt(None),
            "keep_text": keep_text,
            "port_map": checked_ports(port_map),
            "limits": dict(limits or {}),
            "tls_keylog": checked_keylog(tls_keylog),
        }
        self._pieces: queue.Queue[Piece | None] = queue.Queue(WAITING_PIECES)
        self._failure: _native.SourceError | None = None
        self._over = threading.Event()
        self._open = contextlib.ExitStack()
        self._files: list[Followed] = []
        self._thread = threading.Thread(target=self._read, name="engine", daemon=True)

    def __enter__(self) -> GrowingFiles:
        make_room(len(self._names), DESCRIPTORS)
        with contextlib.ExitStack() as opening:
            self._files = [opening.enter_context(followed(name)) for name in self._names]
            self._open = opening.pop_all()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._pieces.get(timeout=0.1)
        self._open.close()

    def stop(self) -> None:
        """End the files here; what was read of them still comes."""
        for file in self._files:
            file.stop()

    def pieces(self) -> Iterator[Piece | None]:
        """What comes, and None whenever nothing came for a while; ends where all files do. Raises
        TapscopeError."""
        while True:
            try:
                piece = self._pieces.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                yield None
                continue
            if piece is None:
                break
            yield piece
        if self._failure is not None:
            what, path, *rest = self._failure.args
            names = {file.pipe: name for file, name in zip(self._files, self._names, strict=True)}
            raise as_tapscope_error(_native.SourceError(what, names.get(path, path), *rest)) from None

    def told(self, sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Sources by the names of their files, with what went wrong."""
        for source, name, file in zip(sources, self._names, self._files, strict=False):
            source["path"] = name
            if file.warning is not None:
                source["warning"] = "; ".join(filter(None, [source.get("warning"), file.warning]))
        return sources

    def counters(self) -> list[tuple[str, int, str]]:
        """Nothing but what the engine counts."""
        return []

    def _read(self) -> None:
        try:
            capture = _native.Capture.of_files(paths=[file.pipe for file in self._files], **self._settings)
            begun = time.monotonic()
            while capture.run(RUN_MS, 2**63):
                now, rows = time.monotonic(), capture.rows()
                if rows and (now - begun >= PIECE_SECONDS or rows >= PIECE_ROWS):
                    self._put(capture)
                    begun = now
            capture.finish()
            self._put(capture)
        except _native.SourceError as error:
            self._failure = error
        finally:
            self._pieces.put(None)

    def _put(self, capture: _native.Capture) -> None:
        segment = capture.drain()
        classes = {number: tuple(rest) for number, *rest in segment["classes"]}
        arrays, about = arrays_of(segment)
        self._pieces.put(Piece(1, arrays, about, classes))


class GrowingSpool:
    """A spool into which a capture writes, or will write. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        read_manifest(path)
        self._over = False
        self._done = read_manifest(path)["deleted"]["until_segment"]
        self._counts: deque[tuple[int, dict[str, int]]] = deque(maxlen=2 * JOINED)
        """Rows of the latest segments that were read one by one: a joined one has them again."""
        self._classes_read = 0
        self._classes: dict[int, ClassLines] = {}
        self._warnings: list[str] = []
        self._segments = {"segments": 0, "damaged_segments": 0, "missing_segments": 0}
        self._segments["deleted_segments"] = read_manifest(path)["deleted"]["segments"]

    def __enter__(self) -> GrowingSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Read what is there, and no more."""
        self._over = True

    def pieces(self) -> Iterator[Piece | None]:
        """What comes, and None whenever nothing came for a while; ends when it is stopped."""
        while True:
            over = self._over  # before looking: what is there when it is stopped is read
            found = False
            for piece in self._new():
                found = True
                yield piece
            if found:
                continue
            if over:
                return
            time.sleep(LOOK_SECONDS)
            yield None

    def told(self, sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Sources with the spool they are of, and what went wrong."""
        out = [source | {"spool": str(self._path)} for source in sources]
        if out and self._warnings:
            out[-1]["warning"] = "; ".join(filter(None, [out[-1].get("warning"), *self._warnings]))
        return out

    def counters(self) -> list[tuple[str, int, str]]:
        """Segments that were read, could not be, and were gone before they could; as `read_spool` counts."""
        return [(f"spool.{name}", value, "segments") for name, value in self._segments.items() if value]

    def _new(self) -> Iterator[Piece]:
        """Segments that were not read, as far as they are there."""
        try:
            files = segment_files([entry.name for entry in self._path.iterdir()])
        except OSError as error:
            raise TapscopeError(
                f"the spool cannot be read: {error.strerror}", path=self._path, remedy="Check the path."
            ) from error
        for file in files:
            if file.last <= self._done:
                continue
            try:
                arrays, about = load_segment(self._path / file.name)
            except FileNotFoundError:
                return  # joined or deleted meanwhile: look again
            except _DAMAGE as error:
                self._warnings.append(f"{self._path / file.name}: the segment is damaged: {error}")
                self._segments["damaged_segments"] += file.last - self._done
                self._done = file.last
                continue
            if file.first > self._done + 1:
                self._warnings.append(f"segments {self._done + 1:06} to {file.first - 1:06} were missed")
                self._segments["missing_segments"] += file.first - self._done - 1
                self._done = file.first - 1
            self._skip_known(file, arrays, about)
            self._read_classes()
            lines = self._classes.pop(about["session"], {})
            self._segments["segments"] += file.last - self._done
            self._done = file.last
            yield Piece(about["session"], arrays, about, lines)

    def _skip_known(self, file: SegmentFile, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> None:
        """Takes from a joined segment what was read of it one by one; notes the rows of a single one."""
        if file.first == file.last:
            self._counts.append((file.first, _counts(arrays)))
            return
        known = [counts for number, counts in self._counts if file.first <= number <= self._done]
        if not known:
            return
        for name, column in list(arrays.items()):
            table = name.split(".")[0]
            if table in known[0]:
                arrays[name] = column[sum(counts[table] for counts in known) :]
        skipped = sum(counts["messages"] for counts in known)
        about["first_message"] += skipped
        about["messages"] -= skipped

    def _read_classes(self) -> None:
        with (self._path / CLASSES).open("rb") as lines:
            lines.seek(self._classes_read)
            for raw in lines:
                if not raw.endswith(b"\n"):
                    break
                self._classes_read += len(raw)
                line = class_line(raw)
                if line is not None:
                    session, number, entry = line
                    self._classes.setdefault(session, {})[number] = entry


def _counts(arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    out = {
        table: len(arrays.get(f"{table}.{TABLES[table][0].name}", np.zeros(0)))
        for table in ("messages", "evidence", "tcp_events")
    }
    return out | {"amendments": len(arrays[f"amendments.{AMENDMENTS[0]}"])}
