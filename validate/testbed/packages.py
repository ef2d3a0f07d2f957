"""Where the system packages keep what the testbed needs; one error that names every missing package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import TapscopeError

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

# What every scenario needs: network, mirror, capture, host records.
COMMON = ("ip", "tc", "ss", "ethtool", "tcpdump", "collectl")

# program -> Debian/Ubuntu package that brings it
PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ss": "iproute2",
    "ethtool": "ethtool",
    "tcpdump": "tcpdump",
    "collectl": "collectl",
    "apache2": "apache2",
    "mariadbd": "mariadb-server",
    "mariadb": "mariadb-client",
    "mariadb-install-db": "mariadb-server",
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "nginx": "nginx",
    "php": "php-cli",
    "gunicorn": "gunicorn",
    "redis-server": "redis-server",
    "memcached": "memcached",
    "mvn": "maven",
    "gcc": "gcc",
    "lttng": "lttng-tools",
    "lttng-sessiond": "lttng-tools",
    "babeltrace2": "babeltrace2",
}


def _glob(folder: str, pattern: str) -> tuple[str, ...]:
    """Files whose name carries a version, the newest first."""
    return tuple(sorted(map(str, Path(folder).glob(pattern)), reverse=True))


# name -> (candidate files, package)
FILES: dict[str, tuple[tuple[str, ...], str]] = {
    "mod_jk": (("/usr/lib/apache2/modules/mod_jk.so",), "libapache2-mod-jk"),
    "tomcat": (("/usr/share/tomcat10/bin/bootstrap.jar",), "tomcat10"),
    "tomcat_jdbc": (
        ("/usr/share/tomcat10/lib/tomcat-jdbc.jar", "/usr/share/java/tomcat10-jdbc.jar"),
        "tomcat10",
    ),
    "servlet_api": (
        ("/usr/share/tomcat10/lib/servlet-api.jar", "/usr/share/java/tomcat10-servlet-api.jar"),
        "tomcat10",
    ),
    "driver": (("/usr/share/java/mariadb-java-client.jar",), "libmariadb-java"),
    "php-fpm": (_glob("/usr/sbin", "php-fpm[0-9]*"), "php-fpm"),
    "mysqli": (_glob("/usr/lib/php", "*/mysqli.so"), "php-mysql"),
    "system-python": (("/usr/bin/python3",), "python3"),
    "aiohttp": (("/usr/lib/python3/dist-packages/aiohttp/__init__.py",), "python3-aiohttp"),
    "aiomysql": (("/usr/lib/python3/dist-packages/aiomysql/__init__.py",), "python3-aiomysql"),
    "pymysql": (("/usr/lib/python3/dist-packages/pymysql/__init__.py",), "python3-pymysql"),
    "postgres": (_glob("/usr/lib/postgresql", "*/bin/postgres"), "postgresql"),
    "psycopg": (("/usr/lib/python3/dist-packages/psycopg/__init__.py",), "python3-psycopg"),
    "psycopg-pool": (("/usr/lib/python3/dist-packages/psycopg_pool/__init__.py",), "python3-psycopg-pool"),
    "python-redis": (("/usr/lib/python3/dist-packages/redis/__init__.py",), "python3-redis"),
    "pymemcache": (("/usr/lib/python3/dist-packages/pymemcache/__init__.py",), "python3-pymemcache"),
    "wordpress": (("/usr/share/wordpress/wp-load.php",), "wordpress"),
    "lttng-ust": (
        ("/usr/include/lttng/tracepoint.h", *_glob("/usr/include", "*-linux-gnu*/lttng/tracepoint.h")),
        "liblttng-ust-dev",
    ),
}


@dataclass(frozen=True)
class Paths:
    """Absolute paths of programs and files."""

    programs: dict[str, Path]
    files: dict[str, Path]

    def program(self, name: str) -> str:
        return str(self.programs[name])

    @property
    def apache_modules(self) -> Path:
        return self.files["mod_jk"].parent

    @property
    def tomcat_home(self) -> Path:
        return self.files["tomcat"].parent.parent


def missing(needs: Collection[str] | None = None) -> list[str]:
    """Names of the packages that are not installed, sorted. needs: programs and files; None: all known."""
    search = os.environ.get("PATH", "") + ":" + _SBIN
    wanted = {*PROGRAMS, *FILES} if needs is None else {*COMMON, *needs}
    lacking = {
        package
        for name, package in PROGRAMS.items()
        if name in wanted and shutil.which(name, path=search) is None
    }
    for name, (candidates, package) in FILES.items():
        if name in wanted and not any(Path(c).exists() for c in candidates):
            lacking.add(package)
    return sorted(lacking)


def _require_root() -> None:
    if os.geteuid() != 0:
        raise TapscopeError(
            "the testbed makes network namespaces, which only root may do",
            remedy="Run it with sudo.",
        )


def find_root_program(name: str) -> str:
    """Path of one program that only root can use to an end. Raises TapscopeError like find()."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":" + _SBIN)
    if found is None:
        raise TapscopeError(f"{name} is not installed", remedy=f"Install the package {PROGRAMS[name]}.")
    _require_root()
    return found


def find(needs: Collection[str]) -> Paths:
    """Paths of everything named in `needs`, and of what every scenario needs.

    Raises TapscopeError when not root or when packages are missing; the message names all of them at once.
    """
    lacking = missing(needs)
    if lacking:
        raise TapscopeError(
            f"the testbed needs packages that are not installed: {', '.join(lacking)}",
            remedy=f"Install them: apt-get install --no-install-recommends {' '.join(lacking)}",
        )
    _require_root()
    search = os.environ.get("PATH", "") + ":" + _SBIN
    wanted = {*COMMON, *needs}
    programs = {name: Path(str(shutil.which(name, path=search))) for name in PROGRAMS if name in wanted}
    files = {
        name: next(Path(c) for c in candidates if Path(c).exists())
        for name, (candidates, _) in FILES.items()
        if name in wanted
    }
    return Paths(programs, files)
