"""Every process that collects the tests must name them alike, or parallel workers refuse to start."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_a_later_process_with_other_hashes_finds_the_same_names(request: pytest.FixtureRequest) -> None:
    """A name made from a clock (gzip stamps its output) or from the order of a set would differ."""

    def names(seed: str) -> list[str]:
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-qp", "no:cacheprovider", "-p", "no:xdist"],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTEST_ADDOPTS": ""},
            cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return [line for line in found.stdout.splitlines() if "::" in line]

    later = names("1")
    assert len(later) > 1000
    # This process has other hashes; where it runs a part of the tests only, one more tells.
    here = [item.nodeid for item in request.session.items]
    assert later == (here if len(here) >= len(later) else names("2"))


def test_no_two_modules_that_tests_import_by_name_share_one():
    """Of two files of one name the first on the path is found, and which one depends on who came before."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    where: dict[str, list[str]] = {}
    for folder in options["pythonpath"]:
        for entry in (ROOT / folder).iterdir():
            module = entry.suffix == ".py" and not entry.stem.startswith("__")
            if module or (entry / "__init__.py").exists():
                where.setdefault(entry.stem, []).append(f"{folder}/{entry.name}")
    assert {"simulator", "accuracy", "generated"} <= set(where)
    assert {name: found for name, found in where.items() if len(found) > 1} == {}
