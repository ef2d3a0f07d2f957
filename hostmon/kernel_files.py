"""Files of the kernel as they stand in snapshots: which they are by name and shape, and the tables they give.

Sources: Documentation/accounting/psi.rst, admin-guide/cgroup-v2.rst, cgroup-v1/cpuacct.rst,
locking/lockstat.rst, admin-guide/pm/cpufreq.rst.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tapscope.hostmon.rows import Rows, numeric
from tapscope.hostmon.samples import Float, HostTable, Series
from tapscope.store.dynamic import folded

PAIRS = re.compile(r"(\S+) ((?:\w+=\S+ ?)+)$")
FLAT = re.compile(r"([\w.]+):? (-?\d+)$")
LOCK = re.compile(r"\s*(\S.*?): +(\d+ +\d+(?: +\d+\.\d+){3,4} +\d+ +\d+(?: +\d+\.\d+){3,4})$")
LOCK_OLD = (
    "con_bounces",
    "contentions",
    "waittime_min_us",
    "waittime_max_us",
    "waittime_total_us",
    "acq_bounces",
    "acquisitions",
    "holdtime_min_us",
    "holdtime_max_us",
    "holdtime_total_us",
)
LOCK_NEW = (*LOCK_OLD[:5], "waittime_avg_us", *LOCK_OLD[5:], "holdtime_avg_us")  # since 0.4
FREQUENCY = re.compile(r"cpu(\d+)/cpufreq/(\w+_cur_freq)$|policy(\d+)/(\w+_cur_freq)$")
MOST_FILES = 4096  # names of files in one log
MEMORY_COUNTERS = re.compile(r"pg|workingset_(re|ac)|thp_.*(alloc|split)|oom|low$|high$|max$|zswp")
OF_A_CORE = {
    "usage_usec": "busy_pct",
    "user_usec": "user_pct",
    "system_usec": "sys_pct",
    "throttled_usec": "throttled_pct",
    "throttled_time": "throttled_pct",
    "total": "stall_pct",
}


class KernelFiles:
    """Tables that grow with every snapshot."""

    def __init__(self, counters: Counter[str]) -> None:
        self.counters = counters
        self.rows: dict[str, Rows] = {}
        self.names: set[str] = set()

    def file(self, at: int, path: str, lines: list[str]) -> None:
        """One file's lines at one time."""
        if path not in self.names:
            if len(self.names) >= MOST_FILES:
                self.counters["host.snapshot.left_out_file"] += 1
                return
            self.names.add(path)
        frequency = FREQUENCY.search(path)
        if frequency:
            self._frequency(at, frequency, lines)
        elif lines[0].startswith("lock_stat version"):
            self._locks(at, lines)
        elif re.match(r"(some|full) avg10=", lines[0]):
            self._pressure(at, path, lines)
        elif re.match(r"processor\s*:", lines[0]):
            self._cpuinfo(at, lines)
        elif all(FLAT.match(line) for line in lines):
            self._flat(at, path, lines)
        elif any(PAIRS.match(line.rstrip()) for line in lines):
            self._nested(at, path, lines)
        elif len(lines) == 1 and re.fullmatch(r"-?\d+\s*", lines[0]):
            self._value(at, path, int(lines[0]))
        elif any(FLAT.match(line) for line in lines):
            self._flat(at, path, lines)
        else:
            self.counters["host.snapshot.unread_file"] += 1

    def _of(self, kind: str, key: str = "") -> Rows:
        if kind not in self.rows:
            self.rows[kind] = Rows(kind, key, _unit)
        return self.rows[kind]

    def _bad(self) -> None:
        self.counters["host.snapshot.bad_line"] += 1

    def _frequency(self, at: int, match: re.Match[str], lines: list[str]) -> None:
        try:
            mhz = int(lines[0]) / 1000  # the kernel says kHz
        except ValueError:
            self._bad()
            return
        core = match[1] or match[3]
        self._of("cpu_frequency", "core").add(at, ("mhz", "governed_by"), (mhz, match[2] or match[4]), core)

    def _cpuinfo(self, at: int, lines: list[str]) -> None:
        core = ""
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.strip(), value.strip()
            if name == "processor":
                core = value
            elif name == "cpu MHz":
                try:
                    row = (float(value), "cpuinfo")
                except ValueError:
                    self._bad()
                    continue
                self._of("cpu_frequency", "core").add(at, ("mhz", "governed_by"), row, core)

    def _locks(self, at: int, lines: list[str]) -> None:
        for line in lines[1:]:
            match = LOCK.match(line.rstrip())
            if match:
                values = match[2].split()
                names = LOCK_NEW if len(values) == 12 else LOCK_OLD
                if len(values) == len(names):
                    self._of("lock_stat", "lock").add(at, names, values, match[1])
                    continue
            # Below a lock stand the places that wait for it, under a line of dashes.
            if not re.match(r"\s*[-.]+\s*$|.*class name|\s*.*\[<[^>]*>\]", line):
                self._bad()

    def _pressure(self, at: int, path: str, lines: list[str]) -> None:
        group, _, file = path.rpartition("/")
        resource = file.removesuffix(".pressure") or "?"
        if group.startswith("/proc"):
            group = ""
        rows = self._of("pressure")
        for line in lines:
            match = PAIRS.match(line.rstrip())
            try:
                if match is None:
                    raise ValueError(line)
                fields = dict(pair.split("=") for pair in match[2].split())
                values = [float(fields[name]) for name in ("avg10", "avg60", "avg300")]
                total = int(fields["total"])
            except (ValueError, KeyError):
                self._bad()
                continue
            names = ("resource", "scope", "group", "avg10", "avg60", "avg300", "total")
            rows.add(at, names, (resource, match[1], group, *values, total), f"{path} {match[1]}")

    def _flat(self, at: int, path: str, lines: list[str]) -> None:
        group, _, file = path.rpartition("/")
        fields: dict[str, Any] = {"group": group}
        for line in lines:
            match = FLAT.match(line)
            if match:
                fields[match[1]] = int(match[2])
            else:
                self._bad()
        self._of(f"cgroup_{folded(file or 'values')}").add(at, tuple(fields), tuple(fields.values()), path)

    def _nested(self, at: int, path: str, lines: list[str]) -> None:
        group, _, file = path.rpartition("/")
        rows = self._of(f"cgroup_{folded(file or 'values')}")
        for line in lines:
            match = PAIRS.match(line.rstrip())
            try:
                if match is None:
                    raise ValueError(line)
                fields = dict(pair.split("=", 1) for pair in match[2].split())
                values = [int(value) for value in fields.values()]
            except ValueError:
                self._bad()
                continue
            rows.add(at, ("group", "of", *fields), (group, match[1], *values), f"{path} {match[1]}")

    def _value(self, at: int, path: str, value: int) -> None:
        group, _, file = path.rpartition("/")
        self._of(f"cgroup_{folded(file or 'value')}").add(at, ("group", "value"), (group, value), path)

    def tables(self) -> list[HostTable]:
        """Every table, with what the counters say per second."""
        made = []
        for rows in filter(len, self.rows.values()):
            table, series, columns = rows.table_and_columns()
            for name, values in columns.items():
                amount = numeric(values)
                if amount is not None:
                    _derive(table, series, name, amount)
            self.counters["host.counter_reset"] += series.resets
            self.counters["host.counter_wrap"] += series.wraps
            made.append(table)
        return made


def _derive(table: HostTable, series: Series, name: str, amount: Float) -> None:
    length = series.seconds()
    if table.kind == "cgroup_cpuacct_usage" and name == "value":
        table.add("busy_pct", series.delta(amount) / 1e7 / length, "% of one core", "")
    elif table.kind in ("pressure", "cgroup_cpu_stat") and name in OF_A_CORE:
        per_second = 1e9 if name == "throttled_time" else 1e6  # ns in version 1, us in version 2
        whole = "%" if table.kind == "pressure" else "% of one core"
        table.add(OF_A_CORE[name], 100 * series.delta(amount) / per_second / length, whole, "")
    elif table.kind == "lock_stat" and name in ("contentions", "acquisitions"):
        table.add(f"{name}_per_s", series.delta(amount) / length, "1/s", "")
    elif table.kind == "lock_stat" and name in ("waittime_total_us", "holdtime_total_us"):
        shared = f"{name.removesuffix('time_total_us')}_pct"  # of one thread's time; waiters add up
        table.add(shared, series.delta(amount) / 1e4 / length, "% of one thread", "")
    elif (
        (table.kind == "cgroup_cpu_stat" and name.startswith("nr_"))
        or table.kind == "cgroup_io_stat"
        or (table.kind in ("cgroup_memory_stat", "cgroup_memory_events") and MEMORY_COUNTERS.match(name))
    ):
        table.add(f"{folded(name)}_per_s", series.delta(amount) / length, f"{_unit(name) or '1'}/s", "")


def _unit(name: str) -> str:
    if name == "total" or name.endswith(("_us", "_usec")):
        return "us"
    if name.endswith(("bytes", "_time")):
        return "ns" if name.endswith("_time") else "bytes"
    return "MHz" if name == "mhz" else "%" if name.startswith("avg") else ""
