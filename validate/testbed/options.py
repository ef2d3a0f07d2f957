"""What one run of the testbed can be told; the manifest records it as it stands here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate.monitors.install import mariadb

MIXES = ("browse", "write10")
CONNECTORS = ("mod_jk", "mod_proxy_ajp")
POOL_HABITS = ("request", "statement")
PHP_CONNECTIONS = ("request", "persistent")
STATEMENTS = ("mixed", "prepared")
CODINGS = ("protobuf", "json")
MONITORS = ("off", "logs", "all")


@dataclass(frozen=True)
class Options:
    """Configuration of a run. Times in seconds unless the name says otherwise."""

    scenario: str = "board"
    users: int = 50
    seconds: float = 30.0
    seed: int = 1
    think_s: float = 3.0
    in_flight: int = 0
    mix: str = "write10"
    warmup_s: float = 8.0
    rampdown_s: float = 2.0
    connector: str = "mod_jk"
    jk_ping: bool = False
    ajp_secret: bool = True
    apache_threads: int = 150
    tomcat_threads: int = 60
    pool_size: int = 30
    pool_habit: str = "request"
    statements: str = "mixed"
    avatica_coding: str = "protobuf"
    work: int = 3
    php_workers: int = 40
    php_connections: str = "request"
    people_threads: int = 40
    keep_alive: bool = True
    burst_s: float = 0.0
    backlog: int = 511
    heap_mib: int = 512
    serial_gc: bool = False
    collect_every_s: float = 0.0
    ballast_mib: int = 0
    buffer_pool_mib: int = 128
    fault: tuple[str, ...] = ()
    fault_every_s: float = 4.0
    fault_ms: tuple[int, int] | None = None
    monitors: str = "all"
    truth: bool = True
    database_log: str = "slow_log"
    mirror: bool = True
    midstream: bool = False
    keep_unscrubbed: bool = False
    record_threads: bool = False
    thread_turns_s: float = 0.0
    record_spans: bool = False
    cpu_quota: dict[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raises TapscopeError for values that make no run."""
        if self.users < 1 or self.seconds <= 0:
            raise TapscopeError("a run needs at least one user and some seconds", exit_code=ExitCode.USAGE)
        if self.thread_turns_s and not self.record_threads:
            raise TapscopeError(
                "there is no thread recorder that could take turns",
                remedy="Give --record-threads, too.",
                exit_code=ExitCode.USAGE,
            )
        choices = {
            "mix": MIXES,
            "connector": CONNECTORS,
            "pool_habit": POOL_HABITS,
            "php_connections": PHP_CONNECTIONS,
            "statements": STATEMENTS,
            "avatica_coding": CODINGS,
            "monitors": MONITORS,
            "database_log": mariadb.LOGS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise TapscopeError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}",
                    exit_code=ExitCode.USAGE,
                )

    @property
    def logs(self) -> bool:
        """Whether the servers write their own logs, and requests have ids."""
        return self.monitors != "off"

    @property
    def agents(self) -> bool:
        """Whether our agents are in Tomcat, Avatica and PHP, so that statements have ids and are logged."""
        return self.monitors == "all"

    def record(self) -> dict[str, Any]:
        """Plain dictionary for the manifest."""
        return asdict(self)
