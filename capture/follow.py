"""Files that are still being written, read as they grow."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import TapscopeError

LOOK_SECONDS = 0.1
BLOCK = 256 * 1024


@dataclass
class Followed:
    """`pipe` carries a file as it grows; `warning` says why it ended before the block did."""

    pipe: str
    warning: str | None = None


@contextlib.contextmanager
def followed(path: str | os.PathLike[str]) -> Iterator[Followed]:
    """A pipe that carries `path` as it grows, and has no end before the block does.

    A file that is written anew from its start (it got shorter) ends the pipe. Raises TapscopeError.
    """
    try:
        file = Path(path).open("rb", buffering=0)  # noqa: SIM115  (the thread closes it)
    except OSError as error:
        raise TapscopeError(f"cannot be followed: {error.strerror}", path=os.fspath(path)) from None
    out, into = os.pipe()
    following = Followed(f"/dev/fd/{out}")
    over = threading.Event()

    def carry() -> None:
        with file, os.fdopen(into, "wb", buffering=0) as pipe:
            done = 0
            while not over.is_set():
                block = file.read(BLOCK)
                if block:
                    done += len(block)
                    try:
                        while block:
                            block = block[pipe.write(block) :]
                    except BrokenPipeError:
                        return
                elif (size := os.fstat(file.fileno()).st_size) < done:
                    following.warning = (
                        f"got shorter ({done} bytes were read, {size} are left) and was followed no longer; "
                        "name the files of a rotating capture one by one, or capture with --spool"
                    )
                    return
                else:
                    over.wait(LOOK_SECONDS)

    carrier = threading.Thread(target=carry, name="follow", daemon=True)
    carrier.start()
    try:
        yield following
    finally:
        over.set()
        os.close(out)
        carrier.join()
