"""Measured rows as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from baselines import BASELINES

from accuracy.scenarios import BARS, CALIBRATION_BAR, SURE_BAR
from accuracy.sets import EXPECTED_WRONG, WARM_UP_S, Measured

HEAD = ("set", "evidence", "in flight", "calls", "edges %", "exact paths %", f"after {WARM_UP_S} s %")
HEAD += ("end to end %", "wrong joins %", "calibration error", "sure edges", "wrong of those %")
HEAD += ("bar", "CPU s")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first two to the right."""
    lines = [" | ".join(head), " | ".join("---" if i < 2 else "---:" for i in range(len(head)))]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def accuracy_rows(measured: Sequence[Measured]) -> list[list[str]]:
    """One row per set and evidence, with its bar."""
    return [
        [
            each.name,
            each.evidence,
            f"{each.in_flight:.1f}",
            str(each.calls),
            percent(each.right / max(each.edges, 1)),
            percent(each.paths.completeness),
            percent(each.warmed_up),
            percent(each.end_to_end),
            percent(each.wrong_joins),
            f"{each.paths.calibration_error:.4f}",
            str(each.paths.sure_edges),
            percent(each.paths.sure_wrong / each.paths.sure_edges if each.paths.sure_edges else math.nan, 3),
            bar(each),
            f"{each.cpu_s:.1f}",
        ]
        for each in measured
    ]


def refusal_rows(measured: Sequence[Measured]) -> list[list[str]]:
    """What is refused for as few wrong joins as EXPECTED_WRONG where there are more, and what is left."""
    return [
        [
            each.name,
            each.evidence,
            percent(each.wrong_joins),
            percent(1 - each.expected_edges),
            percent(each.refused),
            percent(each.wrong_of_others),
        ]
        for each in measured
        if each.wrong_joins > EXPECTED_WRONG or each.refused > 0
    ]


REFUSAL_HEAD = ("set", "evidence", "wrong joins %", "expected %", "refused %", "wrong of the others %")


def baseline_rows(measured: Sequence[Measured]) -> list[list[str]]:
    """Edges / paths of every baseline beside those of tapscope with times only."""
    rows = []
    for each in measured:
        if not each.baselines:
            continue
        own = each.paths.completeness if math.isnan(each.end_to_end) else each.end_to_end
        shares = {"tapscope": (each.right / max(each.edges, 1), own)} | each.baselines
        unknown = (math.nan, math.nan)
        pairs = [shares.get(name, unknown) for name in ("tapscope", *BASELINES)]
        cells = [f"{percent(edges)} / {percent(paths)}" for edges, paths in pairs]
        rows.append([each.name, each.evidence, *cells])
    return rows


def baseline_head() -> list[str]:
    """Columns of `baseline_rows`."""
    return ["set", "evidence", "tapscope", *BASELINES]


def expectation_rows(measured: Sequence[Measured]) -> list[list[str]]:
    """What the matcher says of itself beside what is true."""
    return [
        [
            each.name,
            each.evidence,
            percent(each.expected_edges),
            "-" if each.check is None else percent(each.check.edges),
            percent(each.right / max(each.edges, 1)),
            percent(each.expected_paths),
            "-" if each.check is None else percent(each.check.paths),
            percent(each.paths.completeness),
            f"{each.check_cpu_s:.1f}",
        ]
        for each in measured
    ]


EXPECTATION_HEAD = ("set", "evidence", "edges claimed %", "edges by self-check %", "edges right %")
EXPECTATION_HEAD += ("paths claimed %", "paths by self-check %", "paths right %", "self-check CPU s")


def calibration_lines(measured: Sequence[Measured]) -> list[str]:
    """All sets in one: expected calibration error and wrong joins among sure edges, with their bars."""
    total: dict[float, tuple[int, float, float]] = {}
    for each in measured:
        for row in each.paths.calibration:
            edges, claimed, right = total.get(row["from"], (0, 0.0, 0.0))
            count = int(row["edges"])
            sums = (edges + count, claimed + count * row["mean_probability"], right + count * row["right"])
            total[row["from"]] = sums
    edges = sum(count for count, _, _ in total.values())
    error = sum(abs(claimed - right) for _, claimed, right in total.values()) / max(edges, 1)
    sure = sum(each.paths.sure_edges for each in measured)
    wrong = sum(each.paths.sure_wrong for each in measured)
    return [
        f"Calibration over all sets: {edges} edges, expected calibration error {error:.4f} "
        f"(bar {CALIBRATION_BAR:g}, {met(error <= CALIBRATION_BAR)}); of {sure} edges of probability "
        f"0.99 and more {percent(wrong / max(sure, 1), 3)} % are wrong (bar {SURE_BAR:g}, "
        f"{met(100 * wrong <= SURE_BAR * sure)}).",
    ]


def bar(each: Measured) -> str:
    """The bars of a row and whether they are met; empty when there is none."""
    reached = {
        "paths": each.paths.completeness,
        "edges": each.right / max(each.edges, 1),
        "end to end": each.end_to_end,
        "wrong joins": each.wrong_joins,
    }
    bars = BARS.get((each.group, each.evidence), ())
    return ", ".join(f"{one}: {met(one.met(100 * reached[one.what]))}" for one in bars)


def met(yes: bool) -> str:
    """Words of a verdict."""
    return "met" if yes else "**missed**"


def percent(share: float, digits: int = 2) -> str:
    """A share as percent; a dash where it is not known."""
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f}"
