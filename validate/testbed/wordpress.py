"""WordPress: its files below a document root of its own, PHP-FPM that runs it, the database that it fills."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tapscope.validate.monitors.install import php as monitor

from . import dataset, mariadb, nginx
from .packages import Paths
from .processes import wait_until
from .scenario import Bench, Server
from .shell import attempt, call

PORT = 9000
ADDRESS = "10.77.0.20"
DATABASE = "wordpress"
PASSWORD = "boardpassword"
AUTHORS = 30
TOPICS = 10
TAGS = 40
POSTS = 1200
COMMENTS = 9000
# The post and the users that the installation itself makes come first.
FIRST_POST = 4
FIRST_AUTHOR = 2
FIRST_TOPIC = 2

_INI = """mysqli.allow_persistent = 1
memory_limit = 256M
max_execution_time = 120
date.timezone = UTC
opcache.enable = 1
opcache.validate_timestamps = 0
"""


def _sources() -> Traversable:
    return resources.files(__package__).joinpath("wordpress")


def _fingerprint(paths: Paths) -> str:
    """Changes when the content would."""
    digest = hashlib.sha256()
    for name in ("fill.php", "config.php"):
        digest.update(_sources().joinpath(name).read_bytes())
    digest.update((paths.files["wordpress"].parent / "wp-includes" / "version.php").read_bytes())
    digest.update(json.dumps(_wish()).encode())
    return digest.hexdigest()


def _wish() -> dict[str, Any]:
    return {
        "address": ADDRESS,
        "words": dataset.WORDS,
        "filler": dataset.FILLER,
        "authors": AUTHORS,
        "topics": TOPICS,
        "tags": TAGS,
        "posts": POSTS,
        "comments": COMMENTS,
        "password": PASSWORD,
    }


def document_root(paths: Paths, target: Path) -> Path:
    """A document root below target: links to the package, and our own configuration, drop-in and theme."""
    root = target / "root"
    root.mkdir(parents=True)
    for file in paths.files["wordpress"].parent.iterdir():
        if file.name not in ("wp-config.php", "wp-content"):
            (root / file.name).symlink_to(file)
    with resources.as_file(_sources()) as folder:
        shutil.copy(folder / "config.php", root / "wp-config.php")
        shutil.copytree(folder / "content", root / "wp-content")
        shutil.copytree(folder / "theme", root / "wp-content" / "themes" / "testbed")
        shutil.copy(folder / "prepend.php", target / "prepend.php")
        shutil.copy(folder / "fill.php", target / "fill.php")
    (target / "agent.php").write_text(monitor.agent())
    (target / "php.ini").write_text(_INI)
    return root


def _environment(root: Path, database: str, connections: str) -> dict[str, str]:
    return {
        "BLOG_ROOT": str(root),
        "BLOG_DB_HOST": database,
        "BLOG_DB_NAME": DATABASE,
        "BLOG_DB_USER": mariadb.USER,
        "BLOG_DB_PASSWORD": mariadb.PASSWORD,
        "BLOG_CONNECTIONS": connections,
    }


def _fill(paths: Paths, work: Path, socket: Path) -> None:
    """Installs WordPress through the database's local socket; content by WordPress's own functions."""
    call(
        mariadb.client(paths, socket),
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;"
        f"CREATE USER '{mariadb.USER}'@'localhost' IDENTIFIED BY '{mariadb.PASSWORD}';"
        f"CREATE USER '{mariadb.USER}'@'10.77.0.%' IDENTIFIED BY '{mariadb.PASSWORD}';"
        f"GRANT ALL ON {DATABASE}.* TO '{mariadb.USER}'@'localhost';"
        f"GRANT ALL ON {DATABASE}.* TO '{mariadb.USER}'@'10.77.0.%';",
    )
    root = document_root(paths, work)
    environment = _environment(root, f"localhost:{socket}", "request")
    settings = [f"{name}={value}" for name, value in environment.items()]
    script = [paths.program("php"), "-c", str(root.parent / "php.ini"), str(root.parent / "fill.php")]
    call(["env", *settings, *script, json.dumps(_wish())])


CONTENT = mariadb.Content("wordpress", _fingerprint, _fill)


class PhpFpm(Server):
    """PHP-FPM with WordPress on one host: a fixed number of workers, each with one request at a time."""

    title = "PHP-FPM"
    processes = "cphp-fpm"

    def __init__(self, host: str = "app", database: str = "db") -> None:
        super().__init__(host)
        self.database = database

    def start(self, bench: Bench) -> None:
        """Starts the workers and waits until they listen."""
        options, base, network = bench.options, bench.base(self.host), bench.launcher.network
        root = document_root(bench.paths, base)
        if options.agents:
            events = bench.events("php")
            # The agent makes its own two files; this one is the testbed's.
            (events / "checkouts.tsv").write_text("request_id\tthread_id\tborrow_us\treturn_us\n")
            with (base / "php.ini").open("a") as ini:
                ini.write(f'tapscope.events = "{events}"\n')
        address = bench.hosts[self.host]
        configured = base / "fpm.conf"
        configured.write_text(f"""[global]
error_log = {base}/fpm.log
daemonize = no
[www]
user = root
group = root
listen = {address}:{PORT}
listen.backlog = 511
pm = static
pm.max_children = {options.php_workers}
clear_env = no
catch_workers_output = yes
php_admin_value[auto_prepend_file] = {base}/prepend.php
php_admin_value[error_log] = {base}/php.log
php_admin_flag[log_errors] = on
""")
        environment = _environment(root, bench.hosts[self.database], options.php_connections)
        argv = [str(bench.paths.files["php-fpm"]), "-R", "-c", str(base / "php.ini"), "-y", str(configured)]
        self.process = bench.launcher.start(self.host, f"php-{self.host}", argv, environment)
        listening = network.inside(self.host, bench.paths.program("ss"), "-Hltn", f"sport = :{PORT}")
        wait_until(lambda: str(PORT) in attempt(listening).stdout, self.process, 15, self.title)

    def finish(self, bench: Bench) -> dict[str, Any]:
        """Lets the workers finish, and ends them. Returns with how many lines PHP complained."""
        if self.process is not None:
            self.process.stop(signal.SIGQUIT)
        complaints = bench.base(self.host) / "php.log"
        lines = complaints.read_text(errors="replace").splitlines() if complaints.exists() else []
        return {"php_complaints": len(lines), "php_first_complaint": lines[0]} if lines else {}

    def versions(self, paths: Paths) -> dict[str, str]:
        """Versions of PHP and of WordPress."""
        version = paths.files["wordpress"].parent / "wp-includes" / "version.php"
        line = next((x for x in version.read_text().splitlines() if x.startswith("$wp_version")), "")
        php = call([paths.program("php"), "-n", "-v"]).splitlines()[0]
        return {"wordpress": line.split("'")[1] if "'" in line else "", "php": php}


def site(bench: Bench) -> str:
    """nginx's server block: every page through PHP, one FastCGI connection per request (nginx's default)."""
    root = bench.base("app") / "root"
    parameters = "\n".join(f"            fastcgi_param {n} {v};" for n, v in _PARAMETERS.items())
    return f"""    server {{
        listen {bench.hosts["web"]}:{nginx.PORT} backlog=511;
        root "{root}";
        index index.php;
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
{parameters}
            fastcgi_pass {bench.hosts["app"]}:{PORT};
            fastcgi_read_timeout 120s;
        }}
    }}
"""


# As in the file that every nginx package brings (its place differs); RFC 3875, 4.1.
_PARAMETERS = {
    "QUERY_STRING": "$query_string",
    "REQUEST_METHOD": "$request_method",
    "CONTENT_TYPE": "$content_type",
    "CONTENT_LENGTH": "$content_length",
    "SCRIPT_NAME": "$fastcgi_script_name",
    "SCRIPT_FILENAME": "$document_root$fastcgi_script_name",
    "REQUEST_URI": "$request_uri",
    "DOCUMENT_URI": "$document_uri",
    "DOCUMENT_ROOT": "$document_root",
    "SERVER_PROTOCOL": "$server_protocol",
    "GATEWAY_INTERFACE": "CGI/1.1",
    "SERVER_SOFTWARE": "nginx",
    "REMOTE_ADDR": "$remote_addr",
    "REMOTE_PORT": "$remote_port",
    "SERVER_ADDR": "$server_addr",
    "SERVER_PORT": "$server_port",
    "SERVER_NAME": "$server_name",
    "REDIRECT_STATUS": "200",
}
