"""Joins host samples with the load series on time: exact overlap-weighted means, hosts matched to nodes.

Host samples carry the host's time, load series the tap's. Where a host's clock was measured against the tap
(`clock_layer`) and found to be off, its samples are read by the tap's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.clock_layer import tap_times
from tapscope.hostmon.samples import Float, Int
from tapscope.store.runfile import RunFile

CPU_TABLES = (
    "cgroup_cpu",
    "collectl_cpu",
    "collectl_plot",
    "sadf_cpu",
    "mpstat_cpu",
    "sar_cpu",
    "iostat_cpu",
    "vmstat",
)
"""Where a host's CPU is looked for, best first: a cgroup counts one host even where hosts share a kernel, and
Collectl samples most often."""


def resample(begin_ns: Int, end_ns: Int, value: Float, edges_ns: Int) -> Float:
    """Mean of the samples over each window between neighbouring edges, weighted by overlap in exact ns.

    Samples [begin, end) may come in any order, leave holes and overlap. NaN values, samples without a begin
    (-1) and samples of no length weigh nothing; a window that no sample touches is NaN. O(n log w +
    overlaps).
    """
    windows = len(edges_ns) - 1
    usable = ~np.isnan(value) & (begin_ns >= 0) & (end_ns > begin_ns)
    begin, end, known = begin_ns[usable], end_ns[usable], value[usable].astype(np.float64)
    first = np.searchsorted(edges_ns, begin, side="right") - 1
    last = np.searchsorted(edges_ns, end, side="left")  # one past the last window touched
    first, last = np.clip(first, 0, windows), np.clip(last, 0, windows)
    touched = np.maximum(last - first, 0)
    sample = np.repeat(np.arange(len(begin)), touched)
    start = np.cumsum(touched) - touched
    window = np.arange(len(sample)) - np.repeat(start, touched) + np.repeat(first, touched)
    overlap = np.minimum(end[sample], edges_ns[window + 1]) - np.maximum(begin[sample], edges_ns[window])
    overlap = np.maximum(overlap, 0)
    weight = np.bincount(window, weights=overlap, minlength=windows)
    total = np.bincount(window, weights=overlap * known[sample], minlength=windows)
    mean = np.full(windows, np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    return mean


def by_window(
    run: RunFile,
    host: str,
    kind: str,
    column: str,
    edges_ns: Int,
    where: Mapping[str, str] | None = None,
    of: Sequence[str] = (),
    total: bool = False,
) -> Float | None:
    """One column of a host's tables of a kind, as a mean per window; None when the host has no such
    column.

    `where` keeps the rows in which these text columns have these values: files that hold several things
    (pressure: resource and scope) are one table. `of` are columns that tell things of one time apart (disks,
    locks): of each the mean is taken, and of these the highest, or with `total` the sum.
    """
    asked = dict(where or {})
    begin, end, value = [], [], []
    things: dict[tuple[Any, ...], int] = {}
    thing = []
    for table in run.dynamic_tables():
        names = {c.name for c in table.columns}
        if table.host == host and table.kind == kind and {column, *asked} <= names:
            apart = [name for name in of if name in names]
            got = run.read_dynamic(table.table, ["begin_ns", "end_ns", column, *asked, *apart])
            if got[column].dtype == object:
                continue  # the log has texts there
            keep = np.ones(len(got[column]), dtype=np.bool_)
            for name, text in asked.items():
                keep &= got[name] == text
            begin.append(got["begin_ns"][keep])
            end.append(got["end_ns"][keep])
            value.append(got[column][keep].astype(np.float64))
            thing.append(_numbered([got[name][keep] for name in apart], things, len(begin[-1])))
    if not sum(map(len, begin)):
        return None
    begins, ends = tap_times(run, host, np.concatenate(begin), np.concatenate(end))
    values = np.concatenate(value)
    place = np.concatenate(thing)
    order = np.argsort(place, kind="stable")
    cuts = np.searchsorted(place[order], np.arange(len(things) + 1))
    found: Float | None = None
    for low, high in pairwise(cuts.tolist()):
        rows = order[low:high]
        mean = resample(begins[rows], ends[rows], values[rows], edges_ns)
        if found is None:
            found = mean
        elif total:
            found = np.where(np.isnan(found), mean, found + np.nan_to_num(mean))
        else:
            found = np.fmax(found, mean)
    return found


def _numbered(columns: Sequence[NDArray[Any]], things: dict[tuple[Any, ...], int], rows: int) -> Int:
    """The number in `things` of what each row is about, by these columns of it; new things are added."""
    if not columns:
        return np.full(rows, things.setdefault((), len(things)), dtype=np.int64)
    named = zip(*(column.tolist() for column in columns), strict=True)
    return np.fromiter((things.setdefault(name, len(things)) for name in named), np.int64, rows)


@dataclass(frozen=True)
class HostCpu:
    """CPU of a host per window in percent; NaN = no sample. `unit` says of what."""

    kind: str
    unit: str
    busy: Float
    user: Float
    system: Float
    wait: Float | None
    steal: Float | None


def cpu_by_window(run: RunFile, host: str, edges_ns: Int) -> HostCpu | None:
    """CPU of `host` per window between neighbouring edges, from the best source that the run has; None
    without one.

    `busy` is everything but idle and waiting. Percent of one core for cgroups, else of the whole machine.
    """
    kinds = {table.kind for table in run.dynamic_tables() if table.host == host}
    kind = next((k for k in CPU_TABLES if k in kinds), None)
    if kind is None:
        return None
    prefix = "cpu_" if kind == "collectl_plot" else ""

    def series(name: str) -> Float | None:
        return by_window(run, host, kind, f"{prefix}{name}", edges_ns)

    user, system, wait, steal = (series(name) for name in ("user_pct", "sys_pct", "wait_pct", "steal_pct"))
    busy = series("totl_pct" if prefix else "busy_pct")
    nothing = np.full(len(edges_ns) - 1, np.nan)
    return HostCpu(
        kind=kind,
        unit="% of one core" if kind == "cgroup_cpu" else "%",
        busy=nothing if busy is None else busy,
        user=nothing if user is None else user,
        system=nothing if system is None else system,
        wait=wait,
        steal=steal,
    )


def stops(run: RunFile, host: str, kind: str) -> tuple[Int, Int] | None:
    """Begins and ends of the times in which the host's JVMs stood still, each in order; None without such a
    log.

    `kind` says for what: "jvm_gc" for collections; "jvm_safepoint" for every stop of all threads, collections
    among them.
    """
    begin, end = [], []
    for table in run.dynamic_tables():
        if table.host == host and table.kind == kind:
            got = run.read_dynamic(table.table, ["begin_ns", "end_ns"])
            begin.append(got["begin_ns"])
            end.append(got["end_ns"])
    if not sum(map(len, begin)):
        return None
    begins, ends = map(np.sort, tap_times(run, host, np.concatenate(begin), np.concatenate(end)))
    return begins, ends


def stop_share(run: RunFile, host: str, kind: str, edges_ns: Int) -> Float | None:
    """Share of each window (0 to 1) in which the host's JVMs stood still; None without such a log, or where
    it is of another time. Of collections it is the running ratio of garbage collection of Wang et al. (ICDCS
    2013, section IV-A).

    `kind` as for `stops`. A pause counts in every window that it reaches into, by its overlap. Of several
    JVMs the shares add up.
    """
    stopped = stops(run, host, kind)
    if stopped is None:
        return None
    begins, ends = stopped
    # A log that ended longer before the windows than it ever was silent knows nothing about them.
    silence = int(np.diff(begins).max(initial=0))
    if begins[0] >= edges_ns[-1] or ends[-1] + silence < edges_ns[0]:
        return None
    # Time paused until an edge: whole pauses ended by then, and the parts of those that have begun.
    length = np.concatenate([[0], np.cumsum(ends)]), np.concatenate([[0], np.cumsum(begins)])
    ended, begun = np.searchsorted(ends, edges_ns, "right"), np.searchsorted(begins, edges_ns, "right")
    until = length[0][ended] - length[1][begun] + (begun - ended) * edges_ns
    return np.diff(until) / np.diff(edges_ns)


def host_of_node(run: RunFile) -> dict[int, str]:
    """Host of each node (row of nodes -> host) that host tables exist for.

    By the manifest of the run directory (`hosts`: name -> address, or name -> {"address": ...}), else by a
    host that is named like the node or its address.
    """
    hosts = {table.host for table in run.dynamic_tables()}
    declared = manifest_hosts(run.meta("manifest", {}))
    by_address = {address: host for host, address in declared.items() if host in hosts}
    matched = {}
    for node, name, address in run.sql("SELECT id, name, addr FROM v_node ORDER BY id"):
        host = by_address.get(address)
        if host is None:
            host = next((h for h in (name, address, str(name).partition(":")[0]) if h in hosts), None)
        if host is not None:
            matched[int(node)] = host
    return matched


def manifest_hosts(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Host name -> address from a run directory's manifest."""
    declared = {}
    for host, described in (manifest.get("hosts") or {}).items():
        address = described.get("address") if isinstance(described, Mapping) else described
        if isinstance(address, str):
            declared[host] = address.partition("/")[0]
    return declared


def host_addresses(run: RunFile) -> dict[str, set[str]]:
    """Host -> its addresses: those of the manifest, else those of its nodes."""
    known = {host: {address} for host, address in manifest_hosts(run.meta("manifest", {})).items()}
    address_of = dict(run.sql("SELECT id, addr FROM v_node"))
    for node, host in host_of_node(run).items():
        known.setdefault(host, set()).add(str(address_of[node]))
    return known


def node_cpu(run: RunFile, edges_ns: NDArray[np.int64]) -> dict[int, HostCpu]:
    """CPU per window of the host of every node that has one."""
    series: dict[str, HostCpu | None] = {}
    found = {}
    for node, host in host_of_node(run).items():
        if host not in series:
            series[host] = cpu_by_window(run, host, edges_ns)
        cpu = series[host]
        if cpu is not None:
            found[node] = cpu
    return found
