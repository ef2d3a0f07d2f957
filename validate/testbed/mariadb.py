"""MariaDB as the database tier: seeded once into a template that every run copies; slow log as monitor."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tapscope.store.errors import TapscopeError

from . import dataset
from .options import Options
from .packages import Paths
from .processes import Launcher, Process, wait_until
from .shell import attempt, call

PORT = 3306
DATABASE = "board"
USER = "board"
PASSWORD = "board-password"
# Folder of an unfinished template; followed by the id of the process that makes it.
MAKING = "making-"

_SLOW_LOG = (
    "SELECT start_time, user_host, query_time, lock_time, rows_sent, rows_examined, db, thread_id, sql_text"
    " FROM mysql.slow_log"
)


def cache_folder() -> Path:
    """Where templates are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or (
        "/var/cache" if os.geteuid() == 0 else str(Path.home() / ".cache")
    )
    return Path(base) / "tapscope-testbed"


def _daemon(paths: Paths, data: Path, socket: Path) -> list[str]:
    return [
        paths.program("mariadbd"),
        "--no-defaults",
        "--user=root",
        f"--datadir={data}",
        f"--socket={socket}",
        f"--pid-file={data}/mariadbd.pid",
        "--skip-name-resolve",
        "--default-time-zone=+00:00",
        "--innodb-buffer-pool-size=128M",
        "--innodb-log-file-size=32M",
        "--max-connections=300",
        "--local-infile=1",
    ]


def _client(paths: Paths, socket: Path) -> list[str]:
    return [paths.program("mariadb"), "--no-defaults", "-uroot", f"--socket={socket}", "--local-infile=1"]


def version(paths: Paths) -> str:
    """MariaDB's version line."""
    return call([paths.program("mariadbd"), "--no-defaults", "--version"]).strip().split("Ver ")[-1]


def template(paths: Paths) -> Path:
    """Data folder with the seeded board; made at the first call and kept."""
    key = hashlib.sha256((dataset.fingerprint() + version(paths)).encode()).hexdigest()[:16]
    final = cache_folder() / f"mariadb-{key}"
    if (final / "complete").exists():
        return final / "data"
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{MAKING}{os.getpid()}-", dir=final.parent))
    try:
        _fill(paths, work)
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


def _fill(paths: Paths, work: Path) -> None:
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
        client = _client(paths, socket)
        wait_until(lambda: attempt([*client, "-e", "SELECT 1"]).returncode == 0, server, 60, "MariaDB")
        tables = work / "tables"
        tables.mkdir()
        script = dataset.write(tables)
        call(client, f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\nUSE {DATABASE};\n{script}")
        grants = (
            f"CREATE USER '{USER}'@'10.77.0.%' IDENTIFIED BY '{PASSWORD}';"
            f"GRANT ALL ON {DATABASE}.* TO '{USER}'@'10.77.0.%';"
        )
        call(client, grants)
        shutil.rmtree(tables)
    finally:
        server.stop(signal.SIGTERM, 60)
    socket.unlink(missing_ok=True)


class Database:
    """The running server of one testbed."""

    def __init__(self, paths: Paths, process: Process, socket: Path) -> None:
        self.process = process
        self._client = _client(paths, socket)

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

    def dump_slow_log(self, target: Path) -> int:
        """Writes mysql.slow_log as tab-separated text with a header. Returns the number of rows."""
        self.run("SET GLOBAL slow_query_log = OFF")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            done = subprocess.run(
                [*self._client, "--batch", "--quick", "-e", _SLOW_LOG],
                stdout=out,
                stderr=subprocess.PIPE,
                check=False,
            )
        if done.returncode != 0:
            raise TapscopeError(
                f"the slow log cannot be read: {done.stderr.decode(errors='replace').strip()}"
            )
        with target.open("rb") as lines:
            return sum(1 for _ in lines) - 1


def start(paths: Paths, options: Options, base: Path, launcher: Launcher) -> Database:
    """Copies the template, starts MariaDB on host `db` and waits until it answers."""
    base.mkdir(parents=True, exist_ok=True)
    data = base / "data"
    call(["cp", "-a", "--reflink=auto", str(template(paths)), str(data)])
    socket = base / "s.sock"
    argv = [*_daemon(paths, data, socket), f"--port={PORT}", f"--bind-address={launcher.network.hosts['db']}"]
    if options.monitors:
        argv += ["--log-output=TABLE", "--slow-query-log=ON", "--long-query-time=0"]
    process = launcher.start("db", "mariadbd", argv)
    database = Database(paths, process, socket)
    client = _client(paths, socket)
    wait_until(lambda: attempt([*client, "-e", "SELECT 1"]).returncode == 0, process, 30, "MariaDB")
    if options.monitors:
        # Rows of the start itself belong to no run.
        database.run("SET GLOBAL slow_query_log=OFF; TRUNCATE mysql.slow_log; SET GLOBAL slow_query_log=ON")
    time.sleep(0.1)
    return database
