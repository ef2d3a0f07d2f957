"""Signals to a command that runs until it is told to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapscope.capture.live import Control


@contextmanager
def asked_to_stop(control: Control) -> Iterator[None]:
    """Ctrl-C and SIGTERM end it in good order, a second one at once; SIGUSR1 reports; SIGHUP is kept
    for later use."""

    def stop(number: int, frame: object) -> None:
        if control.stop:
            raise KeyboardInterrupt
        control.stop = True

    def ask(number: int, frame: object) -> None:
        control.report = True

    def nothing(number: int, frame: object) -> None:
        """Reserved."""

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGUSR1: ask, signal.SIGHUP: nothing}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    for number in (signal.SIGUSR1, signal.SIGHUP):  # a write that waits for its reader goes on
        signal.siginterrupt(number, False)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
