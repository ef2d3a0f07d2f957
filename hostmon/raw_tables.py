"""From the records of a Collectl raw file to columns: raw counters kept, rates and shares derived beside
them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.samples import Float, HostTable, Series, recordings, share

CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
DISK = (
    "reads", "reads_merged", "sectors_read", "ms_reading",
    "writes", "writes_merged", "sectors_written", "ms_writing",
    "in_progress", "ms_io", "ms_weighted",
    "discards", "discards_merged", "sectors_discarded", "ms_discarding", "flushes", "ms_flushing",
)  # fmt: skip
NET = tuple(
    f"{way}_{name}"
    for way, names in (
        ("rx", ("bytes", "packets", "errors", "drops", "fifo", "frame", "compressed", "multicast")),
        ("tx", ("bytes", "packets", "errors", "drops", "fifo", "collisions", "carrier", "compressed")),
    )
    for name in names
)
TCP_GAUGES = {"Tcp_CurrEstab", "Tcp_RtoAlgorithm", "Tcp_RtoMin", "Tcp_RtoMax", "Tcp_MaxConn", "Ip_Forwarding",
              "Ip_DefaultTTL"}  # fmt: skip
SECTOR_KIB = 0.5  # /proc/diskstats counts sectors of 512 bytes, whatever the disk says


class RawRecords:
    """Rows per kind of record as they were read, with the number of their sample."""

    def __init__(self) -> None:
        self.stamps: list[int] = []
        self.wraps = 0
        # A line's numbers stand one after the other: 8 bytes each.
        self.rows: dict[str, tuple[list[int], list[str], array[int]]] = defaultdict(
            lambda: ([], [], array("q"))
        )
        self.named: dict[str, tuple[list[int], list[dict[str, Any]]]] = defaultdict(lambda: ([], []))
        self.processes: dict[str, tuple[list[int], list[int], list[dict[str, Any]]]] = {}

    def add_row(self, kind: str, key: str, values: Sequence[str], width: int) -> None:
        """A line of numbers that belongs to one CPU, disk or interface. Older kernels have fewer: 0."""
        if len(values) < 4:
            raise ValueError(values)
        numbers = [int(v) for v in values[:width]]
        if max(numbers) >= 1 << 63 or min(numbers) < -(1 << 63):
            raise ValueError(values)
        samples, keys, rows = self.rows[kind]
        samples.append(len(self.stamps) - 1)
        keys.append(key)
        rows.extend(numbers + [0] * (width - len(numbers)))

    def add_named(self, kind: str, values: dict[str, Any]) -> None:
        """Named values of the sample that ends here."""
        samples, rows = self.named[kind]
        samples.append(len(self.stamps) - 1)
        rows.append(values)

    def add_process(self, kind: str, pid: int, values: dict[str, Any]) -> None:
        """What one sample says about a process or a thread."""
        samples, pids, rows = self.processes.setdefault(kind, ([], [], []))
        samples.append(len(self.stamps) - 1)
        pids.append(pid)
        rows.append(values)


def tables_of(records: RawRecords, hz: int, page_bytes: int) -> tuple[list[HostTable], int]:
    """Every table that the records give, and how often a counter went down."""
    stamps = np.array(records.stamps, dtype=np.int64)
    made: list[HostTable] = []
    resets = 0
    part = recordings(stamps)
    for kind, names, derive in (("cpu", CPU, _cpu), ("disk", DISK, _disk), ("net", NET, _net)):
        if kind not in records.rows:
            continue
        samples, keys, rows = records.rows[kind]
        key = np.array(keys, dtype=object).astype(str)
        matrix = np.frombuffer(rows, dtype=np.int64).reshape(len(keys), -1)
        if kind == "cpu":
            groups = [("collectl_cpu", key == ""), ("collectl_cpu_core", key != "")]
        else:
            groups = [(f"collectl_{kind}", np.ones(len(key), dtype=np.bool_))]
        for name, chosen in groups:
            if not chosen.any():
                continue
            at = np.array(samples)[chosen]
            series = Series(key[chosen], stamps[at], part[at])
            table = _started(name, series)
            if name != "collectl_cpu":
                label = {"cpu": "core", "disk": "disk", "net": "interface"}[kind]
                values = series.sorted(key[chosen])
                table.add(
                    label, values.astype(np.int64) if label == "core" else values.astype(object).tolist()
                )
            columns = dict(zip(names, series.sorted(matrix[chosen]).T, strict=True))
            derive(table, series, columns)
            resets += series.resets
            records.wraps += series.wraps
            made.append(table)
    for kind in ("stat", "memory", "vmstat", "tcp"):
        if kind in records.named:
            table, down = _named(kind, records, stamps)
            made.append(table)
            resets += down
    for kind in records.processes:
        table, down = _processes(kind, records, stamps, hz, page_bytes)
        made.append(table)
        resets += down
    return made, resets


def _started(kind: str, series: Series) -> HostTable:
    table = HostTable(kind)
    table.add("begin_ns", series.begin_ns, "ns", "")
    table.add("end_ns", series.end_ns, "ns", ">>>")
    return table


def _cpu(table: HostTable, series: Series, columns: dict[str, NDArray[np.int64]]) -> None:
    for name, values in columns.items():
        table.add(f"{name}_jiffies", values, "jiffies", name)
    step = {}
    for name, values in columns.items():
        if name in ("idle", "iowait"):  # may go back a little (proc(5)): that is no reset
            values = series.never_down(values)
        step[name] = series.delta(values)
    # guest time is inside user, guest_nice inside nice (proc(5)); they are no part of the sum.
    whole: Float = np.sum([step[name] for name in CPU[:8]], axis=0)
    shares = {
        "user_pct": step["user"], "nice_pct": step["nice"], "sys_pct": step["system"], "wait_pct":
        step["iowait"], "irq_pct": step["irq"], "soft_pct": step["softirq"], "steal_pct": step["steal"],
        "idle_pct": step["idle"], "busy_pct": whole - step["idle"] - step["iowait"],
    }  # fmt: skip
    for name, part in shares.items():
        table.add(name, share(part, whole), "%", "")


def _disk(table: HostTable, series: Series, columns: dict[str, NDArray[np.int64]]) -> None:
    for name, values in columns.items():
        unit = "ms" if name.startswith("ms_") else "sectors" if name.startswith("sectors") else "operations"
        table.add(name, values, unit)
    length = series.seconds()
    counters = [name for name in DISK[:11] if name != "in_progress"]  # which is a gauge
    step = {name: series.delta(columns[name]) for name in counters}
    table.add("reads_per_s", step["reads"] / length, "1/s", "")
    table.add("writes_per_s", step["writes"] / length, "1/s", "")
    table.add("read_kib_per_s", step["sectors_read"] * SECTOR_KIB / length, "KiB/s", "")
    table.add("written_kib_per_s", step["sectors_written"] * SECTOR_KIB / length, "KiB/s", "")
    table.add("busy_pct", share(step["ms_io"], length * 1000), "%", "")
    table.add("queue_mean", step["ms_weighted"] / (length * 1000), "operations", "")
    table.add(
        "wait_ms",
        share(step["ms_reading"] + step["ms_writing"], step["reads"] + step["writes"]) / 100,
        "ms",
        "",
    )


def _net(table: HostTable, series: Series, columns: dict[str, NDArray[np.int64]]) -> None:
    for name, values in columns.items():
        table.add(name, values, "bytes" if name.endswith("bytes") else "packets")
    for name in (
        "rx_bytes",
        "rx_packets",
        "rx_errors",
        "rx_drops",
        "tx_bytes",
        "tx_packets",
        "tx_errors",
        "tx_drops",
    ):
        unit = "bytes/s" if name.endswith("bytes") else "packets/s"
        table.add(f"{name}_per_s", series.rate(columns[name]), unit, "")


def _is_counter(kind: str, name: str) -> bool:
    if kind == "stat":
        return name in ("ctxt", "intr", "processes")
    if kind == "tcp":
        return name not in TCP_GAUGES
    if kind == "vmstat":  # nr_* are gauges; the page, reclaim and fault events only grow
        return not name.startswith("nr_") and name != "workingset_nodes"
    return False


def _named(kind: str, records: RawRecords, stamps: NDArray[np.int64]) -> tuple[HostTable, int]:
    samples, rows = records.named[kind]
    at = np.array(samples)
    series = Series(np.zeros(len(samples), dtype=np.int64), stamps[at], recordings(stamps)[at])
    table = _started(f"collectl_{kind}", series)
    for name in dict.fromkeys(name for row in rows for name in row):
        found = [row.get(name, np.nan) for row in rows]
        values = np.array(found, dtype=np.float64 if any(abs(value) >= 1 << 63 for value in found) else None)
        if (
            values.dtype == np.float64
            and kind != "stat"
            and np.all(values == np.floor(values))
            and np.all(np.abs(values) < 2**62)
        ):
            values = values.astype(np.int64)
        values = series.sorted(values)
        table.add(name, values, "KiB" if kind == "memory" and not name.startswith("HugePages_") else "")
        if _is_counter(kind, name):
            table.add(f"{name}_per_s", series.rate(values), "1/s", "")
    records.wraps += series.wraps
    return table, series.resets


def _processes(
    kind: str, records: RawRecords, stamps: NDArray[np.int64], hz: int, page_bytes: int
) -> tuple[HostTable, int]:
    samples, pids, rows = records.processes[kind]
    at = np.array(samples)
    series = Series(np.array(pids, dtype=np.int64), stamps[at], recordings(stamps)[at])
    table = _started(f"collectl_{kind}", series)
    table.add("pid", series.sorted(np.array(pids, dtype=np.int64)))
    for name in ("command", "state"):
        table.add(name, [rows[i].get(name, "") for i in series.order])
    units = {
        "utime": "jiffies",
        "stime": "jiffies",
        "vsize": "bytes",
        "rss": "pages",
        "VmHWM": "KiB",
        "VmSwap": "KiB",
    }
    known: dict[str, NDArray[Any]] = {}
    for name in dict.fromkeys(n for row in rows for n in row if n not in ("command", "state")):
        values = np.array([rows[i].get(name, np.nan) for i in series.order], dtype=np.float64)
        unit = "bytes" if name.startswith("io_") and "sysc" not in name else units.get(name, "")
        known[name] = values
        table.add(name, values.astype(np.int64) if np.all(np.abs(values) < 2**62) else values, unit)
    length = series.seconds()
    if {"utime", "stime", "rss"} <= set(known):
        user, system = series.delta(known["utime"]) / hz, series.delta(known["stime"]) / hz
        table.add("user_pct", 100 * user / length, "% of one core", "")
        table.add("sys_pct", 100 * system / length, "% of one core", "")
        table.add("rss_bytes", known["rss"] * page_bytes, "bytes", "")
    for name in ("io_read_bytes", "io_write_bytes"):
        if name in known:
            table.add(f"{name[3:]}_per_s", series.rate(known[name]), "bytes/s", "")
    records.wraps += series.wraps
    return table, series.resets
