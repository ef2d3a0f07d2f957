"""Reader of the text that mpstat, sar and pidstat print: blocks of columns under a line that names them.

The first line tells kernel, host and date (in the locale's order), every line the time of day: of the
host's time zone, one second exact, with AM/PM in some locales; numbers have the locale's decimal mark. The
time of a heading is when the block's first sample began. Averages at the end are left out: they are no
samples.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from tapscope.hostmon.clock import NOTHING_TOLD, NS, Day, LogClock, Told, day_of, of_day_ns
from tapscope.hostmon.decimals import AVERAGE, OF_DAY, with_colons, with_points
from tapscope.hostmon.rows import Rows
from tapscope.hostmon.samples import HostLog
from tapscope.hostmon.sysstat_names import KEYS, finished, is_cpu, of_cpu, plain, unit
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

HEAD = re.compile(r"Linux (\S+) \(([^)]*)\)\s+(\S*\d\S*(?: \d\S*){0,2})\s+\S+(?:\s+\((\d+) CPU\))?")
LINE = re.compile(rf"({OF_DAY})\s+(\S.*)")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
TEXTS = ("command", "tty", "uid")  # columns of words; a command is the last one and may hold blanks


def is_sysstat_text(first: list[str]) -> bool:
    """Whether the first lines are of mpstat, sar or pidstat. (iostat prints no time with its lines.)"""
    if not any(HEAD.match(line) for line in first[:3]):
        return False
    return any(_is_heading(match[2].split()) for line in first for match in [LINE.match(line)] if match)


def _is_heading(words: list[str]) -> bool:
    return len(words) > 1 and not any(NUMBER.fullmatch(word) for word in words)


def read_sysstat_text(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """One table per kind of block. Damaged lines are counted and left out."""
    counters: Counter[str] = Counter()
    made: dict[str, Rows] = {}
    names: tuple[str, ...] = ()
    host, cpus = "", 0
    day: Day | None = None
    either = False
    headed_ns = -1
    last: dict[str, int] = {}
    program = "sar"
    # sar goes through the whole day once per set of columns, so each set has its own midnights.
    clocks: dict[tuple[str, ...], LogClock] = {}
    after_blank = True
    for line in with_points(lines):
        match = LINE.match(line)
        if match is None:
            head = HEAD.match(line)
            if head:
                try:
                    day, either_here = day_of(head[3])
                except ValueError:
                    counters["host.sysstat.bad_line"] += 1
                    continue
                either |= either_here
                host, cpus, names = head[2], int(head[4] or 0), ()
                for clock in clocks.values():
                    clock.new_day(day)
                last.clear()
            elif line.strip() and not AVERAGE.match(line):
                counters["host.sysstat.bad_line"] += 1
            after_blank = not line.strip()
            continue
        words = match[2].split()
        if "RESTART" in line:
            counters["host.sysstat.restart"] += 1
            last.clear()
            continue
        heads = after_blank and _is_heading(words)
        after_blank = False
        if heads:
            names = tuple(words)
        fields = match[2].split(None, len(names) - 1) if names[-1:] == ("Command",) else words
        if not heads and (not names or len(fields) != len(names) or not _numbers(names, fields)):
            counters["host.sysstat.bad_line"] += 1
            continue
        try:
            if day is None:
                raise ValueError(line)
            at = clocks.setdefault(names, LogClock(told.zone)).time_of_day(
                day, of_day_ns(with_colons(match[1]))
            )
        except (ValueError, OverflowError):
            counters["host.sysstat.bad_line"] += 1
            continue
        if heads:
            headed_ns = at
            if "PID" in names[:-1]:
                program = "pidstat"
            elif names[0] == "CPU" and is_cpu(names) and program == "sar" and _interrupts_first(names):
                program = "mpstat"
            continue
        key_name, key, columns, values = _keyed(names, fields)
        rows = _rows(made, program, names, key_name, key)
        slot = f"{rows.kind} {key}"
        before = last.get(slot, headed_ns)
        last[slot] = at
        rows.add(at, columns, values, key if rows.key else "", before if 0 <= before < at else -1)
    if not made:
        raise TapscopeError(
            "this text of sysstat has no sample", path=path, remedy="Record one with: mpstat -P ALL 1"
        )
    warnings = ["the date in the file's header was read with the month first"] if either else []
    for clock in clocks.values():
        counters += clock.counters
    every = [text for clock in clocks.values() for text in clock.warnings()]
    return HostLog(
        f"{program} text",
        host,
        [finished(rows) for rows in made.values()],
        dict(+counters),
        {"samples": len({end for rows in made.values() for end in rows.end_ns}), "cpus": cpus,
         "resolution_ns": NS},
        warnings + list(dict.fromkeys(every)),
    )  # fmt: skip


def _interrupts_first(names: tuple[str, ...]) -> bool:
    """Both mpstat and sar print these columns; sar has the stolen time before the interrupts."""
    return {"%irq", "%steal"} <= set(names) and names.index("%irq") < names.index("%steal")


@lru_cache(maxsize=1024)
def _words(names: tuple[str, ...]) -> tuple[bool, ...]:
    """Which columns hold words instead of numbers."""
    return tuple(name.isupper() or plain(name) in TEXTS for name in names)


def _numbers(names: tuple[str, ...], fields: list[str]) -> bool:
    """Whether all but the names of things are numbers."""
    return all(
        word or field == "-" or NUMBER.fullmatch(field)
        for word, field in zip(_words(names), fields, strict=True)
    )


def _keyed(names: tuple[str, ...], fields: list[str]) -> tuple[str, str, tuple[str, ...], list[str | None]]:
    """The column that tells rows of one time apart, its value, and the other columns."""
    values = [None if field == "-" else field for field in fields]
    if "PID" in names[:-1]:
        if names[-1] == "Command" and values[-1]:  # arguments may hold secrets: keep the program's name
            values[-1] = values[-1].split(" ", 1)[0].rsplit("/", 1)[-1]
        at = names.index("PID")
        return "pid", fields[at], (*names[:at], *names[at + 1 :]), values[:at] + values[at + 1 :]
    if names[0].isupper():
        return KEYS.get(plain(names[0]), folded(names[0])), fields[0], names[1:], values[1:]
    return "", "", names, values


def _rows(made: dict[str, Rows], program: str, names: tuple[str, ...], key_name: str, key: str) -> Rows:
    kind = _kind(program, names)
    if kind == f"{program}_cpu":
        return of_cpu(program, made, key)
    if kind not in made:
        made[kind] = Rows(kind, key_name, unit)
    return made[kind]


@lru_cache(maxsize=1024)
def _kind(program: str, names: tuple[str, ...]) -> str:
    """Kind of table of a block with these columns."""
    if names[0] == "CPU" and is_cpu(names):
        return f"{program}_cpu"
    measured = names[1] if len(names) > 1 and names[0].isupper() else names[0]
    if "PID" in names[:-1]:
        return f"pidstat_{folded(names[names.index('PID') + 1])}"
    if names[0] == "NODE" and is_cpu(names):
        return f"{program}_node_cpu"
    if names[0] == "CPU" and measured[0].isdigit():
        return f"{program}_core_irq"
    if names[0] == "CPU" and measured.startswith("HI/"):
        return f"{program}_core_softirq"
    if names[0].isupper():
        return f"{program}_{KEYS.get(plain(names[0]), folded(names[0]))}_{folded(measured)}"
    return f"{program}_{folded(measured)}"
