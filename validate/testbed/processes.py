"""Long-running programs of a testbed: started in a host's namespace and control group, ended by their id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tapscope.store.errors import TapscopeError

from .cgroups import Groups
from .net import Network


@dataclass
class Process:
    """One started program; `log` holds its standard output and error."""

    name: str
    handle: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> bool:
        return self.handle.poll() is not None

    def tail(self, lines: int = 5) -> str:
        try:
            return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])
        except OSError:
            return ""

    def stop(self, sig: int = signal.SIGTERM, patience_s: float = 15.0) -> int:
        """Asks the program to end, then ends it. Returns its exit status (-9: it had to be killed)."""
        if self.handle.poll() is None:
            self.handle.send_signal(sig)
            try:
                self.handle.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._signal_group(signal.SIGKILL)
                self.handle.wait(5)
        return self.handle.returncode

    def _signal_group(self, sig: int) -> None:
        try:
            os.killpg(self.handle.pid, sig)
        except ProcessLookupError:
            return


@dataclass
class Launcher:
    """Starts programs on hosts and remembers them, so that all of them can be ended in reverse order."""

    network: Network
    groups: Groups
    logs: Path
    started: list[Process] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """Of every program that is started from now on."""

    def start(
        self,
        host: str,
        name: str,
        argv: Sequence[str],
        env: dict[str, str] | None = None,
        *,
        sees_cgroups: bool = False,
        group: str | None = None,
    ) -> Process:
        """Starts argv on a host, in its control group or another one. Its output goes to logs/NAME.out."""
        place = self.network.on_network_of if sees_cgroups else self.network.inside
        log = self.logs / f"{name}.out"
        join = "".join(
            f"echo $$ > '{member}' && " for member in self.groups.members(host if group is None else group)
        )
        script = f'{join}exec "$@"'
        with log.open("wb") as out:
            handle = subprocess.Popen(
                ["sh", "-c", script, "sh", *place(host, *argv)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.variables, **(env or {})},
                start_new_session=True,
            )
        process = Process(name, handle, log)
        self.started.append(process)
        return process

    def stop_all(self) -> None:
        for process in reversed(self.started):
            process.stop()
        self.started.clear()


def wait_until(ready: Callable[[], bool], process: Process, patience_s: float, what: str) -> None:
    """Waits for a server. Raises TapscopeError with the end of its log when it ends or takes too long."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if ready():
            return
        if process.ended():
            raise TapscopeError(f"{what} ended while starting: {process.tail()}", path=process.log)
        time.sleep(0.1)
    raise TapscopeError(f"{what} was not ready after {patience_s:.0f} s: {process.tail()}", path=process.log)
