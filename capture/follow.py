"""Files that are still being written, read as they grow."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tapscope.store.errors import TapscopeError

LOOK_SECONDS = 0.1
REPLACED_LOOKS = 20
"""Looks without new bytes before a file counts as replaced: who wrote it may do so for a while after it was
renamed."""
BLOCK = 256 * 1024
DESCRIPTORS = 4
"""Of each file: its own, both ends of the pipe, and the engine's."""
ROTATED = "was followed no longer; name the files of a rotating capture one by one, or capture with --spool"


@dataclass
class Followed:
    """`pipe` carries a file as it grows; `warning` says why it ended before the block did."""

    pipe: str
    warning: str | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """The pipe ends here."""
        self.over.set()


@contextlib.contextmanager
def followed(path: str | os.PathLike[str]) -> Iterator[Followed]:
    """A pipe that carries `path` as it grows, and has no end before the block does, or until it is stopped.

    A file that is written anew from its start (it got shorter), or in whose place another one stands, ends
    the pipe; so does the end of a pipe, and of "-", standard input. Raises TapscopeError.
    """
    try:
        file = os.fdopen(os.dup(0), "rb", 0) if os.fspath(path) == "-" else Path(path).open("rb", 0)  # noqa: SIM115
    except OSError as error:
        raise TapscopeError(f"cannot be followed: {error.strerror}", path=os.fspath(path)) from None
    out, into = os.pipe()
    following = Followed(f"/dev/fd/{out}")
    regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)

    def carry() -> None:
        with file, os.fdopen(into, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
            (_carry_file if regular else _carry_pipe)(file, pipe, following, path)

    carrier = threading.Thread(target=carry, name="follow", daemon=True)
    carrier.start()
    try:
        yield following
    finally:
        following.stop()
        os.close(out)
        carrier.join()


def _carry_file(file: IO[bytes], pipe: IO[bytes], following: Followed, path: str | os.PathLike[str]) -> None:
    done = quiet = 0
    while not following.over.is_set():
        block = file.read(BLOCK)
        if block:
            quiet = 0
            done += len(block)
            _write(block, pipe)
        elif (size := os.fstat(file.fileno()).st_size) < done:
            following.warning = f"got shorter ({done} bytes were read, {size} are left) and {ROTATED}"
            return
        elif quiet >= REPLACED_LOOKS and _is_another(file.fileno(), path):
            following.warning = f"was replaced by another file after {done} bytes and {ROTATED}"
            return
        else:
            quiet += 1
            following.over.wait(LOOK_SECONDS)


def _carry_pipe(file: IO[bytes], pipe: IO[bytes], following: Followed, path: str | os.PathLike[str]) -> None:
    ready = select.poll()  # which takes any descriptor; select those below 1024
    ready.register(file, select.POLLIN)
    while not following.over.is_set():
        if ready.poll(LOOK_SECONDS * 1000):
            block = file.read(BLOCK)
            if not block:
                return
            _write(block, pipe)


def _write(block: bytes, pipe: IO[bytes]) -> None:
    while block:
        block = block[pipe.write(block) :]


def _is_another(descriptor: int, path: str | os.PathLike[str]) -> bool:
    """Does the path name another file than the one that is open? A file that is gone is none."""
    try:
        return not os.path.samestat(os.fstat(descriptor), Path(path).stat())
    except OSError:
        return False
