"""Do a run's host logs fit the run: are they of its time, and of hosts that are nodes of it?

A log of another day, or one whose times were read in the wrong zone, says nothing about the run; nor does the
log of a host that no node goes by. Neither is an error, and both look like a host on which nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from tapscope.hostmon.clock_layer import tap_times
from tapscope.hostmon.fuse import host_of_node, manifest_hosts
from tapscope.store.runfile import RunFile

ZONE_STEP_NS = 900 * 1_000_000_000
"""Time zones differ by quarters of an hour,"""

FURTHEST_ZONE = 26 * 4
"""and by 26 hours at most."""

NAMED = 6
"""Files, hosts or nodes that a message lists."""


@dataclass(frozen=True)
class Misfit:
    """What does not fit: logs (file names) that are not of the run's time, or hosts that are no nodes."""

    of: tuple[str, ...]
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.names}: {self.what}. {self.remedy}"

    @property
    def names(self) -> str:
        """The first of them, and how many more."""
        return _listed(self.of)


def misfits(run: RunFile) -> list[Misfit]:
    """Everything about the run's host logs that keeps them from saying anything about it."""
    logs = [source for source in run.sources() if source["kind"] == "host"]
    if not logs:
        return []
    return [*_of_another_time(run, logs), *_of_no_node(run, logs)]


def _of_another_time(run: RunFile, logs: list[dict[str, Any]]) -> list[Misfit]:
    whole = [
        (source["first_ns"], source["last_ns"])
        for source in run.sources()
        if source["kind"] not in ("host", "events") and source["first_ns"] >= 0
    ]
    if not whole:
        return []
    begin, end = min(first for first, _ in whole), max(last for _, last in whole)
    found: dict[tuple[str, str], list[str]] = {}
    for log in logs:
        stored = np.array([log["first_ns"], log["last_ns"]], dtype=np.int64)
        (times,) = tap_times(run, str(log["host"]), stored)
        first, last = times.tolist()
        if first <= end and last >= begin:
            continue
        away = duration(begin - last) if last < begin else duration(first - end)
        what = f"samples end {away} before the run begins"
        if last >= begin:
            what = f"samples begin {away} after the run ends"
        zone = _zone(begin, end, first, last)
        remedy = (
            f"With times {zone} h they would be of the run: does --zone tell the log's time zone?"
            if zone
            else "They say nothing about this run."
        )
        found.setdefault((what, remedy), []).append(f"{log['host']}/{PurePath(str(log['path'])).name}")
    return [Misfit(tuple(files), *words) for words, files in found.items()]


def _zone(begin: int, end: int, first: int, last: int) -> str:
    """By how many hours a log would have to be shifted to lie in the run as far as it can; '' where no time
    zone explains that."""
    steps = np.arange(-FURTHEST_ZONE, FURTHEST_ZONE + 1) * ZONE_STEP_NS
    overlap = np.minimum(end, last + steps) - np.maximum(begin, first + steps)
    best = int(np.argmax(overlap))
    if overlap[best] * 2 < min(end - begin, last - first) or overlap[best] <= 0:
        return ""
    return f"{steps[best] / 3.6e12:+g}"


def _of_no_node(run: RunFile, logs: list[dict[str, Any]]) -> list[Misfit]:
    known = set(host_of_node(run).values()) | set(manifest_hosts(run.meta("manifest", {})))
    strangers = sorted({str(log["host"]) for log in logs} - known)
    nodes = run.node_names()
    if not strangers or not nodes:
        return []
    remedy = f"Load the logs with --host and a name of these: {_listed(nodes)}."
    return [Misfit(tuple(strangers), "no node of the run goes by this host's name or address", remedy)]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def duration(ns: int) -> str:
    """A length of time in its largest units: 3 d 2 h, 2 h 5 min, 40 s."""
    seconds = ns // 1_000_000_000
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min")]
    parts.append((seconds % 60, "s"))
    kept = [f"{value} {unit}" for value, unit in parts if value][:2]
    return " ".join(kept) or "less than a second"
