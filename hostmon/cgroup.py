"""Reader of `cgroup_cpu.csv`: a host's own CPU accounting, which stays right where hosts share one kernel.

Columns: time_ns_begin, time_ns_end (stamped before and after the read), then counters that only grow; names
ending in `_ns` are CPU time in ns. A sample is taken to be at the middle of its read. 100 % = one core.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

import numpy as np

from tapscope.hostmon.samples import HostLog, HostTable, Series
from tapscope.store.errors import TapscopeError

SHARES = {"usage_ns": "busy_pct", "user_ns": "user_pct", "system_ns": "sys_pct"}


def read_cgroup(lines: Iterable[str], path: str = "") -> HostLog:
    """Table of a cgroup CPU file. Damaged lines are counted and left out."""
    reader = csv.reader(lines)
    names = [name.strip() for name in next(reader, [])]
    if names[:2] != ["time_ns_begin", "time_ns_end"] or "usage_ns" not in names:
        raise TapscopeError(
            "the first line does not name time_ns_begin,time_ns_end,usage_ns,...",
            path=path,
            offset=0,
            remedy="Give a cgroup_cpu.csv, or leave the file out.",
        )
    rows, bad = [], 0
    for row in reader:
        try:
            numbers = [int(value) for value in row]
        except ValueError:
            numbers = []
        if len(numbers) == len(names) and all(abs(number) < 1 << 62 for number in numbers):
            rows.append(numbers)
        else:
            bad += bool(row)
    if not rows:
        raise TapscopeError("this file has no sample", path=path, remedy="Leave it out, or record it again.")
    matrix = np.array(rows, dtype=np.int64)
    at = matrix[:, 0] + (matrix[:, 1] - matrix[:, 0]) // 2
    series = Series(np.zeros(len(at), dtype=np.int64), at)
    table = HostTable("cgroup_cpu")
    table.add("begin_ns", series.begin_ns, "ns", "")
    table.add("end_ns", series.end_ns, "ns", "")
    columns = {name: series.sorted(matrix[:, i]) for i, name in enumerate(names)}
    for name, values in columns.items():
        stored = {"time_ns_begin": "read_begin_ns", "time_ns_end": "read_end_ns"}.get(name, name)
        table.add(stored, values, "ns" if stored.endswith("_ns") else "", name)
    length = series.seconds() * 1e9
    for name, derived in SHARES.items():
        if name in columns:
            table.add(derived, 100 * series.delta(columns[name]) / length, "% of one core", "")
    counters = {"host.cgroup.bad_line": bad} if bad else {}
    if series.resets:
        counters["host.cgroup.counter_reset"] = series.resets
    return HostLog("cgroup cpu", "", [table], counters, {"samples": len(rows)})
