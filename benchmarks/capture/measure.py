"""Runs programs and tells what they cost; brings the page cache into one state."""

from __future__ import annotations

import mmap
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK = 1 << 20
TOUCHED = 192 << 20


@dataclass(frozen=True)
class Cost:
    """Of one run of a process."""

    cpu_s: float
    """User + system."""
    wall_s: float
    output: str


def run(command: Sequence[str]) -> Cost:
    """One run to its end; RuntimeError with what it said when it fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors[-2000:]}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, output)


def normalise_cache(path: Path) -> None:
    """Throw a file out of the page cache, then read it once in large blocks.

    How bytes came into the cache (written in small pieces, read ahead, huge folios or small ones) changes
    what reading them again costs; after this every capture has come in the same way.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(descriptor, BLOCK):
            pass
    finally:
        os.close(descriptor)


def normalise_memory() -> None:
    """Touch memory and give it back, so that the pages which the next process gets are the machine's own.

    A virtual machine may have returned what it did not use to its host; the first to touch such a page waits
    for the host, which says nothing about the program that does.
    """
    with mmap.mmap(-1, TOUCHED) as memory:
        for offset in range(0, TOUCHED, mmap.PAGESIZE):
            memory[offset] = 1


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest of a few runs."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))
