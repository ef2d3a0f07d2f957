"""What the tap and the servers' own logs agree on: verdict, figures per tier, and paths against the truth."""

from __future__ import annotations

from html import escape
from typing import Any

from tapscope.report.run import Run
from tapscope.report.sections import table
from tapscope.report.strips import event_node
from tapscope.report.words import count, share, significant

MEASURE_WORDS = {
    "pearson_r": "Pearson r",
    "spearman_r": "Spearman r",
    "rmse": "RMSE",
    "mae": "MAE",
    "max_error": "max error",
    "bias": "bias",
    "bias_percent": "bias",
    "best_lag_ms": "best lag",
    "windows": "windows",
    "windows_left_out": "left out",
}

SUBJECT_WORDS = {
    "concurrent": "Queue length: calls inside, time-weighted, the log's lag removed",
    "concurrent_as_stamped": "Queue length: calls inside, times as the log stamped them",
    "started": "Calls that arrived in the window",
}

GOOD = ("passed", "agree", "agrees")
UNIT_IN_NAME = ("best_lag_ms", "bias_percent")


def section(run: Run) -> str:
    """HTML of the section; '' when the run was not validated."""
    columns = run.file.read_columns("agreement")
    if not columns["tier"]:
        return _paths(run)
    return _verdict(run) + "".join(_subjects(run, columns)) + _paths(run)


def _subjects(run: Run, columns: dict[str, list[Any]]) -> list[str]:
    made: list[str] = []
    for subject in dict.fromkeys(columns["subject"]):
        at = [row for row, text in enumerate(columns["subject"]) if text == subject]
        measures = list(dict.fromkeys(columns["measure"][row] for row in at))
        units = {columns["measure"][row]: columns["unit"][row] for row in at}
        rows = []
        for tier in dict.fromkeys(columns["tier"][row] for row in at):
            cells = {
                columns["measure"][row]: _value(columns, row) for row in at if columns["tier"][row] == tier
            }
            rows.append([_tier(run, str(tier)), *(cells.get(measure, "–") for measure in measures)])
        names = [MEASURE_WORDS.get(m, m.replace("_", " ")) for m in measures]
        head = [(f"{name} {units[m]}".strip(), "n") for name, m in zip(names, measures, strict=True)]
        words = SUBJECT_WORDS.get(str(subject), str(subject).replace("_", " ").capitalize())
        made.append(
            f"<h3>{escape(words)}</h3>" + table([("tier", ""), *head], rows, f"agreement-{len(made)}", words)
        )
    return made


def _tier(run: Run, name: str) -> str:
    """Name of an event monitors' tier with the colour and name of the node that it is compared with."""
    node = event_node(run, name)
    tier = run.tier_of_node(node) if node is not None else None
    if tier is None:
        return escape(name)
    text = name if tier.name == name else f"{name} ({tier.name})"
    return f'<span class="dot t{tier.colour}"></span>{escape(text)}'


def _value(columns: dict[str, list[Any]], row: int) -> str:
    value = columns["value"][row]
    if value is None:
        return "–"
    if value == int(value):
        text = count(int(value))
    else:
        text = f"{value:.5f}" if columns["measure"][row].endswith("_r") else significant(value, 4)
    low, high = columns["low"][row], columns["high"][row]
    if low is not None and high is not None:
        text += f" ({significant(low, 4)} to {significant(high, 4)})"
    detail = columns["detail"][row]
    return f'<span title="{escape(detail)}">{escape(text)}</span>' if detail else escape(text)


def _verdict(run: Run) -> str:
    validation = run.meta.get("validation")
    if not isinstance(validation, dict) or "verdict" not in validation:
        return ""
    verdict = str(validation["verdict"])
    good = verdict in GOOD
    words = "Tap and event monitors agree" if good else f"Tap and event monitors: {verdict}"
    reasons = [str(each) for name in ("failures", "undecided") for each in validation.get(name) or []]
    listed = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    level = "good" if good else "care"
    return f'<p class="verdict {level}"><b>{escape(words)}</b></p>' + (f"<ul>{listed}</ul>" if listed else "")


def _paths(run: Run) -> str:
    """Paths and links against the truth, where the run directory had it, or a span table its own."""
    validation = run.meta.get("validation") or run.meta.get("span_validation")
    paths = validation.get("paths") if isinstance(validation, dict) else None
    if not isinstance(paths, dict) or not paths.get("edges"):
        return ""
    right, exist, reported = (int(paths[f"paths_{name}"]) for name in ("correct", "exist", "reported"))
    rows = [
        [
            escape(str(edge["pair"]).replace("->", " → ")),
            escape(count(edge["edges"])),
            escape(share(edge["right"], edge["edges"])),
            escape(share(edge["wrong"], edge["edges"])),
            escape(share(edge["unlinked"], edge["edges"])),
        ]
        for edge in paths["edges"]
    ]
    rows.append(
        [
            "whole paths",
            escape(count(exist)),
            f'<span title="completeness: {right} of {exist}">{escape(share(right, exist))}</span>',
            escape(share(reported - right, reported)),
            "–",
        ]
    )
    head = [("tier pair", ""), ("true links", "n"), ("found right", "n"), ("wrong", "n"), ("not linked", "n")]
    words = "Links and whole paths against the truth"
    hint = (
        "A path is right when every call in it is there, no other is, and every parent "
        "is right; its wrong share is of the paths reported."
    )
    return f'<h3>{words}</h3>{table(head, rows, "paths", words)}<p class="hint">{hint}</p>'
