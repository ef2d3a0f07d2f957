"""Apache httpd as the web tier: HTTP towards the clients, AJP13 towards Tomcat (mod_jk or mod_proxy_ajp)."""

from __future__ import annotations

from pathlib import Path

from .net import Network
from .options import Options
from .packages import Paths
from .processes import Launcher, Process, wait_until
from .shell import attempt, call

PORT = 80
AJP_PORT = 8009
AJP_SECRET = "board-secret"
_MODULES = ("mpm_event", "authz_core", "headers", "log_debug", "env")

_LOG_FORMAT = (
    r"id=%{X-Request-ID}i beg=%{begin:usec}t end=%{end:usec}t D=%D first=%^FB s=%>s b=%B in=%I out=%O "
    r"keep=%k conn=%a:%{remote}p pid=%P:%{tid}P \"%r\" jk=%{JK_REQUEST_DURATION}n"
)


def configuration(paths: Paths, options: Options, base: Path, logs: Path, network: Network) -> str:
    """Text of httpd.conf."""
    app = network.hosts["app"]
    modules = paths.apache_modules
    wanted = [*_MODULES, *(["jk"] if options.connector == "mod_jk" else ["proxy", "proxy_ajp"])]
    lines = [
        f"LoadModule {m}_module {modules}/mod_{m}.so" for m in wanted if (modules / f"mod_{m}.so").exists()
    ]
    per_child = max(25, (options.apache_threads + 1) // 2)
    lines += [
        f'ServerRoot "{base}"',
        f"Listen {network.hosts['web']}:{PORT}",
        f"ServerName {network.hosts['web']}",
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
            "JkMount /board/* app",
            "JkOptions +ForwardURIProxy",
        ]
    else:
        secret = f" secret={AJP_SECRET}" if options.ajp_secret else ""
        ping = " ping=1" if options.jk_ping else ""
        lines += [f"ProxyPass /board/ ajp://{app}:{AJP_PORT}/board/{secret}{ping}"]
        if options.monitors:
            lines += ["LogLevel warn proxy:debug proxy_ajp:trace2"]
    if options.monitors:
        lines += [
            "LogIOTrackTTFB On",
            f'LogFormat "{_LOG_FORMAT}" monitor',
            f'CustomLog "{logs}/access.log" monitor',
            'LogMessage "DS id=%{req:X-Request-ID}" hook=insert_filter',
        ]
        if options.connector == "mod_jk":
            lines += ["LogLevel warn log_debug:info"]
        else:
            lines += ["LogLevel warn log_debug:info proxy:debug proxy_ajp:trace2"]
    return "\n".join(lines) + "\n"


def _workers(options: Options, app: str) -> str:
    lines = [
        "worker.list=app",
        "worker.app.type=ajp13",
        f"worker.app.host={app}",
        f"worker.app.port={AJP_PORT}",
        "worker.app.socket_keepalive=True",
    ]
    if options.ajp_secret:
        lines.append(f"worker.app.secret={AJP_SECRET}")
    if options.jk_ping:
        lines.append("worker.app.ping_mode=A")
    return "\n".join(lines) + "\n"


def start(paths: Paths, options: Options, base: Path, logs: Path, launcher: Launcher) -> Process:
    """Starts httpd on host `web` and waits until it listens."""
    base.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    network = launcher.network
    configured = base / "httpd.conf"
    configured.write_text(configuration(paths, options, base, logs, network))
    (base / "workers.properties").write_text(_workers(options, network.hosts["app"]))
    process = launcher.start(
        "web", "httpd", [paths.program("apache2"), "-f", str(configured), "-D", "FOREGROUND"]
    )
    listening = network.inside("web", paths.program("ss"), "-Hltn", f"sport = :{PORT}")
    wait_until(lambda: str(PORT) in attempt(listening).stdout, process, 15, "Apache httpd")
    return process


def version(paths: Paths) -> str:
    """First line of `apache2 -v`, without its label."""
    return call([paths.program("apache2"), "-v"]).splitlines()[0].removeprefix("Server version: ")
