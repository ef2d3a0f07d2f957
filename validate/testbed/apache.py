"""Apache httpd as the web tier: HTTP towards the clients, AJP13 towards Tomcat (mod_jk or mod_proxy_ajp)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate.monitors.install import apache as monitor

from .options import Options
from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt, call

PORT = 80
AJP_PORT = 8009
AJP_SECRET = "board-secret"
_MODULES = ("mpm_event", "authz_core", "headers", "log_debug", "env")


def configuration(
    paths: Paths, options: Options, base: Path, logs: Path, address: str, apps: Mapping[str, str]
) -> str:
    """Text of httpd.conf. address: its own; apps: name -> address of the application servers."""
    modules = paths.apache_modules
    wanted = [*_MODULES, *(["jk"] if options.connector == "mod_jk" else ["proxy", "proxy_ajp"])]
    lines = [
        f"LoadModule {m}_module {modules}/mod_{m}.so" for m in wanted if (modules / f"mod_{m}.so").exists()
    ]
    per_child = max(25, (options.apache_threads + 1) // 2)
    lines += [
        f'ServerRoot "{base}"',
        f"Listen {address}:{PORT}",
        f"ListenBacklog {options.backlog}",
        f"ServerName {address}",
        f'PidFile "{base}/httpd.pid"',
        f'DefaultRuntimeDir "{base}"',
        "User www-data",
        "Group www-data",
        "ServerLimit 2",
        "StartServers 2",
        f"ThreadLimit {per_child}",
        f"ThreadsPerChild {per_child}",
        f"MaxRequestWorkers {2 * per_child}",
        f"MinSpareThreads {per_child}",
        f"MaxSpareThreads {2 * per_child}",
        "KeepAlive On",
        "KeepAliveTimeout 15",
        "MaxKeepAliveRequests 0",
        "ServerTokens Prod",
        f'ErrorLog "{logs}/error.log"',
        'ErrorLogFormat "[%{cu}t] [%-m:%l] [pid %P:tid %T] [client\\ %a] %M"',
        "LogLevel warn",
    ]
    if options.connector == "mod_jk":
        lines += [
            f'JkWorkersFile "{base}/workers.properties"',
            f'JkLogFile "{base}/jk.log"',
            f'JkShmFile "{base}/jk.shm"',
            "JkLogLevel warn",
            "JkMount /board/* board",
            "JkOptions +ForwardURIProxy",
        ]
    else:
        secret = f" secret={AJP_SECRET}" if options.ajp_secret else ""
        ping = " ping=1" if options.jk_ping else ""
        lines += [f"ProxyPass /board/ ajp://{app}:{AJP_PORT}/board/{secret}{ping}" for app in apps.values()]
        if options.logs:
            lines += ["LogLevel warn proxy:debug proxy_ajp:trace2"]
    if options.logs:
        lines += monitor.directives(f"{logs}/access.log")
    return "\n".join(lines) + "\n"


def workers(options: Options, apps: Mapping[str, str]) -> str:
    """Text of workers.properties: one worker per application server; several of them behind a balancer."""
    several = len(apps) > 1
    names = list(apps) if several else ["board"]
    lines = ["worker.list=board"]
    if several:
        lines += [
            "worker.board.type=lb",
            f"worker.board.balance_workers={','.join(names)}",
            # By requests in flight: what a slow server holds up does not pile up there.
            "worker.board.method=B",
            "worker.board.sticky_session=False",
        ]
    for name, address in zip(names, apps.values(), strict=True):
        lines += [
            f"worker.{name}.type=ajp13",
            f"worker.{name}.host={address}",
            f"worker.{name}.port={AJP_PORT}",
            f"worker.{name}.socket_keepalive=True",
        ]
        if options.ajp_secret:
            lines.append(f"worker.{name}.secret={AJP_SECRET}")
        if options.jk_ping:
            lines.append(f"worker.{name}.ping_mode=A")
    return "\n".join(lines) + "\n"


class Apache(Server):
    """httpd on one host in front of application servers on others."""

    title = "Apache httpd"
    processes = "capache2"

    def __init__(self, host: str = "web", apps: tuple[str, ...] = ("app",)) -> None:
        super().__init__(host)
        self.apps = apps

    def check(self, options: Options) -> None:
        """Several application servers are behind mod_jk's balancer; there is no other here."""
        if len(self.apps) > 1 and options.connector != "mod_jk":
            raise TapscopeError(
                "several application servers need the balancer of mod_jk", exit_code=ExitCode.USAGE
            )

    def start(self, bench: Bench) -> None:
        """Starts httpd and waits until it listens."""
        paths, base, network = bench.paths, bench.base(self.host), bench.launcher.network
        apps = {name: bench.hosts[name] for name in self.apps}
        configured = base / "httpd.conf"
        configured.write_text(
            configuration(paths, bench.options, base, bench.events("apache"), bench.hosts[self.host], apps)
        )
        (base / "workers.properties").write_text(workers(bench.options, apps))
        argv = [paths.program("apache2"), "-f", str(configured), "-D", "FOREGROUND"]
        self.process = bench.launcher.start(self.host, f"httpd-{self.host}", argv)
        listening = network.inside(self.host, paths.program("ss"), "-Hltn", f"sport = :{PORT}")
        wait_until(lambda: str(PORT) in attempt(listening).stdout, self.process, 15, self.title)

    def versions(self, paths: Paths) -> dict[str, str]:
        """First line of `apache2 -v`, without its label."""
        text = call([paths.program("apache2"), "-v"])
        return {"apache": text.splitlines()[0].removeprefix("Server version: ")}
