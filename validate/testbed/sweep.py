"""A sweep over workloads: each is run, traced and validated, and gives one line of the validation chapter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapscope.store.runfile import RunFile
from tapscope.validate import run_figures
from tapscope.validate.run_figures import RunFigures

from . import campaign
from .campaign import Say

PLAN = "sweep.json"


@dataclass(frozen=True)
class Workload:
    """One workload: its run file, what it says of the system, how tap and event monitors agree (the JSON of
    `validate`), and the run directory's manifest. threads : how tap and thread logs agree, where the run has
    any."""

    users: int
    path: Path
    figures: RunFigures
    validation: dict[str, Any]
    manifest: dict[str, Any]
    threads: dict[str, Any] | None = None


def sweep(
    users: Sequence[int],
    seconds: float,
    words: Sequence[str],
    out: Path,
    *,
    seed: int = 1,
    again: bool = False,
    lock: Path | None = None,
    say: Say = lambda _: None,
) -> list[Workload]:
    """Run what is missing of the workloads into `out`, trace and validate them; the lightest comes first.

    words : options of `testbed run` for every run (without --users, --seconds, --seed and -o); again : trace
    and validate what was traced before, too. More workloads can be added to a sweep later. Raises
    TapscopeError when a run fails; a validation that fails is a result.
    """
    campaign.keep_plan(out, {"seconds": seconds, "run": list(words), "seed": seed}, PLAN)
    found = []
    for number in sorted(set(users)):
        folder = out / f"users-{number:05}"
        options = [*words, "--users", str(number), "--seconds", f"{seconds:g}", "--seed", str(seed)]
        campaign.testbed_run(options, folder, lock, say)
        path = campaign.traced(folder, say, again=again)
        with RunFile.open(path) as run:
            done = run.meta("validation") is not None
        by_threads = folder.with_suffix(".threads.json")
        done &= by_threads.exists() or not (folder / "threads").is_dir()
        if not done:
            campaign.validated(folder, say)
        with RunFile.open(path) as run:
            validation, manifest = run.meta("validation"), run.meta("manifest")
        threads = json.loads(by_threads.read_text(encoding="utf-8")) if by_threads.exists() else None
        found.append(Workload(number, path, run_figures.read(path), validation, manifest, threads))
    return found
