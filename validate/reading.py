"""Event-monitor logs read by a process of its own while this one reads the run file: parsing lines takes one
processor for seconds. A program started anew, because a library must not ask its users for a `__main__` that
can be imported.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tapscope.store.errors import TapscopeError
from tapscope.validate import events
from tapscope.validate.event_calls import EventCalls

LARGE_BYTES = 50_000_000
"""Logs from this size on (packed or not) are worth the start of a process."""


@contextmanager
def begun(directory: Path, zone: str | None, more: list[Path]) -> Iterator[Callable[[], EventCalls]]:
    """Begin to read logs (events.load); what is given waits for them, and raises what events.load raises.

    Whoever leaves before that, because something else failed, leaves no process behind.
    """
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    if size < LARGE_BYTES:
        yield lambda: events.load(directory, zone, more)
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "tapscope.validate.reading"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    question, answer = process.stdin, process.stdout

    def wait() -> EventCalls:
        try:
            found = pickle.load(answer)  # from our own program
        except EOFError as error:
            raise TapscopeError(
                "the process that read the logs ended before it was done",
                path=directory,
                remedy="See its message above; where there is none, memory may have run out.",
            ) from error
        if isinstance(found, TapscopeError):
            raise found
        assert isinstance(found, EventCalls)
        return found

    with process:
        try:
            with question:
                pickle.dump((directory, zone, more), question)
            yield wait
        finally:
            process.kill()  # nothing to it where it has ended


def main() -> None:
    """Answer one question on the standard input."""
    directory, zone, more = pickle.load(sys.stdin.buffer)
    try:
        found: EventCalls | TapscopeError = events.load(directory, zone, more)
    except TapscopeError as error:
        found = error
    pickle.dump(found, sys.stdout.buffer, protocol=5)


if __name__ == "__main__":
    main()
