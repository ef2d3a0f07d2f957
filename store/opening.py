"""Making and opening of run files: what may be replaced, and which version is read.

Who only reads a file of an older version reads a migrated copy of it: a command that shows something must not
change what it shows, and whoever still has the older tapscope can go on. The copy lies in the folder for
temporary files, or beside the run file where that has no room, and is removed when it is closed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tapscope.store import schema
from tapscope.store.errors import ExitCode, TapscopeError

ROOM = 1.25
"""Times its size that a run file may need when it is migrated."""


@dataclass(frozen=True)
class Opened:
    """A connection, the file that it reads, and the folder of a migrated copy."""

    connection: sqlite3.Connection
    path: Path
    copy: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Close the connection and remove the copy."""
        self.connection.close()
        if self.copy is not None:
            self.copy.cleanup()


def created(path: Path, *, force: bool) -> Opened:
    """A new run file. One that exists is replaced only with `force`, anything else never, but for what lies
    under the name that it has while it is filled."""
    if path.is_dir():
        raise TapscopeError(
            "this is a folder", path=path, remedy="Name a file to write.", exit_code=ExitCode.USAGE
        )
    if not path.parent.exists():
        raise TapscopeError("its folder does not exist", path=path, remedy=f"Make it: mkdir -p {path.parent}")
    if path.exists() and not path.is_file():  # a device or a pipe must never be replaced
        raise TapscopeError("this is not a regular file", path=path, remedy="Name a file to write.")
    if path.exists() and path.stat().st_size > 0:
        if not force:
            raise TapscopeError(
                "this file exists already", path=path, remedy="Give another name, or --force to replace it."
            )
        with schema.explained(path), closing(schema.connect(path, write=False)) as connection:
            schema.version_of(connection, path)  # refuses what is not a run file
    # Who waits for the file must not find half of its tables: it has its name only when it has all of them.
    begun = path.with_name(f"{path.name}.begun")
    _remove(begun)
    with schema.explained(path):
        try:
            with closing(schema.connect(begun, write=True)) as connection:
                schema.prepare_new(connection)
        except sqlite3.DatabaseError:
            _remove(begun)  # not even the empty tables fit: nothing is lost
            raise
        _remove(path)  # also a log that is left of one: SQLite would write it into the new file
        begun.rename(path)
        return opened(path, write=True)


def refuse_over(run: Path, out: Path) -> None:
    """Nothing that is made of a run file may be written over it."""
    if out.exists() and out.samefile(run):
        raise TapscopeError(
            "this is the run file that is read",
            path=out,
            remedy="Name another file to write.",
            exit_code=ExitCode.USAGE,
        )


def opened(path: Path, *, write: bool) -> Opened:
    """An existing run file, at the latest version."""
    if not path.exists():
        raise TapscopeError(
            "no such file", path=path, remedy="Make one with `tapscope trace INPUT -o RUN.db`."
        )
    if path.is_dir():
        raise TapscopeError(
            "this is a folder, not a run file", path=path, remedy="Run `tapscope trace` on it first."
        )
    if not os.access(path, os.R_OK):
        raise TapscopeError("no permission to read", path=path, remedy="Check the file's owner and mode.")
    with schema.explained(path):
        connection = schema.connect(path, write=write)
        try:
            older = schema.version_of(connection, path) < schema.latest_version()
            if write:
                if older:
                    schema.migrate(connection)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
            elif older:
                with closing(connection):
                    return _migrated_copy(connection, path)
        except (sqlite3.DatabaseError, TapscopeError):
            connection.close()
            raise
    return Opened(connection, path)


def _migrated_copy(connection: sqlite3.Connection, path: Path) -> Opened:
    folder = tempfile.TemporaryDirectory(prefix="tapscope-", dir=_roomy(path))
    copy = Path(folder.name) / "run.db"
    try:
        with closing(schema.connect(copy, write=True)) as writer:
            connection.backup(writer)
            writer.execute("PRAGMA synchronous = OFF")
            schema.migrate(writer)
        return Opened(schema.connect(copy, write=False), copy, folder)
    except BaseException:
        folder.cleanup()
        raise


def _roomy(path: Path) -> Path:
    """A folder with room for a migrated copy."""
    needed = int(path.stat().st_size * ROOM)
    for folder in (Path(tempfile.gettempdir()), path.resolve().parent):
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > needed:
            return folder
    raise TapscopeError(
        "this run file is of an older version, and there is no room for a copy to read",
        path=path,
        remedy="Set TMPDIR to a folder with room, or trace the capture again.",
    )


def _remove(path: Path) -> None:
    """Remove a run file with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
