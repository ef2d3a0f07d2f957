"""Reader of `vmstat -t` (also -w, -a, -n): a line per sample under two lines that name the columns.

Times are local, one second exact. The first line after a start is the mean since boot: it has no begin, so it
weighs nothing. Where recordings were appended, a start is told by a title after a gap: the title alone comes
again with every screenful. The counts of disks (-d) only grow, so their first line is a sample like any
other. Without -t a line has no time at all and the file cannot be used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC

from tapscope.hostmon.clock import NOTHING_TOLD, NS, LogClock, Told
from tapscope.hostmon.rows import Rows
from tapscope.hostmon.samples import HostLog, HostTable
from tapscope.hostmon.sysstat_names import CPU, finished
from tapscope.store.errors import TapscopeError

TITLE = re.compile(r"(procs|--procs--|disk-) ?-")
STAMP = re.compile(r"\s(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")
SYSTEM = ("r", "b", "swpd", "free")
DISK = ("disk", "reads", "reads_merged", "sectors_read", "ms_reading", "writes", "writes_merged",
        "sectors_written", "ms_writing", "in_progress", "s_io")  # fmt: skip
UNITS = {"swpd": "KiB", "free": "KiB", "buff": "KiB", "cache": "KiB", "inact": "KiB", "active": "KiB",
         "si": "KiB/s", "so": "KiB/s", "bi": "KiB/s", "bo": "KiB/s", "in": "1/s", "cs": "1/s",
         "r": "tasks", "b": "tasks", "ms_reading": "ms", "ms_writing": "ms", "s_io": "s",
         "sectors_read": "sectors", "sectors_written": "sectors"}  # fmt: skip
UTC_NAMES = ("UTC", "GMT")
INTERVALS_OF_A_GAP = 3  # a busy host may make vmstat a sample late, also at the end of a screenful


def is_vmstat(first: list[str]) -> bool:
    """Whether the first lines are of vmstat."""
    return any(TITLE.match(line) for line in first[:5])


def unit(name: str) -> str:
    """Unit of a column, vmstat's default of KiB assumed (-S says another)."""
    return "%" if name in CPU and name != "user" else UNITS.get(name, "")


def read_vmstat(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Table of the system, or of the disks with `vmstat -d -t`. Damaged lines are counted and left out."""
    clock = LogClock(told.zone)
    counters: Counter[str] = Counter()
    system, disk = Rows("vmstat", "", unit), Rows("vmstat_disk", "disk", unit)
    names: tuple[str, ...] = ()
    untimed = 0
    zone = ""
    starts = Starts()
    for line in lines:
        if TITLE.match(line):
            names = DISK if line.startswith("disk") else ()
            starts.title()
            continue
        words = line.split()
        if not words:
            continue
        if tuple(words[:4]) == SYSTEM:
            names = tuple(word for word in words if word.islower())
            zone = _zone(words, clock)
            continue
        if words[0] == "total" and "merged" in words:
            zone = _zone(words, clock)
            continue
        stamp = STAMP.search(line)
        if stamp is None:
            fits = len(words) == len(names) and all(word.lstrip("-").isdigit() for word in words[1:])
            untimed += fits
            counters["host.vmstat.bad_line"] += not fits
            continue
        fields = line[: stamp.start()].split()
        if not names or len(fields) != len(names) or not all(f.isdigit() for f in fields[names is DISK :]):
            counters["host.vmstat.bad_line"] += 1
            continue
        try:
            end = clock.iso(stamp[1])
        except (ValueError, OverflowError):
            counters["host.vmstat.bad_line"] += 1
            continue
        if names is DISK:
            disk.add(end, DISK[1:], fields[1:], fields[0])
        else:
            if starts.begins(end):
                system.restart()
            system.add(end, names, fields)
    tables = [finished(system)] if len(system) else []
    if len(disk):
        tables.append(_disks(disk, counters))
    if not tables:
        raise TapscopeError(
            "its lines have no time" if untimed else "this file of vmstat has no sample",
            path=path,
            remedy="Record one with: vmstat -t 1",
        )
    if untimed:
        counters["host.vmstat.no_time"] += untimed
    return HostLog(
        "vmstat",
        "",
        tables,
        dict(+counters + clock.counters),
        {"samples": len(system) or len(disk), "resolution_ns": NS},
        ([f"its times are in {zone}, which names no single time zone"] if zone else []) + clock.warnings(),
    )


class Starts:
    """Tells the first sample of an appended recording from one below the title of another screenful."""

    def __init__(self) -> None:
        self._titled = False
        self._last_ns = -1
        self._intervals: Counter[int] = Counter()

    def title(self) -> None:
        """A title was read: what follows may be of a new recording."""
        self._titled = True

    def begins(self, end_ns: int) -> bool:
        """Whether the sample at this time, the next of the file, is the first of its recording.

        With one sample before there is no interval to compare with; no screen is so small, so it is.
        """
        length = end_ns - self._last_ns
        usual = max(self._intervals, key=self._intervals.__getitem__, default=0)
        first = self._last_ns < 0 or (self._titled and length >= INTERVALS_OF_A_GAP * usual)
        if first:
            self._intervals.clear()
        else:
            self._intervals[length] += 1
        self._titled, self._last_ns = False, end_ns
        return first


def _zone(words: list[str], clock: LogClock) -> str:
    """Abbreviation of the zone at the end of a heading, when it does not tell the zone for certain."""
    zone = words[-1] if not words[-1].islower() else ""
    if zone in UTC_NAMES:
        clock.zone = clock.zone or UTC
        return ""
    return "" if clock.zone else zone


def _disks(disk: Rows, counters: Counter[str]) -> HostTable:
    table, series, columns = disk.table_and_columns()
    length = series.seconds()
    for name, amount in (("reads", "reads_per_s"), ("writes", "writes_per_s")):
        table.add(amount, series.delta(columns[name]) / length, "1/s", "")
    for name, amount in (("sectors_read", "read_kib_per_s"), ("sectors_written", "written_kib_per_s")):
        table.add(amount, series.delta(columns[name]) * 0.5 / length, "KiB/s", "")
    counters["host.counter_reset"] += series.resets
    return table
