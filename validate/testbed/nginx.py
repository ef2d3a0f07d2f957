"""nginx as an event-driven web tier: HTTP towards the clients, FastCGI or HTTP towards what is behind it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tapscope.validate.monitors.install import nginx as monitor

from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt

PORT = 80

_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class Nginx(Server):
    """nginx on one host. sites: writes what stands in `http { }` (upstreams, server blocks)."""

    title = "nginx"
    processes = "cnginx"

    def __init__(self, host: str, sites: Callable[[Bench], str]) -> None:
        super().__init__(host)
        self.sites = sites

    def start(self, bench: Bench) -> None:
        """Starts nginx and waits until it listens."""
        base, network = bench.base(self.host), bench.launcher.network
        log = "access_log off;"
        if bench.options.logs:
            log = "\n    ".join(monitor.directives(f"{bench.events('nginx')}/nginx.log"))
        temporary = "\n".join(f'    {name}_temp_path "{base}/{name}";' for name in _TEMPORARY)
        configured = base / "nginx.conf"
        configured.write_text(f"""daemon off;
user root;
worker_processes 2;
pid "{base}/nginx.pid";
error_log "{base}/error.log" warn;
events {{ worker_connections 4096; }}
http {{
    default_type text/html;
    keepalive_requests 1000000;
    server_tokens off;
    {log}
{temporary}
{self.sites(bench)}}}
""")
        argv = [
            bench.paths.program("nginx"),
            "-p",
            str(base),
            "-e",
            f"{base}/error.log",
            "-c",
            str(configured),
        ]
        self.process = bench.launcher.start(self.host, f"nginx-{self.host}", argv)
        listening = network.inside(self.host, bench.paths.program("ss"), "-Hltn", f"sport = :{PORT}")
        wait_until(lambda: str(PORT) in attempt(listening).stdout, self.process, 15, self.title)

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Lets requests in flight end (SIGQUIT), then the program."""
        if self.process is not None:
            self.process.stop(signal.SIGQUIT)
        return {}

    def versions(self, paths: Paths) -> dict[str, str]:
        """What `nginx -v` says (on standard error)."""
        told = attempt([paths.program("nginx"), "-v"])
        return {"nginx": (told.stderr or told.stdout).strip().removeprefix("nginx version: ")}
