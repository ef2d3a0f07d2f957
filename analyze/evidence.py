"""Series that speak of one node: what the tap saw of it, and what its host's logs say, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import Int, Stays, level, series
from tapscope.analyze.mechanisms import Evidence
from tapscope.analyze.pushback import NodeLoad
from tapscope.analyze.service_time import Float
from tapscope.hostmon.fuse import by_window, gc_share, host_of_node
from tapscope.store.runfile import RunFile

OTHER_CPU = ("sadf_cpu", "mpstat_cpu", "iostat_cpu", "vmstat")

FIRST_OF: dict[str, tuple[tuple[str, str], ...]] = {
    "cpu": (("cgroup_cpu", "busy_pct"),),
    "machine_cpu": (
        ("collectl_cpu", "busy_pct"),
        ("collectl_plot", "cpu_totl_pct"),
        *((kind, "busy_pct") for kind in OTHER_CPU),
    ),
    "steal": (
        ("collectl_cpu", "steal_pct"),
        ("collectl_plot", "cpu_steal_pct"),
        *((kind, "steal_pct") for kind in OTHER_CPU),
    ),
    "io_wait": (
        ("collectl_cpu", "wait_pct"),
        ("collectl_plot", "cpu_wait_pct"),
        *((kind, "wait_pct") for kind in OTHER_CPU),
    ),
    "disk_busy": (("collectl_disk", "busy_pct"), ("sadf_disk", "util_pct"), ("iostat_disk", "util_pct")),
    "speed_mhz": (("cpu_frequency", "mhz"),),
    "written": (("collectl_disk", "written_kib_per_s"),),
    "dirty": (("collectl_memory", "dirty"),),
}
"""Table and column of each series of a host, best first."""


class Logs:
    """Host logs of a run, on the windows between `edges_ns`; read when first asked for."""

    def __init__(self, run: RunFile, edges_ns: Int) -> None:
        self.edges_ns = edges_ns
        self.names = run.node_names()
        self._run = run
        self._host = host_of_node(run)
        self._known: dict[str, dict[str, Float | None]] = {}

    def of(self, node: int) -> dict[str, Float | None]:
        """Series of the node's host by field of Evidence; empty where no host log belongs to the node."""
        host = self._host.get(node)
        if host is None:
            return {}
        if host not in self._known:
            found: dict[str, Float | None] = {"gc": gc_share(self._run, host, self.edges_ns)}
            for name, places in FIRST_OF.items():
                found[name] = next(
                    (
                        values
                        for kind, column in places
                        if (values := by_window(self._run, host, kind, column, self.edges_ns)) is not None
                    ),
                    None,
                )
            self._known[host] = found
        return self._known[host]


def node_evidence(
    logs: Logs,
    calls: Mapping[str, NDArray[Any]],
    stay: Stays,
    connections: Mapping[str, NDArray[Any]],
    loads: list[NodeLoad],
    node: int,
    stalled: NDArray[np.bool_],
) -> Evidence:
    """Everything that is known of a node. `stalled` has one value per window of `logs.edges_ns`."""
    edges = logs.edges_ns
    here = (calls["server_node"] == node) & stay.arrived
    done = (calls["server_node"] == node) & stay.departed
    open_below, most_below = {}, {}
    for below in np.unique(calls["server_node"][calls["client_node"] == node]):
        made = (calls["client_node"] == node) & (calls["server_node"] == below) & stay.inside
        begin, end = np.sort(stay.begin_ns[made]), np.sort(stay.end_ns[made])
        name = logs.names[int(below)]
        open_below[name], _ = series(begin, end, edges)
        most_below[name] = int(level(begin, end, begin).max(initial=0))
    addresses = np.unique(connections["server_addr"][calls["conn"][here]])
    hit = np.isin(connections["server_addr"], addresses) & (connections["syn_retransmits"] > 0)
    return Evidence(
        own_load=next(one.own for one in loads if one.node == node),
        throughput=_count(stay.end_ns[done], edges),
        arrivals=_count(stay.begin_ns[here], edges),
        stalled=stalled,
        open_below=open_below,
        most_below=most_below,
        refused=_count(connections["syn_ns"][hit], edges).astype(np.int64),
        **logs.of(node),
    )


def _count(at_ns: Int, edges: Int) -> Float:
    return np.diff(np.searchsorted(np.sort(at_ns), edges)).astype(np.float64)
