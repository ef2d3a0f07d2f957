"""Something that is off and on in turns within one run, so that both meet the same servers at nearly the
same time.

Runs of one kind differ by several percent, by how code was compiled and how memory came to lie; turns of a
run that follow one another differ less. Turns come in pairs of off and on. Which of the two is first is drawn
for each pair, so that what drifts meets both alike.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class Turn(NamedTuple):
    """Times in ns since 1970; `on` from the beginning to the end."""

    begin_ns: int
    end_ns: int
    on: bool


def plan(begin_ns: int, end_ns: int, length_ns: int, seed: int) -> list[Turn]:
    """Whole pairs of turns between two times; the rest of the time belongs to none."""
    chance = random.Random(seed)
    turns = []
    for pair in range((end_ns - begin_ns) // (2 * length_ns)):
        first = chance.random() < 0.5
        for number, on in enumerate((first, not first), 2 * pair):
            at = begin_ns + number * length_ns
            turns.append(Turn(at, at + length_ns, on))
    return turns


class Turns:
    """Carries a plan out, from a thread of its own: `switch` is told whether it is on now. Use as a context
    manager; on exit it is on."""

    def __init__(self, planned: list[Turn], switch: Callable[[bool], None]) -> None:
        self._plan, self._switch = planned, switch
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="turns", daemon=True)

    def __enter__(self) -> Turns:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._plan:
            self._switch(True)

    def _work(self) -> None:
        for turn in self._plan:
            if self._over.wait(max(0.0, (turn.begin_ns - time.time_ns()) / 1e9)):
                return
            self._switch(turn.on)
