"""Prints the requirements of pyproject.toml, one per line: setup/requirements.py GROUP...

A group is `build`, `runtime` or the name of an extra.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(groups: list[str], pyproject: Path) -> list[str]:
    """Requirement strings of the named groups in order; KeyError names an unknown group."""
    with pyproject.open("rb") as file:
        content = tomllib.load(file)
    project = content["project"]
    known = {
        # meson-python asks for ninja only when none is found, and pip cannot bring it without isolation.
        "build": [*content["build-system"]["requires"], "ninja"],
        "runtime": project["dependencies"],
        **project["optional-dependencies"],
    }
    return [line for group in groups for line in known[group]]


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    print("\n".join(requirements(sys.argv[1:], root / "pyproject.toml")))
