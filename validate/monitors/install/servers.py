"""The table of servers that `tapscope monitors` knows: what each gets, what that tells, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate.monitors.install import apache, avatica, mariadb, nginx, php, tomcat
from tapscope.validate.monitors.install.changes import Change


@dataclass(frozen=True)
class Server:
    """One kind of server.

    name : on the command line; tier : of TIERS
    tells : which stamps, how fine; changed : what is changed in the server, in one line
    tree : its configuration on Debian and Ubuntu; logs : kinds of log to choose from, the first by default
    changes(tree, log) : what is to be made; problems(tree) : what keeps it from working
    afterwards : commands that make it begin, which are never run from here
    fetch : how its logs come to the folder that `tapscope validate --events` reads
    """

    name: str
    tier: str
    tells: str
    changed: str
    tree: Callable[[], Path]
    changes: Callable[[Path, str], list[Change]]
    problems: Callable[[Path], list[str]]
    afterwards: tuple[str, ...]
    fetch: tuple[str, ...]
    logs: tuple[str, ...] = ("access",)


SERVERS = {
    server.name: server
    for server in (
        Server(
            name="apache",
            tier="web",
            tells="UA, UD in us; DS in us, DR = DS + time in mod_jk",
            changed="one file in conf-available: mod_unique_id, LogFormat, one line of mod_log_debug each",
            tree=lambda: Path("/etc/apache2"),
            changes=lambda root, log: apache.changes(root),
            problems=apache.problems,
            afterwards=("apache2ctl configtest", "systemctl reload apache2"),
            fetch=("cp /var/log/apache2/tapscope_access.log /var/log/apache2/error.log EVENTS/apache/",),
        ),
        Server(
            name="nginx",
            tier="web",
            tells="UA, UD in ms (nginx has nothing finer)",
            changed="one file in conf.d: a log_format, and the header X-Request-ID for what is behind it",
            tree=lambda: Path("/etc/nginx"),
            changes=lambda root, log: nginx.changes(root),
            problems=nginx.problems,
            afterwards=("nginx -t", "systemctl reload nginx"),
            fetch=("cp /var/log/nginx/tapscope.log EVENTS/nginx/nginx.log",),
        ),
        Server(
            name="tomcat",
            tier="app",
            tells="UA in ms, UD - UA in us; with the agent UA, DS, DR, UD in us per request and statement",
            changed="a Valve in server.xml, the agent's jar in lib/; for statements, a data source's URL",
            tree=tomcat.tree,
            changes=lambda root, log: tomcat.changes(root),
            problems=tomcat.problems,
            afterwards=("systemctl restart 'tomcat*'",),
            fetch=("cp BASE/logs/tapscope_access.log BASE/logs/tapscope/*.tsv EVENTS/tomcat/",),
        ),
        Server(
            name="php",
            tier="app",
            tells="UA, UD in us with the agent; DS, DR where the application's database layer tells",
            changed="one .ini file in conf.d, and the agent as auto_prepend_file",
            tree=php.tree,
            changes=lambda root, log: php.changes(root),
            problems=php.problems,
            afterwards=("systemctl reload 'php*-fpm'",),
            fetch=(f"cp {php.EVENTS}/*.tsv EVENTS/php/",),
        ),
        Server(
            name="avatica",
            tier="middle",
            tells="UA, DS, DR, UD in us per remote call, and every statement, with the agent",
            changed="the agent's jar beside those of the server; one line of its program, and its JDBC URL",
            tree=avatica.tree,
            changes=lambda root, log: avatica.changes(root),
            problems=avatica.problems,
            afterwards=("change the program as tapscope-avatica.txt says, and start it again",),
            fetch=("cp FOLDER/rpc.tsv FOLDER/statements.tsv EVENTS/avatica/",),
        ),
        Server(
            name="mariadb",
            tier="db",
            tells="UA, UD in us per statement",
            changed="one file in mariadb.conf.d: each statement into mysql.slow_log or performance_schema",
            tree=lambda: Path("/etc/mysql"),
            changes=mariadb.changes,
            problems=mariadb.problems,
            afterwards=("systemctl restart mariadb",),
            fetch=("tapscope monitors export --log LOG | mariadb --batch > EVENTS/mariadb/LOG.tsv",),
            logs=mariadb.LOGS,
        ),
    )
}


def get(name: str, log: str | None) -> tuple[Server, str]:
    """A server and the kind of log it is to write; TapscopeError for a kind that it does not have."""
    server = SERVERS[name]
    if log is not None and log not in server.logs:
        raise TapscopeError(
            f"{name} has no log {log!r}",
            remedy=f"Name one of: {', '.join(server.logs)}.",
            exit_code=ExitCode.USAGE,
        )
    return server, log or server.logs[0]
