"""Processes over one clock that wait, and that lend things to each other: what simulated systems are made of.

A process is a generator. It yields a number of ns to wait for, or a `Pool` to be given one of its items.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Generator
from typing import Any, Literal

Process = Generator[Any, Any, None]
Lend = Literal["first", "last", "any"]


class Pool:
    """Interchangeable items (threads, processors, connections).

    Lent is the one that came back first, last, or any (`draw`); `in_order`: to who has waited for longest,
    else to any of those who wait.
    """

    def __init__(
        self,
        items: list[int],
        lend: Lend = "first",
        draw: random.Random | None = None,
        *,
        in_order: bool = True,
    ) -> None:
        self.free = deque(items)
        self.waiting: deque[Process] = deque()
        self.frozen = False  # while set, nothing is handed out: what comes back stays here
        self.lend, self.in_order, self.draw = lend, in_order, draw or random.Random(0)

    def take(self) -> int:
        """One of the free items."""
        if self.lend == "last":
            return self.free.pop()
        if self.lend == "any":
            self.free.rotate(self.draw.randrange(len(self.free)))
        return self.free.popleft()

    def next_in_line(self) -> Process:
        """One of those who wait."""
        if not self.in_order:
            self.waiting.rotate(self.draw.randrange(len(self.waiting)))
        return self.waiting.popleft()


class Clock:
    """Runs processes in the order of time; `now` is in ns."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.events: list[tuple[int, int, Process, int | None]] = []
        self.order = 0

    def start(self, process: Process, at: int) -> None:
        """Let a process begin at an instant."""
        self._at(at, process, None)

    def give(self, pool: Pool, item: int) -> None:
        """Put an item back, for who waits for it."""
        pool.free.append(item)
        if pool.waiting and not pool.frozen:
            self._at(self.now, pool.next_in_line(), pool.take())

    def run(self, end: int) -> None:
        """Go on until nothing is left to do, or until this instant."""
        while self.events and self.events[0][0] < end:
            self.now, _, process, value = heapq.heappop(self.events)
            try:
                demand = process.send(value)
            except StopIteration:
                continue
            if not isinstance(demand, Pool):
                self._at(self.now + demand, process, None)
            elif demand.free and not demand.frozen:
                self._at(self.now, process, demand.take())
            else:
                demand.waiting.append(process)

    def _at(self, when: int, process: Process, value: int | None) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, process, value))
