"""Host metrics as strips: processor use of each host, and disk and network where a log has them.

CPU, collections, how busy disks are and dirty pages come joined on time with the load windows
(`tapscope.hostmon.fuse`); what disks and interfaces of a host moved is added up per sample and drawn as it
was sampled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tapscope.analyze.evidence import first_of
from tapscope.analyze.inside import Int
from tapscope.analyze.load import WINDOW_NS, window_edges
from tapscope.analyze.metrics import METRICS, Place
from tapscope.hostmon.clock_layer import tap_times
from tapscope.hostmon.fuse import cpu_by_window, host_of_node, resample, stop_share
from tapscope.hostmon.samples import Float
from tapscope.report import encode
from tapscope.report.run import Run
from tapscope.store.dynamic import DynamicTable

CPU_SOURCES = {
    "cgroup_cpu": "control group of the host",
    "collectl_cpu": "whole machine",
    "collectl_plot": "whole machine",
    "sadf_cpu": "whole machine",
    "mpstat_cpu": "whole machine",
    "sar_cpu": "whole machine",
    "iostat_cpu": "whole machine",
    "vmstat": "whole machine",
}
CORES = ("collectl_cpu_core", "sadf_cpu_core", "mpstat_cpu_core", "sar_cpu_core")
"""Where the cores of a host are looked for, best first."""

MOST_CORES = 8
"""Of a host that are drawn one by one."""

LOOPBACK = "lo"
KIBIBYTE = 1024.0
SMALLEST = 1e-9
"""A series that never exceeds this is not drawn: the host has nothing there."""


class Flow(NamedTuple):
    """Columns of a kind of table that are added up to one thing; `key` names what a row is of."""

    group: str
    kind: str
    key: str
    columns: tuple[str, ...]
    unit: str
    factor: float
    note: str


FLOWS = (
    Flow(
        "disk", "collectl_disk", "disk", ("read_kib_per_s", "written_kib_per_s"), "bytes/s", KIBIBYTE,
        "read and written; hosts that share a kernel show the same disks",
    ),
    Flow(
        "network", "collectl_net", "interface", ("rx_bytes_per_s", "tx_bytes_per_s"), "bytes/s", 1.0,
        "both ways",
    ),
)  # fmt: skip


class Level(NamedTuple):
    """Something that a host has at every moment, from the first of `places` that knows it."""

    group: str
    places: tuple[Place, ...]
    unit: str
    note: str


LEVELS = (
    Level(
        "utilisation",
        METRICS["disk_busy"].places,
        "% busy",
        "the busiest disk, mean of each window; hosts that share a kernel show the same disks",
    ),
    Level(
        "dirty",
        (
            Place("cgroup_cpu", "dirty_kib", scale=1 / 1024),
            *METRICS["machine_dirty"].places,
        ),
        "MiB",
        "of the host's control group where that is known, else of the whole machine",
    ),
)


def strips(run: Run) -> list[dict[str, Any]]:
    """One strip each of CPU, collections, disk, dirty pages and network, with a series per host."""
    tables = run.file.dynamic_tables()
    if not tables or run.end_ns <= run.start_ns:
        return []
    nodes = {host: node for node, host in host_of_node(run.file).items()}
    hosts = list(dict.fromkeys(table.host for table in tables))
    edges = window_edges(run.start_ns, run.end_ns, WINDOW_NS)  # those of the load series
    made = _cpu(run, nodes, hosts, edges) + _cores(run, nodes, hosts, edges)
    made += _levels(run, nodes, hosts, edges)
    for flow in FLOWS:
        series = [
            one
            for table in tables
            if table.kind == flow.kind
            for one in [_flow(run, nodes, table, flow)]
            if one is not None
        ]
        if series:
            made.append(_strip(flow.group, flow.unit, flow.note, series))
    return made


def _levels(run: Run, nodes: dict[str, int], hosts: list[str], edges: Int) -> list[dict[str, Any]]:
    """Strips of what is not of the CPU and holds over a window."""
    axis = encode.axis(edges[:-1], run.start_ns)
    collections = {host: stop_share(run.file, host, "jvm_gc", edges) for host in hosts}
    shares = {host: 100 * share for host, share in collections.items() if share is not None}
    drawn = [("gc", "% of the window", "all threads of the host's JVMs stood still", shares)]
    for level in LEVELS:
        known = {host: first_of(run.file, host, level.places, edges) for host in hosts}
        found = {host: values for host, values in known.items() if values is not None}
        drawn.append((level.group, level.unit, level.note, found))
    return [
        _strip(
            group,
            unit,
            note,
            [_series(run, nodes, host, axis, encode.column(each, 10)) for host, each in by_host.items()],
        )
        for group, unit, note, by_host in drawn
        if any(np.nanmax(each) > SMALLEST for each in by_host.values())
    ]


def _cpu(run: Run, nodes: dict[str, int], hosts: list[str], edges: Int) -> list[dict[str, Any]]:
    by_unit: dict[str, list[dict[str, Any]]] = {}
    notes: dict[str, str] = {}
    for host in hosts:
        cpu = cpu_by_window(run.file, host, edges)
        if cpu is None or not np.isfinite(cpu.busy).any():
            continue
        unit = cpu.unit if cpu.unit != "%" else "% of all cores"
        notes[unit] = CPU_SOURCES.get(cpu.kind, cpu.kind)
        axis = encode.axis(edges[:-1], run.start_ns)
        by_unit.setdefault(unit, []).append(_series(run, nodes, host, axis, encode.column(cpu.busy, 10)))
    return [
        _strip("cpu", unit, f"{notes[unit]}, mean of each window", series) for unit, series in by_unit.items()
    ]


def _cores(run: Run, nodes: dict[str, int], hosts: list[str], edges: Int) -> list[dict[str, Any]]:
    """Each core of each host; of one with more than MOST_CORES the busiest and the idlest."""
    known = {host: found for host in hosts if (found := _each_core(run, host, edges))}
    if max(map(len, known.values()), default=0) < 2:
        return []  # the one core is the whole machine
    note = "mean of each window; hosts that share a kernel show the same cores"
    axis = encode.axis(edges[:-1], run.start_ns)
    series = [
        _series(run, nodes, host, axis, encode.column(busy, 10)) | {"label": f"{host}, {core}"}
        for host, cores in known.items()
        for core, busy in cores.items()
    ]
    return [_strip("cores", "% of the core", note, series)]


def _each_core(run: Run, host: str, edges: Int) -> dict[str, Float]:
    """Busy share (%) of each core of a host per window, by its name, from the best source that has it."""
    for kind in CORES:
        table = next((t for t in run.file.dynamic_tables() if (t.host, t.kind) == (host, kind)), None)
        if table is None:
            continue
        read = run.file.read_dynamic(table.table, ["begin_ns", "end_ns", "core", "busy_pct"])
        begin, end = tap_times(run.file, host, read["begin_ns"], read["end_ns"])
        names, place = np.unique(read["core"].astype(str), return_inverse=True)
        busy = read["busy_pct"].astype(np.float64)
        found: dict[str, Float] = {}
        for i, name in sorted(enumerate(names.tolist()), key=lambda one: (len(one[1]), one[1])):
            mean = resample(begin[place == i], end[place == i], busy[place == i], edges)
            if len(names) <= MOST_CORES:
                found[f"core {name}"] = mean
            else:  # all of them would take too much memory in a long run
                found["busiest core"] = np.fmax(found.get("busiest core", mean), mean)
                found["idlest core"] = np.fmin(found.get("idlest core", mean), mean)
        if any(np.isfinite(values).any() for values in found.values()):
            return found
    return {}


def _flow(run: Run, nodes: dict[str, int], table: DynamicTable, flow: Flow) -> dict[str, Any] | None:
    names = {column.name for column in table.columns}
    if not {"begin_ns", "end_ns", flow.key, *flow.columns} <= names:
        return None
    read = run.file.read_dynamic(table.table, ["begin_ns", "end_ns", flow.key, *flow.columns])
    begin, end = tap_times(
        run.file, table.host, read["begin_ns"].astype(np.int64), read["end_ns"].astype(np.int64)
    )
    amount = np.sum([read[column].astype(np.float64) for column in flow.columns], axis=0)
    usable = (begin >= 0) & np.isfinite(amount) & (end > run.start_ns) & (begin < run.end_ns)
    usable &= read[flow.key].astype(str) != LOOPBACK
    # A sample holds for the time that it covers, so it is drawn as a step from its begin.
    at, place = np.unique(begin[usable], return_inverse=True)
    total = np.bincount(place, weights=amount[usable], minlength=len(at))
    if not len(at) or total.max() <= SMALLEST:
        return None
    return _series(run, nodes, table.host, encode.axis(at, run.start_ns), encode.column(total * flow.factor))


def _series(
    run: Run, nodes: dict[str, int], host: str, x: dict[str, Any], y: dict[str, Any]
) -> dict[str, Any]:
    tier = run.tier_of_node(nodes[host]) if host in nodes else None
    return {"label": host, "role": "host", "colour": tier.colour if tier else 0, "x": x, "y": y}


def _strip(group: str, unit: str, note: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"{group}-{unit.partition(' ')[2].replace(' ', '-')}" if group == "cpu" else group,
        "group": group,
        "title": "Hosts",
        "note": note,
        "unit": unit,
        "colour": 0,
        "protocol": "",
        "series": sorted(series, key=lambda each: (each["colour"] or 99, each["label"])),
    }
