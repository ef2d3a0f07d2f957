"""Reader of `cgroup_cpu.csv`: what a host's control group accounts for, which stays right where hosts share a
kernel.

Columns: time_ns_begin, time_ns_end (stamped before and after the read), usage_ns, then any others. They are
counters that only grow, but for those of GAUGES; names ending in `_ns` are time in ns. A sample is taken to
be at the middle of its read. From the counters that are known, shares and rates are derived
(docs/formats.md).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

import numpy as np

from tapscope.hostmon.samples import HostLog, HostTable, Series
from tapscope.store.errors import TapscopeError

CORE = "% of one core"
SHARES = {
    "usage_ns": ("busy_pct", CORE),
    "user_ns": ("user_pct", CORE),
    "system_ns": ("sys_pct", CORE),
    "throttled_ns": ("throttled_pct", CORE),
    **{
        f"{resource}_{scope}_ns": (f"{resource}_{scope}_pct", "% of the time")
        for resource in ("cpu", "io", "memory")
        for scope in ("some", "full")
    },
}
"""Counter of ns -> column and unit of its share of the interval (pressure: accounting/psi.rst)."""

RATES = {
    "read_bytes": ("read_kib_per_s", "KiB/s", 1024),
    "written_bytes": ("written_kib_per_s", "KiB/s", 1024),
    "reads": ("reads_per_s", "1/s", 1),
    "writes": ("writes_per_s", "1/s", 1),
}
"""Counter -> column, unit and divisor of its rate."""

GAUGES = {"dirty_bytes": "dirty_kib", "writeback_bytes": "writeback_kib"}
"""What is there at the moment of the sample -> column in KiB."""


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
        table.add(stored, values, _unit(stored), name)
    for name, (derived, unit) in SHARES.items():
        if name in columns:
            table.add(derived, 1e-7 * series.rate(columns[name]), unit, "")
    for name, (derived, unit, divisor) in RATES.items():
        if name in columns:
            table.add(derived, series.rate(columns[name]) / divisor, unit, "")
    for name, derived in GAUGES.items():
        if name in columns:
            table.add(derived, columns[name] / 1024, "KiB", "")
    if {"nr_periods", "nr_throttled"} <= columns.keys():
        # Without a quota there are no periods: nothing was throttled.
        periods = series.delta(columns["nr_periods"])
        share = 100 * series.delta(columns["nr_throttled"]) / np.where(periods == 0, 1, periods)
        table.add("throttled_periods_pct", share, "% of the periods", "")
    counters = {"host.cgroup.bad_line": bad} if bad else {}
    if series.resets:
        counters["host.cgroup.counter_reset"] = series.resets
    return HostLog("cgroup cpu", "", [table], counters, {"samples": len(rows)})


def _unit(name: str) -> str:
    return next((unit for unit in ("ns", "bytes") if name.endswith(f"_{unit}")), "")
