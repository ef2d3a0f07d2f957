"""Injectors: what causes a fault of one kind at one host, and undoes it.

Some act from the testbed's own process (signals, control groups, a lock in the database). Others are programs
on a host (burdens.py) that get the plan before the users begin and keep a record of their own. All of it is
gone with the run: processes with the namespaces, files with the scratch folder, limits with the groups.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tapscope.store.errors import TapscopeError

from .cgroups import NEIGHBOUR
from .mariadb import DATABASE, Database
from .processes import Process
from .scenario import Bench, Server


class Moment(NamedTuple):
    """A planned fault."""

    begin_ns: int
    length_ns: int
    kind: str
    host: str


class Fault(NamedTuple):
    """One row of truth/faults.csv. cause: the kind of fault, or a collector's words from a JVM's log."""

    begin_ns: int
    end_ns: int
    host: str
    cause: str


class Injector:
    """Causes faults at one host. A kind overrides begin and end, or more."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._done: list[Fault] = []

    def start(self, bench: Bench, servers: Sequence[Server], moments: Sequence[Moment]) -> None:
        """Makes ready, before the users begin."""

    def begin(self) -> None:
        """The fault begins."""

    def end(self) -> None:
        """The fault ends; what begin changed is as before."""

    def cause(self, moment: Moment, over: threading.Event) -> None:
        """One fault, ended sooner when the run is over."""
        self.begin()
        begin_ns = time.time_ns()
        try:
            over.wait(moment.length_ns / 1e9)
        finally:
            # Before the end: what goes on then may take this thread's processor.
            end_ns = time.time_ns()
            self.end()
        self._done.append(Fault(begin_ns, end_ns, moment.host, moment.kind))

    def record(self) -> list[Fault]:
        """Faults that were caused."""
        return self._done


_STANDS_WITHIN_S = 0.5
"""Seconds that a process group is waited for. It mostly takes milliseconds to stop; but who waits for a child
that is stopped before it has begun its program (vfork) never does."""


def _stands(group: int) -> bool:
    """Whether all threads of a process group are stopped, or dead."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != group:
                continue
        except ProcessLookupError:
            continue
        try:
            states = {stat.read_text().rpartition(")")[2].split()[0] for stat in process.glob("task/*/stat")}
        except OSError:  # a thread has ended meanwhile: others may run
            return False
        if not states <= set("TtZX"):
            return False
    return True


class Stop(Injector):
    """SIGSTOP to a server, SIGCONT later.

    What a stopped server has in its sockets stays there, its peers go on sending, and its accept queue fills
    up: to those who wait for it this is a stop-the-world collection or a paused virtual machine.
    """

    def start(self, bench: Bench, servers: Sequence[Server], moments: Sequence[Moment]) -> None:
        """Finds the server's process group."""
        [process] = [one.process for one in servers if one.host == self.host and one.process is not None]
        self._group = process.handle.pid

    def begin(self) -> None:
        """Stops it."""
        os.killpg(self._group, signal.SIGSTOP)
        # A thread that waits for a processor inside a system call finishes the call first, and may send so.
        patience = time.monotonic() + _STANDS_WITHIN_S
        while not _stands(self._group) and time.monotonic() < patience:
            time.sleep(0.001)

    def end(self) -> None:
        """Lets it go on."""
        os.killpg(self._group, signal.SIGCONT)


class Clock(Injector):
    """A CPU quota in short periods: the host gets on as slowly as with a lower clock.

    The kernel accounts for it as throttling (nr_throttled), not as a frequency.
    """

    CPUS = 0.1
    """Half of what MariaDB uses under a hundred users that ask once a second."""

    def start(self, bench: Bench, servers: Sequence[Server], moments: Sequence[Moment]) -> None:
        """Needs a control group with the cpu controller."""
        self._groups = bench.launcher.groups
        self._usual = bench.options.cpu_quota.get(self.host)
        if not self._groups.limits_cpu():
            raise TapscopeError(
                "no CPU quota can be set here, so that there is no fault of kind 'clock'",
                remedy="Mount the cpu controller of the control groups.",
            )

    def begin(self) -> None:
        """Lowers the quota."""
        self._groups.set_quota(self.host, self.CPUS, 10_000)

    def end(self) -> None:
        """Sets the configured one, or none."""
        self._groups.set_quota(self.host, self._usual)


class TableLock(Injector):
    """LOCK TABLES ... WRITE over the local socket: whoever reads the table waits, and no CPU is used."""

    TABLE = "stories"

    def start(self, bench: Bench, servers: Sequence[Server], moments: Sequence[Moment]) -> None:
        """Finds the database server."""
        [self._database] = [one for one in servers if isinstance(one, Database) and one.host == self.host]

    def cause(self, moment: Moment, over: threading.Event) -> None:
        """Holds the lock; the times are the database's, after it got the lock and before it gave it up."""
        now = "SELECT CAST(1000000 * UNIX_TIMESTAMP(SYSDATE(6)) AS UNSIGNED);"
        told = self._database.run(
            f"LOCK TABLES {DATABASE}.{self.TABLE} WRITE; {now}"
            f" DO SLEEP({moment.length_ns / 1e9:.6f}); {now} UNLOCK TABLES"
        )
        begin_us, end_us = (int(line) for line in told.splitlines() if line.isdigit())
        self._done.append(Fault(begin_us * 1000, end_us * 1000, moment.host, moment.kind))


class Burden(Injector):
    """A program on a host that carries out the plan by itself (burdens.py)."""

    program = ""
    settings: dict[str, Any] = {}  # noqa: RUF012 (constants of a kind)

    def start(self, bench: Bench, servers: Sequence[Server], moments: Sequence[Moment]) -> None:
        """Starts the program; it sleeps until the first moment."""
        name = f"burden-{self.program}-{self.host}"
        folder = bench.base(name)
        self._record = folder / "record.csv"
        self._kind = moments[0].kind
        config = {
            "program": self.program,
            "moments": [(moment.begin_ns, moment.length_ns) for moment in moments],
            "record": str(self._record),
            "folder": str(folder),
            **self.settings,
            **self.where(bench, servers),
        }
        file = folder / "config.json"
        file.write_text(json.dumps(config))
        self._process = self._launched(bench, name, file)

    def where(self, bench: Bench, servers: Sequence[Server]) -> dict[str, Any]:
        """What else the program must know."""
        return {}

    def _launched(self, bench: Bench, name: str, file: Path) -> Process:
        argv = [sys.executable, "-m", f"{__package__}.burdens", str(file)]
        env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        return bench.launcher.start(self.place(), name, argv, env, group=self.group())

    def place(self) -> str:
        """Host on which the program runs."""
        return self.host

    def group(self) -> str:
        """Host whose control group it joins."""
        return self.place()

    def cause(self, moment: Moment, over: threading.Event) -> None:
        """The program does."""

    def record(self) -> list[Fault]:
        """What the program says it did."""
        if self._process.ended() and self._process.handle.returncode != 0:
            raise TapscopeError(
                f"the program for {self._kind!r} failed: {self._process.tail()}", path=self._process.log
            )
        if not self._record.exists():
            return []
        with self._record.open(newline="", encoding="utf-8") as file:
            return [Fault(int(begin), int(end), self.host, self._kind) for begin, end in csv.reader(file)]


class Spin(Burden):
    """Processes that do nothing but use the processor, as many as make a server among them wait."""

    program = "spin"
    settings = {"workers": 32}  # noqa: RUF012


class Neighbour(Spin):
    """Spinning processes in another control group, beside which the host's own weighs next to nothing.

    To the host this is a virtual machine whose neighbour on the same processors is given them first; hosts of
    the usual weight go on.
    """

    settings = {"workers": 8}  # noqa: RUF012

    def start(self, bench: Bench, servers: Sequence[Server], moments: Sequence[Moment]) -> None:
        """Starts the program in the neighbour's group."""
        self._groups = bench.launcher.groups
        if not self._groups.limits_cpu():
            raise TapscopeError(
                "no CPU weight can be set here, so that there is no fault of kind 'neighbour'",
                remedy="Mount the cpu controller of the control groups.",
            )
        super().start(bench, servers, moments)

    def place(self) -> str:
        """A namespace that is no host's, so that no log of a host lists the processes."""
        return "tap"

    def group(self) -> str:
        """The neighbour's."""
        return NEIGHBOUR

    def begin(self) -> None:
        """The host becomes light."""
        self._groups.set_weight(self.host, 0.01)

    def end(self) -> None:
        """And as heavy as before."""
        self._groups.set_weight(self.host, 1.0)

    def cause(self, moment: Moment, over: threading.Event) -> None:
        """The weight is set from here; the program spins at the same moments."""
        Injector.cause(self, moment, over)

    def record(self) -> list[Fault]:
        """Times of the weight; the program only has to have lived."""
        super().record()
        return self._done


class DirtyPages(Burden):
    """Buffered writes by many processes: the kernel's work for dirty pages takes the host's processors."""

    program = "dirty"
    settings = {"workers": 64, "block_kib": 1024, "most_mib": 1536}  # noqa: RUF012


class SynchronousWrites(Burden):
    """Writes that go to the disk at once, by so many processes that its queue is full."""

    program = "write"
    settings = {"workers": 96, "block_kib": 4096, "most_mib": 8192}  # noqa: RUF012


class Crowd(Burden):
    """A crowd that connects all at once from the clients' host and asks for one page each."""

    program = "crowd"
    settings = {"workers": 200, "target": "/board/front", "insist": False}  # noqa: RUF012

    def place(self) -> str:
        """Where the users are."""
        return "client"

    def where(self, bench: Bench, servers: Sequence[Server]) -> dict[str, Any]:
        """The address they go to."""
        return {"address": bench.hosts[bench.entry[0]], "port": bench.entry[1]}


class SlowStatements(Crowd):
    """Four times as many visitors as the pool has connections, who ask again and again for a slow statement.

    Every connection is in use then, and the database goes on answering: what waits, waits for a connection.
    """

    def where(self, bench: Bench, servers: Sequence[Server]) -> dict[str, Any]:
        """Visitors by the size of the pool."""
        workers = 4 * bench.options.pool_size
        return {
            **super().where(bench, servers),
            "workers": workers,
            "target": "/board/report?ms=80",
            "insist": True,
        }
