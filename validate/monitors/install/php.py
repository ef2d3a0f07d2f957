"""PHP: our agent as auto_prepend_file.

PHP cannot time statements from outside of the application: with the agent alone there are UA and UD of every
request, DS and DR where its database layer tells of them (one class of it, see the agent's head).
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from tapscope.validate.monitors.install.changes import MARK, Change, OwnFile

EVENTS = "/var/log/tapscope"
_OWN = re.compile(r"^\s*(?:php_(?:admin_)?value\[)?auto_prepend_file\]?\s*=\s*([^\s;]+)", re.MULTILINE)


def agent() -> str:
    """The agent's text."""
    file = resources.files("tapscope.validate.monitors") / "agents" / "php" / "prepend.php"
    return file.read_text(encoding="utf-8")


def tree() -> Path:
    """Configuration of the newest PHP-FPM that a package has installed."""
    found = sorted(
        Path("/etc/php").glob("*/fpm"), key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))]
    )
    return found[-1] if found else Path("/etc/php/8.2/fpm")


def changes(root: Path) -> list[Change]:
    """An .ini file that is read after the others, and the agent."""
    head = f"; {MARK}: event monitor of PHP; `tapscope monitors install --server php --remove` ends it."
    file = root.resolve() / "tapscope" / "prepend.php"
    lines = [head, f'auto_prepend_file = "{file}"', f'tapscope.events = "{EVENTS}"']
    return [
        OwnFile("conf.d/99-tapscope.ini", "\n".join(lines) + "\n"),
        OwnFile("tapscope/prepend.php", agent()),
    ]


def problems(root: Path) -> list[str]:
    """Another auto_prepend_file, and a folder that is missing."""
    found = []
    for file in sorted(
        [root / "php.ini", *(root / "conf.d").glob("*.ini"), *(root / "pool.d").glob("*.conf")]
    ):
        own = _OWN.search(file.read_text(errors="replace")) if file.is_file() else None
        if own is not None and file.name != "99-tapscope.ini":
            found.append(
                f"{file} has an auto_prepend_file of its own: {own[1]}; include tapscope/prepend.php there"
            )
    if not Path(EVENTS).is_dir():
        found.append(f"{EVENTS} is missing: install -d -o www-data {EVENTS}")
    return found
