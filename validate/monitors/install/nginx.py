"""nginx: an access log with milliseconds (it has nothing finer), and request IDs for what is behind it.

Where a client sent no X-Request-ID, nginx's own request ID (32 hexadecimal digits) takes its place. A server
or location with an `access_log`, `proxy_set_header` or `fastcgi_param` of its own does not inherit those of
`http`; `problems` names the files.
"""

from __future__ import annotations

import re
from pathlib import Path

from tapscope.validate.monitors.install.changes import MARK, Block, Change, OwnFile

LOG_FORMAT = (
    "id=$tapscope_id end=$msec D=$request_time s=$status b=$bytes_sent conn=$remote_addr:$remote_port "
    'pid=$pid:$connection "$request" "$uri" up=$upstream_addr up_status=$upstream_status '
    "up_connect=$upstream_connect_time up_header=$upstream_header_time up_response=$upstream_response_time"
)
_INHERITED = ("access_log", "proxy_set_header")
_FASTCGI = ("fastcgi_params", "fastcgi.conf")


def directives(access_log: str) -> list[str]:
    """What stands in `http { }`; access_log: path."""
    return [
        'map $http_x_request_id $tapscope_id { default $http_x_request_id; "" $request_id; }',
        f"log_format tapscope '{LOG_FORMAT}';",
        f'access_log "{access_log}" tapscope;',
    ]


def changes(root: Path) -> list[Change]:
    """A file in conf.d, and the header in the files that hand requests to FastCGI servers."""
    head = f"# {MARK}: event monitor of nginx; `tapscope monitors install --server nginx --remove` ends it."
    lines = [head, *directives("/var/log/nginx/tapscope.log")]
    lines += ["proxy_set_header X-Request-ID $tapscope_id;"]
    made: list[Change] = [OwnFile("conf.d/tapscope.conf", "\n".join(lines) + "\n")]
    line = "fastcgi_param HTTP_X_REQUEST_ID $tapscope_id;"
    return made + [Block(name, line) for name in _FASTCGI if (root / name).is_file()]


def problems(root: Path) -> list[str]:
    """Files with directives of their own that hide ours."""
    found = []
    if not (root / "conf.d").is_dir():
        found.append(f"{root} has no conf.d/: include conf.d/tapscope.conf in http {{ }} by hand")
    for file in sorted([*(root / "sites-enabled").glob("*"), *(root / "conf.d").glob("*.conf")]):
        if file.name == "tapscope.conf" or not file.is_file():
            continue
        text = file.read_text(errors="replace")
        for name in _INHERITED:
            if re.search(rf"^\s*{name}\s", text, re.MULTILINE):
                found.append(f"{file} has {name} of its own: add those of conf.d/tapscope.conf to it")
    return found
