"""nginx in front of two HTTP services that it asks at the same time: pages that are put together by SSI.

A page below /page/ is a file that includes pages of the services (`pages/`); nginx makes a subrequest for
each, all at once, and sends their answers in the order of the page. Everything else goes to one service.
"""

from __future__ import annotations

import shutil
from importlib import resources
from urllib.parse import parse_qs, urlsplit

from . import nginx, people, tomcat, visitors
from .pace import Step
from .scenario import Bench

PARTS = 3

# board page -> page that includes it
_PAGES = {
    "front": "front",
    "story": "story",
    "profile": "profile",
    "search": "search",
    "topic": "topic",
}
_SERVICES = ("board", "people")


def site(bench: Bench) -> str:
    """nginx's upstreams and server block."""
    with resources.as_file(resources.files(__package__).joinpath("pages")) as folder:
        shutil.copytree(folder, bench.base("pages"), dirs_exist_ok=True)
    places = {
        "board": f"{bench.hosts['app']}:{tomcat.HTTP_PORT}",
        "people": f"{bench.hosts['people']}:{people.PORT}",
    }
    lines = ["    proxy_http_version 1.1;", '    proxy_set_header Connection "";']
    for part in range(1, PARTS + 1):
        # An id that is none (the monitors are off) is not handed on: the empty header is left out.
        lines += [
            f"    map $http_x_request_id $id_{part} {{",
            f'        "~^(?<stem_{part}>[0-9a-f-]{{35}})0$" "${{stem_{part}}}{part:x}";',
            '        default "";',
            "    }",
        ]
    for service, place in places.items():
        lines.append(f"    upstream {service} {{ server {place}; keepalive 64; }}")
    lines += [
        "    server {",
        f"        listen {bench.hosts['web']}:{nginx.PORT} backlog=511;",
        f'        location /page/ {{ alias "{bench.base("pages")}/"; ssi on; }}',
    ]
    for service in _SERVICES:
        lines.append(f"        location /{service}/ {{ proxy_pass http://{service}; }}")
        for part in range(1, PARTS + 1):
            lines += [
                f"        location /{part}/{service}/ {{",
                "            internal;",
                f"            proxy_pass http://{service}/{service}/;",
                '            proxy_set_header Connection "";',
                f"            proxy_set_header X-Request-ID $id_{part};",
                "        }",
            ]
    lines.append("    }")
    return "\n".join(lines) + "\n"


class Visitor(visitors.Visitor):
    """A visitor of the board who sees its front, stories, topics, searches and profiles put together."""

    def request_id(self) -> str:
        """An id whose last digit is free for the parts."""
        return super().request_id()[:-1] + "0"

    def next_step(self) -> Step:
        """The board's next step, as a page that is put together, where there is one."""
        step = super().next_step()
        if step.form is not None:
            return step
        if step.interaction == "search-users":
            prefix = parse_qs(urlsplit(step.target).query).get("prefix", ["a"])[0]
            return Step(step.interaction, f"/people/find?prefix={prefix}")
        page = _PAGES.get(step.interaction)
        if page is None:
            return step
        query = urlsplit(step.target).query
        return Step(step.interaction, f"/page/{page}.html" + (f"?{query}" if query else ""))
