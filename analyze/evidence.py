"""Series that speak of one node: what the tap saw of it, and what its host's logs say, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.calls import Read
from tapscope.analyze.inside import Int, mean_inside
from tapscope.analyze.metrics import METRICS, Place, usual
from tapscope.analyze.pushback import NodeLoad
from tapscope.analyze.service_time import Float
from tapscope.analyze.tcp import syns_to, syns_without_answer
from tapscope.hostmon.fuse import by_window, host_of_node, stop_share, stops
from tapscope.store.runfile import RunFile

HALF_A_CALL = 0.5
"""A window in which all but half a call of the most that ever were open were open shows a limit."""


PAUSES = {"gc": "jvm_gc", "safepoint": "jvm_safepoint"}
"""Metrics of which a log has every pause with its times, by the kind of the log."""


@dataclass(frozen=True)
class Evidence:
    """Of one node, one value per window. `series` has the metrics of METRICS that the run has."""

    own_load: Float
    throughput: Float
    series: dict[str, Float] = field(default_factory=dict)
    most_below: dict[str, int] = field(default_factory=dict)
    """By name of a called node: the most calls that were ever open to it at once."""


class Logs:
    """Host logs of a run, on the windows between `edges_ns`; read when first asked for."""

    def __init__(self, run: RunFile, edges_ns: Int) -> None:
        self.edges_ns = edges_ns
        self.names = run.node_names()
        self._run = run
        self._host = host_of_node(run)
        self._known: dict[str, dict[str, Float]] = {}

    def of(self, node: int) -> dict[str, Float]:
        """Metrics of the node's host; empty where no host log belongs to the node."""
        host = self._host.get(node)
        if host is None:
            return {}
        if host not in self._known:
            self._known[host] = self._read(host)
        return self._known[host]

    def processors(self, node: int) -> int:
        """Of the machine of a node's host, as its logs tell; 0 where they do not."""
        host = self._host.get(node)
        told = (one.get("cpus", 0) for one in self._run.sources() if one.get("host") == host)
        return max((int(cpus) for cpus in told), default=0) if host is not None else 0

    def elsewhere(self, node: int, name: str) -> dict[str, Float]:
        """The same metric of the hosts of other nodes, by name of the host."""
        own = self._host.get(node)
        others = {host: self.of(other) for other, host in self._host.items() if host != own}
        return {host: known[name] for host, known in others.items() if name in known}

    def longest_pause(self, node: int, name: str, first_ns: int, last_ns: int) -> tuple[int, int] | None:
        """Begin and end of the longest pause of a metric of PAUSES that the log has between two times."""
        host = self._host.get(node)
        pauses = None if host is None else stops(self._run, host, PAUSES[name])
        if pauses is None:
            return None
        begin, end = pauses
        near = np.flatnonzero((end > first_ns) & (begin < last_ns))
        if not len(near):
            return None
        longest = near[np.argmax((end - begin)[near])]
        return int(begin[longest]), int(end[longest])

    def _read(self, host: str) -> dict[str, Float]:
        found: dict[str, Float] = {}
        for name, metric in METRICS.items():
            values = first_of(self._run, host, metric.places, self.edges_ns)
            if values is not None:
                found[name] = values if metric.change is None else metric.change(values)
        gc = stop_share(self._run, host, PAUSES["gc"], self.edges_ns)
        stopped = stop_share(self._run, host, PAUSES["safepoint"], self.edges_ns)
        if gc is not None:
            found["gc"] = 100 * gc
        if stopped is not None:
            # A collection is a safepoint, too.
            found["safepoint"] = 100 * np.maximum(stopped - (0.0 if gc is None else gc), 0.0)
        return found


def first_of(run: RunFile, host: str, places: tuple[Place, ...], edges_ns: Int) -> Float | None:
    """Mean per window of the first of these places that the host has; None without any."""
    for place in places:
        values = by_window(
            run, host, place.kind, place.column, edges_ns, dict(place.where), place.of, place.total
        )
        if values is not None and np.isfinite(values).any():
            return values * place.scale
    return None


def node_evidence(
    logs: Logs,
    read: Read,
    loads: list[NodeLoad],
    node: int,
    states: Mapping[str, NDArray[np.bool_]],
) -> Evidence:
    """Everything that is known of a node.

    `states` says for every window of `logs.edges_ns` whether the node was "stalled" and whether it was full
    but "slow".
    """
    calls, connections, stay = read.calls, read.connections, read.stay
    edges = logs.edges_ns
    at = read.at(node)
    found = dict(logs.of(node))
    most_below, waiting, pool = {}, np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for below, made in read.made(node).items():
        most = int(made.met.max(initial=0))
        opened = made.mean(edges)
        waiting += opened
        if most >= 2:
            most_below[logs.names[below]] = most
            pool = np.maximum(pool, np.minimum(opened / (most - HALF_A_CALL), 1.0))
    if most_below:
        found["pool"] = pool
        found["waiting"] = waiting
    found["arrivals"] = _count(at.begin_ns, edges) + _count(read.unknown_end(node), edges)
    for name, windows in states.items():
        found[name] = windows.astype(np.float64)
    addresses = read.addresses(node)
    dropped = syns_without_answer(connections)
    hit = dropped[np.isin(connections["server_addr"][dropped], addresses)]
    found["refused"] = _count(connections["syn_ns"][hit], edges)
    found["attempts"] = _count(connections["syn_ns"][syns_to(connections, addresses)], edges)
    again = read.resent
    again = again[(calls["server_node"][again] == node) | (calls["client_node"][again] == node)]
    found["resent"] = mean_inside(stay.begin_ns[again], stay.end_ns[again], edges)
    _shared(found, logs.processors(node))
    return Evidence(
        own_load=next(one.own for one in loads if one.node == node),
        throughput=_count(at.inside.end_ns[at.departed[at.by_end]], edges),
        series=found,
        most_below=most_below,
    )


def _shared(found: dict[str, Float], processors: int) -> None:
    """Use of a busy CPU told apart: whether the node itself used more, or wanted to and others did."""
    machine, own = found.get("machine_cpu"), found.get("own_cpu")
    if own is None:
        if machine is not None:
            found["saturated"] = _busy(machine)
        return
    up = METRICS["own_cpu"].beyond(own, METRICS["own_cpu"].limit(*usual(own, np.isfinite(own))))
    if machine is not None:
        busy = _busy(machine)
        itself = up & rose_most(own, machine, processors)
        unknown = np.isnan(busy)
        found["saturated"] = np.where(itself | unknown, busy, 0.0)
        found["crowded"] = np.where(itself & ~unknown, 0.0, busy)
    if "cpu_pressure" in found:
        found["starved"] = np.where(up, 0.0, found["cpu_pressure"])


def _busy(machine: Float) -> Float:
    """The use of a machine that is busy, else 0; NaN where no log knows."""
    return np.where(machine < METRICS["machine_cpu"].full, 0.0, machine)


def rose_most(own: Float, machine: Float, processors: int) -> NDArray[np.bool_]:
    """In which windows a node's own use of the CPU (% of a core) is above its usual by at least as much as
    what else uses the machine (%); in all of them where nobody knows how many processors there are."""
    if not processors:
        return np.ones(len(own), dtype=np.bool_)
    rest = machine * processors - own
    risen = [values - usual(values, np.isfinite(values))[0] for values in (own, rest)]
    return np.asarray(risen[0] >= risen[1])


def _count(at_ns: Int, edges: Int) -> Float:
    """How many of these times, which are in order, lie in each window."""
    return np.diff(np.searchsorted(at_ns, edges)).astype(np.float64)
