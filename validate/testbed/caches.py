"""Redis and memcached: stores in memory, which an application asks beside its database."""

from __future__ import annotations

import signal
from typing import Any

from .packages import Paths
from .postgres import as_nobody, open_to_nobody
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt, call

REDIS_PORT = 6379
MEMCACHED_PORT = 11211


class _Store(Server):
    """One program that listens at one port."""

    port = 0

    def command(self, bench: Bench) -> list[str]:
        """Command line."""
        raise NotImplementedError

    def start(self, bench: Bench) -> None:
        """Starts the program and waits until it listens."""
        argv = as_nobody(*self.command(bench))
        self.process = bench.launcher.start(self.host, f"{self.host}-server", argv)
        listening = bench.launcher.network.inside(
            self.host, bench.paths.program("ss"), "-Hltn", f"sport = :{self.port}"
        )
        wait_until(lambda: str(self.port) in attempt(listening).stdout, self.process, 15, self.title)

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Ends the program; it keeps nothing."""
        if self.process is not None:
            self.process.stop(signal.SIGTERM)
        return {}


class Redis(_Store):
    """Redis, without persistence."""

    title = "Redis"
    processes = "credis-server"
    port = REDIS_PORT

    def command(self, bench: Bench) -> list[str]:
        """Command line."""
        return [
            *(
                bench.paths.program("redis-server"),
                "--bind",
                bench.hosts[self.host],
                "--port",
                str(self.port),
            ),
            *("--dir", str(open_to_nobody(bench, self.host)), "--protected-mode", "no"),
            *("--save", "", "--appendonly", "no"),
        ]

    def versions(self, paths: Paths) -> dict[str, str]:
        """Redis's version line."""
        return {"redis": call([paths.program("redis-server"), "--version"]).strip()}


class Memcached(_Store):
    """memcached over TCP."""

    title = "memcached"
    processes = "cmemcached"
    port = MEMCACHED_PORT

    def command(self, bench: Bench) -> list[str]:
        """Command line."""
        return [
            *(bench.paths.program("memcached"), "-l", bench.hosts[self.host], "-p", str(self.port)),
            *("-U", "0", "-m", "64", "-c", "1024", "-t", "2"),
        ]

    def versions(self, paths: Paths) -> dict[str, str]:
        """memcached's version line."""
        return {"memcached": call([paths.program("memcached"), "--version"]).strip()}
