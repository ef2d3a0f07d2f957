"""Runs the `tapscope` program in a process of its own, with the modules that the tests see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CAPTURE = Path(__file__).resolve().parent.parent / "pcaps" / "http_ajp_mysql_groundtruth.pcap"
COMMAND = [sys.executable, "-m", "tapscope"]


def environment(**more: str) -> dict[str, str]:
    """Environment in which `python -m tapscope` is the program under test."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))) | more


def tapscope(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
