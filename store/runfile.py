"""The run file: one SQLite database that holds a whole run, from connections to load series.

Every table is written in a transaction of its own, so that a full disk or Ctrl-C leaves what was stored
before readable. Contract tables (`tapscope.store.tables`) go in and out as numpy columns; row number = id.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.store import opening, schema, tables
from tapscope.store.blocks import covered, drop_blocks, in_blocks, read_blocks, write_blocks
from tapscope.store.dynamic import (
    DynamicTable,
    drop_dynamic,
    read_dynamic,
    read_dynamic_tables,
    write_dynamic,
)
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.event_calls import replace_event_calls
from tapscope.store.opening import Opened
from tapscope.store.packed import LEAST_ROWS, packable, read_packed
from tapscope.store.rows import BATCH, SQL_NAME, insert_rows, restored
from tapscope.store.sources import source_id

TEXT_TABLES = ("event_load", "agreement", "span", "annotation", "host_clock")
"""Static tables with text columns, written and read by column with `write_columns` and `read_columns`."""

TEXT_VIEWS = ("event_call",)
"""What `read_columns` reads, too; written with `write_event_calls`."""

STEPS_OF_A_LOOK = 100_000
"""Of SQLite's machine, some milliseconds: so often a person's query looks whether it was broken off."""


class RunFile:
    """An open run file. Make it with `create` or `open`; use it as a context manager."""

    def __init__(self, path: Path, opened: Opened, *, write: bool) -> None:
        self.path = path
        self.write = write
        self.raw_clocks = False  # read host logs' times as they were logged (hostmon/clock_layer.py)
        self._moment = False
        self._opened = opened
        self._connection = opened.connection
        self._file = opened.path.stat()

    @classmethod
    def create(cls, path: str | Path, *, force: bool = False) -> RunFile:
        """New run file at `path`. A run file that exists is replaced only with `force`; others never are."""
        path = Path(path)
        run = cls(path, opening.created(path, force=force), write=True)
        run.set_meta("complete", False)
        return run

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> RunFile:
        """Existing run file. One of an older version is brought to the latest when it is opened to `write`;
        else it stays as it is, and a copy of it is read."""
        path = Path(path)
        run = cls(path, opening.opened(path, write=write), write=write)
        if not write and not run.meta("complete", False):
            run._stand_still()
        return run

    def _stand_still(self) -> None:
        """Somebody may be writing: what is read from here on is the file as it is now, all of one moment."""
        self._moment = True
        with schema.explained(self.path):
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM meta").fetchone()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a written one is folded back from WAL into a single file."""
        if self.write and not self.lost:  # else the -wal file of that name is of whoever has the path now
            # On a full disk, or with a reader inside, the -wal file stays beside it as part of the run file.
            with suppress(sqlite3.DatabaseError):
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._opened.close()

    @property
    def lost(self) -> bool:
        """Whether the path is no longer this file's: somebody removed or replaced it."""
        try:
            return not os.path.samestat(self._file, self._opened.path.stat())
        except FileNotFoundError:
            return True
        except OSError:  # who may not look into its folder cannot tell
            return False

    def check_in_place(self) -> None:
        """Raise TapscopeError if the file is `lost`: what is written to it now, nobody will see."""
        if self.lost:
            raise TapscopeError(
                "another process removed or replaced this run file while it was written",
                path=self.path,
                remedy="What was traced here is lost; trace again, each into a file of its own.",
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing. Failures become TapscopeError where a user can act on them."""
        with schema.explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    # ---- contract tables ----

    def write_table(self, name: str, table: Mapping[str, NDArray[Any]], *, append: bool = False) -> int:
        """Store a contract table (a key of TABLES) in one transaction; returns its rows.

        The whole table is replaced, or with `append` continued after its last row.
        """
        tables.check(name, table)
        count = tables.rows(table)
        with self.transaction() as connection:
            if append:
                (start,) = connection.execute(
                    f"SELECT coalesce(max(id) + 1, 0) FROM {SQL_NAME[name]}"
                ).fetchone()
            else:
                drop_blocks(connection, SQL_NAME[name])
                connection.execute(f"DELETE FROM {SQL_NAME[name]}")
                start = 0
            insert_rows(connection, name, range(start, start + count), table)
            write_blocks(connection, SQL_NAME[name], table, start)
        return count

    def read_table(
        self, name: str, columns: Sequence[str] | None = None, where: str = "", params: Sequence[Any] = ()
    ) -> tables.Table:
        """Columns of a contract table with the contract's dtypes, in order of id.

        `columns` may contain "id". `where` is an SQL condition with `params` for its question marks.
        """
        dtypes = {column.name: np.dtype(column.dtype) for column in tables.TABLES[name]}
        wanted = list(dtypes) if columns is None else list(columns)
        dtypes["id"] = np.dtype(np.int64)
        packed = None if where else self._read_packed(name, {column: dtypes[column] for column in wanted})
        if packed is not None:
            return packed
        query = f"SELECT {', '.join(wanted)} FROM {SQL_NAME[name]}"
        if where:
            query += f" WHERE {where}"
        query += " ORDER BY id"
        pieces: list[list[NDArray[Any]]] = [[] for _ in wanted]
        with schema.explained(self.path):
            cursor = self._connection.execute(query, params)
            while batch := cursor.fetchmany(BATCH):
                for piece, column, values in zip(pieces, wanted, zip(*batch, strict=True), strict=True):
                    piece.append(restored(values, dtypes[column]))
        return {
            column: np.concatenate(piece) if piece else np.empty(0, dtypes[column])
            for column, piece in zip(wanted, pieces, strict=True)
        }

    def _read_packed(self, name: str, dtypes: Mapping[str, np.dtype[Any]]) -> tables.Table | None:
        """The same from the table's blocks, or for a large table of integers in parallel; None where neither
        applies."""
        if self.write or self._moment or not dtypes:
            return None
        table = SQL_NAME[name]
        version = self.sql("PRAGMA data_version")
        # Each by itself: SQLite looks both up in the index only when it is asked for one.
        first, last = self.sql(f"SELECT (SELECT min(id) FROM {table}), (SELECT max(id) FROM {table})")[0]
        if first is None:
            return None
        whole = covered(self._connection, table) == last + 1
        there = in_blocks(self._connection, table) if whole else set()
        blocked = {name: dtype for name, dtype in dtypes.items() if name in there}
        rest = {name: dtype for name, dtype in dtypes.items() if name not in blocked}
        if rest and not (last - first >= LEAST_ROWS and packable(rest)):
            return None
        found = read_blocks(self._opened.path, table, blocked, last + 1) if blocked else {}
        if rest:
            found |= read_packed(self._opened.path, table, rest, first, last)
        found = {name: found[name] for name in dtypes}
        # Somebody wrote meanwhile: the blocks may not belong together.
        return found if self.sql("PRAGMA data_version") == version else None

    def count(self, name: str) -> int:
        """Rows of a contract table (a key of TABLES) or of any SQLite table."""
        ((rows,),) = self.sql(f"SELECT count(*) FROM {SQL_NAME.get(name, name)}")
        return int(rows)

    # ---- small tables ----

    def set_meta(self, key: str, value: Any) -> None:
        """Store a JSON value under a key of the run's description."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value, sort_keys=True))
            )

    def meta(self, key: str, default: Any = None) -> Any:
        """Value of a key of the run's description."""
        found = self.sql("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(found[0][0]) if found else default

    def all_meta(self) -> dict[str, Any]:
        """The run's whole description."""
        return {key: json.loads(value) for key, value in self.sql("SELECT key, value FROM meta ORDER BY key")}

    def write_addresses(self, addresses: Sequence[str]) -> None:
        """Store the address list; row = index used by connections and nodes."""
        self._replace("address", ("id", "text"), enumerate(addresses))

    def addresses(self) -> list[str]:
        """The address list."""
        return [text for (text,) in self.sql("SELECT text FROM address ORDER BY id")]

    def write_classes(self, classes: Sequence[tuple[int, str]], examples: Sequence[str] = ()) -> None:
        """Store the classes as (protocol, text); row = class_id. `examples`: a raw text of each, if any."""
        texts = examples or [""] * len(classes)
        rows = ((i, int(p), t, e) for i, ((p, t), e) in enumerate(zip(classes, texts, strict=True)))
        self._replace("class", ("id", "protocol", "text", "example"), rows)

    def classes(self) -> list[tuple[int, str]]:
        """The classes as (protocol, text)."""
        return [
            (protocol, text) for protocol, text in self.sql("SELECT protocol, text FROM class ORDER BY id")
        ]

    def write_node_names(self, names: Sequence[str]) -> None:
        """Name the rows of `nodes`, which must be stored already."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE node SET name = ? WHERE id = ?", [(n, i) for i, n in enumerate(names)]
            )

    def node_names(self) -> list[str]:
        """Names of the nodes."""
        return [name for (name,) in self.sql("SELECT name FROM node ORDER BY id")]

    def write_counters(self, counters: Sequence[tuple[str, int, str]]) -> None:
        """Store counters (name, value, unit); one that exists already is replaced."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO counter (name, value, unit) VALUES (?, ?, ?)", counters
            )

    def counters(self) -> list[tuple[str, int, str]]:
        """Counters by name."""
        return [tuple(row) for row in self.sql("SELECT name, value, unit FROM counter ORDER BY name")]

    def write_sources(self, sources: Sequence[Mapping[str, Any]]) -> None:
        """Add inputs that were loaded: path, kind (capture, host, events), format, bytes, first_ns, last_ns;
        the other keys go to `detail`. One with the same path and kind, of a spool with the same session, is
        replaced."""
        with self.transaction() as connection:
            for source in sources:
                source_id(connection, source)

    def sources(self) -> list[dict[str, Any]]:
        """The inputs that were loaded, with the keys they were written with."""
        names = ("path", "kind", "format", "bytes", "first_ns", "last_ns")
        return [
            dict(zip(names, row[:-1], strict=True)) | json.loads(row[-1])
            for row in self.sql(f"SELECT {', '.join(names)}, detail FROM source ORDER BY id")
        ]

    def write_columns(self, name: str, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> int:
        """Replace one of TEXT_TABLES by these columns (of one length; missing columns take their default)."""
        if name not in TEXT_TABLES:
            raise ValueError(f"{name} is not one of {TEXT_TABLES}")
        lists = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns.values()]
        self._replace(name, ("id", *columns), zip(range(len(lists[0]) if lists else 0), *lists, strict=True))
        return len(lists[0]) if lists else 0

    def write_event_calls(self, columns: Mapping[str, NDArray[Any]], texts: Sequence[str]) -> None:
        """Replace the calls by the servers' logs (event_calls.COLUMNS)."""
        with self.transaction() as connection:
            replace_event_calls(connection, columns, texts)

    def read_columns(self, name: str, where: str = "", params: Sequence[Any] = ()) -> dict[str, list[Any]]:
        """Columns of one of TEXT_TABLES and TEXT_VIEWS as lists, in order of id."""
        if name not in (*TEXT_TABLES, *TEXT_VIEWS):
            raise ValueError(f"{name} is not one of {(*TEXT_TABLES, *TEXT_VIEWS)}")
        with schema.explained(self.path):
            condition = f" WHERE {where}" if where else ""
            cursor = self._connection.execute(f"SELECT * FROM {name}{condition} ORDER BY id", params)
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        return {column: [row[i] for row in rows] for i, column in enumerate(names)}

    def _replace(self, name: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]] | Any) -> None:
        marks = ", ".join("?" * len(columns))
        with self.transaction() as connection:
            connection.execute(f"DELETE FROM {name}")
            connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)

    # ---- tables made from a log's own header ----

    def write_dynamic(
        self,
        name: str,
        columns: Mapping[str, Sequence[Any] | NDArray[Any]],
        units: Mapping[str, str],
        source: Mapping[str, Any],
        originals: Mapping[str, str] | None = None,
    ) -> str:
        """Make a table from a log's own columns; returns its name in SQLite. See `tapscope.store.dynamic`."""
        with self.transaction() as connection:
            return write_dynamic(connection, name, columns, units, source, originals or {})

    @property
    def matched(self) -> bool:
        """False where calls were left without parents on purpose (`trace --no-match`)."""
        return bool(self.meta("options", {}).get("match", True))

    def drop_dynamic(self, path: str) -> None:
        """Remove every table that was made from the file at `path`."""
        with self.transaction() as connection:
            drop_dynamic(connection, path)

    def read_dynamic(self, table: str, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Columns of a dynamic table in stored order: int64, float64 (NaN = missing) or object (text)."""
        with schema.explained(self.path):
            return read_dynamic(self._connection, table, columns)

    def dynamic_tables(self) -> list[DynamicTable]:
        """Every dynamic table: (table, host, kind, source path, columns with units)."""
        with schema.explained(self.path):
            return read_dynamic_tables(self._connection)

    # ---- SQL ----

    def sql(self, query: str, params: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query. It cannot change the file."""
        return list(self.query(query, params)[1])

    def query(self, query: str, params: Sequence[Any] = ()) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Column names and a stream of rows of a query. It cannot change the file."""
        with schema.explained(self.path):
            return self._query(query, params)

    def _query(self, query: str, params: Sequence[Any] = ()) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        if self.write:
            self._connection.execute("PRAGMA query_only = ON")
        try:
            cursor = self._connection.execute(query, params)
        finally:
            if self.write:
                self._connection.execute("PRAGMA query_only = OFF")
        return [column[0] for column in cursor.description or ()], iter(cursor)

    def user_query(self, query: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The same for a query that a person wrote: its mistakes are that person's to mend, with SQLite's
        words, at its first row or at a later one. Ctrl-C ends it at once."""
        # SQLite works without a look at signals: Python sees to them whenever it is called back.
        self._connection.set_progress_handler(lambda: False, STEPS_OF_A_LOOK)
        with schema.mistakes_explained(self.path):
            names, rows = self._query(query)
        if not names:
            raise TapscopeError(
                "this is not a query", path=self.path, remedy="Write a SELECT.", exit_code=ExitCode.USAGE
            )
        return names, schema.rows_explained(self.path, rows)
