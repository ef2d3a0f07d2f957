"""People of the board as an event-driven service: aiohttp in one thread, statements at the same time.

A request asks several statements at once, each over a connection of its own that it takes from a pool for
that one statement, so that the calls of one request overlap and so do the requests. Runs with the packages'
own Python and imports nothing of ours. Environment: as service.py's, and PEOPLE_BIND (address:port),
PEOPLE_CONNECTIONS. The event logs (README) are written when the service ends; times in microseconds.
"""

from __future__ import annotations

import asyncio
import html
import importlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

web: Any = importlib.import_module("aiohttp.web")
aiomysql: Any = importlib.import_module("aiomysql")

_EVENTS = os.environ.get("PEOPLE_EVENTS", "")
_PAGE = 12
_logs: dict[str, list[str]] = {"requests.tsv": [], "statements.tsv": [], "checkouts.tsv": []}

Rows = list[tuple[Any, ...]]


def _now_us() -> int:
    return time.time_ns() // 1000


class Visit:
    """One request: its parameters and what it asks."""

    def __init__(self, request: Any, pool: Any) -> None:
        self._pool = pool
        self._query = request.query
        self.id = request.headers.get("X-Request-ID", "") if _EVENTS else ""
        self._tag = f"/*ID={self.id}*/" if self.id else ""
        self._statements = 0

    def text(self, name: str) -> str:
        """A parameter; empty when it is not there."""
        return str(self._query.get(name, ""))

    def number(self, name: str) -> int:
        """A parameter as a number; 0 when it is none."""
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() else 0

    async def rows(self, sql: str, *values: object) -> Rows:
        """Rows of a statement, over whichever connection is free; values become literals in its text."""
        ordinal, self._statements = self._statements, self._statements + 1
        asked_us = _now_us()
        async with self._pool.acquire() as connection:
            async with connection.cursor() as cursor:
                sent_us = _now_us()
                await cursor.execute(sql + self._tag, values)
                found = list(await cursor.fetchall())
            thread, ended_us = connection.thread_id(), _now_us()
            if self.id:
                line = f"{self.id}\t{ordinal}\t{sent_us}\t{ended_us}\t{thread}\ttext\n"
                _logs["statements.tsv"].append(line)
                _logs["checkouts.tsv"].append(f"{self.id}\t{thread}\t{asked_us}\t{ended_us}\n")
        return found


async def card(visit: Visit) -> list[str]:
    """One user, what they wrote, and who answered them last."""
    user = visit.number("user")
    told, stories, latest = await asyncio.gather(
        visit.rows("SELECT nick, karma, moderator, joined FROM users WHERE id = %s", user),
        visit.rows("SELECT COUNT(*) FROM stories WHERE author_id = %s", user),
        visit.rows(
            "SELECT id, subject, score FROM comments WHERE author_id = %s ORDER BY id DESC LIMIT 4", user
        ),
    )
    answers = await asyncio.gather(
        *(
            visit.rows(
                "SELECT u.nick, c.subject FROM comments c JOIN users u ON u.id = c.author_id"
                " WHERE c.parent_id = %s ORDER BY c.id DESC LIMIT 1",
                comment,
            )
            for comment, _, _ in latest
        )
    )
    lines = [f"{nick}: karma {karma}, {stories[0][0]} stories" for nick, karma, _, _ in told]
    for (_, subject, score), answered in zip(latest, answers, strict=True):
        lines.append(f"{subject} ({score})")
        lines += [f"answered by {nick}: {answer}" for nick, answer in answered]
    return lines


async def commenters(visit: Visit) -> list[str]:
    """Who wrote below a story, all looked up at once."""
    authors = await visit.rows(
        "SELECT author_id, COUNT(*) AS n FROM comments WHERE story_id = %s GROUP BY author_id"
        " ORDER BY n DESC LIMIT 8",
        visit.number("story"),
    )
    people = await asyncio.gather(
        *(visit.rows("SELECT nick, karma FROM users WHERE id = %s", author) for author, _ in authors)
    )
    lines = ["Who wrote here"]
    for (_, count), found in zip(authors, people, strict=True):
        lines += [f"{nick} ({karma}) {count}" for nick, karma in found]
    return lines


async def find(visit: Visit) -> list[str]:
    """People whose nick begins with something."""
    found = await visit.rows(
        "SELECT id, nick FROM users WHERE nick LIKE %s ORDER BY nick LIMIT 5", visit.text("prefix") + "%"
    )
    counts = await asyncio.gather(
        *(visit.rows("SELECT COUNT(*) FROM comments WHERE author_id = %s", user) for user, _ in found)
    )
    return [f"{len(found)} people"] + [
        f"{nick} {rows[0][0]}" for (_, nick), rows in zip(found, counts, strict=True)
    ]


async def leaders(visit: Visit) -> list[str]:
    """The people with the most karma, by page."""
    first = visit.number("page") * _PAGE
    found = await visit.rows(
        "SELECT id, nick, karma FROM users ORDER BY karma DESC LIMIT %s, %s", first, _PAGE
    )
    titles: Rows = []
    if found:
        titles = await visit.rows(
            "SELECT title FROM stories WHERE author_id = %s ORDER BY posted DESC LIMIT 1", found[0][0]
        )
    return [f"{nick} {karma}" for _, nick, karma in found] + [f"leading: {title}" for (title,) in titles]


def _handler(page: Callable[[Visit], Awaitable[list[str]]]) -> Callable[[Any], Awaitable[Any]]:
    async def answer(request: Any) -> Any:
        began_us = _now_us()
        visit = Visit(request, request.app["pool"])
        lines = await page(visit)
        status = 200 if lines else 404
        body = "".join(f"<p>{html.escape(str(line))}</p>\n" for line in lines)
        if visit.id:
            row = f"{visit.id}\t{began_us}\t{_now_us()}\t{status}\t{os.getpid()}\t{request.path}\n"
            _logs["requests.tsv"].append(row)
        return web.Response(text=body, status=status, content_type="text/html")

    return answer


async def _open_pool(application: Any) -> None:
    size = int(os.environ["PEOPLE_CONNECTIONS"])
    application["pool"] = await aiomysql.create_pool(
        host=os.environ["PEOPLE_DB_HOST"],
        user=os.environ["PEOPLE_DB_USER"],
        password=os.environ["PEOPLE_DB_PASSWORD"],
        db=os.environ["PEOPLE_DB_NAME"],
        minsize=size,
        maxsize=size,
        autocommit=True,
        charset="utf8mb4",
    )


async def _close(application: Any) -> None:
    application["pool"].close()
    await application["pool"].wait_closed()
    for name, lines in _logs.items():
        if _EVENTS and lines:
            with Path(_EVENTS, name).open("a", encoding="utf-8") as file:
                file.writelines(lines)


def main() -> None:
    """Serves until SIGTERM."""
    application = web.Application()
    for page in (card, commenters, find, leaders):
        application.router.add_get(f"/people/{page.__name__}", _handler(page))
    application.on_startup.append(_open_pool)
    application.on_cleanup.append(_close)
    host, _, port = os.environ["PEOPLE_BIND"].rpartition(":")
    web.run_app(application, host=host, port=int(port), backlog=511, access_log=None, print=None)


if __name__ == "__main__":
    main()
