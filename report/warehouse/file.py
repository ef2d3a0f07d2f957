"""The warehouse file: opening, listing, removing and asking. Needs duckdb, imported when it is used."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tapscope.report.warehouse import layout
from tapscope.store.errors import ExitCode, TapscopeError

MEMORY = "1GB"
"""Above it DuckDB goes to disk."""

CHECKPOINT = "256MB"
"""Of changes that stand beside the file before they go into it: fewer, larger writes leave fewer holes."""

SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
"""Nothing is fetched from anywhere."""

READER_SETTINGS = SETTINGS | {"enable_external_access": "false", "lock_configuration": "true"}
"""A query may read the warehouse and nothing else."""


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise TapscopeError(
            "the warehouse needs duckdb, which is not installed", remedy="pip install 'tapscope[warehouse]'"
        ) from error
    return duckdb


class Warehouse:
    """An open warehouse; use it as a context manager."""

    def __init__(self, path: Path, connection: Any) -> None:
        self.path = path
        self.connection = connection
        self._sample_columns: dict[str, dict[str, tuple[str, str]]] = {}

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Warehouse:
        """Open a warehouse; with `write` one that does not exist is made. TapscopeError where that fails."""
        path = Path(path)
        if path.is_dir():
            raise TapscopeError("this is a folder", path=path, remedy="Name a warehouse file.")
        if path.exists() and not path.is_file():
            raise TapscopeError("this is no regular file", path=path, remedy="Name a warehouse file.")
        if any("\udc80" <= letter <= "\udcff" for letter in str(path)):  # bytes that are no UTF-8
            raise TapscopeError(
                "DuckDB opens files whose path is UTF-8 only", path=path, remedy="Give it another name."
            )
        if not path.exists() and not write:
            raise TapscopeError(
                "no such warehouse", path=path, remedy=f"Make one: tapscope warehouse add -w {path} RUN.db"
            )
        if not path.parent.is_dir():
            raise TapscopeError(
                "its folder does not exist", path=path, remedy=f"Make it: mkdir -p {path.parent}"
            )
        duckdb = _duckdb()
        settings = (SETTINGS if write else READER_SETTINGS) | {
            "memory_limit": MEMORY,
            "checkpoint_threshold": CHECKPOINT,
        }
        with _explained(path):
            # An empty file, as mktemp makes it, is as good as none.
            if write and path.is_file() and path.stat().st_size == 0:
                path.unlink()
            connection = duckdb.connect(str(path), read_only=not write, config=settings)
        opened = cls(path, connection)
        try:
            opened._prepare(write)
        except BaseException:
            connection.close()
            raise
        return opened

    def _prepare(self, write: bool) -> None:
        tables = "SELECT table_schema || '.' || table_name FROM information_schema.tables"
        known = {name for (name,) in self.sql(tables)}
        if not known and write:
            with self.transaction():
                for statement in layout.statements():
                    self.connection.execute(statement)
            return
        if not known:
            raise TapscopeError(
                "this warehouse is empty: nothing was added yet",
                path=self.path,
                remedy=f"Add runs: tapscope warehouse add -w {self.path} RUN.db",
            )
        if "stored.warehouse" not in known:
            raise TapscopeError(
                "this DuckDB file is no warehouse of tapscope", path=self.path, remedy="Name another file."
            )
        ((version,),) = self.sql("SELECT version FROM stored.warehouse")
        if version != layout.VERSION:
            raise TapscopeError(
                f"this warehouse has version {version}, this tapscope knows {layout.VERSION}",
                path=self.path,
                remedy="Make a new one: tapscope warehouse add -w FILE RUN...",
            )

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. Ctrl-C takes effect at its end; a second one at once."""
        with _explained(self.path), _uninterrupted():
            self.connection.execute("BEGIN")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                self._sample_columns.clear()
                with suppress(_duckdb().Error):  # a COMMIT that failed has rolled back, and says why
                    self.connection.execute("ROLLBACK")
                raise

    def sql(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query of our own."""
        with _explained(self.path):
            found: list[tuple[Any, ...]] = self.connection.execute(query, list(params)).fetchall()
        return found

    def user_query(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a query that a person wrote; its mistakes are that person's to mend."""
        duckdb = _duckdb()
        try:
            statements = duckdb.extract_statements(query)
            if len(statements) != 1:
                raise TapscopeError(
                    f"one statement is run at a time, and here are {len(statements)}",
                    path=self.path,
                    remedy="Give one SELECT.",
                    exit_code=ExitCode.USAGE,
                )
            return self._broken_off_by_ctrl_c(statements[0])
        except duckdb.Error as error:
            raise TapscopeError(
                f"this query cannot be run: {error}",
                path=self.path,
                remedy="Tables: SELECT table_schema, table_name FROM information_schema.tables.",
                exit_code=ExitCode.USAGE,
            ) from error

    def _broken_off_by_ctrl_c(self, statement: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
        """DuckDB does not look at signals: it works beside us, and we wait for it or for them."""

        def ask() -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = self.connection.execute(statement)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()

        with ThreadPoolExecutor(1) as beside:
            answer = beside.submit(ask)
            try:
                return answer.result()
            except KeyboardInterrupt:
                self.connection.interrupt()
                raise

    def experiments(self) -> list[dict[str, Any]]:
        """The runs inside, in the order in which they were added."""
        names = ["id", *(name for name, _ in layout.EXPERIMENT if name not in ("options", "manifest"))]
        rows = self.sql(f"SELECT {', '.join(names)} FROM stored.experiment ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def remove(self, name: str) -> None:
        """Take a run out, all of it or (interrupted) nothing. TapscopeError when none has the name."""
        found = self.sql("SELECT id FROM stored.experiment WHERE name = ?", [name])
        if not found:
            raise TapscopeError(
                f"no run is named {name!r}",
                path=self.path,
                remedy="`tapscope warehouse list` lists them.",
                exit_code=ExitCode.USAGE,
            )
        with self.transaction():
            self.clear(found[0][0])
            self.connection.execute("DELETE FROM stored.experiment WHERE id = ?", [found[0][0]])

    def clear(self, experiment: int) -> None:
        """Delete the rows of a run from every table but `experiment`; called inside a transaction."""
        for schema, table in self.sql(
            "SELECT table_schema, table_name FROM information_schema.columns "
            "WHERE column_name = 'experiment' AND table_schema IN ('stored', 'stored_samples')"
        ):
            self.connection.execute(f'DELETE FROM {schema}."{table}" WHERE experiment = ?', [experiment])

    def sample_columns(self, kind: str) -> dict[str, tuple[str, str]]:
        """Columns of a table of samples with their type and unit, kept up to date by who changes them."""
        if kind not in self._sample_columns:
            units = dict(
                self.sql("SELECT DISTINCT stored_as, unit FROM stored.host_column WHERE kind = ?", [kind])
            )
            types = self.sql(
                "SELECT column_name, data_type FROM information_schema.columns "
                "WHERE table_schema = 'stored_samples' AND table_name = ?",
                [kind],
            )
            self._sample_columns[kind] = {name: (type_, units.get(name, "")) for name, type_ in types}
        return self._sample_columns[kind]

    def insert(self, table: str, experiment: int, columns: dict[str, Any]) -> None:
        """Add rows of a run: numpy arrays of one length by column; NaN and None become NULL."""
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join(
            f"nullif(\"{name}\", 'NaN'::DOUBLE)"
            if getattr(array, "dtype", None) == np.float64
            else f'"{name}"'
            for name, array in columns.items()
        )
        self.connection.register("incoming", columns)
        try:
            self.connection.execute(
                f"INSERT INTO {table} (experiment, {names}) SELECT {experiment}, {values} FROM incoming"
            )
        finally:
            self.connection.unregister("incoming")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: inside a query, DuckDB makes errors of several kinds of it, and may lose the
    transaction."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what a user can cause into TapscopeError; other failures are bugs and pass."""
    duckdb = _duckdb()
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:  # the same, when Python saw the signal first
        if "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from error
    except duckdb.Error as error:
        text = str(error)
        if "Could not set lock" in text:
            raise TapscopeError(
                "another process has this warehouse open",
                path=path,
                remedy="Wait until it is done, then try again; what it added stays.",
            ) from error
        extension = "external extensions" in text or "sqlite_scanner" in text
        if "not a valid DuckDB" in text or extension or "Serialization" in text:
            # DuckDB would read an SQLite file, such as a run file, by an extension.
            raise TapscopeError("this is not a warehouse", path=path, remedy="Name another file.") from error
        if "Permission denied" in text or "Read-only file system" in text:
            raise TapscopeError(
                "no permission", path=path, remedy="Check the file's owner and mode."
            ) from error
        if "No space left" in text:
            raise TapscopeError(
                "the disk is full", path=path, remedy="Free some space and add again; whole runs stay."
            ) from error
        if isinstance(error, duckdb.IOException):
            raise TapscopeError(
                f"DuckDB cannot read or write this file: {text.partition(chr(10))[0]}",
                path=path,
                remedy="Check the disk, restore the file from a copy, or make a new one from its runs.",
            ) from error
        raise
