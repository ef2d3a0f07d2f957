"""Loads host monitors' files into a run: which reader takes a file, which host it belongs to."""

from __future__ import annotations

import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.hostmon.clock import NOTHING_TOLD, Told
from tapscope.hostmon.clock_layer import measure_clocks
from tapscope.hostmon.declared import DeclaredFormat
from tapscope.hostmon.fuse import host_addresses
from tapscope.hostmon.readers import READERS, SNIFFED_LINES, Reader, known_formats
from tapscope.hostmon.samples import HostLog
from tapscope.store.dynamic import MAX_COLUMNS
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile

COLLECTL_NAME = re.compile(r"(?:.*/)?(?:[A-Za-z0-9]+-)?(?P<host>[\w.]+)-\d{8}(?:-\d{6})?\.")

UNKNOWN_FILES = "unknown_host_files"  # meta: paths that were counted, so that each counts once


def host_files(paths: Iterable[str | Path]) -> list[tuple[Path, bool]]:
    """Files to load, in a fixed order, with whether the user named the file itself (then it must be
    readable).

    Of a folder, everything below it; of a run directory, everything below its `hosts/`.
    """
    found: dict[Path, bool] = {}
    for given in map(Path, paths):
        if not given.exists():
            raise TapscopeError("no such file or folder", path=given, remedy="Check the path.")
        if given.is_file():
            found[given] = True
            continue
        root = given / "hosts" if (given / "hosts").is_dir() else given
        for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
            found.setdefault(path, False)
    return list(found.items())


def load_host_files(
    run: RunFile,
    paths: str | Path | Sequence[str | Path],
    host: str | None = None,
    told: Told = NOTHING_TOLD,
    declared: Sequence[DeclaredFormat] = (),
) -> list[dict[str, Any]]:
    """Read every host log below `paths` into dynamic tables of the run; loading a file again replaces its
    tables and what it added to the counters. The hosts' clocks are then measured against the tap
    (`clock_layer`).

    Returns one record per loaded file: path, host, format, tables (names in the run file), samples, rows,
    first_ns, last_ns, warnings. In a folder, files that no reader knows are counted (`host.unknown_file`) and
    left out; a file that the user named and that cannot be read is a TapscopeError. `host` overrides the
    host's name; `told` is what the user says about times that a log does not tell, `declared`
    are formats of the user's own (one of them takes a named file that no reader knows).
    """
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    known = {
        source["path"]: source.get("counters", {}) for source in run.sources() if source["kind"] == "host"
    }
    unknown: list[str] = []
    loaded = []
    for path, named in host_files(given):
        try:
            log = read_host_log(path, told, declared, named)
        except TapscopeError:
            if named:
                raise
            unknown.append(str(path))
            continue
        loaded.append(_store(run, path, log, host or host_name(path, log)))
        _count(run, known.get(str(path), {}), log.counters)
    before = set(run.meta(UNKNOWN_FILES, []))
    now = (before | set(unknown)) - {str(record["path"]) for record in loaded}
    if now != before:
        run.set_meta(UNKNOWN_FILES, sorted(now))
        _count(run, {"host.unknown_file": len(before)}, {"host.unknown_file": len(now)})
    measure_clocks(run, host_addresses(run))
    return loaded


def _count(run: RunFile, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Add what a file counts now to the run's counters, in place of what it counted when last loaded."""
    known = {name: value for name, value, _ in run.counters()}
    changed = [name for name in {**before, **now} if before.get(name, 0) != now.get(name, 0)]
    run.write_counters(
        [(name, known.get(name, 0) + now.get(name, 0) - before.get(name, 0), _unit(name)) for name in changed]
    )


def _unit(counter: str) -> str:
    if counter.endswith("_file"):
        return "files"
    if counter.endswith(("_reset", "_wrap", "went_back", "restart")):
        return "times"
    if counter.endswith(("_column", "_columns", "column_left_out", "columns_left_out")):
        return "columns"
    if counter.endswith(("_value", "not_counted")):
        return "values"
    return "samples" if counter.endswith("_sample") else "lines"


def host_name(path: Path, log: HostLog) -> str:
    """Host of a log: the folder below `hosts/`, else what the log says, else what its file name says."""
    parts = path.absolute().parts
    if "hosts" in parts[:-2]:
        return parts[len(parts) - 1 - parts[::-1].index("hosts") + 1]
    if log.host:
        return log.host
    match = COLLECTL_NAME.match(path.name)
    return match["host"] if match else path.absolute().parent.name


def read_host_log(
    path: Path, told: Told = NOTHING_TOLD, declared: Sequence[DeclaredFormat] = (), named: bool = True
) -> HostLog:
    """Read one file with the reader that its first lines call for.

    Declared formats are asked first, as the user gave them on purpose; the only one of them also takes a file
    that it is not recognised by, when the user named that file.
    """
    packed = _is_packed(path)
    cut: list[str] = []
    lines = _lines(path, packed, cut)
    first: list[str] = []
    for line in lines:
        first.append(line)
        if len(first) >= SNIFFED_LINES:
            break
    reader = next((known for known in _readers(declared) if known.sniff(first)), None)
    if reader is None and named and first and len(declared) == 1:
        reader = _declared_reader(declared[0])
    if reader is None:
        raise TapscopeError(
            "no host-monitor reader knows this file" if first else "this file is empty",
            path=path,
            offset=0,
            remedy=f"Known are: {', '.join(known.name for known in READERS)}; all also as .gz. "
            "Of another log, `tapscope hosts guess FILE` proposes a format for --format.",
        )
    cut_lines: list[str] = []
    every = itertools.chain(first, lines)
    log = reader.read(every if reader.closed else _ended(every, cut_lines), str(path), told)
    if cut_lines:
        log.counters["host.cut_line"] = len(cut_lines)
    left_out = 0
    for table in log.tables:
        for name in list(table.columns)[MAX_COLUMNS:]:
            left_out += 1
            del table.columns[name], table.units[name], table.originals[name]
    if left_out:
        log.counters["host.column_left_out"] = left_out
    bad_values = sum(table.bad_values for table in log.tables)
    if bad_values:
        log.counters["host.bad_value"] = log.counters.get("host.bad_value", 0) + bad_values
    if cut:
        log.counters["host.truncated_file"] = log.counters.get("host.truncated_file", 0) + 1
        log.warnings.append(cut[0])
    return log


def _declared_reader(declared: DeclaredFormat) -> Reader:
    return Reader(declared.name, declared.sniff, declared.read)


def _readers(declared: Sequence[DeclaredFormat]) -> Iterator[Reader]:
    yield from map(_declared_reader, declared)
    yield from READERS
    yield from map(_declared_reader, known_formats())


def first_lines(path: Path, most: int) -> list[str]:
    """The first lines of a file, also of one that is compressed with gzip."""
    lines = _lines(path, _is_packed(path), [])
    return list(itertools.islice(lines, most))


def _is_packed(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise TapscopeError(
            f"cannot be read: {error.strerror}", path=path, remedy="Check its permissions."
        ) from error


def _ended(lines: Iterable[str], cut: list[str]) -> Iterator[str]:
    """Lines that have their end. A last one without is kept from the reader and put into `cut`: nothing tells
    whether the file was cut within a number, and 24800 for 248000000 would look like any other.
    """
    for line in lines:
        if line.endswith("\n"):
            yield line
        elif line.strip():
            cut.append(line)


def _lines(path: Path, packed: bool, cut: list[str]) -> Iterator[str]:
    """Lines of a text or gzip file, without the mark that Windows' programs put before UTF-8. A gzip file
    that ends too early gives the lines up to there."""
    if not packed:
        with path.open(encoding="utf-8-sig", errors="replace") as text:
            yield from text
        return
    with gzip.open(path) as file:
        stream = io.TextIOWrapper(
            io.BufferedReader(_Forgiving(file, cut)), encoding="utf-8-sig", errors="replace"
        )
        yield from stream


class _Forgiving(io.RawIOBase):
    """Bytes of a gzip file up to where it is damaged or cut; `cut` then says so."""

    def __init__(self, file: gzip.GzipFile, cut: list[str]) -> None:
        self._file = file
        self._cut = cut

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._cut:
            return 0
        try:
            data = self._file.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self._cut.append("the compressed file is cut or damaged; it was read up to there")
            return 0
        buffer[: len(data)] = data
        return len(data)


def _store(run: RunFile, path: Path, log: HostLog, host: str) -> dict[str, Any]:
    ends = [table.columns["end_ns"] for table in log.tables]
    first, last = int(min(end.min() for end in ends)), int(max(end.max() for end in ends))
    source: dict[str, Any] = {
        "path": str(path),
        "kind": "host",
        "format": log.format,
        "bytes": path.stat().st_size,
        "first_ns": first,
        "last_ns": last,
        "host": host,
        **log.detail,
        "warnings": log.warnings,
        "counters": log.counters,
    }
    names = []
    run.drop_dynamic(str(path))  # which may have been loaded as another host's, or by another format
    for table in log.tables:
        described = source | {"kind_of_record": table.kind}
        names.append(
            run.write_dynamic(f"{table.kind}_{host}", table.columns, table.units, described, table.originals)
        )
    return source | {"tables": names, "rows": int(sum(np.size(end) for end in ends))}


def described(log: HostLog) -> dict[str, Any]:
    """A log in words: format, host, counters, warnings, and per table its rows, times and columns."""
    return {
        "format": log.format,
        "host": log.host,
        "counters": log.counters,
        "warnings": log.warnings,
        "tables": [
            {
                "kind": table.kind,
                "rows": len(table.columns["end_ns"]),
                "first_ns": int(table.columns["end_ns"].min()),
                "last_ns": int(table.columns["end_ns"].max()),
                "columns": {name: table.units[name] for name in table.columns},
            }
            for table in log.tables
        ],
    }
