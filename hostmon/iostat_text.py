"""Reader of the text that `iostat -t` prints: a time, the CPU's shares, and a line per disk.

The time is local, one second exact, and names its offset with S_TIME_FORMAT=ISO. The first sample is the mean
since boot (unless iostat was told -y): it has no begin. Without -t there is no time at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tapscope.hostmon.clock import ISO, NOTHING_TOLD, NS, LogClock, Told, day_of, of_day_ns
from tapscope.hostmon.decimals import OF_DAY, with_colons, with_points
from tapscope.hostmon.rows import Rows
from tapscope.hostmon.samples import HostLog
from tapscope.hostmon.sysstat_names import cpu_unit, finished, unit
from tapscope.hostmon.sysstat_text import HEAD, NUMBER
from tapscope.store.errors import TapscopeError

CPU = "avg-cpu:"
DISKS = re.compile(r"Device:?\s|[^\W\d]\S*\s+(?:tps|r/s|rrqm/s)\s")
LOCAL = re.compile(rf"(\d\S*)\s+({OF_DAY})\s*$")


def is_iostat_text(first: list[str]) -> bool:
    """Whether the first lines are of iostat."""
    known = any(HEAD.match(line) for line in first[:3])
    return known and any(line.startswith(CPU) or DISKS.match(line) for line in first)


def read_iostat_text(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Tables of the CPU and of the disks. Damaged lines are counted and left out."""
    clock = LogClock(told.zone)
    counters: Counter[str] = Counter()
    cpu, disk = Rows("iostat_cpu", "", cpu_unit), Rows("iostat_disk", "disk", unit)
    names: tuple[str, ...] = ()
    of: Rows | None = None
    host, cpus = "", 0
    at: int | None = None
    either = False
    untimed = 0
    for line in with_points(lines):
        words = line.split()
        head = HEAD.match(line)
        if not words:
            of = None
        elif head:
            host, cpus = head[2], int(head[4] or 0)
            at, of = None, None
            cpu.restart()  # appended: the mean since boot does not reach back to the recording before
            disk.restart()
        elif words[0] == CPU:
            names, of = tuple(words[1:]), cpu
        elif DISKS.match(line):
            names, of = tuple(words[1:]), disk
        elif of is not None:
            values = words if of is cpu else words[1:]
            if len(values) != len(names) or not all(NUMBER.fullmatch(value) for value in values):
                counters["host.sysstat.bad_line"] += 1
            elif at is None:
                untimed += 1
            else:
                of.add(at, names, values, "" if of is cpu else words[0])
        else:
            try:
                at, unsure = _time(line.strip(), clock)
                either |= unsure
            except (ValueError, OverflowError):
                counters["host.sysstat.bad_line"] += 1
                at = None  # the lines that follow are of a time that is not known
    tables = [finished(rows) for rows in (cpu, disk) if len(rows)]
    if not tables:
        raise TapscopeError(
            "its samples have no time" if untimed else "this text of iostat has no sample",
            path=path,
            remedy="Record with: S_TIME_FORMAT=ISO iostat -t -x 1",
        )
    counters["host.sysstat.no_time"] += untimed
    return HostLog(
        "iostat text",
        host,
        tables,
        dict(counters + clock.counters),
        {"samples": max(len(cpu), len(set(disk.end_ns))), "cpus": cpus, "resolution_ns": NS},
        (["the dates in the file were read with the month first"] if either else []) + clock.warnings(),
    )


def _time(text: str, clock: LogClock) -> tuple[int, bool]:
    """The time of a sample, and whether its month and day could be the other way round."""
    if ISO.fullmatch(text):
        return clock.iso(text), False
    local = LOCAL.match(text)
    if local is None:
        raise ValueError(text)
    day, either = day_of(local[1])
    return clock.local(day, of_day_ns(with_colons(local[2]))), either
