"""Opening of run files: application id, numbered migrations, SQLite's failures in words to act on.

A migration is `store/migrations/NNNN_name.sql`, forward only. Each runs in one transaction together with its
bump of `user_version`, so that a file is always at exactly one version.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib import resources
from pathlib import Path
from typing import Any

from tapscope.store import codes
from tapscope.store.errors import ExitCode, TapscopeError

APPLICATION_ID = 0x54415053  # "TAPS"
BUSY_SECONDS = 5.0

CODE_KINDS: dict[str, type[IntEnum]] = {
    "protocol": codes.Protocol,
    "direction": codes.Direction,
    "message_kind": codes.MessageKind,
    "close_how": codes.CloseHow,
    "tcp_event_kind": codes.TcpEventKind,
    "token_kind": codes.TokenKind,
    "link_kind": codes.LinkKind,
}
"""Enumerations whose names stand in the `code` table, so that views and SQL users see names."""

FLAG_KINDS = {"message_flag": codes.MessageFlag, "call_flag": codes.CallFlag}


def migrations() -> list[tuple[int, str, str]]:
    """(version, name, SQL text) of every migration, in order; versions are 1, 2, 3, ... without a hole."""
    found = []
    for entry in resources.files("tapscope.store").joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            found.append((int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    found.sort()
    assert [version for version, _, _ in found] == list(range(1, len(found) + 1)), "migrations have a hole"
    return found


def latest_version() -> int:
    """Version that this tapscope writes."""
    return len(migrations())


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the SQLite failures that a user can cause into TapscopeError; others are bugs and pass."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _explain(error, path) from error


def _explain(error: sqlite3.DatabaseError, path: Path) -> Exception:
    text = str(error)
    if "is full" in text or "disk I/O error" in text:
        remedy = "Free some space and run the command again; what was stored before stays readable."
        return TapscopeError("the disk is full", path=path, remedy=remedy)
    if "locked" in text or "busy" in text:
        return TapscopeError(
            "another process is writing to this run file",
            path=path,
            remedy="Wait until it is done, then try again.",
        )
    if "malformed" in text:
        return TapscopeError(
            "this run file is damaged, or cut", path=path, remedy="Copy it again, or trace the capture again."
        )
    if "not a database" in text:
        return TapscopeError(
            "this is not a tapscope run file",
            path=path,
            remedy="Make one with `tapscope trace INPUT -o RUN.db`.",
        )
    if "readonly" in text or "read-only" in text:
        return TapscopeError("no permission to write", path=path, remedy="Choose another output file.")
    if "unable to open" in text:
        return TapscopeError("cannot be opened", path=path, remedy="Check the folder and its permissions.")
    return error


@contextmanager
def mistakes_explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says of a query that a person wrote into TapscopeError, with SQLite's words; a query
    that was broken off into KeyboardInterrupt."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error
        changing = "readonly" in str(error)
        raise TapscopeError(
            "a query cannot change the run" if changing else f"this query cannot be run: {error}",
            path=path,
            remedy="Tables and views: SELECT name, type FROM sqlite_schema WHERE name NOT LIKE 'host_%'.",
            exit_code=ExitCode.USAGE,
        ) from error


def rows_explained(path: Path, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The same for each row of the query."""
    with mistakes_explained(path):
        # Not "yield from": it would close the cursor, also one whose file is closed.
        for row in rows:  # noqa: UP028
            yield row


def connect(path: Path, *, write: bool, shared: bool = False) -> sqlite3.Connection:
    """Connection in autocommit mode. Read-only ones cannot change the file, whatever SQL is run.

    A `shared` one may be closed by another thread than the one that made it.
    """
    mode = "rwc" if write else "ro"
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=not shared
    )
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -65536")  # KiB
    return connection


def prepare_new(connection: sqlite3.Connection) -> None:
    """Mark an empty file as ours and bring it to the latest version. There is nothing yet to roll back to, so
    its journal takes no room on the disk."""
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    migrate(connection)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Version of a run file; TapscopeError if it is not one, or one of a later tapscope."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise TapscopeError(
            "this is not a tapscope run file",
            path=path,
            remedy="Make one with `tapscope trace INPUT -o RUN.db`.",
        )
    if version > latest_version():
        raise TapscopeError(
            f"this run file has version {version}, this tapscope reads up to {latest_version()}",
            path=path,
            remedy="Use the tapscope that wrote it, or a later one.",
        )
    return int(version)


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the migrations that the file lacks. Applied twice means applied once."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, _, text in migrations():
        if number <= version:
            continue
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{text}\nPRAGMA user_version = {number};\nCOMMIT;")
        except sqlite3.Error:
            if connection.in_transaction:  # executescript leaves it open after a failure
                connection.execute("ROLLBACK")
            raise
    _write_codes(connection)


def _write_codes(connection: sqlite3.Connection) -> None:
    wanted = [(kind, int(m), m.name.lower()) for kind, enum in CODE_KINDS.items() for m in enum]
    wanted += [(kind, int(m), str(m.name).lower()) for kind, flag in FLAG_KINDS.items() for m in flag if m]
    connection.execute("BEGIN")
    connection.executemany("INSERT OR REPLACE INTO code (kind, value, name) VALUES (?, ?, ?)", wanted)
    connection.execute("COMMIT")
