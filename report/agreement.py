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
    "concurrent": "Queue length: calls inside, time-weighted, the log's clock corrected",
    "concurrent_as_stamped": "Queue length: calls inside, times as the log stamped them",
    "started": "Calls that arrived in the window",
    "concurrent_by_caller": "Queue length by the log of the tier's caller",
    "started_by_caller": "Calls that arrived in the window, by the log of the tier's caller",
    "concurrent_by_senders": "Queue length by the stamps of those who sent",
    "concurrent_at_wire": "Queue length by the senders' stamps, moved to the wire",
    "between_logs": "Windows in which the tap lies between the server's and its caller's log",
}

STAMP_WORDS = {
    "sent": "caller sends",
    "arrive": "server takes up",
    "depart": "server answers",
    "received": "caller has the answer",
}
"""Key of a request's stamp in the validation's JSON -> words."""

GOOD = ("passed", "agree", "agrees")
UNIT_IN_NAME = ("best_lag_ms", "bias_percent")


def section(run: Run) -> str:
    """HTML of the section; '' when the run was not validated."""
    columns = run.file.read_columns("agreement")
    if not columns["tier"]:
        return _paths(run)
    return _verdict(run) + "".join(_subjects(run, columns)) + _stamps(run) + _clocks(run) + _paths(run)


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


def _validation(run: Run) -> dict[str, Any]:
    found = run.meta.get("validation")
    return found if isinstance(found, dict) else {}


def _milliseconds(value_ns: float | None) -> str:
    return "–" if value_ns is None else significant(value_ns / 1e6, 3)


def _stamps(run: Run) -> str:
    """Request by request: how far each log's stamps are from the wire."""
    rows = []
    for each in _validation(run).get("requests") or []:
        for key, words in STAMP_WORDS.items():
            found = each.get(key)
            if found:
                figures = [found[name] for name in ("median_ns", "p1_ns", "p99_ns")]
                times = [escape(_milliseconds(value)) for value in figures]
                rows.append([_tier(run, each["tier"]), escape(words), escape(count(found["calls"])), *times])
    if not rows:
        return ""
    words = "Where the logs' stamps sit: log minus wire, request by request"
    head = [("tier", ""), ("stamp", ""), ("calls", "n"), ("median ms", "n"), ("p1 ms", "n"), ("p99 ms", "n")]
    return f"<h3>{escape(words)}</h3>{table(head, rows, 'agreement-stamps', words)}"


def _clocks(run: Run) -> str:
    """Clocks of the logs' hosts, one row per stretch between two steps."""
    rows = [
        [
            escape(f"{clock['of']} {clock['host']}".strip()),
            escape(clock["method"]),
            escape(_milliseconds(line["offset_ns"])),
            escape(significant(line["drift_ppb"] / 1e3, 3)),
            escape(_milliseconds(clock["error_ns"])),
            escape(significant((line["to_ns"] - line["from_ns"]) / 1e9, 3)),
        ]
        for clock in _validation(run).get("clocks") or []
        for line in clock["lines"]
    ]
    if not rows:
        return ""
    words = "Clocks of the logs against the tap's"
    numbers = ("offset ms", "drift ppm", "error ms", "seconds")
    head = [("log", ""), ("found by", ""), *((name, "n") for name in numbers)]
    hint = "Taken off before comparing. A log whose clock was set in between has a row for each stretch."
    return f'<h3>{words}</h3>{table(head, rows, "agreement-clocks", words)}<p class="hint">{hint}</p>'


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
