"""Every process that collects the tests must name them alike, or parallel workers refuse to start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_a_later_process_with_other_hashes_finds_the_same_names():
    """A name made from a clock (gzip stamps its output) or from the order of a set would differ."""

    def names(seed: str) -> list[str]:
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-qp", "no:cacheprovider", "-p", "no:xdist"],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTEST_ADDOPTS": ""},
            cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return [line for line in found.stdout.splitlines() if "::" in line]

    first = names("1")
    assert len(first) > 1000
    assert first == names("2")
