"""Stop-the-world collections of a run, as the JVM logged them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from .injectors import Fault

# Unified JVM log: the line at the end of a collection that stopped all threads for milliseconds.
_COLLECTION = re.compile(
    r"^\[(\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3})\+0000\].*\[gc *\] GC\(\d+\) (Pause .*?) \d+M->.* (\d+\.\d+)ms$"
)


def collections(gc_log: Path, host: str) -> Iterator[Fault]:
    """Pauses that a JVM logged: its stamps are those of the ends, to the millisecond."""
    with gc_log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = _COLLECTION.match(line.rstrip())
            if match is None:
                continue
            end = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
            end_ns = int(end.timestamp()) * 1_000_000_000 + end.microsecond * 1_000
            yield Fault(end_ns - int(float(match[3]) * 1e6), end_ns, host, match[2])
