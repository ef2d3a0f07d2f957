"""Running a short system command and turning its failure into one clear error."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tapscope.store.errors import TapscopeError


def attempt(argv: Sequence[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs argv and returns what happened, whatever it was."""
    return subprocess.run(list(argv), input=stdin, capture_output=True, text=True, check=False)


def call(argv: Sequence[str], stdin: str | None = None) -> str:
    """Standard output of argv. Raises TapscopeError with the command and its message when it fails."""
    done = attempt(argv, stdin)
    if done.returncode != 0:
        message = (done.stderr or done.stdout).strip().splitlines()
        raise TapscopeError(f"`{' '.join(argv)}` failed: {message[-1] if message else done.returncode}")
    return done.stdout
