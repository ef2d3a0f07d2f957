"""The chapter's part on costs: what studies found (milliScope Fig. 23-25, vPath Tables 1-3)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapscope.store.errors import TapscopeError
from tapscope.validate import drawings
from tapscope.validate.comparison import SIGNIFICANT
from tapscope.validate.run_figures import ENTRY, MACHINE

from .markdown import image, table
from .study import FACTORS, PLAN, RESULT

HEAD = ["where", "what", "unit", "off", "on", "on - off", "95 %", "%", "g"]
HEAD += ["1 % seen", "smallest %", "at most %", "changed"]


def study(folder: Path, figures: Path) -> list[str]:
    """Tables and figure of one study."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TapscopeError(
            f"this is no finished study: {error}",
            path=folder,
            remedy="Make it with `tapscope testbed study`.",
        ) from error
    what, a, b = plan["what"], len(result["a"]), len(result["b"])
    drawings.costs(_panels(result["figures"]), ("off", "on"), figures / f"cost-{what}.svg")
    rows = [_row(f) for f in result["figures"] if f["low"] is not None and (f["mean_a"] or f["mean_b"])]
    return [
        f"### Cost of {FACTORS[what].summary}",
        "",
        f"{f'{a} pairs' if result['paired'] else f'{a} and {b} runs'}; times by the {result['observer']}.",
        "",
        f"    tapscope testbed study --what {what} --pairs {a} -o {folder.name} -- {shlex.join(plan['run'])}",
        "",
        image(f"Off and on: {FACTORS[what].summary}", figures, f"cost-{what}"),
        *table(HEAD, rows),
        *(f"* {note}" for note in result["notes"]),
        *([""] if result["notes"] else []),
    ]


def _row(figure: dict[str, Any]) -> list[Any]:
    changed = figure["adjusted_p"] is not None and figure["adjusted_p"] < SIGNIFICANT
    interval = f"{figure['low']:.3g} to {figure['high']:.3g}"
    names = ("where", "what", "unit", "mean_a", "mean_b", "difference")
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
