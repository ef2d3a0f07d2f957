"""The one exception that a user may see, and the exit codes of every command (docs/formats.md)."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit status of the `tapscope` command."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    LOW_QUALITY = 3
    VALIDATION_FAILED = 4
    INTERRUPTED = 130


class TapscopeError(Exception):
    """Bad use or unusable input: what is wrong, where, and what to do about it.

    Bad packets and bad log lines are not errors; they are counted and kept as data.
    """

    def __init__(
        self,
        what: str,
        *,
        path: str | Path | None = None,
        offset: int | None = None,
        remedy: str | None = None,
        exit_code: ExitCode = ExitCode.ERROR,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = None if path is None else str(path)
        self.offset = offset
        self.remedy = remedy
        self.exit_code = exit_code

    def __str__(self) -> str:
        where = ""
        if self.path is not None:
            where = f"{self.path}: "
            if self.offset is not None:
                where = f"{self.path} (byte {self.offset}): "
        advice = f" {self.remedy}" if self.remedy else ""
        return f"{where}{self.what}.{advice}"
