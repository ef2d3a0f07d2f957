"""Servers that stand still: SIGSTOP and SIGCONT at random moments, and the record of every pause of a run.

What a stopped server has in its sockets stays there, its peers go on sending, and its accept queue fills up:
to those who wait for it this is a stop-the-world collection, a stalled disk or a paused virtual machine.
"""

from __future__ import annotations

import contextlib
import csv
import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from .processes import Process

COLUMNS = ("begin_ns", "end_ns", "host", "cause")
# Unified JVM log: the line at the end of a collection that stopped all threads for milliseconds.
_COLLECTION = re.compile(
    r"^\[(\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3})\+0000\].*\[gc *\] GC\(\d+\) (Pause .*?) \d+M->.* (\d+\.\d+)ms$"
)


class Pause(NamedTuple):
    """One row of truth/pauses.csv. cause: `stop` (signals) or the collector's words."""

    begin_ns: int
    end_ns: int
    host: str
    cause: str


@dataclass(frozen=True)
class Plan:
    """Mean time between two stops (exponential), and the bounds of their length (uniform)."""

    every_s: float
    shortest_ms: int
    longest_ms: int
    seed: int


class Stops:
    """Stops processes from a thread of its own. Use as a context manager; on exit all of them run again."""

    def __init__(self, processes: dict[str, Process], plan: Plan) -> None:
        """processes: host -> its server."""
        self._processes = processes
        self._plan = plan
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stops", daemon=True)
        self.pauses: list[Pause] = []

    def __enter__(self) -> Stops:
        if self._processes:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._processes:
            self._thread.join()

    def _work(self) -> None:
        rng = random.Random(self._plan.seed)
        hosts = sorted(self._processes)
        while not self._over.wait(rng.expovariate(1 / self._plan.every_s)):
            host = rng.choice(hosts)
            length_s = rng.uniform(self._plan.shortest_ms, self._plan.longest_ms) / 1e3
            group = self._processes[host].handle.pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGSTOP)
                begin_ns = time.time_ns()
                try:
                    self._over.wait(length_s)
                finally:
                    # Before the signal: what goes on then may take this thread's processor.
                    end_ns = time.time_ns()
                    os.killpg(group, signal.SIGCONT)
                self.pauses.append(Pause(begin_ns, end_ns, host, "stop"))


def collections(gc_log: Path, host: str) -> Iterator[Pause]:
    """Pauses that a JVM logged: its stamps are those of the ends, to the millisecond."""
    with gc_log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = _COLLECTION.match(line.rstrip())
            if match is None:
                continue
            end = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
            end_ns = int(end.timestamp()) * 1_000_000_000 + end.microsecond * 1_000
            yield Pause(end_ns - int(float(match[3]) * 1e6), end_ns, host, match[2])


def write(pauses: list[Pause], path: Path) -> None:
    """Writes truth/pauses.csv, in order of time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(sorted(pauses))
