"""Reads spools back into the tables that a capture file gives: ids compacted, amendments applied."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.capture.read import CaptureTables, Progress
from tapscope.capture.segment import AMENDMENTS, Change, load_segment, table_of
from tapscope.capture.spool import CLASSES, SegmentFile, class_line, read_manifest, segment_files
from tapscope.store.codes import MessageFlag
from tapscope.store.errors import TapscopeError
from tapscope.store.tables import TABLES, Table, empty

Ids = NDArray[np.int64]
_Loaded = tuple[dict[str, NDArray[Any]], dict[str, Any]]
_KINDS = ("connections", "messages", "evidence", "tcp_events")
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
_REMEDY = "Restore it from a copy, or go on without it: other segments are read."


@dataclass
class _Session:
    """The segments of one session, ids as they were captured."""

    number: int
    parts: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    about: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Merged:
    """What goes into CaptureTables, growing session by session."""

    tables: dict[str, list[Table]] = field(default_factory=lambda: {name: [] for name in _KINDS})
    classes: dict[tuple[int, str], int] = field(default_factory=dict)
    examples: dict[int, str] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    counters: dict[str, tuple[int, str]] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    tap_points: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def count(self, name: str, value: int, unit: str) -> None:
        if value:
            self.counters[name] = (self.counters.get(name, (0, unit))[0] + value, unit)

    def rows(self, name: str) -> int:
        key = TABLES[name][0].name
        return sum(len(table[key]) for table in self.tables[name])


def read_spool(paths: Sequence[str | Path] | str | Path, progress: Progress | None = None) -> CaptureTables:
    """Read one spool or several, also while a capture still writes to them, one after the other.

    The tables are those of ``read_files``; ids are compacted. Segments that are damaged or missing are left
    out: each is named in the ``warning`` of its source, and counted as spool.damaged_segments or
    spool.missing_segments. What only they knew is counted, too: spool.messages_without_connection,
    spool.references_lost. Raises TapscopeError when a directory is no spool or has no segment to read.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    merged = _Merged()
    for at, path in enumerate(map(Path, listed)):
        told = None if progress is None else _share(progress, at, len(listed))
        _read_one(path, merged, told)
    tables = {name: _concatenated(name, merged.tables[name]) for name in _KINDS}
    return CaptureTables(
        **tables,
        classes=list(merged.classes),
        addresses=list(merged.addresses),
        counters=[(name, value, unit) for name, (value, unit) in sorted(merged.counters.items())],
        sources=merged.sources,
        tap_points=[
            (code, int(sums[0]), int(sums[1]), int(sums[2])) for code, sums in merged.tap_points.items()
        ],
        examples=[merged.examples.get(number, "") for number in range(len(merged.classes))],
        interrupted=False,
    )


def _share(progress: Progress, at: int, of: int) -> Progress:
    return lambda done, total: progress(at * total + done, of * total)


def _concatenated(name: str, parts: list[Table]) -> Table:
    if not parts:
        return empty(name)
    return {column.name: np.concatenate([p[column.name] for p in parts]) for column in TABLES[name]}


def _read_one(path: Path, merged: _Merged, progress: Progress | None) -> None:
    manifest = read_manifest(path)
    files, loaded, warnings = _load_all(path, merged, progress)
    warnings[:0] = _missing(files, manifest, merged)
    sessions: dict[int, _Session] = {}
    for arrays, about in loaded:
        session = sessions.setdefault(about["session"], _Session(about["session"]))
        session.parts.append(arrays)
        session.about.append(about)
    if not sessions:
        raise TapscopeError(
            "the spool has no segment that can be read",
            path=path,
            remedy="; ".join(warnings) or "Wait a second: segments come as packets come.",
        )
    classes = _class_lines(path, warnings)
    for number, session in sorted(sessions.items()):
        _add_session(session, classes.get(number, {}), merged)
        for source in session.about[-1]["sources"]:
            merged.sources.append(source | {"spool": str(path), "session": number})
    if warnings:
        source = merged.sources[-1]
        source["warning"] = "; ".join(filter(None, [source.get("warning"), *warnings]))


def _load_all(
    path: Path, merged: _Merged, progress: Progress | None
) -> tuple[list[SegmentFile], list[_Loaded], list[str]]:
    """Files of the spool, the contents of the good ones, and a warning for each damaged one."""
    loaded: dict[SegmentFile, _Loaded] = {}
    damaged: dict[SegmentFile, str] = {}
    while True:
        try:
            files = segment_files([entry.name for entry in path.iterdir()])
        except OSError as error:
            raise TapscopeError(
                f"the spool cannot be read: {error.strerror}", path=path, remedy="Check the path."
            ) from error
        gone = False
        for done, file in enumerate(files):
            if file in loaded or file in damaged:
                continue
            try:
                loaded[file] = load_segment(path / file.name)
            except FileNotFoundError:
                gone = True  # joined into a larger one or deleted while we read: look again
            except _DAMAGE as error:
                damaged[file] = f"{path / file.name}: the segment is damaged: {error}. {_REMEDY}"
            if progress is not None:
                progress(done + 1, len(files))
        if not gone:
            break
    for file in loaded.keys() & set(files):
        merged.count("spool.segments", file.last - file.first + 1, "segments")
    for file in damaged:
        merged.count("spool.damaged_segments", file.last - file.first + 1, "segments")
    return files, [loaded[file] for file in files if file in loaded], list(damaged.values())


def _missing(files: list[SegmentFile], manifest: dict[str, Any], merged: _Merged) -> list[str]:
    """Warnings for numbers that no file has. What the ring bound deleted is only counted."""
    deleted = manifest["deleted"]
    merged.count("spool.deleted_segments", deleted["segments"], "segments")
    expected = deleted["until_segment"] + 1
    warnings = []
    for file in files:
        if file.first > expected:
            span = f"{expected:06}" if file.first == expected + 1 else f"{expected:06} to {file.first - 1:06}"
            merged.count("spool.missing_segments", file.first - expected, "segments")
            warnings.append(f"segment {span} is missing. {_REMEDY}")
        expected = max(expected, file.last + 1)
    return warnings


def _class_lines(path: Path, warnings: list[str]) -> dict[int, dict[int, tuple[int, str, str]]]:
    """Per session and class id: protocol, text and example."""
    found: dict[int, dict[int, tuple[int, str, str]]] = {}
    bad = 0
    with (path / CLASSES).open("rb") as lines:
        for raw in lines:
            line = class_line(raw)
            if line is None:
                bad += 1  # the line that a killed session did not finish
            else:
                session, number, entry = line
                found.setdefault(session, {})[number] = entry
    if bad > 1:
        warnings.append(f"{path / CLASSES}: {bad} lines cannot be read. {_REMEDY}")
    return found


def _add_session(session: _Session, lines: dict[int, tuple[int, str, str]], merged: _Merged) -> None:
    arrays, about = session.parts, session.about
    address = [_addresses(part, merged) for part in arrays]
    # Connections: of each id the last row.
    all_ids = np.concatenate([part["connections.id"] for part in arrays])
    ids, from_end = np.unique(all_ids[::-1], return_index=True)
    rows = len(all_ids) - 1 - from_end
    connections = {
        column.name: np.concatenate([part[f"connections.{column.name}"] for part in arrays])[rows]
        for column in TABLES["connections"]
    }
    for side in ("client_addr", "server_addr"):
        local = np.concatenate(
            [index[part[f"connections.{side}"]] for index, part in zip(address, arrays, strict=True)]
        )
        connections[side] = local[rows].astype(np.int32)

    # Messages: the low half of a connection id, made whole by the first id of its segment.
    messages = _concatenated("messages", [table_of(part, "messages") for part in arrays])
    whole = _connection_ids("messages", session)
    firsts = np.array([a["first_message"] for a in about], dtype=np.int64)
    counts = np.array([a["messages"] for a in about], dtype=np.int64)
    places = _Places(firsts, counts)
    _amend(messages, places, arrays, merged)
    at, known = _found(ids, whole)
    merged.count("spool.messages_without_connection", int((~known).sum()), "messages")
    request = places.rows(messages["request"])
    merged.count("spool.references_lost", int(((messages["request"] >= 0) & (request < 0)).sum()), "messages")
    evidence = _concatenated("evidence", [table_of(part, "evidence") for part in arrays])
    of = places.rows(evidence["message"])
    if not about[-1]["last"]:  # the end of the session was lost, or is still to come
        messages["flags"][messages["end_ns"] < 0] |= np.uint32(MessageFlag.UNFINISHED)

    # Rows that stay move together; behind those of earlier sessions.
    moved = np.cumsum(known) - 1 + merged.rows("messages")
    messages["request"] = np.where((request >= 0) & known[request], moved[request], -1)
    messages["conn"] = (at + merged.rows("connections")).astype(np.int32)
    messages["class_id"] = _classes(messages["class_id"], lines, merged)
    stays = (of >= 0) & known[of] if len(known) else np.zeros(len(of), dtype=np.bool_)
    merged.count("spool.references_lost", int((~stays).sum()), "messages")
    evidence["message"] = np.where(stays, moved[of] if len(moved) else 0, -1)
    _add_events(session, ids, merged)
    merged.tables["connections"].append(connections)
    merged.tables["messages"].append({name: values[known] for name, values in messages.items()})
    merged.tables["evidence"].append({name: values[stays] for name, values in evidence.items()})
    for code, *sums in about[-1]["tap_points"]:
        merged.tap_points[code] = merged.tap_points.get(code, np.zeros(3, dtype=np.int64)) + sums
    for name, value, unit in about[-1]["counters"]:
        merged.counters[name] = (merged.counters.get(name, (0, unit))[0] + value, unit)


def _connection_ids(table: str, session: _Session) -> Ids:
    """Connection ids of a table's rows: the low halves that it has, made whole by the first id of a
    segment."""
    whole = []
    for part, about in zip(session.parts, session.about, strict=True):
        first = about["first_connection"]
        whole.append(first + (part[f"{table}.conn"] - np.int64(first)).astype(np.int32).astype(np.int64))
    return np.concatenate(whole)


def _found(ids: Ids, wanted: Ids) -> tuple[Ids, NDArray[np.bool_]]:
    """Place in `ids`, which are in order, of each wanted one, and whether it is there."""
    at = np.minimum(np.searchsorted(ids, wanted), max(len(ids) - 1, 0))
    return at, ids[at] == wanted if len(ids) else np.zeros(len(wanted), dtype=np.bool_)


def _add_events(session: _Session, ids: Ids, merged: _Merged) -> None:
    events = _concatenated("tcp_events", [table_of(part, "tcp_events") for part in session.parts])
    at, known = _found(ids, _connection_ids("tcp_events", session))
    merged.count("spool.references_lost", int((~known).sum()), "messages")
    events["conn"] = (at + merged.rows("connections")).astype(np.int32)
    order = np.argsort(events["end_ns"], kind="stable")
    order = order[known[order]]
    merged.tables["tcp_events"].append({name: values[order] for name, values in events.items()})


class _Places:
    """Message ids to rows of the segments read."""

    def __init__(self, firsts: Ids, counts: Ids) -> None:
        self._firsts, self._counts = firsts, counts
        self._rows = np.concatenate([[0], np.cumsum(counts)[:-1]])

    def rows(self, ids: Ids) -> Ids:
        """Row of each id, -1 when its segment is not there."""
        segment = np.searchsorted(self._firsts, ids, side="right") - 1
        offset = ids - self._firsts[segment]
        found = (segment >= 0) & (ids >= 0) & (offset < self._counts[segment])
        return np.where(found, self._rows[segment] + offset, -1)


def _addresses(part: dict[str, NDArray[Any]], merged: _Merged) -> NDArray[np.int32]:
    texts = [text.decode("ascii", "replace") for text in part["addresses"].tolist()]
    return np.array([merged.addresses.setdefault(t, len(merged.addresses)) for t in texts], dtype=np.int32)


def _classes(
    ids: NDArray[np.int32], lines: dict[int, tuple[int, str, str]], merged: _Merged
) -> NDArray[np.int32]:
    """Class ids of a session as rows of the merged dictionary."""
    size = max(int(ids.max(initial=-1)), max(lines, default=-1)) + 1
    table = np.full(size + 1, -1, dtype=np.int32)  # the last one is for id -1
    for number in range(size):
        protocol, text, example = lines.get(number, (0, f"(text of class {number} lost)", ""))
        row = merged.classes.setdefault((protocol, text), len(merged.classes))
        table[number] = row
        if example:
            merged.examples.setdefault(row, example)
    return table[ids]


def _amend(messages: Table, places: _Places, arrays: list[dict[str, NDArray[Any]]], merged: _Merged) -> None:
    """Apply amendments in their order."""
    amendments = {
        name: np.concatenate([part[f"amendments.{name}"] for part in arrays]) for name in AMENDMENTS
    }
    rows = places.rows(amendments["message"])
    merged.count("spool.references_lost", int((rows < 0).sum()), "messages")
    amend(messages, rows, amendments)


def amend(messages: Table, rows: Ids, amendments: Mapping[str, NDArray[Any]]) -> None:
    """Apply amendments to these rows of messages, in their order; -1: to none."""
    column, change, value = (amendments[name] for name in ("column", "change", "value"))
    # What comes before the last "set" of a cell does not matter. What comes behind it is of one kind per
    # column, and its order does not matter.
    cell = rows * len(TABLES["messages"]) + column
    cells, of_cell = np.unique(cell, return_inverse=True)
    last = np.full(len(cells), -1)
    sets = np.flatnonzero(change == Change.SET)
    np.maximum.at(last, of_cell[sets], sets)
    last_set = last[of_cell]
    matters = (rows >= 0) & (np.arange(len(cell)) >= last_set)
    for at, described in enumerate(TABLES["messages"]):
        values = messages[described.name]
        for kind, apply in _APPLY.items():
            chosen = matters & (column == at) & (change == kind)
            if chosen.any():
                apply(values, rows[chosen], value[chosen].astype(values.dtype))


def _set(values: NDArray[Any], rows: Ids, new: NDArray[Any]) -> None:
    values[rows] = new


_APPLY = {
    Change.SET: _set,
    Change.ADD: np.add.at,
    Change.SET_BITS: np.bitwise_or.at,
    Change.LOWER: np.minimum.at,
}
