"""Apache Avatica as a JDBC middleware tier: JDBC calls over HTTP from Tomcat, MySQL protocol to MariaDB.

The jars come from Maven Central, once: by Maven, with pinned versions (app/avatica.pom.xml), compared with
the SHA-256 sums in app/avatica.sha256, and kept in the cache folder of the testbed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from tapscope.store.errors import TapscopeError
from tapscope.validate.monitors.install import avatica as monitor

from .checkouts import Checkouts
from .mariadb import DATABASE, MAKING, PASSWORD, USER, cache_folder
from .mariadb import PORT as DB_PORT
from .packages import Paths
from .processes import wait_until
from .requests import Request
from .scenario import Bench, Server
from .shell import attempt, call
from .streams import Run, Stream
from .truth import IDENTITY

PORT = 8765
VERSION = "1.25.0"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def _sums() -> dict[str, str]:
    """File name -> SHA-256, as `sha256sum` writes them."""
    text = resources.files(__package__).joinpath("app", "avatica.sha256").read_text(encoding="ascii")
    return {name: digest for digest, name in (line.split() for line in text.splitlines())}


def _differing(folder: Path, sums: dict[str, str]) -> list[str]:
    """Names of files that are missing, too many, or not what they were when the sums were made."""
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.jar")}
    return sorted(name for name in {*found, *sums} if found.get(name) != sums.get(name))


def jars(paths: Paths) -> Path:
    """Folder with the jars of Avatica and of what it needs; fetched at the first call and kept.

    Raises TapscopeError when they cannot be fetched or are not what they should be.
    """
    sums = _sums()
    key = hashlib.sha256(repr(sorted(sums.items())).encode()).hexdigest()[:16]
    final = cache_folder() / f"avatica-{key}"
    if final.exists() and not _differing(final, sums):
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{MAKING}{os.getpid()}-", dir=final.parent))
    try:
        pom = resources.files(__package__).joinpath("app", "avatica.pom.xml").read_text(encoding="utf-8")
        (work / "pom.xml").write_text(pom)
        maven = [paths.program("mvn"), "-q", "-B", "-f", str(work / "pom.xml"), _PLUGIN]
        done = attempt([*maven, f"-DoutputDirectory={work / 'jars'}"])
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
            raise TapscopeError(
                f"Avatica {VERSION} cannot be fetched: {lines[0] if lines else done.returncode}",
                remedy="The first run of this scenario needs Maven Central or a mirror (~/.m2/settings.xml).",
            )
        differing = _differing(work / "jars", sums)
        if differing:
            raise TapscopeError(
                f"not the files that were expected from Maven Central: {', '.join(differing)}",
                path=work / "jars",
                remedy="Look at what the repository or mirror delivers; nothing of it was used.",
            )
        shutil.rmtree(final, ignore_errors=True)
        (work / "jars").rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


class Middleware(Server):
    """The Avatica server on one host."""

    title = "Avatica"
    processes = "cjava"

    def __init__(self, host: str = "middle", database: str = "db") -> None:
        super().__init__(host)
        self.database = database

    def prepare(self, paths: Paths) -> None:
        """Fetches the jars if they are not there."""
        jars(paths)

    def start(self, bench: Bench) -> None:
        """Compiles and starts the server, and waits until it says that it is ready."""
        paths, base = bench.paths, bench.base(self.host)
        agent = base / monitor.JAR
        agent.write_bytes(monitor.agent(sorted(jars(paths).glob("*.jar")), javac=paths.program("javac")))
        classpath = f"{jars(paths)}/*:{paths.files['driver']}:{agent}"
        with resources.as_file(resources.files(__package__).joinpath("app", "src", "avatica")) as folder:
            files = [str(folder / f"{name}.java") for name in ("Described", "Middleware")]
            call([paths.program("javac"), "--release", "17", "-d", str(base), "-cp", classpath, *files])
        events, front = "", "jdbc"
        if bench.options.agents:
            events, front = str(bench.events("avatica")), "jdbc:tapscope"
        url = (
            f"{front}:described:mariadb://{bench.hosts[self.database]}:{DB_PORT}/{DATABASE}"
            "?useServerPrepStmts=true&cachePrepStmts=true&prepStmtCacheSize=250"
        )
        gc_log = bench.out / "hosts" / self.host / "gc.log"
        self.process = bench.launcher.start(
            self.host,
            f"avatica-{self.host}",
            [
                paths.program("java"),
                "-Xms128m",
                "-Xmx256m",
                f"-Xlog:gc*:file={gc_log}:utctime,uptime,level,tags",
                f"-Dtapscope.events={events}",
                "-cp",
                f"{base}:{classpath}",
                "middle.Middleware",
                bench.options.avatica_coding,
                str(PORT),
                url,
                USER,
                PASSWORD,
            ],
        )
        log = self.process.log
        wait_until(lambda: b"Middleware ready" in log.read_bytes(), self.process, 30, self.title)

    def versions(self, paths: Paths) -> dict[str, str]:
        """The pinned version."""
        return {"avatica": VERSION}


def client_url(bench: Bench, host: str) -> str:
    """JDBC URL of the middleware for the application's pool."""
    coding = bench.options.avatica_coding.upper()
    return f"jdbc:avatica:remote:url=http://{bench.hosts[host]}:{PORT}/;serialization={coding}"


class AvaticaCheckouts:
    """Holders of the middleware's connections. Every call but the opening names its connection, by a UUID."""

    def __init__(self, checkouts: Checkouts) -> None:
        """checkouts: by the column `connection`."""
        self._checkouts = checkouts

    def holder(self, stream: Stream, run: Run, request: Request, ts_ns: int) -> str:
        """Request that held the connection that the call is about, or ""."""
        for match in IDENTITY.finditer(run.data, request.begin, request.end):
            name = match[0].decode()
            if name in self._checkouts.returned:
                return self._checkouts.holder(name, ts_ns)
        return ""

    def knows(self) -> bool:
        """Whether there is a checkout log."""
        return bool(self._checkouts.returned)
