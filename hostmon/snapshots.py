"""Reader of stamped copies of files of the kernel: a time, then each file under its name, again and again.

    while sleep 0.05; do date +%s.%N; tail -v -n +1 /proc/pressure/* /sys/fs/cgroup/web/*.stat; done > x.snap

records one at any interval and without a program of its own. A stamp is seconds or nanoseconds since the
epoch or a date in ISO 8601 alone on its line, or Collectl's `>>> SECONDS <<<`; `==> PATH <==` begins a
file. Known are pressure-stall files, control-group files, /proc/lock_stat, /proc/cpuinfo and cpufreq's
*_cur_freq (`kernel_files.py`); others are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tapscope.hostmon.clock import ISO, NOTHING_TOLD, LogClock, Told
from tapscope.hostmon.kernel_files import KernelFiles
from tapscope.hostmon.samples import HostLog, stamp_ns
from tapscope.store.errors import TapscopeError

SECONDS = re.compile(r"(?:>>> )?(\d{9,10}(?:\.\d{1,9})?)(?: <<<)?\s*$")
NANOSECONDS = re.compile(r"(\d{18,19})\s*$")
FILE = re.compile(r"==> (\S.*?) <==\s*$")
PRESSURE = re.compile(r"(some|full) avg10=")
LONGEST_FILE = 200_000  # lines


def is_stamp(line: str) -> bool:
    """Whether a line holds nothing but a time."""
    return bool(SECONDS.match(line) or NANOSECONDS.match(line) or ISO.fullmatch(line.strip()))


def is_snapshots(first: list[str]) -> bool:
    """Whether the first lines are a stamp and a file of the kernel."""
    lines = [line for line in first if line.strip() and not line.startswith("#")]
    return bool(lines) and is_stamp(lines[0]) and any(map(_begins_file, lines[1:8]))


def _begins_file(line: str) -> bool:
    return bool(FILE.match(line) or PRESSURE.match(line)) or line.startswith("lock_stat version")


def read_snapshots(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Tables of the files that are known. Damaged lines and other files are counted."""
    counters: Counter[str] = Counter()
    clock = LogClock(told.zone)
    files = KernelFiles(counters)
    at: int | None = None
    name = ""
    block: list[str] = []
    samples = 0
    after_name = False

    def finish() -> None:
        if block and at is not None:
            files.file(at, name, block)
        elif block:
            counters["host.snapshot.no_time"] += len(block)
        block.clear()

    for line in lines:
        found = FILE.match(line)
        if found:
            finish()
            name, after_name = found[1], True
            continue
        # The first line of a file may be a number, too (memory.current): it is no stamp.
        if line[:1].isdigit() or line.startswith(">>>"):
            stamp = None if after_name else _stamp(line, clock, counters)
            if stamp is not None:
                finish()
                at, name = stamp, ""
                samples += 1
                continue
        after_name = after_name and not line.strip()
        if line.strip() and not line.startswith("#"):
            if len(block) < LONGEST_FILE:
                block.append(line)
            else:
                counters["host.snapshot.left_out_line"] += 1
    finish()
    tables = files.tables()
    if not tables:
        raise TapscopeError(
            "this file has no snapshot of a known file of the kernel",
            path=path,
            remedy="Record with: while sleep 0.05; do date +%s.%N; tail -v -n +1 /proc/pressure/*; done",
        )
    return HostLog(
        "snapshots", "", tables, dict(+counters + clock.counters), {"samples": samples}, clock.warnings()
    )


def _stamp(line: str, clock: LogClock, counters: Counter[str]) -> int | None:
    match = SECONDS.match(line)
    if match:
        return clock.saw(stamp_ns(match[1]))
    match = NANOSECONDS.match(line)
    if match:
        return clock.saw(int(match[1]))
    if ISO.fullmatch(line.strip()):
        try:
            return clock.iso(line)
        except (ValueError, OverflowError):
            counters["host.snapshot.bad_line"] += 1
    return None
