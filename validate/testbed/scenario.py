"""What a run is made of, declared: hosts, servers, who asks, and how the truth is found.

A scenario names its hosts and, in the order in which they start, its servers. A server is one program on one
host; it gets the bench (options, hosts, folders) and writes its own configuration. What the truth needs to
know about the wire stands here as well: which port speaks which protocol, and per protocol the rule that
names the transaction of a message that carries no request id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .options import Options
from .packages import Paths
from .pcapfile import Capture
from .processes import Launcher, Process
from .truth import Holder


@dataclass
class Bench:
    """What the servers of one run share. out: the run directory; scratch: gone after the run; entry: host and
    port that the users ask."""

    options: Options
    paths: Paths
    launcher: Launcher
    out: Path
    scratch: Path
    entry: tuple[str, int]

    @property
    def hosts(self) -> dict[str, str]:
        """Host name -> address."""
        return self.launcher.network.hosts

    def events(self, server: str) -> Path:
        """Folder of a server's event monitor; made when asked for."""
        folder = self.out / "events" / server
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def base(self, server: str) -> Path:
        """Folder for a server's configuration and working files, gone after the run."""
        folder = self.scratch / server
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Server:
    """One server of a scenario. A kind of server overrides what it needs.

    host: where it runs; title: what the progress line calls it; processes: Collectl's filter for its programs
    (cNAME: a program whose name begins so); process: the running program, once started.
    """

    title = ""
    processes = ""
    notes_spans = False
    """Can it note its calls as spans (option record_spans)?"""

    def __init__(self, host: str) -> None:
        self.host = host
        self.process: Process | None = None

    def check(self, options: Options) -> None:
        """Raises TapscopeError for options that this server cannot follow. Before anything is started."""

    def prepare(self, paths: Paths) -> None:
        """What lasts longer than a run and is made once: data folders, downloads. Before the network is."""

    def start(self, bench: Bench) -> None:
        """Starts the program and waits until it serves."""
        raise NotImplementedError

    def watch(self) -> None:
        """Called about once a second while the users work."""

    def collect(self, bench: Bench) -> dict[str, Any]:
        """Takes what is there only while all servers run; gives what the manifest is told."""
        return {}

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Ends the program so that its logs are whole. What it returns becomes part of the manifest."""
        if self.process is not None:
            self.process.stop()
        return {}

    def versions(self, paths: Paths) -> dict[str, str]:
        """Names and versions of the software, for the manifest."""
        return {}


Holders = Callable[[Capture, Bench, Sequence[Server]], Mapping[str, Holder]]


@dataclass(frozen=True)
class Scenario:
    """One topology with its users and its truth.

    summary: one line for --help. hosts: name -> address in 10.77.0.0/24; `client` is where the users are.
    entry: host and port that the users ask. ports: host -> port it is called at (manifest).
    protocols: port -> protocol, one of requests.READERS: what the truth reads. servers: makes them, in the
    order of their start. visitors: module of this package with a class Visitor, the users' decisions.
    holders: makes, per protocol, the rule for messages without an id. needs: names of packages.PROGRAMS and
    packages.FILES. parts: into how many calls at once a request may be split (parts.py). defaults: options
    that differ from those of Options. tiers: hosts of each tier of event_calls.TIERS, where their names do
    not say it.
    """

    name: str
    summary: str
    hosts: dict[str, str]
    entry: tuple[str, int]
    ports: dict[str, int]
    protocols: dict[int, str]
    servers: Callable[[Options], list[Server]]
    visitors: str
    holders: Holders
    needs: tuple[str, ...]
    parts: int = 0
    tiers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)

    def options(self, **given: Any) -> Options:
        """Options of a run of this scenario; what is given goes before the scenario's own defaults."""
        return Options(**{**self.defaults, **given, "scenario": self.name})
