"""MariaDB as the database tier: seeded once into a template that every run copies; slow log as monitor."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapscope.store.errors import TapscopeError
from tapscope.validate.monitors.install import mariadb as monitor
from tapscope.validate.monitors.mariadb_export import PERFORMANCE_SCHEMA, SLOW_LOG

from . import dataset
from .packages import Paths
from .processes import Process, wait_until
from .scenario import Bench, Server
from .shell import attempt, call

PORT = 3306
DATABASE = "board"
USER = "board"
PASSWORD = "board-password"
# Folder of an unfinished template; followed by the id of the process that makes it.
MAKING = "making-"


def cache_folder() -> Path:
    """Where templates are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or (
        "/var/cache" if os.geteuid() == 0 else str(Path.home() / ".cache")
    )
    return Path(base) / "tapscope-testbed"


def _daemon(paths: Paths, data: Path, socket: Path, buffer_pool_mib: int = 128) -> list[str]:
    return [
        paths.program("mariadbd"),
        "--no-defaults",
        "--user=root",
        f"--datadir={data}",
        f"--socket={socket}",
        f"--pid-file={data}/mariadbd.pid",
        "--skip-name-resolve",
        "--default-time-zone=+00:00",
        f"--innodb-buffer-pool-size={buffer_pool_mib}M",
        "--innodb-log-file-size=32M",
        "--max-connections=300",
        "--local-infile=1",
    ]


def client(paths: Paths, socket: Path) -> list[str]:
    """Command line of the client over a server's local socket."""
    return [paths.program("mariadb"), "--no-defaults", "-uroot", f"--socket={socket}", "--local-infile=1"]


def version(paths: Paths) -> str:
    """MariaDB's version line."""
    return call([paths.program("mariadbd"), "--no-defaults", "--version"]).strip().split("Ver ")[-1]


@dataclass(frozen=True)
class Content:
    """What a database holds when a run begins.

    fingerprint: changes when the content would. fill: writes it into an empty server; it gets an empty folder
    for its files and the server's local socket.
    """

    name: str
    fingerprint: Callable[[Paths], str]
    fill: Callable[[Paths, Path, Path], None]


def template(paths: Paths, content: Content) -> Path:
    """Data folder with the content; made at the first call and kept."""
    told = content.name + content.fingerprint(paths) + version(paths)
    key = hashlib.sha256(told.encode()).hexdigest()[:16]
    final = cache_folder() / f"mariadb-{key}"
    if (final / "complete").exists():
        return final / "data"
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{MAKING}{os.getpid()}-", dir=final.parent))
    try:
        _fill(paths, work, content)
        (work / "complete").touch()
        # Another run may have finished the same template meanwhile; then that one is as good.
        try:
            work.rename(final)
        except OSError:
            if not (final / "complete").exists():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final / "data"


def _fill(paths: Paths, work: Path, content: Content) -> None:
    data = work / "data"
    call(
        [
            paths.program("mariadb-install-db"),
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
    )
    socket = work / "s.sock"
    log = work / "fill.out"
    with log.open("wb") as out:
        handle = subprocess.Popen(
            # Outside any namespace, where `clean` would not find it: it must end with this process.
            ["setpriv", "--pdeathsig", "KILL", *_daemon(paths, data, socket), "--skip-networking"],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    server = Process("mariadbd", handle, log)
    try:
        ready = [*client(paths, socket), "-e", "SELECT 1"]
        wait_until(lambda: attempt(ready).returncode == 0, server, 60, "MariaDB")
        files = work / "files"
        files.mkdir()
        content.fill(paths, files, socket)
        shutil.rmtree(files)
    finally:
        server.stop(signal.SIGTERM, 60)
    socket.unlink(missing_ok=True)


def _fill_board(paths: Paths, work: Path, socket: Path) -> None:
    script = dataset.write(work)
    call(
        client(paths, socket), f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\nUSE {DATABASE};\n{script}"
    )
    grants = (
        f"CREATE USER '{USER}'@'10.77.0.%' IDENTIFIED BY '{PASSWORD}';"
        f"GRANT ALL ON {DATABASE}.* TO '{USER}'@'10.77.0.%';"
    )
    call(client(paths, socket), grants)


BOARD = Content("board", lambda _: dataset.fingerprint(), _fill_board)


class Database(Server):
    """MariaDB on one host. known: (client address, port) -> thread id of the connections seen so far."""

    title = "MariaDB"
    processes = "cmariadbd"

    def __init__(self, host: str = "db", content: Content = BOARD) -> None:
        super().__init__(host)
        self.content = content
        self.known: dict[tuple[str, int], int] = {}
        self._client: list[str] = []

    def prepare(self, paths: Paths) -> None:
        """Makes the template if there is none."""
        template(paths, self.content)

    def start(self, bench: Bench) -> None:
        """Copies the template, starts MariaDB and waits until it answers."""
        paths, base = bench.paths, bench.base(self.host)
        data = base / "data"
        call(["cp", "-a", "--reflink=auto", str(template(paths, self.content)), str(data)])
        socket = base / "s.sock"
        argv = [
            *_daemon(paths, data, socket, bench.options.buffer_pool_mib),
            f"--port={PORT}",
            f"--bind-address={bench.hosts[self.host]}",
        ]
        if bench.options.logs:
            argv += monitor.arguments(bench.options.database_log)
        self.process = bench.launcher.start(self.host, f"mariadbd-{self.host}", argv)
        self._client = client(paths, socket)
        wait_until(
            lambda: attempt([*self._client, "-e", "SELECT 1"]).returncode == 0, self.process, 30, self.title
        )
        if bench.options.logs and bench.options.database_log == "slow_log":
            # Rows of the start itself belong to no run.
            self.run("SET GLOBAL slow_query_log=OFF; TRUNCATE mysql.slow_log; SET GLOBAL slow_query_log=ON")
        time.sleep(0.1)

    def watch(self) -> None:
        """Learns the thread ids of connections: a capture from midstream on has not seen greetings."""
        self.known |= {(address, port): thread for thread, address, port in self.connections()}

    def collect(self, bench: Bench) -> dict[str, Any]:
        """Writes performance_schema's statements while the connections they came over are open: it forgets
        which thread was whose."""
        if not bench.options.logs or bench.options.database_log != "performance_schema":
            return {}
        target = bench.events("mariadb") / "events_statements_history_long.tsv"
        return {"statement_rows": self._dump(PERFORMANCE_SCHEMA, target)}

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Writes the slow log, then ends the server."""
        told = {}
        if bench.options.logs and bench.options.database_log == "slow_log":
            self.run("SET GLOBAL slow_query_log = OFF")
            told["slow_log_rows"] = self._dump(SLOW_LOG, bench.events("mariadb") / "slow_log.tsv")
        if self.process is not None:
            self.process.stop(signal.SIGTERM, 30)
        return told

    def versions(self, paths: Paths) -> dict[str, str]:
        """MariaDB's version line."""
        return {"mariadb": version(paths)}

    def run(self, sql: str) -> str:
        """Runs statements over the server's local socket, not over the tapped network; tab-separated rows."""
        return call([*self._client, "--batch", "-e", sql])

    def connections(self) -> list[tuple[int, str, int]]:
        """(thread id, client address, client port) of every connection over the network."""
        rows = self.run(
            "SELECT id, host FROM information_schema.processlist WHERE host LIKE '10.%'"
        ).splitlines()
        found = []
        for row in rows[1:]:
            thread, host = row.split("\t")
            address, _, port = host.rpartition(":")
            found.append((int(thread), address, int(port)))
        return found

    def _dump(self, query: str, target: Path) -> int:
        """Writes a log as tab-separated text with a header. Returns the number of rows."""
        with target.open("wb") as out:
            done = subprocess.run(
                [*self._client, "--batch", "--quick", "-e", query],
                stdout=out,
                stderr=subprocess.PIPE,
                check=False,
            )
        if done.returncode != 0:
            raise TapscopeError(
                f"{target.name} cannot be written: {done.stderr.decode(errors='replace').strip()}"
            )
        with target.open("rb") as lines:
            return sum(1 for _ in lines) - 1
