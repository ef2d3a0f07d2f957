"""MariaDB: every statement into the slow-log table, or into performance_schema."""

from __future__ import annotations

from pathlib import Path

from tapscope.validate.monitors.install.changes import MARK, Change, OwnFile

SETTINGS: dict[str, dict[str, str]] = {
    "slow_log": {"log_output": "TABLE", "slow_query_log": "ON", "long_query_time": "0"},
    "performance_schema": {
        "performance_schema": "ON",
        "performance_schema_consumer_events_statements_current": "ON",
        "performance_schema_consumer_events_statements_history": "ON",
        "performance_schema_consumer_events_statements_history_long": "ON",
        # A ring: so many statements are kept until they are exported; 3 to 4 KiB each, at the start.
        "performance_schema_events_statements_history_long_size": "200000",
    },
}
"""Which log -> server settings."""

LOGS = tuple(SETTINGS)


def arguments(log: str) -> list[str]:
    """The settings as arguments of mariadbd."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS[log].items()]


def changes(root: Path, log: str) -> list[Change]:
    """A file that is read after the others. root: /etc/mysql or a copy of it."""
    head = (
        f"# {MARK}: event monitor of MariaDB; `tapscope monitors install --server mariadb --remove` ends it."
    )
    lines = [head, "[mariadb]", *(f"{name} = {value}" for name, value in SETTINGS[log].items())]
    folder = "mariadb.conf.d" if (root / "mariadb.conf.d").is_dir() else "conf.d"
    return [OwnFile(f"{folder}/99-tapscope.cnf", "\n".join(lines) + "\n")]


def problems(root: Path) -> list[str]:
    """Whether anything reads the folder."""
    folders = [name for name in ("mariadb.conf.d", "conf.d") if (root / name).is_dir()]
    return [] if folders else [f"{root} has neither mariadb.conf.d/ nor conf.d/"]
