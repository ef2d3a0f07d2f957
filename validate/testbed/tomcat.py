"""Tomcat 10 with the bulletin board: AJP13 towards Apache, a pooled JDBC data source towards MariaDB."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from tapscope.validate.monitors.install import tomcat as monitor

from . import avatica
from .apache import AJP_PORT, AJP_SECRET
from .mariadb import DATABASE, PASSWORD, USER
from .mariadb import PORT as DB_PORT
from .options import Options
from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import call

HTTP_PORT = 8080


def agent_jar(bench: Bench) -> Path:
    """The agent's jar; compiled at the first call. Without a folder for its logs it does nothing."""
    target = bench.scratch / monitor.JAR
    if not target.exists():
        paths = bench.paths
        target.write_bytes(monitor.agent(paths.files["servlet_api"], javac=paths.program("javac")))
    return target


def compile_board(paths: Paths, target: Path, agent: Path, avatica: Path | None) -> Path:
    """Compiles the application's sources into an exploded web application below target.

    agent: the agent's jar; avatica: folder with the jars of Avatica, where the database is behind it.
    """
    source = resources.files(__package__).joinpath("app")
    webinf = target / "WEB-INF"
    classes = webinf / "classes"
    classes.mkdir(parents=True)
    with resources.as_file(source) as folder:
        shutil.copy(folder / "WEB-INF" / "web.xml", webinf / "web.xml")
        files = sorted(str(f) for f in (folder / "src" / "board").glob("*.java"))
        jars = ":".join(str(paths.files[name]) for name in ("servlet_api", "driver"))
        jars += f":{agent}"
        if avatica is not None:
            files.append(str(folder / "src" / "avatica" / "AvaticaBackend.java"))
            jars += f":{avatica}/*"
        call([paths.program("javac"), "--release", "17", "-d", str(classes), "-cp", jars, *files])
    return target


def _server_xml(options: Options, address: str, logs: Path, protocol: str) -> str:
    valve = ""
    if options.logs:
        valve = monitor.valve(str(logs), "access", ".log")
    secret = (
        f'secretRequired="true" secret="{AJP_SECRET}"' if options.ajp_secret else 'secretRequired="false"'
    )
    connector = f'port="{AJP_PORT}" protocol="AJP/1.3" {secret}'
    if protocol == "http":
        connector = (
            f'port="{HTTP_PORT}" protocol="HTTP/1.1" maxKeepAliveRequests="-1" keepAliveTimeout="60000"'
        )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Server port="-1">
  <Service name="Catalina">
    <Connector {connector} address="{address}"
               maxThreads="{options.tomcat_threads}"
               minSpareThreads="10" maxConnections="1000" acceptCount="100"/>
    <Engine name="Catalina" defaultHost="localhost">
      <Host name="localhost" appBase="webapps" autoDeploy="false" deployOnStartup="true">{valve}</Host>
    </Engine>
  </Service>
</Server>
"""


@dataclass(frozen=True)
class _Source:
    """The data source: driver and URL; backend: the application's class for this driver."""

    driver: str
    url: str
    backend: str


def _source(bench: Bench, database: str, middle: str) -> _Source:
    """The source as the options want it: with the agent's driver in front, or not."""
    plain = _plain_source(bench, database, middle)
    if not bench.options.agents:
        return plain
    return _Source(monitor.DRIVER, monitor.monitored(plain.url), plain.backend)


def _plain_source(bench: Bench, database: str, middle: str) -> _Source:
    if middle:
        return _Source(
            "org.apache.calcite.avatica.remote.Driver",
            avatica.client_url(bench, middle),
            "AvaticaBackend",
        )
    return _Source(
        "org.mariadb.jdbc.Driver",
        f"jdbc:mariadb://{bench.hosts[database]}:{DB_PORT}/{DATABASE}"
        "?useServerPrepStmts=true&cachePrepStmts=true&prepStmtCacheSize=250",
        "MariaDbBackend",
    )


def _context_xml(options: Options, webapp: Path, source: _Source) -> str:
    idle = min(10, options.pool_size)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Context docBase={quoteattr(str(webapp))} reloadable="false">
  <Parameter name="pool-habit" value="{options.pool_habit}"/>
  <Parameter name="statements" value="{options.statements}"/>
  <Parameter name="backend" value="{source.backend}"/>
  <Parameter name="ballast-mib" value="{options.ballast_mib}"/>
  <Parameter name="collect-every-ms" value="{int(options.collect_every_s * 1000)}"/>
  <Parameter name="collect-seed" value="{options.seed}"/>
  <Parameter name="work" value="{options.work}"/>
  <Parameter name="truth" value="{str(options.truth).lower()}"/>
  <Resource name="jdbc/board" auth="Container" type="javax.sql.DataSource"
            factory="org.apache.tomcat.jdbc.pool.DataSourceFactory" driverClassName="{source.driver}"
            url={quoteattr(source.url)} username="{USER}" password="{PASSWORD}"
            maxActive="{options.pool_size}" maxIdle="{options.pool_size}"
            minIdle="{idle}" initialSize="{idle}"
            maxWait="30000" testOnBorrow="true" validationQuery="SELECT 1" validationInterval="3000"
            jdbcInterceptors="ConnectionState" defaultAutoCommit="true"/>
</Context>
"""


class Tomcat(Server):
    """Tomcat with the board on one host. events: name of its folder of events; protocol: ajp or http; middle:
    host of the Avatica server through which it asks the database, if any."""

    title = "Tomcat"
    processes = "cjava"

    def __init__(
        self,
        host: str = "app",
        database: str = "db",
        events: str = "tomcat",
        protocol: str = "ajp",
        middle: str = "",
    ) -> None:
        super().__init__(host)
        self.database = database
        self.events = events
        self.protocol = protocol
        self.middle = middle

    def start(self, bench: Bench) -> None:
        """Starts Tomcat and waits until the board is deployed."""
        paths, options, base = bench.paths, bench.options, bench.base(self.host)
        logs = bench.events(self.events)
        webapp = bench.scratch / "board"
        jars = avatica.jars(paths) if self.middle else None
        if not webapp.exists():
            compile_board(paths, webapp, agent_jar(bench), jars)
        for name in ("conf/Catalina/localhost", "lib", "webapps", "work", "temp", "logs"):
            (base / name).mkdir(parents=True, exist_ok=True)
        (base / "conf/server.xml").write_text(
            _server_xml(options, bench.hosts[self.host], logs, self.protocol)
        )
        (base / "conf/web.xml").write_text(
            '<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0"/>\n'
        )
        (base / "conf/Catalina/localhost/board.xml").write_text(
            _context_xml(options, webapp, _source(bench, self.database, self.middle))
        )
        for jar in ("driver", "tomcat_jdbc"):
            if jar == "driver" or not (paths.tomcat_home / "lib" / "tomcat-jdbc.jar").exists():
                shutil.copy(paths.files[jar], base / "lib" / paths.files[jar].name)
        shutil.copy(agent_jar(bench), base / "lib" / monitor.JAR)
        for file in sorted(jars.glob("*.jar")) if jars else []:
            shutil.copy(file, base / "lib" / file.name)
        home, gc_log = paths.tomcat_home, bench.out / "hosts" / self.host / "gc.log"
        self.process = bench.launcher.start(
            self.host,
            f"tomcat-{self.host}",
            [
                paths.program("java"),
                f"-Xms{min(256, options.heap_mib)}m",
                f"-Xmx{options.heap_mib}m",
                *(["-XX:+UseSerialGC"] if options.serial_gc else []),
                f"-Xlog:gc*:file={gc_log}:utctime,uptime,level,tags",
                f"-Dcatalina.home={home}",
                f"-Dcatalina.base={base}",
                f"-Djava.io.tmpdir={base / 'temp'}",
                f"-Dtapscope.events={logs if options.agents else ''}",
                "-cp",
                f"{home}/bin/bootstrap.jar:{home}/bin/tomcat-juli.jar",
                "org.apache.catalina.startup.Bootstrap",
                "start",
            ],
        )
        log = self.process.log
        wait_until(lambda: b"Server startup in" in log.read_bytes(), self.process, 60, self.title)

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Ends Tomcat so that the application writes out the rest of its event log."""
        if self.process is not None:
            self.process.stop(signal.SIGTERM, 20)
        return {}

    def versions(self, paths: Paths) -> dict[str, str]:
        """Versions of Tomcat, of Java and of the driver."""
        versioned = sorted(paths.files["driver"].parent.glob("mariadb-java-client-*.jar"))
        return {
            "tomcat": version(paths),
            "java": java_version(paths),
            "mariadb_driver": versioned[-1].name if versioned else paths.files["driver"].name,
        }


def version(paths: Paths) -> str:
    """Tomcat's own version line."""
    text = call(
        [
            paths.program("java"),
            "-cp",
            str(paths.tomcat_home / "lib/catalina.jar"),
            "org.apache.catalina.util.ServerInfo",
        ]
    )
    return next(
        (line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("Server version")), ""
    )


def java_version(paths: Paths) -> str:
    """First line of `java --version`."""
    return call([paths.program("java"), "--version"]).splitlines()[0]
