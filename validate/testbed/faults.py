"""Faults at random moments: which kinds there are, the plan that a seed gives, and what was done.

A fault is asked for as KIND or KIND@HOST. The plan is made before the users begin, from nothing but the seed,
so that programs on the hosts can carry it out by themselves; the record says what was done when.
"""

from __future__ import annotations

import contextlib
import csv
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapscope.store.errors import ExitCode, TapscopeError

from . import injectors
from .injectors import Fault, Injector, Moment
from .mariadb import Database
from .options import Options
from .scenario import Bench, Scenario, Server
from .tomcat import Tomcat

COLUMNS = ("begin_ns", "end_ns", "host", "cause")
RECORD = Path("truth") / "faults.csv"


@dataclass(frozen=True)
class Kind:
    """A kind of fault. host: where it happens unless the user says otherwise; length_ms: bounds of its
    length.

    make: gives the injector for a host; None: nothing is injected at planned moments, the settings do it.
    settings: options without which the fault would hurt nobody. server: what must run on the host.
    """

    summary: str
    host: str
    length_ms: tuple[int, int]
    make: Callable[[str], Injector] | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    server: type[Server] = Server


KINDS: dict[str, Kind] = {
    "stop": Kind("SIGSTOP, and SIGCONT later", "app", (150, 600), injectors.Stop),
    "gc": Kind(
        "full collections of the serial collector in a small heap",
        "app",
        (0, 0),
        None,
        {"serial_gc": True, "heap_mib": 256, "ballast_mib": 64},
        Tomcat,
    ),
    "disk": Kind(
        "a burst of synchronous writes that fills the disk's queue",
        "db",
        (300, 900),
        injectors.SynchronousWrites,
        # Pages come from the disk then, as in a database that is larger than its memory.
        {"buffer_pool_mib": 12},
        Database,
    ),
    "cpu": Kind("processes that spin inside the host's control group", "db", (300, 900), injectors.Spin),
    "dirty": Kind("a storm of buffered writes, thrown away later", "app", (300, 900), injectors.DirtyPages),
    "overflow": Kind(
        "a crowd of connections at a short accept queue",
        "web",
        (150, 400),
        injectors.Crowd,
        {"keep_alive": False, "backlog": 8, "apache_threads": 50},
    ),
    "pool": Kind(
        "slow statements in the connections of a small pool",
        "app",
        (300, 900),
        injectors.SlowStatements,
        {"pool_size": 4},
        Tomcat,
    ),
    "neighbour": Kind(
        "processes that spin in a heavier control group beside it", "app", (300, 900), injectors.Neighbour
    ),
    "clock": Kind("a CPU quota for a while, as a lower clock speed", "db", (300, 900), injectors.Clock),
    "lock": Kind("a table locked for writing", "db", (200, 600), injectors.TableLock, server=Database),
    "none": Kind("nothing", "", (0, 0), None),
}


def split(spec: str) -> tuple[str, str]:
    """Kind and host of KIND[@HOST]. Raises TapscopeError for a kind that there is not."""
    kind, _, host = spec.partition("@")
    if kind not in KINDS:
        raise TapscopeError(
            f"there is no kind of fault {kind!r}",
            remedy=f"Name one of: {', '.join(KINDS)}; or KIND@HOST.",
            exit_code=ExitCode.USAGE,
        )
    return kind, host or KINDS[kind].host


def options(scenario: Scenario, **given: Any) -> Options:
    """Options of a run of the scenario with what its faults need; what is given goes before both."""
    told = Options(**{**scenario.defaults, **given})
    needed: dict[str, Any] = {}
    for spec in told.fault:
        kind, _ = split(spec)
        needed |= KINDS[kind].settings
        if kind == "gc":
            needed["collect_every_s"] = told.fault_every_s
    return scenario.options(**{**needed, **given})


def check(specs: Sequence[str], servers: Sequence[Server]) -> None:
    """Raises TapscopeError for a fault whose host has no server that it could hit."""
    for spec in specs:
        kind, host = split(spec)
        fitting = [one.host for one in servers if isinstance(one, KINDS[kind].server)]
        if kind != "none" and host not in fitting:
            what = f"no server on host {host!r} that could be hit by {kind!r}"
            raise TapscopeError(
                f"there is {what}",
                remedy=f"Name one of: {', '.join(f'{kind}@{one}' for one in fitting) or 'another kind'}.",
                exit_code=ExitCode.USAGE,
            )


def plan(settings: Options, begin_ns: int, end_ns: int) -> list[Moment]:
    """Faults between two times, none beside another.

    Half of `fault_every_s` at least lies between two of them, an exponential time of the same mean is added:
    what one fault leaves behind is over when the next begins. All kinds are equally frequent: they come in
    turns, each turn in a new order.
    """
    rng = random.Random(settings.seed)
    specs = [split(spec) for spec in settings.fault]
    specs = [(kind, host) for kind, host in specs if KINDS[kind].make is not None]
    made: list[Moment] = []
    at, turn = begin_ns, list(specs)
    rng.shuffle(turn)
    while specs:
        at += int(settings.fault_every_s * 0.5e9 * (1 + rng.expovariate(1)))
        kind, host = turn.pop()
        length_ns = int(rng.uniform(*(settings.fault_ms or KINDS[kind].length_ms)) * 1e6)
        if at + length_ns > end_ns:
            break
        made.append(Moment(at, length_ns, kind, host))
        at += length_ns
        if not turn:
            turn = list(specs)
            rng.shuffle(turn)
    return made


class Faults:
    """Carries a plan out, from a thread of its own. Use as a context manager; on exit all is as it was."""

    def __init__(self, planned: Sequence[Moment], bench: Bench, servers: Sequence[Server]) -> None:
        self._plan = planned
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="faults", daemon=True)
        self._injectors: dict[tuple[str, str], Injector] = {}
        for kind, host in sorted({(moment.kind, moment.host) for moment in planned}):
            make = KINDS[kind].make
            assert make is not None
            injector = self._injectors[kind, host] = make(host)
            injector.start(bench, servers, [m for m in planned if (m.kind, m.host) == (kind, host)])

    def __enter__(self) -> Faults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def done(self) -> list[Fault]:
        """What was done. After exit."""
        return [fault for injector in self._injectors.values() for fault in injector.record()]

    def _work(self) -> None:
        for moment in self._plan:
            if self._over.wait(max(0.0, (moment.begin_ns - time.time_ns()) / 1e9)):
                return
            # A server that has gone meanwhile is the run's error, not this thread's.
            with contextlib.suppress(ProcessLookupError):
                self._injectors[moment.kind, moment.host].cause(moment, self._over)


def write(record: Sequence[Fault], path: Path) -> None:
    """Writes truth/faults.csv, in order of time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(sorted(record))
