"""The C-JDBC driver and controller of pcaps/cjdbc/cjdbc_dialogue.py, for the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

CJDBC_PCAPS = Path(__file__).resolve().parent.parent / "pcaps" / "cjdbc"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cjdbc_dialogue", CJDBC_PCAPS / "cjdbc_dialogue.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


speak = _load()
