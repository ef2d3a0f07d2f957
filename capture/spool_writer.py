"""Segments on their way to the disk, which may be slower than the capture."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import Counter
from typing import Any

import numpy as np

from tapscope.capture.spool import Spool

WAITING_SEGMENTS = 4
"""Segments that may wait for the disk; beyond it, rows gather in the engine."""


class SpoolWriter:
    """Writes segments in a thread of its own, so that a slow disk does not stop the capture."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self._waiting: queue.Queue[tuple[dict[str, Any], bool] | None] = queue.Queue(WAITING_SEGMENTS)
        self._thread = threading.Thread(target=self._work, name="spool", daemon=True)
        self._failure: BaseException | None = None
        self._by_protocol: Counter[int] = Counter()

    def begin(self, about: dict[str, Any]) -> None:
        """Starts the session; from here on everything belongs to the user that we are now."""
        self.spool.begin(about)
        self._thread.start()

    def full(self) -> bool:
        return self._waiting.full()

    def put(self, segment: dict[str, Any], *, last: bool = False) -> None:
        """Waits for room."""
        self.check()
        numbers, counts = np.unique(segment["messages"]["protocol"], return_counts=True)
        self._by_protocol.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        while True:
            try:
                self._waiting.put((segment, last), timeout=0.2)
                return
            except queue.Full:
                self.check()

    def check(self) -> None:
        """Raises what went wrong in the thread."""
        if self._failure is not None:
            raise self._failure

    def end(self, outcome: str) -> None:
        """Writes what waits and closes the spool."""
        self._waiting.put(None)
        self._thread.join()
        self.check()
        self.spool.close(outcome)

    def status(self) -> dict[str, Any]:
        return {
            "messages_by_protocol": dict(self._by_protocol),
            "segments_written": self.spool.segments,
            "segments_waiting": self._waiting.qsize(),
            "spool_bytes": self.spool.size_bytes,
        }

    def _work(self) -> None:
        try:
            while (item := self._waiting.get()) is not None:
                self.spool.write(item[0], last=item[1])
                del item
        except BaseException as error:
            self._failure = error
            with contextlib.suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
