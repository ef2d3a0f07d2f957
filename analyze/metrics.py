"""What may have made a queue grow: every metric that is looked at, where it is found, and when it has risen.

A metric that has a level of saturation by its nature (a share of time) has risen where it reaches it; any
other where it stands out from what is usual in the run, by a robust measure and by an amount that matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.service_time import Float

RISEN = 4.0
"""Scaled median deviations from which a metric stands out."""


@dataclass(frozen=True)
class Place:
    """A column of a kind of host table; `where` picks rows by text columns, `scale` makes the metric's
    unit. `of`: columns that tell several things apart (disks, locks, groups), of which the highest counts, or
    with `total` their sum: one busy disk among ten is a busy disk."""

    kind: str
    column: str
    where: tuple[tuple[str, str], ...] = ()
    scale: float = 1.0
    of: tuple[str, ...] = ()
    total: bool = False


@dataclass(frozen=True)
class Metric:
    """A metric in words, with its unit.

    `full`: level of saturation, NaN without one. `least`: a rise by less than this is nothing, whatever is
    usual. `own`: it speaks of the node's host alone, also where hosts share one kernel. `falls`: it is its
    fall that speaks. `change`: taken of the values on windows before anything else.
    """

    words: str
    unit: str
    places: tuple[Place, ...] = ()
    full: float = float("nan")
    least: float = 0.0
    own: bool = False
    falls: bool = False
    change: Callable[[Float], Float] | None = None

    def limit(self, middle: float, spread: float) -> float:
        """Level from which (`falls`: below which) it has risen, by what is usual (`usual`)."""
        if np.isfinite(self.full):
            return self.full
        least = max(RISEN * spread, self.least, 0.02 * abs(middle), 1e-9)
        return middle - least if self.falls else middle + least

    def beyond(self, values: Float, limit: float) -> NDArray[np.bool_]:
        """Windows in which it was at this level or beyond."""
        return np.asarray(values <= limit if self.falls else values >= limit)


def usual(values: Float, quiet: NDArray[np.bool_]) -> tuple[float, float]:
    """Median of the quiet windows, and the scaled median deviation from it; NaN where none is known."""
    known = values[quiet & np.isfinite(values)]
    if not len(known):
        known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    middle = float(np.median(known))
    return middle, 1.4826 * float(np.median(np.abs(known - middle)))


def churned(values: Float) -> Float:
    """How far a level moved within the last SUDDEN windows, up or down; NaN where it is not known."""
    padded = np.concatenate([np.full(SUDDEN, np.nan), values])
    around = np.lib.stride_tricks.sliding_window_view(padded, SUDDEN + 1)
    highest = np.where(np.isfinite(around), around, -np.inf).max(axis=1)
    lowest = np.where(np.isfinite(around), around, np.inf).min(axis=1)
    return np.where(np.isfinite(values), highest - lowest, np.nan)


SUDDEN = 2
"""Windows within which a level moves abruptly."""


def _pressure(resource: str) -> tuple[Place, ...]:
    return (
        Place("cgroup_cpu", f"{resource}_some_pct"),
        Place("pressure", "stall_pct", (("resource", resource), ("scope", "some")), of=("group",)),
    )


def _cpu(name: str, plot: str) -> tuple[Place, ...]:
    tables = ("collectl_cpu", "sadf_cpu", "mpstat_cpu", "sar_cpu", "iostat_cpu", "vmstat")
    return (Place(tables[0], name), Place("collectl_plot", plot), *(Place(kind, name) for kind in tables[1:]))


MIB = 1.0 / (1 << 20)
MOST_OF_A_WINDOW = 50.0


def _own_pages(kind: str) -> tuple[Place, ...]:
    """Pages of a control group, in both of its versions."""
    accounted = (
        Place("cgroup_memory_stat", name, scale=MIB, of=("group",), total=True)
        for name in (f"file_{kind}", kind)
    )
    return Place("cgroup_cpu", f"{kind}_kib", scale=1 / 1024), *accounted


OWN_CPU = (
    Place("cgroup_cpu", "busy_pct"),
    Place("cgroup_cpu_stat", "busy_pct", of=("group",), total=True),
    Place("cgroup_cpuacct_usage", "busy_pct", of=("group",), total=True),
)
CLOCK = (
    Place("cpu_frequency", "mhz"),
    Place("turbostat", "bzy_mhz"),
    Place("sadf_cpu_frequency", "frequency"),
    Place("sadf_cpu_frequency", "mhz"),
)
DISK = ("disk",)
BUSY = (
    ("collectl_disk", "busy_pct"),
    ("sadf_disk", "util_pct"),
    ("iostat_disk", "util_pct"),
    ("sar_disk_tps", "util_pct"),
)
WRITTEN = (
    ("collectl_disk", "written_kib_per_s"),
    ("collectl_plot", "dsk_writekbtot"),
    ("sadf_disk", "wkb_s"),
    ("sadf_disk", "wkb"),
    ("iostat_disk", "wkb_s"),
    ("iostat_disk", "kb_wrtn_s"),
    ("sar_disk_tps", "wkb_s"),
    ("vmstat", "bo"),
)
DIRTY = (
    ("collectl_memory", "dirty"),
    ("collectl_plot", "mem_dirty"),
    ("sadf_memory", "dirty"),
    ("sadf_memory", "kbdirty"),
)
"""Where a metric is looked for, best first; in KiB and KiB/s."""


METRICS: dict[str, Metric] = {
    "gc": Metric("time in garbage collection", "%", full=MOST_OF_A_WINDOW, own=True),
    "safepoint": Metric("time in other stops of the JVM", "%", full=MOST_OF_A_WINDOW, own=True),
    "stalled": Metric("calls inside and none completed", "", full=1, own=True),
    "machine_cpu": Metric("CPU of the machine", "%", _cpu("busy_pct", "cpu_totl_pct"), full=90),
    "own_cpu": Metric("CPU of the node's own group", "% of a core", OWN_CPU, least=20, own=True),
    "saturated": Metric("machine busy, and the node's own use up most", "%", full=90),
    "crowded": Metric("machine busy, and others' use up more than the node's", "%", full=90),
    "starved": Metric("tasks waited for a CPU, and the node's own use not up", "%", least=30, own=True),
    "steal": Metric("CPU time stolen by the hypervisor", "%", _cpu("steal_pct", "cpu_steal_pct"), least=10),
    "throttled": Metric(
        "time held back by the CPU quota",
        "% of a core",
        (Place("cgroup_cpu", "throttled_pct"), Place("cgroup_cpu_stat", "throttled_pct", of=("group",))),
        least=10,
        own=True,
    ),
    "speed_mhz": Metric("clock of the CPU", "MHz", CLOCK, least=100, own=True, falls=True),
    "slow": Metric("full at a lower throughput than at other times", "", full=1, own=True),
    "disk_busy": Metric(
        "disk",
        "% busy",
        tuple(Place(kind, column, of=DISK) for kind, column in BUSY),
        full=90,
    ),
    "io_wait": Metric("CPU waiting for I/O", "%", _cpu("wait_pct", "cpu_wait_pct"), least=10),
    "machine_written": Metric(
        "written by the machine",
        "MiB/s",
        tuple(Place(*place, scale=1 / 1024, of=DISK, total=True) for place in WRITTEN),
        least=4,
    ),
    "own_written": Metric(
        "written by the node's own group",
        "MiB/s",
        (
            Place("cgroup_cpu", "written_kib_per_s", scale=1 / 1024),
            Place("cgroup_io_stat", "wbytes_per_s", scale=MIB, of=("group", "of"), total=True),
        ),
        least=2,
        own=True,
    ),
    "machine_dirty": Metric(
        "change of the machine's dirty pages",
        "MiB",
        tuple(Place(*place, scale=1 / 1024) for place in DIRTY),
        least=16,
        change=churned,
    ),
    "own_dirty": Metric(
        "change of the node's own dirty pages",
        "MiB",
        _own_pages("dirty"),
        least=8,
        own=True,
        change=churned,
    ),
    "own_writeback": Metric(
        "the node's own pages under writeback",
        "MiB",
        _own_pages("writeback"),
        least=8,
        own=True,
    ),
    "cpu_pressure": Metric("some task waited for a CPU", "%", _pressure("cpu"), least=20),
    "io_pressure": Metric("some task waited for I/O", "%", _pressure("io"), least=20),
    "memory_pressure": Metric("some task waited for memory", "%", _pressure("memory"), least=10),
    "lock_wait": Metric(
        "waiting for kernel locks", "% of a thread", (Place("lock_stat", "wait_pct", of=("lock",)),), least=10
    ),
    "arrivals": Metric("arrivals", "calls", least=5, own=True),
    "pool": Metric("calls open to the node below, of the most that ever were", "", full=1, own=True),
    "waiting": Metric("calls that wait for the nodes below", "calls", least=3, own=True),
    "resent": Metric("calls under way with segments sent again", "calls", full=0.5, own=True),
    "attempts": Metric("connections asked for", "connections", least=5, own=True),
    "refused": Metric("connections whose first SYN got no answer", "connections", full=1, own=True),
}
"""By the name that `Evidence.series` has for it. A metric without places comes from the tap, or from other
metrics."""
