"""PostgreSQL as the database tier: a fresh cluster in the scratch folder of every run."""

from __future__ import annotations

import pwd
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt, call

PORT = 5432
DATABASE = "shop"
USER = "shop"
PASSWORD = "shop-password"
_ADMINISTRATOR = "testbed"


def as_nobody(*argv: str) -> list[str]:
    """argv run without rights: PostgreSQL refuses to be root, and the stores need not be."""
    return ["setpriv", "--reuid=nobody", f"--regid={pwd.getpwnam('nobody').pw_gid}", "--clear-groups", *argv]


def open_to_nobody(bench: Bench, host: str) -> Path:
    """A host's working folder, owned by who as_nobody() runs."""
    folder = bench.base(host)
    nobody = pwd.getpwnam("nobody")
    # Passed through, not listed: what else lies there stays root's.
    bench.scratch.chmod(0o711)
    shutil.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return folder


class Postgres(Server):
    """PostgreSQL on one host. fill: writes the script that fills the database to a path."""

    title = "PostgreSQL"
    processes = "cpostgres"

    def __init__(self, fill: Callable[[Path], None], host: str = "db") -> None:
        super().__init__(host)
        self.fill = fill

    def start(self, bench: Bench) -> None:
        """Makes the cluster, starts the server, fills the database over its local socket."""
        folder = open_to_nobody(bench, self.host)
        programs = bench.paths.files["postgres"].parent
        data = folder / "data"
        initdb = [
            *(
                str(programs / "initdb"),
                "--no-sync",
                "--no-instructions",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ),
            *("--auth-local=trust", "--auth-host=reject", f"--username={_ADMINISTRATOR}", "-D", str(data)),
        ]
        call(as_nobody(*initdb))
        with (data / "pg_hba.conf").open("a") as file:
            file.write(f"host {DATABASE} {USER} 10.77.0.0/24 scram-sha-256\n")
        settings = {
            "listen_addresses": bench.hosts[self.host],
            "port": str(PORT),
            "unix_socket_directories": str(folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
        }
        argv = [str(programs / "postgres"), "-D", str(data)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        self.process = bench.launcher.start(self.host, f"postgres-{self.host}", as_nobody(*argv))
        client = [
            *(str(programs / "psql"), "-h", str(folder), "-p", str(PORT), "-U", _ADMINISTRATOR),
            *("-X", "-q", "-v", "ON_ERROR_STOP=1"),
        ]
        ready = [*client, "-d", "postgres", "-c", "SELECT 1"]
        wait_until(lambda: attempt(ready).returncode == 0, self.process, 30, self.title)
        for sql in (
            f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'",
            f"CREATE DATABASE {DATABASE} OWNER {USER}",
        ):
            call([*client, "-d", "postgres", "-c", sql])
        script = folder / "fill.sql"
        self.fill(script)
        call([*client, "-d", DATABASE, "-c", f"SET ROLE {USER}", "-f", str(script)])
        call([*client, "-d", DATABASE, "-c", "VACUUM ANALYZE", "-c", "CHECKPOINT"])

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Ends connections and server (fast shutdown)."""
        if self.process is not None:
            self.process.stop(signal.SIGINT, 30)
        return {}

    def versions(self, paths: Paths) -> dict[str, str]:
        """PostgreSQL's version line."""
        return {"postgresql": call([str(paths.files["postgres"]), "--version"]).strip()}
