"""Prints the requirements of pyproject.toml, one per line: setup/requirements.py [build] [runtime] [EXTRA]..."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(groups: list[str], pyproject: Path) -> list[str]:
    """Requirement strings of the named groups: `build`, `runtime` or the name of an extra (KeyError if unknown)."""
    with pyproject.open("rb") as file:
        content = tomllib.load(file)
    project = content["project"]
    known = {
        # Without build isolation pip does not bring ninja, which meson-python asks for only when it is not found.
        "build": [*content["build-system"]["requires"], "ninja"],
        "runtime": project["dependencies"],
        **project["optional-dependencies"],
    }
    return [line for group in groups for line in known[group]]


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    print("\n".join(requirements(sys.argv[1:], root / "pyproject.toml")))
