"""Imports run one way, and the check that says so can fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def import_direction() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_direction", ROOT / "setup/import_direction.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_imports_of_the_package_run_one_way(import_direction: ModuleType) -> None:
    assert import_direction.violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "statement", "forbidden"),
    [
        ("reconstruct/match/x.py", "import tapscope.validate.events", "validate"),
        ("reconstruct/x.py", "from tapscope import validate", "validate"),
        ("reconstruct/match/x.py", "from ...validate import events", "validate"),
        ("analyze/x.py", "def f():\n    from tapscope.validate.events import load", "validate"),
        ("store/x.py", "from tapscope.capture import read_files", "capture"),
        ("hostmon/x.py", "from tapscope.reconstruct import run", "reconstruct"),
        ("report/x.py", "import tapscope.cli", "cli"),
    ],
)
def test_an_import_the_wrong_way_is_found(
    import_direction: ModuleType, tmp_path: Path, file: str, statement: str, forbidden: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(statement, encoding="utf-8")
    found = import_direction.violations(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:")
    assert found[0].endswith(f"must not import tapscope.{forbidden}")


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("validate/x.py", "from tapscope.analyze.load import loads"),
        ("cli/x.py", "from tapscope import __version__"),
        ("cli/package/__main__.py", "from tapscope.cli.main import main"),
        ("reconstruct/match/x.py", "from ..pair import calls"),
        ("reconstruct/x.py", "import numpy as np"),
    ],
)
def test_an_import_the_right_way_passes(
    import_direction: ModuleType, tmp_path: Path, file: str, statement: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(statement, encoding="utf-8")
    assert import_direction.violations(tmp_path) == []
