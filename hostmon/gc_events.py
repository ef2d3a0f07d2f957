"""What garbage-collector logs of every JVM become: pauses, concurrent phases and safepoints, each with its
own begin and end.

A pause's row covers exactly the time in which the program stood still, so that the share of a window spent
in collection (`stop_share` in `fuse.py`) is the plain overlap. Sizes are bytes. Safepoints are kept apart:
their total holds the pause and the time to reach it.
"""

from __future__ import annotations

import re
from typing import Any

from tapscope.hostmon.rows import Rows
from tapscope.hostmon.samples import HostTable

KIB = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
MOST_DETAILS = 400  # names of spaces and phases in one log: there are some dozens
PAUSE = ("gc_id", "collection", "cause", "heap_before", "heap_after", "heap_size", "duration_ms")
PHASE = ("gc_id", "phase", "duration_ms")
SAFEPOINT = ("operation", "reaching_ms", "total_ms")

STOPPED = re.compile(
    r"Total time for which application threads were stopped: (\d+[.,]\d+) seconds"
    r"(?:, Stopping threads took: (\d+[.,]\d+) seconds)?"
)
"""A stop of all threads, as every JVM words it: seconds in all, and seconds until they stood."""


def unit(name: str) -> str:
    """Unit of a column of these tables."""
    if name.endswith(("_before", "_after", "_size")):
        return "bytes"
    if name.endswith("_regions"):
        return "regions"
    return "ms" if name.endswith("_ms") else "s" if name in ("user", "sys", "real") else ""


def size_bytes(number: str, scale: str) -> int:
    """Bytes of a size such as 12M or 6144.0K."""
    return round(float(number.replace(",", ".")) * KIB[scale])


def to_ns(number: str, per: int) -> int:
    """Nanoseconds of a decimal number of units of `per` ns, exact ("6.337" ms -> 6337000)."""
    whole, _, fraction = number.replace(",", ".").partition(".")
    if len(whole) > 18:
        raise ValueError(number)
    return int(whole or 0) * per + (int(fraction) * per // 10 ** len(fraction) if fraction else 0)


class GcTables:
    """The three tables while a log is read."""

    def __init__(self) -> None:
        self.pauses = Rows("jvm_gc", "", unit)
        self.phases = Rows("jvm_gc_concurrent", "", unit)
        self.safepoints = Rows("jvm_safepoint", "", unit)
        self._detail_names: set[str] = set()

    def pause(self, begin_ns: int, end_ns: int, fields: tuple[Any, ...], details: dict[str, Any]) -> None:
        """One pause: `fields` as PAUSE, `details` whatever the log says beside."""
        kept = {}
        for name, value in details.items():
            if name in self._detail_names or len(self._detail_names) < MOST_DETAILS:
                self._detail_names.add(name)
                kept[name] = value
        self.pauses.add(end_ns, (*PAUSE, *kept), (*fields, *kept.values()), begin_ns=begin_ns)

    def phase(self, begin_ns: int, end_ns: int, gc_id: int | None, name: str) -> None:
        """One phase beside the running program."""
        self.phases.add(end_ns, PHASE, (gc_id, name, (end_ns - begin_ns) / 1e6), begin_ns=begin_ns)

    def safepoint(
        self, begin_ns: int, end_ns: int, operation: str | None, reaching_ns: int, more: dict[str, Any]
    ) -> None:
        """One stop of all threads, for whatever reason."""
        values = (operation, reaching_ns / 1e6, (end_ns - begin_ns) / 1e6, *more.values())
        self.safepoints.add(end_ns, (*SAFEPOINT, *more), values, begin_ns=begin_ns)

    def tables(self) -> list[HostTable]:
        """Those that have rows."""
        return [rows.table() for rows in (self.pauses, self.phases, self.safepoints) if len(rows)]

    def __len__(self) -> int:
        return len(self.pauses) + len(self.phases) + len(self.safepoints)


CHANGE = re.compile(
    r"(\d+(?:[.,]\d+)?)([BKMGT])(?:\((\d+(?:[.,]\d+)?)([BKMGT]|%)\))?->"
    r"(\d+(?:[.,]\d+)?)([BKMGT])(?:\((\d+(?:[.,]\d+)?)([BKMGT]|%)\))?"
)
"""Use of a space before and after, with its size where told: 13184K(14784K)->1599K(14784K), 12M->12M(46M)."""


def change(match: re.Match[str]) -> tuple[int, int, int | None]:
    """Bytes before, bytes after and size (None: not told) of a CHANGE."""
    size = size_bytes(match[7], match[8]) if match[7] and match[8] != "%" else None
    return size_bytes(match[1], match[2]), size_bytes(match[5], match[6]), size
