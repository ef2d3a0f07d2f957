"""The table of scenarios that `tapscope testbed run --scenario NAME` knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapscope.store.errors import ExitCode, TapscopeError

from . import apache, mariadb
from .apache import Apache
from .checkouts import Checkouts, MysqlCheckouts
from .mariadb import Database
from .pcapfile import Capture
from .scenario import Bench, Scenario, Server
from .tomcat import Tomcat
from .truth import Holder

_BOARD_NEEDS = (
    *("apache2", "mod_jk", "java", "javac", "tomcat", "tomcat_jdbc", "servlet_api", "driver"),
    *("mariadbd", "mariadb", "mariadb-install-db"),
)
_BOARD_PROTOCOLS = {apache.PORT: "http", apache.AJP_PORT: "ajp", mariadb.PORT: "mysql"}


def board_holders(capture: Capture, bench: Bench, servers: Sequence[Server]) -> Mapping[str, Holder]:
    """Database messages without an id belong to whoever had the connection checked out."""
    logs = sorted((bench.out / "events").glob("*/checkouts.tsv"))
    known = {
        key: thread
        for server in servers
        if isinstance(server, Database)
        for key, thread in server.known.items()
    }
    return {"mysql": MysqlCheckouts(capture, mariadb.PORT, Checkouts.read(*logs), known)}


_ALL = (
    Scenario(
        name="board",
        summary="Apache httpd, Tomcat and MariaDB: the bulletin board on three tiers",
        hosts={"client": "10.77.0.10", "web": "10.77.0.20", "app": "10.77.0.30", "db": "10.77.0.40"},
        entry=("web", apache.PORT),
        ports={"web": apache.PORT, "app": apache.AJP_PORT, "db": mariadb.PORT},
        protocols=_BOARD_PROTOCOLS,
        servers=lambda options: [Database(), Tomcat(), Apache()],
        visitors="visitors",
        holders=board_holders,
        needs=_BOARD_NEEDS,
    ),
)

SCENARIOS = {scenario.name: scenario for scenario in _ALL}


def get(name: str) -> Scenario:
    """A scenario by its name; TapscopeError for one that does not exist."""
    if name not in SCENARIOS:
        raise TapscopeError(
            f"there is no scenario {name!r}",
            remedy=f"Name one of: {', '.join(SCENARIOS)}.",
            exit_code=ExitCode.USAGE,
        )
    return SCENARIOS[name]
