"""The version is written once, and everything that shows it agrees."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def written_version() -> str:
    text = (ROOT / "cli/package/__init__.py").read_text(encoding="utf-8")
    found = re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, flags=re.MULTILINE)
    assert len(found) == 1
    return found[0]


def test_no_other_file_of_the_build_states_a_version() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    assert "cli/package/__init__.py" in (ROOT / "meson.build").read_text(encoding="utf-8")


def test_the_installed_distribution_has_the_written_version() -> None:
    try:
        installed = importlib.metadata.version("tapscope")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tapscope is not installed (make install)")
    assert installed == written_version()


def test_the_newest_heading_of_the_changelog_is_the_written_version() -> None:
    headings = re.findall(
        r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert headings[0] == written_version()
