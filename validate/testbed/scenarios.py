"""The table of scenarios that `tapscope testbed run --scenario NAME` knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tapscope.store.errors import ExitCode, TapscopeError

from . import (
    apache,
    avatica,
    caches,
    fanout,
    mariadb,
    nginx,
    people,
    postgres,
    shop_catalogue,
    shop_server,
    tomcat,
    vapp,
    wordpress,
)
from .apache import Apache
from .avatica import AvaticaCheckouts, Middleware
from .checkouts import Checkouts, MysqlCheckouts, WireCheckouts
from .mariadb import Database
from .pcapfile import Capture
from .scenario import Bench, Scenario, Server
from .tomcat import Tomcat
from .truth import Holder

_MARIADB = ("mariadbd", "mariadb", "mariadb-install-db")
_TOMCAT = ("java", "javac", "tomcat", "tomcat_jdbc", "servlet_api", "driver")
_BOARD_NEEDS = ("apache2", "mod_jk", *_TOMCAT, *_MARIADB)


def _checkout_logs(bench: Bench) -> list[Path]:
    return sorted((bench.out / "events").glob("*/checkouts.tsv"))


def board_holders(capture: Capture, bench: Bench, servers: Sequence[Server]) -> dict[str, Holder]:
    """Database messages without an id belong to whoever had the connection checked out."""
    known = {
        key: thread
        for server in servers
        if isinstance(server, Database)
        for key, thread in server.known.items()
    }
    checkouts = Checkouts.read(*_checkout_logs(bench))
    return {"mysql": MysqlCheckouts(capture, mariadb.PORT, checkouts, known)}


def avatica_holders(capture: Capture, bench: Bench, servers: Sequence[Server]) -> dict[str, Holder]:
    """The same behind the middleware, which opens one connection for each of its clients' connections."""
    checkouts = Checkouts.read(*_checkout_logs(bench), key="connection")
    return {**board_holders(capture, bench, servers), "avatica": AvaticaCheckouts(checkouts)}


def shop_holders(capture: Capture, bench: Bench, servers: Sequence[Server]) -> dict[str, Holder]:
    """What the shop's stores are asked belongs to whoever had the connection checked out."""
    rule = WireCheckouts(Checkouts.read(*_checkout_logs(bench), key="connection"))
    return {"postgres": rule, "redis": rule, "memcached": rule}


_BOARD = Scenario(
    name="board",
    summary="Apache httpd, Tomcat and MariaDB: the bulletin board on three tiers",
    hosts={"client": "10.77.0.10", "web": "10.77.0.20", "app": "10.77.0.30", "db": "10.77.0.40"},
    entry=("web", apache.PORT),
    ports={"web": apache.PORT, "app": apache.AJP_PORT, "db": mariadb.PORT},
    protocols={apache.PORT: "http", apache.AJP_PORT: "ajp", mariadb.PORT: "mysql"},
    servers=lambda options: [Database(), Tomcat(), Apache()],
    visitors="visitors",
    holders=board_holders,
    needs=_BOARD_NEEDS,
)

_FANOUT = Scenario(
    name="fanout",
    summary="nginx that asks Tomcat and a Python service at the same time (SSI), both on MariaDB",
    hosts={
        "client": "10.77.0.10",
        "web": "10.77.0.20",
        "app": "10.77.0.30",
        "people": "10.77.0.31",
        "db": "10.77.0.40",
    },
    entry=("web", nginx.PORT),
    ports={"web": nginx.PORT, "app": tomcat.HTTP_PORT, "people": people.PORT, "db": mariadb.PORT},
    protocols={nginx.PORT: "http", tomcat.HTTP_PORT: "http", people.PORT: "http", mariadb.PORT: "mysql"},
    servers=lambda options: [
        Database(),
        Tomcat(protocol="http"),
        people.People(),
        nginx.Nginx("web", fanout.site),
    ],
    visitors="fanout",
    holders=board_holders,
    needs=(*_MARIADB, *_TOMCAT, "nginx", "gunicorn", "pymysql"),
    parts=fanout.PARTS,
)

_VAPP_HOSTS = {
    "client": "10.77.0.10",
    "web": "10.77.0.20",
    "mid1": "10.77.0.31",
    "mid2": "10.77.0.32",
    "back1": "10.77.0.41",
    "back2": "10.77.0.42",
    "back3": "10.77.0.43",
    "store": "10.77.0.50",
}

_ALL = (
    _BOARD,
    replace(
        _BOARD,
        name="prepared",
        summary="board, every statement prepared once per connection and executed by number",
        defaults={"statements": "prepared"},
    ),
    replace(
        _BOARD,
        name="balanced",
        summary="board with two Tomcats behind mod_jk's balancer",
        hosts={
            "client": "10.77.0.10",
            "web": "10.77.0.20",
            "app1": "10.77.0.31",
            "app2": "10.77.0.32",
            "db": "10.77.0.40",
        },
        ports={"web": apache.PORT, "app1": apache.AJP_PORT, "app2": apache.AJP_PORT, "db": mariadb.PORT},
        servers=lambda options: [
            Database(),
            Tomcat("app1", events="tomcat-app1"),
            Tomcat("app2", events="tomcat-app2"),
            Apache(apps=("app1", "app2")),
        ],
        defaults={"pool_size": 20},
    ),
    replace(
        _BOARD,
        name="avatica",
        summary="four tiers: a JDBC middleware (Apache Avatica) between Tomcat and MariaDB",
        hosts={**_BOARD.hosts, "middle": "10.77.0.35"},
        ports={**_BOARD.ports, "middle": avatica.PORT},
        protocols={**_BOARD.protocols, avatica.PORT: "avatica"},
        servers=lambda options: [Database(), Middleware(), Tomcat(middle="middle"), Apache()],
        holders=avatica_holders,
        needs=(*_BOARD_NEEDS, "mvn"),
    ),
    replace(
        _BOARD,
        name="saturated",
        summary="board with a throttled database: 100 and more requests wait for pool connections",
        defaults={
            "users": 300,
            "think_s": 0.5,
            "pool_size": 20,
            "cpu_quota": {"db": 0.2},
            "tomcat_threads": 320,
            "apache_threads": 320,
        },
    ),
    replace(
        _BOARD,
        name="pauses",
        summary="board whose servers stand still: full collections in Tomcat, stops of Tomcat and MariaDB",
        defaults={
            "users": 100,
            "think_s": 1.0,
            "fault": ("stop@app", "stop@db"),
            "fault_every_s": 2.5,
            "fault_ms": (50, 500),
            "serial_gc": True,
            "heap_mib": 256,
            "ballast_mib": 64,
            "collect_every_s": 3.0,
        },
    ),
    replace(
        _BOARD,
        name="overflow",
        summary="board with short accept queues, bursts and stops: SYN drops, queues that overflow",
        defaults={
            "users": 150,
            "think_s": 0.8,
            "keep_alive": False,
            "burst_s": 1.5,
            "backlog": 8,
            "apache_threads": 50,
            "fault": ("stop@web", "stop@app"),
            "fault_every_s": 2.5,
            "fault_ms": (50, 500),
        },
    ),
    Scenario(
        name="wordpress",
        summary="nginx, PHP-FPM with WordPress (FastCGI) and MariaDB: connections per request or persistent",
        hosts={"client": "10.77.0.10", "web": wordpress.ADDRESS, "app": "10.77.0.30", "db": "10.77.0.40"},
        entry=("web", nginx.PORT),
        ports={"web": nginx.PORT, "app": wordpress.PORT, "db": mariadb.PORT},
        protocols={nginx.PORT: "http", wordpress.PORT: "fastcgi", mariadb.PORT: "mysql"},
        servers=lambda options: [
            Database(content=wordpress.CONTENT),
            wordpress.PhpFpm(),
            nginx.Nginx("web", wordpress.site),
        ],
        visitors="wordpress_visitors",
        holders=board_holders,
        needs=(*_MARIADB, "nginx", "php", "php-fpm", "mysqli", "wordpress"),
    ),
    _FANOUT,
    replace(
        _FANOUT,
        name="fanout-events",
        summary="the same, but the Python service is event-driven and asks MariaDB several things at once",
        servers=lambda options: [
            Database(),
            Tomcat(protocol="http"),
            people.EventPeople(),
            nginx.Nginx("web", fanout.site),
        ],
        needs=(*_MARIADB, *_TOMCAT, "nginx", "system-python", "aiohttp", "aiomysql"),
    ),
    Scenario(
        name="shop",
        summary="nginx and a Python service (gunicorn) that asks PostgreSQL, Redis and memcached",
        hosts={
            "client": "10.77.0.10",
            "web": "10.77.0.20",
            "app": "10.77.0.30",
            "db": "10.77.0.40",
            "redis": "10.77.0.41",
            "memcached": "10.77.0.42",
        },
        entry=("web", nginx.PORT),
        ports={
            "web": nginx.PORT,
            "app": shop_server.PORT,
            "db": postgres.PORT,
            "redis": caches.REDIS_PORT,
            "memcached": caches.MEMCACHED_PORT,
        },
        protocols={
            nginx.PORT: "http",
            shop_server.PORT: "http",
            postgres.PORT: "postgres",
            caches.REDIS_PORT: "redis",
            caches.MEMCACHED_PORT: "memcached",
        },
        servers=lambda options: [
            postgres.Postgres(shop_catalogue.write),
            caches.Redis("redis"),
            caches.Memcached("memcached"),
            shop_server.Shop(),
            nginx.Nginx("web", shop_server.site),
        ],
        visitors="shop_visitors",
        holders=shop_holders,
        needs=(
            *("nginx", "gunicorn", "system-python", "postgres", "redis-server", "memcached"),
            *("psycopg", "psycopg-pool", "python-redis", "pymemcache"),
        ),
    ),
    Scenario(
        name="random",
        summary="vApp, servers of our own on four tiers: paths of any shape, all requests look alike",
        hosts=_VAPP_HOSTS,
        entry=("web", vapp.PORT),
        ports={host: vapp.PORT for host in _VAPP_HOSTS if host != "client"},
        protocols={vapp.PORT: "http"},
        servers=vapp.servers,
        visitors="vapp",
        holders=lambda capture, bench, servers: {},
        needs=(),
        tiers=vapp.TIERS,
        defaults={"users": 30, "think_s": 0.1},
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
