"""What all emulated visitors share: their own random numbers, think times, and the ids of their requests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One request to make. form: the body of a POST, or None for GET; content_type: of that body."""

    interaction: str
    target: str
    form: bytes | None = None
    content_type: str = "application/x-www-form-urlencoded"
    headers: tuple[str, ...] = field(default=())


class Pace:
    """State of one emulated user that no application has a say in. session: value of its cookie, if any;
    keeps_answers: whether what it was answered is written down."""

    keeps_answers = False

    def __init__(self, seed: int, number: int, mix: str) -> None:
        self._rng = random.Random(f"visitor {seed} {number}")
        self._mix = mix
        self.session = ""

    def think_s(self, mean_s: float) -> float:
        """Exponential think time, cut at seven means."""
        return min(self._rng.expovariate(1 / mean_s), 7 * mean_s) if mean_s > 0 else 0.0

    def start_s(self, spread_s: float) -> float:
        """Moment of the first request within the warm-up."""
        return self._rng.uniform(0, spread_s)

    def request_id(self) -> str:
        """A version-4 style UUID from the visitor's own random numbers."""
        h = f"{self._rng.getrandbits(128):032x}"
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) % 4]}{h[17:20]}-{h[20:]}"

    def next_step(self) -> Step:
        """The next request."""
        raise NotImplementedError

    def followed(self, target: str) -> Step:
        """The page that a form's answer sends the browser to."""
        raise NotImplementedError
