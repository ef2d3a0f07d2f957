"""Apache httpd: an access log with microseconds, a stamp before each request goes downstream, request IDs.

mod_unique_id makes an ID where the client sent none; it travels as header X-Request-ID, over HTTP and AJP
alike. `GlobalLog` is used because virtual hosts with a CustomLog of their own do not inherit one.
"""

from __future__ import annotations

import re
from pathlib import Path

from tapscope.validate.monitors.install.changes import MARK, Change, Link, OwnFile

LOG_FORMAT = (
    r"id=%{X-Request-ID}i beg=%{begin:usec}t end=%{end:usec}t D=%D first=%^FB s=%>s b=%B in=%I out=%O "
    r"keep=%k conn=%a:%{remote}p pid=%P:%{tid}P \"%r\" jk=%{JK_REQUEST_DURATION}n"
)
MODULES = ("unique_id", "headers", "log_debug")
_MODULE_FOLDER = "/usr/lib/apache2/modules"
_LOAD = re.compile(r"^\s*LoadModule\s+\S+\s+(\S+)/mod_\w+\.so", re.MULTILINE)


def directives(access_log: str) -> list[str]:
    """What makes httpd log every request; mod_logio is built in, mod_log_debug has to be loaded.

    access_log: path, as the configuration is to hold it.
    """
    return [
        "LogIOTrackTTFB On",
        f'LogFormat "{LOG_FORMAT}" tapscope',
        f'GlobalLog "{access_log}" tapscope',
        'LogMessage "DS id=%{req:X-Request-ID}" hook=insert_filter',
        "LogLevel log_debug:info",
    ]


def _module_folder(root: Path) -> str:
    """Where this installation keeps its modules, by what loads another one."""
    for name in ("headers.load", "unique_id.load"):
        file = root / "mods-available" / name
        found = _LOAD.search(file.read_text(errors="replace")) if file.is_file() else None
        if found is not None:
            return found[1]
    return _MODULE_FOLDER


def changes(root: Path) -> list[Change]:
    """A file in conf-available and the link that enables it (Debian's layout)."""
    folder = _module_folder(root)
    lines = [
        f"# {MARK}: event monitor of httpd; `tapscope monitors install --server apache --remove` ends it."
    ]
    for module in MODULES:
        load = f"    LoadModule {module}_module {folder}/mod_{module}.so"
        lines += [f"<IfModule !{module}_module>", load, "</IfModule>"]
    lines += ['RequestHeader setifempty X-Request-ID "%{UNIQUE_ID}e"']
    lines += directives("${APACHE_LOG_DIR}/tapscope_access.log")
    return [
        OwnFile("conf-available/tapscope.conf", "\n".join(lines) + "\n"),
        Link("conf-enabled/tapscope.conf", "../conf-available/tapscope.conf"),
    ]


def problems(root: Path) -> list[str]:
    """What keeps this tree from logging."""
    found = []
    folder = Path(_module_folder(root))
    found += [
        f"module {folder}/mod_{m}.so is missing" for m in MODULES if not (folder / f"mod_{m}.so").exists()
    ]
    if not (root / "conf-enabled").is_dir():
        found.append(f"{root} has no conf-enabled/: include conf-available/tapscope.conf by hand")
    return found
