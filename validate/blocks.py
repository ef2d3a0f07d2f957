"""Text files in blocks of whole lines, unpacked where they are gzipped: what takes lines apart does so with
many at once."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK_BYTES = 1 << 20
"""A block has at least so many, and ends with the line that they end in."""


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes, cut at line ends; only the last block may lack its own.

    Raises what reading raises: OSError, and of a gzipped file that is cut or damaged EOFError, zlib.error or
    gzip.BadGzipFile, each after the whole lines in front of it.
    """
    whole: list[bytes] = []
    begun: list[bytes] = []
    size = 0
    failure: Exception | None = None
    with _open(path) as file:
        while True:
            try:
                piece = file.read1(BLOCK_BYTES)  # read() would lose what comes before damage
            except (EOFError, zlib.error, OSError) as error:
                failure = error
                break
            if not piece:
                whole += begun
                break
            end = piece.rfind(b"\n") + 1
            if end:
                whole += [*begun, piece[:end]]
                begun = [piece[end:]]
            else:
                begun.append(piece)
            size += len(piece)
            if size >= BLOCK_BYTES and whole:
                yield b"".join(whole)
                whole, size = [], 0
    if any(whole):
        yield b"".join(whole)
    if failure is not None:
        raise failure
