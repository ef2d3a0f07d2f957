"""Programs that burden a host at planned moments: `python -m tapscope.validate.testbed.burdens CONFIG.json`.

spin: processes that use the processor; dirty: buffered writes; write: synchronous writes past the page
cache; crowd: visitors of a server who come all at once, and ask once or (`insist`) until the end. Each fault
becomes a line of the record: begin_ns, end_ns, from the first worker's begin to the last one's end. Files do
not grow beyond `most_mib` in all; they are cut to nothing at the end of each fault. Ended by SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Note = Callable[[int, int], None]
"""Told the begin and the end of a fault that was done."""

_DONE = struct.Struct("qqq")
"""What a worker tells of a fault: its number in the plan, begin_ns, end_ns."""


def _wait_until(moment_ns: int) -> None:
    left = (moment_ns - time.time_ns()) / 1e9
    if left > 0:
        time.sleep(left)


def _forked(config: dict[str, Any], note: Note, worker: Callable[[int], Callable[[int], None]]) -> None:
    """Processes that all work at every moment. worker: called in each with its number, gives its work until a
    time."""
    parent = os.getpid()
    told, tell = os.pipe()
    for number in range(config["workers"]):
        if os.fork():
            continue
        work = worker(number)
        for fault, (begin_ns, length_ns) in enumerate(config["moments"]):
            _wait_until(begin_ns)
            if os.getppid() != parent:
                break
            began_ns = time.time_ns()
            work(begin_ns + length_ns)
            os.write(tell, _DONE.pack(fault, began_ns, time.time_ns()))
        os._exit(0)
    # One that waits for the disk may end a fault when others have ended the next one.
    rows: list[list[tuple[int, int]]] = [[] for _ in config["moments"]]
    with os.fdopen(told, "rb") as ended:
        for _ in range(config["workers"] * len(rows)):
            fault, began_ns, ended_ns = _DONE.unpack(ended.read(_DONE.size))
            rows[fault].append((began_ns, ended_ns))
            if len(rows[fault]) == config["workers"]:
                note(min(begin for begin, _ in rows[fault]), max(end for _, end in rows[fault]))


def _spin(config: dict[str, Any], note: Note) -> None:
    def work(until_ns: int) -> None:
        while time.time_ns() < until_ns:
            pass

    _forked(config, note, lambda number: work)


def _files(config: dict[str, Any], note: Note, flags: int) -> None:
    """Each worker writes blocks to a file of its own, from its beginning again when it is as long as it may
    be."""
    block = mmap.mmap(-1, config["block_kib"] << 10)  # aligned, as writes past the page cache must be
    block.write(os.urandom(len(block)))
    most = max((config["most_mib"] << 20) // config["workers"] // len(block), 1) * len(block)

    def worker(number: int) -> Callable[[int], None]:
        path = Path(config["folder"]) / f"block-{number}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)

        def work(until_ns: int) -> None:
            at = 0
            while time.time_ns() < until_ns:
                os.pwrite(file, block, at)
                at = (at + len(block)) % most
            os.ftruncate(file, 0)

        return work

    _forked(config, note, worker)


def _crowd(config: dict[str, Any], note: Note) -> None:
    asyncio.run(_crowds(config, note))


async def _crowds(config: dict[str, Any], note: Note) -> None:
    for begin_ns, length_ns in config["moments"]:
        await asyncio.sleep(max(0.0, (begin_ns - time.time_ns()) / 1e9))
        began_ns = time.time_ns()
        until = time.monotonic() + length_ns / 1e9
        await asyncio.gather(*(_visit(config, until) for _ in range(config["workers"])))
        # The crowd's own answers may come later; what it does to others ends with its last connection.
        note(began_ns, began_ns + length_ns)


async def _visit(config: dict[str, Any], until: float) -> None:
    """One visitor. Who has no connection when the fault ends goes away, and sends no SYN a second later."""
    host = config["address"]
    request = f"GET {config['target']} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    try:
        while True:
            opened = asyncio.open_connection(host, config["port"])
            reader, writer = await asyncio.wait_for(opened, until - time.monotonic())
            writer.write(request)
            await asyncio.wait_for(reader.read(-1), 30)
            writer.close()
            await writer.wait_closed()
            if not config["insist"] or time.monotonic() >= until:
                return
    except (OSError, TimeoutError):
        return


def _dirty(config: dict[str, Any], note: Note) -> None:
    _files(config, note, 0)


def _write(config: dict[str, Any], note: Note) -> None:
    _files(config, note, os.O_DIRECT | os.O_DSYNC)


PROGRAMS = {"spin": _spin, "dirty": _dirty, "write": _write, "crowd": _crowd}


def main() -> None:
    """Carries out the plan. Ended early, it takes its workers with it, who may be in a fault."""
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    config = json.loads(Path(sys.argv[1]).read_text())
    with Path(config["record"]).open("w", encoding="ascii") as record:

        def note(begin_ns: int, end_ns: int) -> None:
            record.write(f"{begin_ns},{end_ns}\n")
            record.flush()

        PROGRAMS[config["program"]](config, note)


if __name__ == "__main__":
    main()
