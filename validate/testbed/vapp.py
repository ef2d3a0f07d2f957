"""vApp: servers of our own whose requests take paths of any shape at random (vPath 4.1; sources in vapp/).

A request asks servers of the next tier as often as chance has it, and every answer tells where it has been:
ADDRESS:PORT, followed by what each call told, in parentheses. All requests look alike, so nothing but time,
or the threads, tells them apart. Servers are of both kinds that the rule of the same thread is made for: a
thread per connection, and a dispatcher with workers.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from tapscope.store.errors import TapscopeError

from . import lttng
from .pace import Pace, Step
from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server

PORT = 80
WORK_US = 10.0
"""CPU time of one unit of the option `work`, per step of a request."""

PAUSE_US = 500.0
WORKERS = 60

TIERS = {
    "web": ("web",),
    "app": ("mid1", "mid2"),
    "middle": ("back1", "back2", "back3"),
    "db": ("store",),
}
"""Hosts by the names that tiers have elsewhere; spans are noted by these."""


def program() -> Path:
    """The server. TapscopeError where it was not built."""
    path = Path(str(resources.files(__package__).joinpath("vapp", "vapp")))
    if not path.exists():
        raise TapscopeError(
            "vApp is not installed", path=path, remedy="Install tapscope on Linux; it is built there."
        )
    return path


class Vapp(Server):
    """One server. below: hosts of the tier that it asks; dispatcher: whether it has one."""

    title = "vApp"
    processes = "cvapp"
    notes_spans = True

    def __init__(self, host: str, below: tuple[str, ...] = (), *, dispatcher: bool = False) -> None:
        super().__init__(host)
        self.below = below
        self.dispatcher = dispatcher

    def prepare(self, paths: Paths) -> None:
        """Nothing is made, but it must be there."""
        program()

    def start(self, bench: Bench) -> None:
        """Starts the server and waits until it listens."""
        options = bench.options
        argv = [str(program()), f"{bench.hosts[self.host]}:{PORT}"]
        for host in self.below:
            argv += ["--below", f"{bench.hosts[host]}:{PORT}"]
        argv += ["--work", str(WORK_US * options.work), "--pause", str(PAUSE_US), "--go", "0.55"]
        argv += ["--seed", str(options.seed), "--threads", str(WORKERS)]
        argv += ["--dispatcher"] if self.dispatcher else []
        if options.record_spans:
            tier = next(name for name, hosts in TIERS.items() if self.host in hosts)
            argv += ["--service", tier, "--annotate", str(lttng.compiled(bench.paths, bench.scratch))]
        self.process = bench.launcher.start(self.host, f"vapp-{self.host}", argv)
        log = self.process.log
        wait_until(lambda: b"is ready" in log.read_bytes(), self.process, 15, self.title)


def servers(options: Any) -> list[Server]:
    """Four tiers, the last one first."""
    backs = ("back1", "back2", "back3")
    return [
        Vapp("store"),
        *(Vapp(host, ("store",), dispatcher=host == "back2") for host in backs),
        Vapp("mid1", backs, dispatcher=True),
        Vapp("mid2", backs),
        Vapp("web", ("mid1", "mid2")),
    ]


class Visitor(Pace):
    """Asks for the same thing again and again, and keeps what the answers tell."""

    keeps_answers = True

    def next_step(self) -> Step:
        """The one request there is."""
        return Step("random", "/")

    def followed(self, target: str) -> Step:
        """vApp sends nobody anywhere."""
        return self.next_step()
