"""One request to the shop: its parameters, and the session it belongs to."""

from __future__ import annotations

import html
import secrets
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from . import stores

SESSION_S = 600


class Visit:
    """Reads the session, or begins one. customer: who has logged in, 0: nobody yet; new: just begun."""

    def __init__(self, environ: dict[str, Any]) -> None:
        text = str(environ.get("QUERY_STRING", ""))
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if size:
            text = environ["wsgi.input"].read(size).decode()
        self._values = {name: given[0] for name, given in parse_qs(text).items()}
        cookie = SimpleCookie(str(environ.get("HTTP_COOKIE", "")))
        self.session = cookie["sid"].value if "sid" in cookie else ""
        known = stores.data.hgetall(f"session:{self.session}") if self.session else {}
        self.new = not known
        self.customer = int(known.get("customer", 0))
        self.name = str(known.get("name", ""))
        if self.new:
            self.session = secrets.token_hex(12)
            with stores.data.pipeline(transaction=True) as steps:
                steps.hset(f"session:{self.session}", mapping={"customer": 0, "name": "", "pages": 1})
                steps.expire(f"session:{self.session}", SESSION_S)
                steps.execute()

    @property
    def cart(self) -> str:
        """Key of the session's cart."""
        return f"cart:{self.session}"

    def text(self, name: str) -> str:
        """A parameter; empty when it is not there."""
        return self._values.get(name, "")

    def number(self, name: str) -> int:
        """A parameter as a number; 0 when it is none."""
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() else 0


class Answer:
    """What a page is made of. fragments: pieces that are HTML already."""

    def __init__(
        self, lines: list[str], fragments: list[str] | None = None, status: int = 200, location: str = ""
    ) -> None:
        self._lines = lines
        self._fragments = fragments or []
        self.status = status
        self.location = location

    def body(self, visit: Visit) -> bytes:
        """The page."""
        greeting = f"<h1>{html.escape(visit.name or 'Welcome')}</h1>\n"
        paragraphs = "".join(f"<p>{html.escape(line)}</p>\n" for line in self._lines)
        return (greeting + paragraphs + "".join(self._fragments)).encode()


def go_to(location: str) -> Answer:
    """Sends the browser on, as the answer to a form."""
    return Answer([], status=303, location=location)


def not_found() -> Answer:
    """There is no such thing."""
    return Answer(["There is nothing here."], status=404)
