"""Calls, parents and paths by thread logs alone: tables for people and for other programs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads import messages, parents
from tapscope.reconstruct.threads.log import ThreadLogs
from tapscope.reconstruct.threads.messages import LoggedCalls
from tapscope.reconstruct.threads.parents import Parents, Sides, Why
from tapscope.reconstruct.threads.sides import sides
from tapscope.reconstruct.threads.streams import is_server
from tapscope.validate.edges import roots

Ints = NDArray[np.int64]

COLUMNS = (
    "call",
    "parent",
    "root",
    "why",
    "begin_ns",
    "end_ns",
    "client",
    "client_port",
    "server",
    "server_port",
    "client_thread",
    "server_thread",
)


@dataclass
class LoggedPaths:
    """Calls of thread logs with their parents; `summary` has the figures by name."""

    calls: LoggedCalls
    sides: Sides
    told: Parents
    logs: ThreadLogs
    summary: dict[str, int]

    @property
    def refused(self) -> list[str]:
        """One sentence per process that was refused."""
        return self.told.refused

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"summary": self.summary, "refused": self.refused}


def paths(logs: ThreadLogs) -> LoggedPaths:
    """Calls of the logs and their parents."""
    calls = messages.calls(logs)
    both = sides(calls.ranges, logs)
    told = parents.find(both, logs)
    top = roots(told.parent)
    figures = {
        "processes": len(logs.processes),
        "calls": len(top),
        "calls with a parent": int((told.parent >= 0).sum()),
        "paths": len(np.unique(top)),
    }
    counters = {**logs.counters, **calls.counters, **told.counters}
    found = {name: value for name, value in sorted(counters.items()) if value}
    return LoggedPaths(calls, both, told, logs, figures | found)


def write(found: LoggedPaths, path: Path) -> None:
    """One row per call, in order of time. call, parent, root: numbers of rows, parent empty where there is
    none; why: name of Why; threads: process id and thread id, empty where not logged."""
    logs, calls = found.logs, found.calls
    table = logs.connections
    row = calls.seen_at
    serving = is_server(logs)[row]
    ends = {
        name: np.where(serving == mirrored, table[a][row], table[b][row]).tolist()
        for name, mirrored, a, b in (
            ("client", True, "peer", "own"),
            ("client_port", True, "peer_port", "own_port"),
            ("server", True, "own", "peer"),
            ("server_port", True, "own_port", "peer_port"),
        )
    }
    top = roots(found.told.parent).tolist()
    with path.open("w", newline="", encoding="ascii") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for number, parent in enumerate(found.told.parent.tolist()):
            out.writerow(
                (
                    number,
                    parent if parent >= 0 else "",
                    top[number],
                    Why(int(found.told.why[number])).name.lower(),
                    int(calls.begin_ns[number]),
                    int(calls.end_ns[number]),
                    logs.addresses[ends["client"][number]],
                    ends["client_port"][number],
                    logs.addresses[ends["server"][number]],
                    ends["server_port"][number],
                    _thread(logs, int(found.sides.sent_thread[number])),
                    _thread(logs, int(found.sides.reply_thread[number])),
                )
            )


def _thread(logs: ThreadLogs, thread: int) -> str:
    return "" if thread < 0 else f"{logs.processes[thread >> 32].pid}/{thread & 0xFFFFFFFF}"
