"""The chapter's part on costs: what studies found (milliScope Fig. 23-25, vPath Tables 1-3)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapscope.store.errors import TapscopeError
from tapscope.validate import drawings
from tapscope.validate.comparison import SIGNIFICANT
from tapscope.validate.run_figures import ENTRY, MACHINE

from .markdown import image, table
from .options import Options
from .study import FACTORS, PLAN, RESULT

HEAD = ["where", "what", "unit"]
MEANS = ["off", "on", "on - off", "95 %", "%", "g", "1 % seen", "smallest %", "at most %", "changed"]


@dataclass(frozen=True)
class Study:
    """A finished study: its folder's name, plan and result; users : of its runs."""

    name: str
    plan: dict[str, Any]
    result: dict[str, Any]
    users: int

    @property
    def what(self) -> str:
        """A key of FACTORS."""
        return str(self.plan["what"])

    def command(self) -> str:
        """What made it."""
        words = shlex.join(self.plan["run"])
        how = f"--pairs {len(self.result['a'])}"
        if turns := self.plan.get("turns"):
            how = f"--pairs {self._runs()} --turns {turns[-1]}"
        return f"tapscope testbed study --what {self.what} {how} -o {self.name} -- {words}"

    def size(self) -> str:
        """How many runs, or turns, of each kind."""
        a, b = len(self.result["a"]), len(self.result["b"])
        if self.result.get("unit") == "turns":
            return f"{a} pairs of turns in {self._runs()} runs"
        return f"{a} pairs" if self.result["paired"] else f"{a} and {b} runs"

    def _runs(self) -> int:
        return len({run["name"].partition(" ")[0] for run in self.result["a"]})


def costs(folders: Sequence[Path], figures: Path) -> list[str]:
    """Tables and figures of studies. Those of the same thing are shown together, by workload.

    Raises TapscopeError for a folder without a finished study, and for two of the same thing and workload.
    """
    found = [_read(folder) for folder in folders]
    parts: list[str] = []
    for what in dict.fromkeys(study.what for study in found):
        of_users: dict[int, Study] = {}
        for study in found:
            if study.what == what and of_users.setdefault(study.users, study) is not study:
                both = f"{of_users[study.users].name} and {study.name}"
                raise TapscopeError(
                    f"{both} are both about {what} with {study.users} users",
                    remedy="Give one of them.",
                )
        parts += _of_one_thing([of_users[users] for users in sorted(of_users)], figures)
    return parts


def _read(folder: Path) -> Study:
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TapscopeError(
            f"this is no finished study: {error}",
            path=folder,
            remedy="Make it with `tapscope testbed study`.",
        ) from error
    words = plan["run"]
    given = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--users"]
    return Study(folder.name, plan, result, int(given[-1]) if given else Options().users)


def _of_one_thing(studies: Sequence[Study], figures: Path) -> list[str]:
    what, several = studies[0].what, len(studies) > 1
    panels = {f"{study.users} users": _panels(study.result["figures"]) for study in studies}
    drawings.costs(panels, ("off", "on"), figures / f"cost-{what}.svg")
    named = [{(f["where"], f["what"], f["unit"]): f for f in study.result["figures"]} for study in studies]
    rows = [
        [*name, *([study.users] if several else []), *_means(of_study[name])]
        for name in dict.fromkeys(name for of_study in named for name in of_study)
        for study, of_study in zip(studies, named, strict=True)
        if name in of_study and _says_something(of_study[name])
    ]
    counts = [(f"{study.users} users: " if several else "") + study.size() for study in studies]
    notes = [
        f"* {f'{study.users} users, ' if several else ''}{note}"
        for study in studies
        for note in study.result["notes"]
    ]
    return [
        f"### Cost of {FACTORS[what].summary}",
        "",
        f"{'; '.join(counts)}; times by the {studies[0].result['observer']}.",
        "",
        *(f"    {study.command()}" for study in studies),
        "",
        image(f"Off and on: {FACTORS[what].summary}", figures, f"cost-{what}"),
        *table([*HEAD, *(["users"] if several else []), *MEANS], rows),
        *notes,
        *([""] if notes else []),
    ]


def _says_something(figure: dict[str, Any]) -> bool:
    return figure["low"] is not None and bool(figure["mean_a"] or figure["mean_b"])


def _means(figure: dict[str, Any]) -> list[Any]:
    changed = figure["adjusted_p"] is not None and figure["adjusted_p"] < SIGNIFICANT
    interval = f"{figure['low']:.3g} to {figure['high']:.3g}"
    names = ("mean_a", "mean_b", "difference")
    more = ("percent", "hedges_g", "power_of_small", "smallest_percent", "at_most_percent")
    values = [figure[name] for name in names], [figure[name] for name in more]
    return [*values[0], interval, *values[1], "yes" if changed else ""]


def _panels(figures: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Bars of the figure: title of a panel -> pairs of bars."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        where, what = figure["where"], figure["what"]
        kind, _, statistic = what.partition(", ")
        if where not in (ENTRY, MACHINE) and what in ("CPU busy", "disk written"):
            title, label = f"{what} ({figure['unit'].replace('of one core', 'of a core')})", where
        elif where == ENTRY and (kind == "throughput" or statistic in ("mean", "p50", "p90")):
            title, label = f"{kind} ({figure['unit']})", statistic
        else:
            continue
        bars = {"label": label, "a": figure["mean_a"], "b": figure["mean_b"], "percent": figure["percent"]}
        panels.setdefault(title, []).append(bars | {"sd_a": figure["sd_a"], "sd_b": figure["sd_b"]})
    return panels
