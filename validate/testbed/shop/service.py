"""WSGI entry of the shop (PEP 3333): finds the page, writes the log of requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from . import forms, pages, stores
from .visit import Answer, Visit

_requests = stores.Log("requests.tsv")
_PAGES: dict[tuple[str, str], Callable[[Visit], Answer]] = {
    **{("GET", f"/shop/{page.__name__}"): page for page in pages.ALL},
    **{("POST", f"/shop/{form.__name__}"): form for form in forms.ALL},
}
_REASONS = {200: "200 OK", 303: "303 See Other", 404: "404 Not Found", 409: "409 Conflict"}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers one request."""
    began_us = stores.now_us()
    identity = str(environ.get("HTTP_X_REQUEST_ID", "")) if stores.EVENTS else ""
    stores.begin_request(identity)
    path = str(environ.get("PATH_INFO", "/"))
    page = _PAGES.get((str(environ["REQUEST_METHOD"]), path))
    try:
        visit = Visit(environ)
        answer = page(visit) if page else Answer([], status=404)
    finally:
        stores.end_request()
    body = answer.body(visit)
    if identity:
        worker = f"{os.getpid()}/{threading.get_ident()}"
        row = f"{identity}\t{began_us}\t{stores.now_us()}\t{answer.status}\t{worker}\t{path}\n"
        _requests.write([row])
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body)))]
    if answer.location:
        headers.append(("Location", answer.location))
    if visit.new:
        headers.append(("Set-Cookie", f"sid={visit.session}; Path=/"))
    start_response(_REASONS[answer.status], headers)
    return [body]
