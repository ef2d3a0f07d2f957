"""Recorded host logs (pcaps/hostlogs), and readers on them."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tapscope.hostmon.clock import NOTHING_TOLD, Told
from tapscope.hostmon.readers import READERS, SNIFFED_LINES, Reader, known_formats
from tapscope.hostmon.samples import HostLog, HostTable
from tapscope.store.errors import TapscopeError

LOGS = Path(__file__).resolve().parent.parent / "pcaps" / "hostlogs"
HOSTS = LOGS.parent / "hosts"
FILES = sorted(path for path in LOGS.iterdir() if path.suffix not in (".py", ".md"))
STARTED = Told(start_ns=1_795_241_000_000_000_000)
AMBIGUOUS = "sadf_h.csv"  # more than one section repeats: refused
S = 1_000_000_000


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")


def read(lines: list[str], told: Told = NOTHING_TOLD) -> HostLog:
    """What `read_host_log` does with a file of these lines."""
    first = lines[:SNIFFED_LINES]
    declared = [Reader(known.name, known.sniff, known.read) for known in known_formats()]
    reader = next((known for known in (*READERS, *declared) if known.sniff(first)), None)
    if reader is None:
        raise TapscopeError("no reader knows it")
    return reader.read(iter(lines), "", told)


def lines_of(name: str) -> list[str]:
    return text_of(LOGS / name).splitlines(keepends=True)


def table(log: HostLog, kind: str) -> HostTable:
    return next(t for t in log.tables if t.kind == kind)


def at_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * S


def check(log: HostLog) -> None:
    """What holds for every table of every log."""
    kinds = [t.kind for t in log.tables]
    assert len(kinds) == len(set(kinds))
    for found in log.tables:
        lengths = {len(values) for values in found.columns.values()}
        assert len(lengths) == 1
        assert lengths != {0}
        assert set(found.columns) == set(found.units) == set(found.originals)
        begin, end = found.columns["begin_ns"], found.columns["end_ns"]
        assert begin.dtype == end.dtype == np.int64
        assert np.all((begin == -1) | (begin <= end))
    assert all(value > 0 for value in log.counters.values())


def samples(log: HostLog) -> set[tuple[str, int]]:
    return {(t.kind, int(end)) for t in log.tables for end in t.columns["end_ns"]}
