"""People of the board: a WSGI service for gunicorn with the packages' own Python; it imports nothing of ours.

Each thread keeps one database connection, asked with COM_PING at the beginning of a request. Configuration by
environment: PEOPLE_DB_HOST, PEOPLE_DB_USER, PEOPLE_DB_PASSWORD, PEOPLE_DB_NAME, PEOPLE_EVENTS (folder of the
event logs, empty: none). The logs have the columns of the board's (README); times in microseconds.
"""

from __future__ import annotations

import fcntl
import html
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

pymysql: Any = importlib.import_module("pymysql")

_EVENTS = os.environ.get("PEOPLE_EVENTS", "")
_PAGE = 12
_thread = threading.local()


def _now_us() -> int:
    return time.time_ns() // 1000


def _append(name: str, rows: str) -> None:
    with Path(_EVENTS, name).open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(rows)


class Visit:
    """One request: its parameters, its database connection, and what it asked."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self.began_us = _now_us()
        self.path = str(environ.get("PATH_INFO", "/"))
        self.values = {name: given[0] for name, given in parse_qs(environ.get("QUERY_STRING", "")).items()}
        self.id = str(environ.get("HTTP_X_REQUEST_ID", "")) if _EVENTS else ""
        self._tag = f"/*ID={self.id}*/" if self.id else ""
        self._statements: list[str] = []
        self._asked_us = _now_us()
        self._connection = self._connect()

    def _connect(self) -> Any:
        held = getattr(_thread, "connection", None)
        if held is None:
            held = _thread.connection = pymysql.connect(
                host=os.environ["PEOPLE_DB_HOST"],
                user=os.environ["PEOPLE_DB_USER"],
                password=os.environ["PEOPLE_DB_PASSWORD"],
                database=os.environ["PEOPLE_DB_NAME"],
                autocommit=True,
                charset="utf8mb4",
            )
        else:
            held.ping(reconnect=True)
        return held

    def number(self, name: str) -> int:
        """A parameter as a number; 0 when it is none."""
        text = self.values.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a statement; values become literals in its text."""
        with self._connection.cursor() as cursor:
            sent_us = _now_us()
            cursor.execute(sql + self._tag, values)
            found = list(cursor.fetchall())
            if self.id:
                place = f"{len(self._statements)}\t{sent_us}\t{_now_us()}\t{self._connection.thread_id()}"
                self._statements.append(f"{self.id}\t{place}\ttext\n")
        return found

    def end(self, status: int) -> None:
        """Writes the event logs of this request."""
        if not self.id:
            return
        ended_us = _now_us()
        worker = f"{os.getpid()}/{threading.get_ident()}"
        row = f"{self.id}\t{self.began_us}\t{ended_us}\t{status}\t{worker}\t{self.path}\n"
        _append("requests.tsv", row)
        _append("statements.tsv", "".join(self._statements))
        row = f"{self.id}\t{self._connection.thread_id()}\t{self._asked_us}\t{ended_us}\n"
        _append("checkouts.tsv", row)


def card(visit: Visit) -> list[str]:
    """One user, what they wrote, and who answered them last."""
    user = visit.number("user")
    told = visit.rows("SELECT nick, karma, moderator, joined FROM users WHERE id = %s", user)
    if not told:
        return []
    [(stories,)] = visit.rows("SELECT COUNT(*) FROM stories WHERE author_id = %s", user)
    lines = [f"{told[0][0]}: karma {told[0][1]}, {stories} stories"]
    latest = visit.rows(
        "SELECT id, subject, score FROM comments WHERE author_id = %s ORDER BY id DESC LIMIT 4", user
    )
    for comment, subject, score in latest:
        lines.append(f"{subject} ({score})")
        for nick, answer in visit.rows(
            "SELECT u.nick, c.subject FROM comments c JOIN users u ON u.id = c.author_id"
            " WHERE c.parent_id = %s ORDER BY c.id DESC LIMIT 1",
            comment,
        ):
            lines.append(f"answered by {nick}: {answer}")
    return lines


def commenters(visit: Visit) -> list[str]:
    """Who wrote below a story, each looked up by its own statement."""
    authors = visit.rows(
        "SELECT author_id, COUNT(*) AS n FROM comments WHERE story_id = %s GROUP BY author_id"
        " ORDER BY n DESC LIMIT 8",
        visit.number("story"),
    )
    lines = ["Who wrote here"]
    for author, count in authors:
        for nick, karma in visit.rows("SELECT nick, karma FROM users WHERE id = %s", author):
            lines.append(f"{nick} ({karma}) {count}")
    return lines


def find(visit: Visit) -> list[str]:
    """People whose nick begins with something."""
    found = visit.rows(
        "SELECT id, nick FROM users WHERE nick LIKE %s ORDER BY nick LIMIT 5",
        visit.values.get("prefix", "") + "%",
    )
    lines = [f"{len(found)} people"]
    for user, nick in found:
        [(count,)] = visit.rows("SELECT COUNT(*) FROM comments WHERE author_id = %s", user)
        lines.append(f"{nick} {count}")
    return lines


def leaders(visit: Visit) -> list[str]:
    """The people with the most karma, by page."""
    first = visit.number("page") * _PAGE
    found = visit.rows("SELECT id, nick, karma FROM users ORDER BY karma DESC LIMIT %s, %s", first, _PAGE)
    lines = [f"{nick} {karma}" for _, nick, karma in found]
    if found:
        for (title,) in visit.rows(
            "SELECT title FROM stories WHERE author_id = %s ORDER BY posted DESC LIMIT 1", found[0][0]
        ):
            lines.append(f"leading: {title}")
    return lines


_PAGES: dict[str, Callable[[Visit], list[str]]] = {
    "/people/card": card,
    "/people/commenters": commenters,
    "/people/find": find,
    "/people/leaders": leaders,
}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The WSGI entry (PEP 3333)."""
    visit = Visit(environ)
    page = _PAGES.get(visit.path)
    lines = page(visit) if page else []
    status = 200 if lines else 404
    body = "".join(f"<p>{html.escape(str(line))}</p>\n" for line in lines).encode()
    visit.end(status)
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body)))]
    start_response("200 OK" if status == 200 else "404 Not Found", headers)
    return [body]
