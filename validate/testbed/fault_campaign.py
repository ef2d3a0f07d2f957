"""A campaign of faults: runs of every kind with new seeds, traced, and what findings made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapscope.validate import faults as record
from tapscope.validate.faults import FaultScore

from . import campaign, faults
from .campaign import Say

SPECS = {"dirty": ("dirty@web", "dirty@app")}
"""Faults of a kind's runs, where they are more than one: two peaks that look alike, and have two causes."""

USUAL = ("--users", "100", "--think", "1", "--warmup", "6")
"""A busy board, far from saturated: a tenth of a second without answers is a queue of ten."""


@dataclass(frozen=True)
class FaultCampaign:
    """What is run. kinds: KIND[@HOST], or several of them joined by + that come in turns in the same runs;
    seconds: length of each run phase; repetitions: runs of each."""

    out: Path
    kinds: Sequence[str]
    repetitions: int
    seed: int
    seconds: float

    def runs(self) -> Iterator[tuple[Path, list[str]]]:
        """Directory and options of every run: all kinds once, then all kinds again."""
        for repetition in range(1, self.repetitions + 1):
            for kind in self.kinds:
                parts = kind.split("+")
                # Seeds do not depend on which other kinds are asked for.
                number = list(faults.KINDS).index(faults.split(parts[0])[0]) + len(faults.KINDS) * (
                    len(parts) - 1
                )
                seed = self.seed + 100 * number + repetition
                words = [*USUAL, "--seconds", f"{self.seconds:g}", "--seed", str(seed)]
                for spec in (spec for part in parts for spec in SPECS.get(part, (part,))):
                    words += ["--fault", spec]
                yield self.out / f"{kind}-{repetition}", words


def conduct(
    plan: FaultCampaign, *, judge_only: bool = False, lock: Path | None = None, say: Say
) -> list[FaultScore]:
    """Does the runs that are missing, unless only judged, and judges the findings of all that are there.

    Findings are made anew each time. Raises TapscopeError when a run fails or the folder holds others.
    """
    campaign.keep_plan(plan.out, {"seed": plan.seed, "seconds": plan.seconds}, "campaign.json")
    scores = []
    for folder, words in plan.runs():
        if not judge_only:
            campaign.testbed_run(words, folder, lock, say)
        if (folder / "manifest.json").exists():
            scores.append(record.validate(campaign.traced(folder, say), folder / faults.RECORD))
    return scores
