"""What else ran on a testbed's machine: processors used by none of its hosts, from control-group accounting.

A machine that is used by others disturbs the servers for real, and findings of such a disturbance are no
mistakes. They are told apart by the accounting of the whole machine beside that of the hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapscope.hostmon.load import read_host_log
from tapscope.hostmon.samples import Float, Int

BIN_NS = 250_000_000
"""Resolution. Shorter ones would hold too few samples to subtract."""

DISTURBED = 0.25
"""Share of the machine's processors from which others disturb."""


class Outside(NamedTuple):
    """Processors used by others, per bin between neighbouring edges; of `cpus` that there are."""

    edges_ns: Int
    cores: Float
    cpus: int

    @property
    def disturbed(self) -> NDArray[np.bool_]:
        """Bins in which others used so much that servers may have felt it."""
        return self.cores >= DISTURBED * self.cpus

    def during(self, begin_ns: int, end_ns: int) -> bool:
        """Whether any bin from one before begin_ns up to end_ns was disturbed."""
        first = int(np.searchsorted(self.edges_ns, begin_ns - BIN_NS, side="right")) - 1
        last = int(np.searchsorted(self.edges_ns, end_ns, side="left"))
        return bool(self.disturbed[max(first, 0) : last].any())


def read(folder: Path, begin_ns: int, end_ns: int, cpus: int) -> Outside | None:
    """Use of the machine by others, from a run directory; None when it has no such record."""
    machine = folder / "truth" / "machine.csv"
    hosts = sorted((folder / "hosts").glob("*/cgroup_cpu.csv"))
    if not machine.exists() or not hosts or end_ns - begin_ns < BIN_NS:
        return None
    edges = np.arange(begin_ns, end_ns + 1, BIN_NS, dtype=np.int64)
    cores = _cores(machine, edges) - np.sum([_cores(path, edges) for path in hosts], axis=0)
    return Outside(edges, np.maximum(cores, 0.0), cpus)


def quiet_ns(outside: Outside, busy: Sequence[tuple[int, int]]) -> int:
    """Time of undisturbed bins that touch none of the stretches [begin, end)."""
    free = ~outside.disturbed
    for begin, end in busy:
        free &= (outside.edges_ns[1:] <= begin) | (outside.edges_ns[:-1] >= end)
    return int(free.sum()) * BIN_NS


def _cores(path: Path, edges: Int) -> Float:
    """Processors used between the edges, from the counter itself: no sample is smeared over a bin."""
    [table] = read_host_log(path).tables
    at, used = table.columns["end_ns"], table.columns["usage_ns"].astype(np.float64)
    return np.diff(np.interp(edges, at, used)) / np.diff(edges)
