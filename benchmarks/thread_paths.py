"""Cost of the paths that thread logs tell: time and memory of reading the logs and finding every parent.

    python benchmarks/thread_paths.py [--requests N ...]

The logs are of two servers with 64 threads each. A request of a user, who has no log, comes to the first one,
whose thread asks the second one three times, each time over the same connection. Four calls a request, eight
records of them at the first server and six at the second. Every size is a process of its own; making the logs
is not measured.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from by_size import print_lines
from thread_world import BEGIN_NS, end, header, opened
from trace_capture import peak_mb

from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads.log import RECORD, How, Kind, Way
from tapscope.validate.threads import logged

THREADS, BELOW = 64, 3
REQUEST_BYTES, ANSWER_BYTES = 300, 2000
USER, FRONT, BACK = "10.9.0.1", "10.0.0.1", "10.0.0.2"
STEP_NS, LENGTH_NS = 1_000, 20_000
BODY = [("end_ns", "<i8"), ("offset", "<i8"), ("bytes", "<i8"), ("more", "<i8")]
CALL = np.dtype([field for field in RECORD.descr if field[0] != "body"] + BODY)
"""The record of a send or receive, whole."""


def write(path: Path, pid: int, ends: list[tuple[int, bytes]], calls: NDArray[Any]) -> None:
    """A log: its connections, its calls in order of time, its end."""
    body = calls[np.argsort(calls["begin_ns"], kind="stable")].tobytes()
    begun = b"".join(record for _, record in ends)
    path.write_bytes(header(pid, "server") + begun + body + end(int(calls["end_ns"].max()) + 1))


def moved(
    shape: tuple[int, int], at_ns: NDArray[Any], number: NDArray[Any], pid: int, way: Way, nth: NDArray[Any]
) -> NDArray[Any]:
    """One send or receive per thread and request; nth: of the messages of its connection and direction."""
    found = np.zeros(shape, CALL)
    asks = (way == Way.RECEIVED) == (
        number[0] <= THREADS
    )  # of the own clients: users' connections come first
    size = REQUEST_BYTES if asks else ANSWER_BYTES
    found["begin_ns"], found["end_ns"] = at_ns, at_ns + STEP_NS // 2
    found["connection"], found["thread"] = number[:, None], (pid + 1 + np.arange(THREADS))[:, None]
    found["kind"], found["direction"], found["bytes"] = Kind.CALL, way, size
    found["offset"] = nth * size
    return found.reshape(-1)


def make(folder: Path, requests: int) -> int:
    """Write both logs; gives the number of calls."""
    each = max(1, requests // THREADS)
    shape = (THREADS, each)
    nth = np.broadcast_to(np.arange(each), shape)
    begin = BEGIN_NS + 10**6 + nth * LENGTH_NS + np.arange(THREADS)[:, None] * 7
    users, below = 1 + np.arange(THREADS), 1 + THREADS + np.arange(THREADS)
    front = [moved(shape, begin, users, 100, Way.RECEIVED, nth)]
    back = []
    for ask in range(BELOW):
        at = begin + (1 + 4 * ask) * STEP_NS
        place = nth * BELOW + ask
        front.append(moved(shape, at, below, 100, Way.SENT, place))
        back.append(moved(shape, at + STEP_NS, users, 200, Way.RECEIVED, place))
        back.append(moved(shape, at + 2 * STEP_NS, users, 200, Way.SENT, place))
        front.append(moved(shape, at + 3 * STEP_NS, below, 100, Way.RECEIVED, place))
    front.append(moved(shape, begin + (1 + 4 * BELOW) * STEP_NS, users, 100, Way.SENT, nth))
    ends: dict[int, list[tuple[int, bytes]]] = {100: [], 200: []}
    for place in range(THREADS):
        user, own = (USER, 20_000 + place), (FRONT, 30_000 + place)
        listeners = ((FRONT, 80), (BACK, 80))
        for pid, number, how, pair in (
            (100, 1 + place, How.ACCEPTED, (listeners[0], user)),
            (100, 1 + THREADS + place, How.CONNECTED, (own, listeners[1])),
            (200, 1 + place, How.ACCEPTED, (listeners[1], own)),
        ):
            ends[pid].append((number, opened(BEGIN_NS, number, pid, how, *pair)))
    write(folder / "front.threads", 100, ends[100], np.concatenate(front))
    write(folder / "back.threads", 200, ends[200], np.concatenate(back))
    return THREADS * each * (1 + BELOW)


def measure(folder: Path) -> dict[str, float]:
    """Read and find, in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    found = logged.paths(log.read([folder]))
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "rss": peak_mb()} | found.summary


def line(folder: Path, made: int, found: dict[str, Any]) -> str:
    """The line of one size."""
    assert found["calls"] == made, found
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    each = 1e6 * found["cpu"] / made
    return (
        f"{made:9d} {found['calls with a parent']:12d} {size:11.1f} {found['cpu']:8.2f} {each:12.2f}"
        f" {found['rss']:8.0f}"
    )


HEAD = "    calls  with parent  records MB    CPU s  CPU us/call  peak MB"

if __name__ == "__main__":
    sizes = (4_000, 40_000, 400_000)
    print_lines(__file__, __doc__.splitlines()[0], "requests", sizes, make, measure, HEAD, line)
