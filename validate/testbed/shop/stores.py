"""The three stores of the shop, each behind a pool, and the log of who held which connection.

What the stores are sent carries no request id where their protocol has no room for one (Redis, memcached,
BEGIN, INSERT), so every pool writes down its checkouts: request_id, connection (ADDRESS:PORT>PORT, as on the
wire), borrow_us (before asking the pool), return_us (before giving back). Environment: SHOP_DB_HOST,
SHOP_DB_USER, SHOP_DB_PASSWORD, SHOP_DB_NAME, SHOP_REDIS_HOST, SHOP_MEMCACHED_HOST, SHOP_POOL (connections of
one process to PostgreSQL, and to Redis), SHOP_EVENTS (folder of the event logs, empty: none).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

psycopg_rows: Any = importlib.import_module("psycopg.rows")
psycopg_pool: Any = importlib.import_module("psycopg_pool")
redis: Any = importlib.import_module("redis")
memcached: Any = importlib.import_module("pymemcache.client.base")
memcached_pool: Any = importlib.import_module("pymemcache.pool")

EVENTS = os.environ.get("SHOP_EVENTS", "")
_POOL = int(os.environ["SHOP_POOL"])
_asking = threading.local()


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class Log:
    """An event log that several processes append to, whole lines in one system call."""

    def __init__(self, name: str) -> None:
        self._file = os.open(Path(EVENTS, name), os.O_WRONLY | os.O_APPEND) if EVENTS else -1

    def write(self, lines: list[str]) -> None:
        """Appends lines."""
        if self._file >= 0 and lines:
            os.write(self._file, "".join(lines).encode())


_checkouts = Log("checkouts.tsv")


def begin_request(identity: str) -> None:
    """From now on this thread works for a request."""
    _asking.identity = identity
    _asking.lines = []


def end_request() -> None:
    """Writes the checkouts of the request down."""
    if _asking.identity:
        _checkouts.write(_asking.lines)


def _place(connected: Any) -> str:
    address, port = connected.getsockname()[:2]
    return f"{address}:{port}>{connected.getpeername()[1]}"


def _returned(place: str, borrowed_us: int) -> None:
    _asking.lines.append(f"{_asking.identity}\t{place}\t{borrowed_us}\t{now_us()}\n")


# ---- PostgreSQL ------------------------------------------------------------------------------------------

AND_ID = " AND %(id)s <> ''" if EVENTS else ""
"""Stands in the WHERE of statements: the request id as one more bound value. The text of the statement is the
same for all requests, so that the driver prepares it on the server at its fifth use."""


class Rows:
    """A connection that a request has checked out."""

    def __init__(self, connection: Any, identity: str) -> None:
        self.connection = connection
        self._identity = identity or "-"

    def all(self, sql: str, **values: object) -> list[Any]:
        """Rows of a statement."""
        return list(self.connection.execute(sql, {"id": self._identity, **values}).fetchall())

    def one(self, sql: str, **values: object) -> Any:
        """The first row, or None."""
        return self.connection.execute(sql, {"id": self._identity, **values}).fetchone()

    def do(self, sql: str, **values: object) -> None:
        """A statement without rows."""
        self.connection.execute(sql, {"id": self._identity, **values})

    def many(self, sql: str, values: list[dict[str, object]]) -> None:
        """A statement with several sets of values, sent one behind the other without waiting."""
        with self.connection.cursor() as cursor:
            cursor.executemany(sql, values)


# process id of the server's side of a connection -> its name in the log
_backends: dict[int, str] = {}


def _named(connection: Any) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        _backends[connection.pgconn.backend_pid] = _place(same)


_database = psycopg_pool.ConnectionPool(
    "host={SHOP_DB_HOST} user={SHOP_DB_USER} password={SHOP_DB_PASSWORD} dbname={SHOP_DB_NAME}".format_map(
        os.environ
    ),
    kwargs={"autocommit": True, "row_factory": psycopg_rows.namedtuple_row},
    min_size=min(4, _POOL),
    max_size=_POOL,
    configure=_named,
)


@contextlib.contextmanager
def database() -> Iterator[Rows]:
    """A connection for some statements; they are a transaction where `connection.transaction()` says so."""
    borrowed_us = now_us()
    with _database.connection() as connection:
        try:
            yield Rows(connection, _asking.identity)
        finally:
            _returned(_backends[connection.pgconn.backend_pid], borrowed_us)


# ---- Redis -----------------------------------------------------------------------------------------------


class _NotedPool(redis.BlockingConnectionPool):  # type: ignore[misc]  # the packages have no types
    """One checkout for each command or pipeline."""

    def get_connection(self, command_name: str, *keys: Any, **options: Any) -> Any:
        """Borrows, and connects where that is due."""
        borrowed_us = now_us()
        connection = super().get_connection(command_name, *keys, **options)
        connection.borrowed_us = borrowed_us
        return connection

    def release(self, connection: Any) -> None:
        """Gives back."""
        if connection._sock is not None:  # it has no public name
            _returned(_place(connection._sock), connection.borrowed_us)
        super().release(connection)


data: Any = redis.Redis(
    connection_pool=_NotedPool(
        host=os.environ["SHOP_REDIS_HOST"], db=1, decode_responses=True, max_connections=_POOL, timeout=20
    )
)
"""Sessions, carts, counters and products, as hashes, lists, sorted sets and JSON."""


# ---- memcached -------------------------------------------------------------------------------------------


class _NotedObjects(memcached_pool.ObjectPool):  # type: ignore[misc]  # the packages have no types
    """One checkout for each command."""

    def get(self) -> Any:
        """Borrows; the first command connects."""
        borrowed_us = now_us()
        client = super().get()
        client.borrowed_us = borrowed_us
        return client

    def release(self, obj: Any, silent: bool = True) -> None:
        """Gives back."""
        if obj.sock is not None:
            _returned(_place(obj.sock), obj.borrowed_us)
        super().release(obj, silent)


fragments: Any = memcached.PooledClient((os.environ["SHOP_MEMCACHED_HOST"], 11211), no_delay=True)
"""Pieces of pages. By pymemcache's default nobody waits for the answer to a change: there is none."""
# Without a bound but the number of threads: this pool would not wait for a connection, but fail.
fragments.client_pool = _NotedObjects(fragments._create_client, after_remove=lambda client: client.close())
