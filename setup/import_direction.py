"""Checks that imports run one way: setup/import_direction.py REPOSITORY (exit 1 and a list when they do not).

    cli -> report -> validate -> analyze -> hostmon, reconstruct -> capture -> store

A folder may import itself and what stands to its right; hostmon and reconstruct do not know each other. So
nothing below validate/ can see the ground truth. The root package (its version) may be imported by all.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

BELOW: dict[str, frozenset[str]] = {}
BELOW["store"] = frozenset()
BELOW["capture"] = BELOW["store"] | {"store"}
BELOW["hostmon"] = BELOW["reconstruct"] = BELOW["capture"] | {"capture"}
BELOW["analyze"] = BELOW["capture"] | {"capture", "hostmon", "reconstruct"}
BELOW["validate"] = BELOW["analyze"] | {"analyze"}
BELOW["report"] = BELOW["validate"] | {"validate"}
BELOW["cli"] = BELOW["report"] | {"report"}


def imported_modules(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of every import in `source`, relative ones resolved against `package`.

    `from a.b import c` yields a.b.c, because c may be a module.
    """
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Import):
            for name in statement.names:
                yield statement.lineno, name.name
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                parts = package.split(".")
                parts = parts[: len(parts) - statement.level + 1]
                base = ".".join([*parts, base]) if base else ".".join(parts)
            for name in statement.names:
                yield statement.lineno, f"{base}.{name.name}"


def violations(repository: Path) -> list[str]:
    """One line per import that runs the wrong way, as `file:line: why`."""
    found = []
    for folder, allowed in BELOW.items():
        for path in sorted((repository / folder).rglob("*.py")):
            inside = path.relative_to(repository / folder).parent.parts
            if folder == "cli" and inside[:1] == ("package",):
                package = "tapscope"
            else:
                package = ".".join(["tapscope", folder, *inside])
            for line, module in imported_modules(path.read_text(encoding="utf-8"), package):
                parts = module.split(".")
                if parts[0] != "tapscope" or len(parts) < 2 or parts[1] not in BELOW or parts[1] == folder:
                    continue
                if parts[1] not in allowed:
                    where = path.relative_to(repository)
                    found.append(f"{where}:{line}: {folder}/ must not import tapscope.{parts[1]}")
    return found


if __name__ == "__main__":
    wrong = violations(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
