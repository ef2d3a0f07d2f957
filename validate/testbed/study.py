"""An overhead study: interleaved pairs of runs with something off and on, in random order, then compared.

The two runs of a pair have the same seed (the same users' decisions) and follow each other, so that what
drifts on the machine meets both. Which goes first is drawn, so that going second is nobody's habit. What can
be switched while servers run is off and on in turns within a run, which shows smaller differences (turns.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate import comparison
from tapscope.validate.comparison import Comparison

from . import campaign
from .campaign import Say

PLAN, RESULT = "study.json", "comparison.json"


@dataclass(frozen=True)
class Factor:
    """Something whose cost is asked for. off, on: options of `testbed run`; tapped: the tap sees both kinds
    of runs, so that its times are compared, else the load generator's; turns: the option with which it is off
    and on in turns within a run, empty where nothing can switch it."""

    summary: str
    off: tuple[str, ...]
    on: tuple[str, ...]
    tapped: bool = True
    turns: str = ""


FACTORS = {
    "monitors": Factor(
        "the event monitors of all servers, with request ids",
        ("--monitors", "off", "--no-truth"),
        ("--monitors", "all", "--no-truth"),
    ),
    "mirror": Factor(
        "the tap itself: mirror port and capture", ("--no-mirror",), ("--mirror",), tapped=False
    ),
    "threads": Factor(
        "the thread recorder in front of all servers", (), ("--record-threads",), turns="--thread-turns"
    ),
    "nothing": Factor("nothing: what two runs of the same differ in", (), ()),
}
"""What a study can be about. `nothing` tells how far the machine itself can be trusted."""


def study(
    what: str,
    pairs: int,
    words: Sequence[str],
    out: Path,
    *,
    seed: int = 1,
    turns_s: float = 0.0,
    lock: Path | None = None,
    say: Say = lambda _: None,
) -> Comparison:
    """Run what is missing of the pairs, trace the runs, compare them, and leave comparison.json in `out`.

    words : options of `testbed run` for every run (without --seed and -o); with --no-mirror among them the
    load generator's times are compared. seed : of the first pair, and of the order. turns_s : instead of
    pairs of runs, `pairs` runs in which it is off and on in turns of so long. More pairs can be added to a
    study later. Raises TapscopeError when a run fails, and for turns of what nothing can switch.
    """
    factor = FACTORS[what]
    if turns_s and not factor.turns:
        able = ", ".join(name for name, one in FACTORS.items() if one.turns)
        raise TapscopeError(
            f"{what} cannot be off and on within a run",
            remedy=f"Leave out --turns, or study one of: {able}.",
            exit_code=ExitCode.USAGE,
        )
    tapped = factor.tapped and "--no-mirror" not in words
    sides = {"off": list(factor.off), "on": list(factor.on)}
    if turns_s:
        sides = {"turns": [*factor.on, factor.turns, f"{turns_s:g}"]}
    campaign.keep_plan(out, {"what": what, **sides, "run": list(words), "seed": seed}, PLAN)
    runs: dict[str, list[Path]] = {side: [] for side in sides}
    for pair in range(1, pairs + 1):
        for side in sides if turns_s else order(seed, pair):
            folder = out / f"{side}-{pair:02}"
            options = [*words, *sides[side], "--seed", str(seed + pair - 1)]
            say(f"{'run' if turns_s else 'pair'} {pair} of {pairs}: {side}")
            campaign.testbed_run(options, folder, lock, say)
            runs[side].append(campaign.traced(folder, say, match=False) if tapped else folder)
    if turns_s:
        found = comparison.compare_turns(runs["turns"])
    else:
        found = comparison.compare(runs["off"], runs["on"])
    try:
        (out / RESULT).write_text(json.dumps(found.as_json(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise TapscopeError(f"cannot be written: {error.strerror}", path=out / RESULT) from error
    return found


def order(seed: int, pair: int) -> tuple[str, str]:
    """Which side of a pair (1 ...) runs first: a fair coin, the same for the same seed."""
    return ("off", "on") if random.Random(f"{seed} {pair}").random() < 0.5 else ("on", "off")
