"""Reader of `sadf -d` (and -dh): lines of values between semicolons under a `# hostname;interval;...` line.

Times are UTC where they say so, local with -t and -T, seconds since the epoch with -U; the interval column
tells where a sample began. With -h all sections stand side by side, and `[...]` marks those that may repeat:
one such section can be told from the number of values, two cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from tapscope.hostmon.clock import NOTHING_TOLD, NS, LogClock, Told
from tapscope.hostmon.decimals import with_points
from tapscope.hostmon.rows import Rows
from tapscope.hostmon.samples import HostLog, stamp_ns
from tapscope.hostmon.sysstat_names import KEYS, finished, is_cpu, of_cpu, plain, unit
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

LONGEST_S = 10**7  # of an interval
HEAD = "# hostname;interval;timestamp;"
KINDS = {
    "proc/s": "process_and_context_switch", "pswpin/s": "swap_pages", "pgpgin/s": "paging", "tps": "io",
    "kbmemfree": "memory", "kbswpfree": "swap", "kbhugfree": "hugepages", "dentunusd": "kernel",
    "runq-sz": "queue", "tty": "serial", "dev": "disk", "totsck": "net_sock",
    "active/s": "net_tcp", "atmptf/s": "net_etcp", "idgm/s": "net_udp",
    "irec/s": "net_ip", "ihdrerr/s": "net_eip", "call/s": "net_nfs",
    "scall/s": "net_nfsd", "intr": "interrupts", "filesystem": "filesystems",
    "scpu-10": "psi_cpu", "sio-10": "psi_io", "smem-10": "psi_mem",
}  # fmt: skip
"""Section by its first column; network interfaces and CPUs by the second."""

SECOND = {"rxpck/s": "net_dev", "rxerr/s": "net_edev", "total/s": "softnet",
          "mhz": "cpu_frequency"}  # fmt: skip


def is_sadf_csv(first: list[str]) -> bool:
    """Whether the first lines are of `sadf -d`."""
    return any(line.startswith(HEAD) for line in first[:5])


def read_sadf_csv(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """One table per section. Damaged lines are counted and left out."""
    clock = LogClock(told.zone)
    counters: Counter[str] = Counter()
    made: dict[str, Rows] = {}
    sections: list[_Section] = []
    host = ""
    samples: set[int] = set()
    for line in with_points(lines):
        text = line.rstrip("\n")
        if text.startswith(HEAD):
            sections = _sections(text[len(HEAD) :])
            clock.again()
            if sum(section.repeated for section in sections) > 1:
                raise TapscopeError(
                    "several sections repeat on one line, and nothing tells where one ends",
                    path=path,
                    remedy="Record without -h: sadf -d FILE -- -A",
                )
            continue
        if text.startswith("#") or not text.strip():
            continue
        fields = text.split(";")
        if "LINUX-RESTART" in text:
            counters["host.sysstat.restart"] += 1
            for rows in made.values():
                rows.restart()
            continue
        try:
            end = _end_ns(fields[2], clock)
            interval = int(fields[1])
            if interval > LONGEST_S:
                raise ValueError(interval)
            groups = _grouped(fields[3:], sections)
        except (ValueError, IndexError, OverflowError):
            counters["host.sysstat.bad_line"] += 1
            continue
        host = host or fields[0]
        samples.add(end)
        for section, values in groups:
            section.add(made, end, end - interval * NS if interval > 0 else -1, values)
    if not made:
        raise TapscopeError(
            "this file of sadf has no sample", path=path, remedy="Record one with: sadf -d FILE -- -A"
        )
    return HostLog(
        "sadf CSV",
        host,
        [finished(rows) for rows in made.values()],
        dict(counters + clock.counters),
        {"samples": len(samples), "resolution_ns": NS},
        clock.warnings(),
    )


def _end_ns(text: str, clock: LogClock) -> int:
    return clock.saw(stamp_ns(text)) if text.isdigit() else clock.iso(text)


class _Section:
    """Columns of one section."""

    def __init__(self, names: tuple[str, ...]) -> None:
        repeated = names[-1].endswith("[...]")
        names = (*names[:-1], names[-1].removesuffix("[...]"))
        self.repeated = repeated
        first, second = plain(names[0]), plain(names[1]) if len(names) > 1 else ""
        self.cpu = is_cpu(names)
        self.star = names[-1].endswith("*")  # INTR;CPU*: as many values as there are CPUs
        self.keyed = names[0].isupper()
        self.columns = names[1:] if self.keyed else names
        self.width = len(names)
        known = SECOND.get(second) or KINDS.get(first) or folded(names[0])
        self.kind = "sadf" if self.cpu else f"sadf_{known}"
        self.key = KEYS.get(first, folded(names[0])) if self.keyed else ""

    def add(self, made: dict[str, Rows], end: int, begin: int, values: list[str]) -> None:
        key = values[0] if self.keyed else ""
        rest = values[1:] if self.keyed else values
        columns = self.columns
        if self.star:
            columns = ("all", *(f"cpu{i}" for i in range(len(rest) - 1)))
        if self.cpu:
            rows = of_cpu(self.kind, made, key)
            rows.add(end, columns, rest, key if rows.key else "", begin)
            return
        if self.kind not in made:
            made[self.kind] = Rows(self.kind, self.key, unit)
        made[self.kind].add(end, columns, rest, key, begin)


def _sections(names: str) -> list[_Section]:
    """The sections of a header line: one, or with -h several, each begun by a name in capitals."""
    columns = names.split(";")
    starts = [0]
    for i in range(1, len(columns)):
        if columns[i - 1].endswith("[...]") or (columns[i].isupper() and columns[i] != "CPU*"):
            starts.append(i)
    return [_Section(tuple(columns[low:high])) for low, high in pairwise([*starts, len(columns)])]


def _grouped(values: list[str], sections: list[_Section]) -> list[tuple[_Section, list[str]]]:
    """Values of a line by section; ValueError when they do not fit."""
    if len(sections) == 1 and sections[0].star and len(values) >= 2:
        return [(sections[0], values)]
    once = sum(section.width for section in sections)
    groups = []
    at = 0
    for section in sections:
        # Everything beyond one record of each section is more records of the one that repeats.
        count = 1 + (len(values) - once) // section.width if section.repeated else 1
        for _ in range(count):
            groups.append((section, values[at : at + section.width]))
            at += section.width
    if not groups or at != len(values):
        raise ValueError(values)
    return groups
