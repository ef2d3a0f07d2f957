"""Runs of two kinds, A and B, that one observer watched: what changed, how surely, and what could have been
seen (milliScope 4.4, vPath 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.validate import effects, run_figures
from tapscope.validate.effects import CONFIDENCE, POWER, SMALL_PERCENT, Effect
from tapscope.validate.run_figures import ENTRY, MACHINE, Figure, RunFigures
from tapscope.validate.validation import plain

FORMAT = 1
"""Version of the JSON structure; raised when a key changes its meaning or goes."""

SIGNIFICANT = 0.05
"""False discovery rate at which a figure counts as changed."""

Table = tuple[str, list[str], list[list[Any]]]
Progress = Callable[[str, int, int], None]


@dataclass
class Comparison:
    """All figures that every run has. `paired`: by seed; `differs`: options of the testbed that A and B do
    not share; `notes`: what to know before believing it."""

    a: list[RunFigures]
    b: list[RunFigures]
    paired: bool
    differs: dict[str, tuple[Any, Any]]
    effects: dict[Figure, Effect]
    adjusted_p: dict[Figure, float]
    notes: list[str] = field(default_factory=list)
    unit: str = "runs"
    """What A and B are: runs, or turns within runs."""

    def changed(self) -> list[Figure]:
        """Figures that differ at the false discovery rate SIGNIFICANT."""
        return [figure for figure, p in self.adjusted_p.items() if p < SIGNIFICANT]

    def as_json(self) -> dict[str, Any]:
        """Plain values, NaN as None; docs/overhead.md has the keys."""
        document = {
            "format": FORMAT,
            "observer": self.a[0].observer,
            "unit": self.unit,
            "paired": self.paired,
            "confidence": CONFIDENCE,
            "differs": {name: list(values) for name, values in self.differs.items()},
            "a": [_run(run) for run in self.a],
            "b": [_run(run) for run in self.b],
            "figures": [
                figure._asdict() | asdict(effect) | {"adjusted_p": self.adjusted_p[figure]}
                for figure, effect in self.effects.items()
            ],
            "notes": self.notes,
        }
        return dict(plain(document))

    def tables(self) -> list[Table]:
        """(title, column heads, rows) of what people read."""
        return [self._differences(), self._power()]

    def _differences(self) -> Table:
        how = "in pairs" if self.paired else "Welch's test"
        title = (
            f"B minus A, {len(self.a)} and {len(self.b)} {self.unit} ({how}), by the {self.a[0].observer}; "
            f"{100 * CONFIDENCE:g} % intervals"
        )
        head = [
            "where",
            "what",
            "unit",
            "A",
            "B",
            "difference",
            "from",
            "to",
            "%",
            "from %",
            "to %",
            "g",
            "p",
            "",
        ]
        rows = [
            [
                *figure,
                *(e.mean_a, e.mean_b, e.difference, e.low, e.high),
                *(e.percent, e.percent_low, e.percent_high, e.hedges_g, e.p),
                "changed" if self.adjusted_p[figure] < SIGNIFICANT else "",
            ]
            for figure, e in self.effects.items()
        ]
        return title, head, rows

    def _power(self) -> Table:
        title = "What these runs could have shown"
        seen, smallest = (
            f"{SMALL_PERCENT:g} % seen with probability",
            f"smallest seen at {100 * POWER:g} % (%)",
        )
        head = ["where", "what", seen, smallest, "no change above (%)"]
        rows = [
            [figure.where, figure.what, e.power_of_small, e.smallest_percent, e.at_most_percent]
            for figure, e in self.effects.items()
        ]
        return title, head, rows

    def statement(self) -> str:
        """Power for throughput and mean response time in words; '' when there is none."""
        said = []
        for what in ("throughput", "response time, mean"):
            effect = next((e for f, e in self.effects.items() if (f.where, f.what) == (ENTRY, what)), None)
            if effect is not None and not math.isnan(effect.power_of_small):
                said.append(
                    f"{what}: a {SMALL_PERCENT:g} % change would have been seen with probability "
                    f"{effect.power_of_small:.2f}; smallest change seen at {100 * POWER:g} %: "
                    f"{effect.smallest_percent:.2g} %; changes above {effect.at_most_percent:.2g} % are "
                    "ruled out"
                )
        return ". ".join(said)


def compare(
    a: Sequence[str | Path],
    b: Sequence[str | Path],
    *,
    lead_ns: int = 0,
    tail_ns: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Read the runs (run_figures.read) and compare them.

    Runs are pairs when every seed occurs once in A and once in B. Raises TapscopeError for unusable runs, for
    a side with none, and when the runs have different observers.
    """
    if not a or not b:
        raise TapscopeError(
            "a side without runs", remedy="Name runs of A, then --, then runs of B.", exit_code=ExitCode.USAGE
        )
    say = progress or (lambda what, done, total: None)
    read = []
    for done, path in enumerate([*a, *b]):
        say("reading runs", done, len(a) + len(b))
        read.append(run_figures.read(path, lead_ns, tail_ns))
    say("reading runs", len(read), len(read))
    _one_observer(read)
    return of_runs(read[: len(a)], read[len(a) :])


def compare_turns(paths: Sequence[str | Path], *, progress: Progress | None = None) -> Comparison:
    """Compare the turns of runs (run_figures.read_turns): A off, B on, a pair of turns for a pair of runs.

    Raises TapscopeError for unusable runs, for none, and when they have different observers.
    """
    if not paths:
        raise TapscopeError("no run was named", exit_code=ExitCode.USAGE)
    say = progress or (lambda what, done, total: None)
    off: list[RunFigures] = []
    on: list[RunFigures] = []
    notes = []
    for done, path in enumerate(paths):
        say("reading runs", done, len(paths))
        *sides, flags = run_figures.read_turns(path)
        notes += [f"{Path(path).name}: {flag}" for flag in flags]
        for side, turns in zip((off, on), sides, strict=True):
            side += [replace(turn, seed=len(side) + number) for number, turn in enumerate(turns, 1)]
    say("reading runs", len(paths), len(paths))
    _one_observer([*off, *on])
    found = of_runs(off, on)
    return replace(found, notes=[*notes, *found.notes], unit="turns")


def _one_observer(runs: Sequence[RunFigures]) -> None:
    observers = sorted({run.observer for run in runs})
    if len(observers) > 1:
        raise TapscopeError(
            f"the times of these runs come from different observers ({' and '.join(observers)})",
            remedy="Give run files only, or run directories only.",
            exit_code=ExitCode.USAGE,
        )


def of_runs(a: list[RunFigures], b: list[RunFigures]) -> Comparison:
    """Compare runs that were read."""
    notes = []
    paired = _are_pairs(a, b)
    if paired:
        a, b = (sorted(side, key=lambda run: int(run.seed or 0)) for side in (a, b))
    figures = [name for name in a[0].figures if all(name in run.figures for run in [*a, *b])]
    partly = {name for run in [*a, *b] for name in run.figures} - set(figures)
    if partly:
        listed = ", ".join(sorted(f"{name.where} {name.what}" for name in partly))
        notes.append(f"left out, because not every run has it: {listed}")
    found = {
        name: effects.compare(_values(a, name), _values(b, name), paired=paired)
        for name in sorted(figures, key=lambda name: (name.where != ENTRY, name.where == MACHINE))
    }
    corrected = effects.adjusted(np.array([effect.p for effect in found.values()]))
    for label, side in (("A", a), ("B", b)):
        notes += [f"{label} {run.name}: {flag}" for run in side for flag in run.flags]
        unlike = sorted(_unlike(side))
        if unlike:
            notes.append(f"the runs of {label} differ in {', '.join(unlike)}")
        if len(side) < 3:
            notes.append(f"{len(side)} of {label}: too few for an interval that says much")
    return Comparison(
        a=a,
        b=b,
        paired=paired,
        differs=_differs(a, b),
        effects=found,
        adjusted_p=dict(zip(found, corrected.tolist(), strict=True)),
        notes=notes,
    )


def _values(side: list[RunFigures], name: Figure) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([run.figures[name] for run in side], dtype=np.float64)


def _are_pairs(a: list[RunFigures], b: list[RunFigures]) -> bool:
    seeds = [[run.seed for run in side] for side in (a, b)]
    unique = all(None not in side and len(set(side)) == len(side) for side in seeds)
    return unique and set(seeds[0]) == set(seeds[1])


def _unlike(side: list[RunFigures]) -> set[str]:
    """Options in which runs of one kind differ, though they should not. What only some manifests have is of
    another version of the testbed."""
    names = set.intersection(*(set(run.options) for run in side)) - {"seed"}
    return {name for name in names if any(run.options[name] != side[0].options[name] for run in side)}


def _differs(a: list[RunFigures], b: list[RunFigures]) -> dict[str, tuple[Any, Any]]:
    one, other = a[0].options, b[0].options
    both = [name for name in one if name in other and name != "seed"]
    return {name: (one[name], other[name]) for name in both if one[name] != other[name]}


def _run(run: RunFigures) -> dict[str, Any]:
    values = [figure._asdict() | {"value": value} for figure, value in run.figures.items()]
    return {"name": run.name, "seed": run.seed, "seconds": run.seconds, "flags": run.flags, "figures": values}
