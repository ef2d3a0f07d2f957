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

LONGEST_LINE = 16 << 20
"""Bytes of a line that is kept: more than the longest statement that a server takes by default (16 MiB in
MariaDB). A longer one is dropped, so that a file without line ends, or a small packed one that unpacks to a
single line, takes no more memory than this."""

OVERLONG = b"[a line that was too long]\n"
"""The block that stands for a dropped line, and for nothing else: the numbers of the lines behind it stay
right, and no reader takes it for what it reads."""


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes, cut at line ends; only the last block may lack its own. OVERLONG in the place of a
    line that is longer than LONGEST_LINE.

    Raises what reading raises: OSError, and of a gzipped file that is cut or damaged EOFError, zlib.error or
    gzip.BadGzipFile, each after the whole lines in front of it.
    """
    whole: list[bytes] = []
    begun: list[bytes] = []
    size = line = 0
    dropping = False
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
            if dropping:  # until the line is over
                end = piece.find(b"\n") + 1
                if not end:
                    continue
                piece, dropping = piece[end:], False
            end = piece.rfind(b"\n") + 1
            if end:
                whole += [*begun, piece[:end]]
                begun, line = [piece[end:]], len(piece) - end
            else:
                begun.append(piece)
                line += len(piece)
            size += len(piece)
            if line > LONGEST_LINE:
                if whole:
                    yield b"".join(whole)
                yield OVERLONG
                whole, begun, size, line, dropping = [], [], 0, 0, True
            elif size >= BLOCK_BYTES and whole:
                yield b"".join(whole)
                whole, size = [], 0
    if any(whole):
        yield b"".join(whole)
    if failure is not None:
        raise failure
