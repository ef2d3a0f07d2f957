"""The second HTTP service of the fan-out: gunicorn or aiohttp with an application of our own (`people/`)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from . import mariadb
from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt, call

PORT = 8000
_LOGS = {
    "requests.tsv": ("request_id", "ua_us", "ud_us", "status", "worker", "interaction"),
    "statements.tsv": ("request_id", "ordinal", "ds_us", "dr_us", "thread_id", "form"),
    "checkouts.tsv": ("request_id", "thread_id", "borrow_us", "return_us"),
}
_PROCESSES = 2


class People(Server):
    """gunicorn on one host: two processes with threads, one database connection per thread."""

    title = "gunicorn"
    processes = "cgunicorn"
    source = "service"

    def __init__(self, host: str = "people", database: str = "db") -> None:
        super().__init__(host)
        self.database = database

    def start(self, bench: Bench) -> None:
        """Starts the workers and waits until they listen."""
        base, network = bench.base(self.host), bench.launcher.network
        source = resources.files(__package__).joinpath("people", f"{self.source}.py")
        (base / f"{self.source}.py").write_bytes(source.read_bytes())
        events = ""
        if bench.options.agents:
            events = str(bench.events("people"))
            for name, columns in _LOGS.items():
                Path(events, name).write_text("\t".join(columns) + "\n")
        environment = {
            "PEOPLE_DB_HOST": bench.hosts[self.database],
            "PEOPLE_DB_USER": mariadb.USER,
            "PEOPLE_DB_PASSWORD": mariadb.PASSWORD,
            "PEOPLE_DB_NAME": mariadb.DATABASE,
            "PEOPLE_EVENTS": events,
            "PEOPLE_BIND": f"{bench.hosts[self.host]}:{PORT}",
            "PEOPLE_CONNECTIONS": str(bench.options.people_threads),
            # The packages' Python shall find the packages' modules, whatever ours finds.
            "PYTHONPATH": "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        argv = self.command(bench, base)
        self.process = bench.launcher.start(self.host, f"people-{self.host}", argv, environment)
        listening = network.inside(self.host, bench.paths.program("ss"), "-Hltn", f"sport = :{PORT}")
        wait_until(lambda: str(PORT) in attempt(listening).stdout, self.process, 15, self.title)

    def command(self, bench: Bench, base: Path) -> list[str]:
        """Command line that serves the source below base."""
        return [
            *(bench.paths.program("gunicorn"), "--chdir", str(base)),
            *("--bind", f"{bench.hosts[self.host]}:{PORT}", "--backlog", "511"),
            *("--workers", str(_PROCESSES), "--worker-class", "gthread"),
            *("--threads", str(max(1, bench.options.people_threads // _PROCESSES)), "--keep-alive", "60"),
            f"{self.source}:application",
        ]

    def versions(self, paths: Paths) -> dict[str, str]:
        """gunicorn's own word."""
        return {"gunicorn": call([paths.program("gunicorn"), "--version"]).strip()}


class EventPeople(People):
    """aiohttp on one host: one thread, and a pool of connections for the statements of all requests."""

    title = "aiohttp"
    processes = "cpython3"
    source = "event_service"

    def command(self, bench: Bench, base: Path) -> list[str]:
        """The packages' Python with the service."""
        return [str(bench.paths.files["system-python"]), str(base / f"{self.source}.py")]

    def versions(self, paths: Paths) -> dict[str, str]:
        """aiohttp's own word."""
        told = call([str(paths.files["system-python"]), "-c", "import aiohttp; print(aiohttp.__version__)"])
        return {"aiohttp": told.strip()}
