"""When a packet file is followed by another one, and who may write that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import TapscopeError


@dataclass(frozen=True)
class Rotation:
    """A packet file is followed by another one at a size or after a time; 0: never. With a size alone `files`
    files are written in a ring; with a time so many are written and then the capture ends; 0: no bound."""

    bytes: int = 0
    seconds: int = 0
    files: int = 0

    @property
    def turns(self) -> bool:
        """Whether there is ever another file."""
        return bool(self.bytes or self.seconds)

    def give_to(self, owner: tuple[int, int], opened: str) -> None:
        """The first file, which root made, to the user (uid, gid) who makes the others: in a ring it is
        written over. `opened`: its path; empty when there is none yet."""
        if self.turns and opened:
            os.chown(opened, *owner)

    def check_folder(self, user: str, path: Path) -> None:
        """Later files are made without root's rights: better refused now than at the second file. Raises
        TapscopeError."""
        folder = path.parent
        if not self.turns or "%" in str(folder):  # strftime may make any name of that
            return
        if not os.access(folder, os.W_OK | os.X_OK):
            raise TapscopeError(
                f"{user} may not make files here, and -C and -G make more than the first one",
                path=folder,
                remedy=f"Give the folder to {user}, name its owner with -Z, or stay root with -Z root.",
            )
