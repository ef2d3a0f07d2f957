"""The shop: nginx in front of a Python service (gunicorn, `shop/`) on PostgreSQL, Redis and memcached."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from . import nginx, postgres
from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt, call

PORT = 8000
_PROCESSES = 2
_LOGS = {
    "requests.tsv": ("request_id", "ua_us", "ud_us", "status", "worker", "interaction"),
    "checkouts.tsv": ("request_id", "connection", "borrow_us", "return_us"),
}


class Shop(Server):
    """gunicorn on one host: two processes with threads, and in each a pool of connections to every store."""

    title = "gunicorn"
    processes = "cgunicorn"

    def __init__(self, host: str = "app") -> None:
        super().__init__(host)

    def start(self, bench: Bench) -> None:
        """Starts the workers and waits until they listen."""
        base, network = bench.base(self.host), bench.launcher.network
        package = base / "shop"
        package.mkdir()
        for source in resources.files(__package__).joinpath("shop").iterdir():
            if source.name.endswith(".py"):
                (package / source.name).write_bytes(source.read_bytes())
        events = ""
        if bench.options.agents and bench.options.truth:
            events = str(bench.events("shop"))
            for name, columns in _LOGS.items():
                Path(events, name).write_text("\t".join(columns) + "\n")
        environment = {
            "SHOP_DB_HOST": bench.hosts["db"],
            "SHOP_DB_USER": postgres.USER,
            "SHOP_DB_PASSWORD": postgres.PASSWORD,
            "SHOP_DB_NAME": postgres.DATABASE,
            "SHOP_REDIS_HOST": bench.hosts["redis"],
            "SHOP_MEMCACHED_HOST": bench.hosts["memcached"],
            "SHOP_POOL": str(max(1, bench.options.pool_size // _PROCESSES)),
            "SHOP_EVENTS": events,
            # The packages' Python shall find the packages' modules, whatever ours finds.
            "PYTHONPATH": "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        argv = [
            *(bench.paths.program("gunicorn"), "--chdir", str(base)),
            *("--bind", f"{bench.hosts[self.host]}:{PORT}", "--backlog", "511"),
            *("--workers", str(_PROCESSES), "--worker-class", "gthread"),
            *("--threads", str(max(1, bench.options.people_threads // _PROCESSES)), "--keep-alive", "60"),
            "shop.service:application",
        ]
        self.process = bench.launcher.start(self.host, f"shop-{self.host}", argv, environment)
        listening = network.inside(self.host, bench.paths.program("ss"), "-Hltn", f"sport = :{PORT}")
        wait_until(lambda: str(PORT) in attempt(listening).stdout, self.process, 15, self.title)

    def versions(self, paths: Paths) -> dict[str, str]:
        """gunicorn's own word, and those of the libraries."""
        told = {"gunicorn": call([paths.program("gunicorn"), "--version"]).strip()}
        for module in ("psycopg", "redis", "pymemcache"):
            ask = f"import {module}; print({module}.__version__)"
            told[f"python {module}"] = call([str(paths.files["system-python"]), "-c", ask]).strip()
        return told


def site(bench: Bench) -> str:
    """nginx's upstream and server block."""
    return f"""    proxy_http_version 1.1;
    proxy_set_header Connection "";
    upstream shop {{ server {bench.hosts["app"]}:{PORT}; keepalive 64; }}
    server {{
        listen {bench.hosts["web"]}:{nginx.PORT} backlog=511;
        location / {{ proxy_pass http://shop; }}
    }}
"""
