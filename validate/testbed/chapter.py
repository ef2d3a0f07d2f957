"""The validation chapter from a sweep and its studies: tables in Markdown, figures beside them.

What is written is only what was measured; what it means is said by hand around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapscope.store.errors import TapscopeError
from tapscope.validate import drawings
from tapscope.validate.run_figures import ENTRY

from .chapter_agreement import agreement, by_threads, clocks, requests, verdicts
from .chapter_costs import costs
from .markdown import image, table
from .sweep import Workload

BEGIN = "<!-- begin of the measured part: made by `tapscope testbed sweep` -->"
END = "<!-- end of the measured part -->"


def write(
    workloads: Sequence[Workload], studies: Sequence[Path], page: Path, commands: Sequence[str]
) -> Path:
    """Put tables and figures into `page`: between its marks BEGIN and END, or as a page of its own when there
    is none yet. Figures go into the folder of the same name beside it. Returns the page."""
    before, after = _around(page)
    figures = page.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    parts = [
        *_machine(workloads[0].manifest, commands),
        *_workloads(workloads, figures),
        *agreement(workloads, figures),
        *verdicts(workloads),
        *by_threads(workloads),
        *requests(workloads),
        *clocks(workloads),
        *_paths(workloads),
        *costs(studies, figures),
    ]
    try:
        page.write_text(before + "\n".join([BEGIN, "", *parts, END]) + after, encoding="utf-8")
    except OSError as error:
        raise TapscopeError(f"cannot be written: {error.strerror}", path=page) from error
    return page


def _around(page: Path) -> tuple[str, str]:
    """What stands before and after the measured part of a page; of a new one, nothing."""
    if not page.exists():
        return "", "\n"
    before, found, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise TapscopeError(
            f"this page has no line {BEGIN!r} and {END!r}",
            path=page,
            remedy="Put them where the tables shall stand, or name a new page.",
        )
    return before, after


def _machine(manifest: dict[str, Any], commands: Sequence[str]) -> list[str]:
    versions = manifest["versions"]
    servers = ", ".join(
        text for name, text in versions.items() if name not in ("python", "tcpdump", "collectl", "ip")
    )
    cpu = manifest.get("cpu_model") or "model not known"
    memory = manifest.get("memory_bytes", 0) / 2**30
    return [
        f"Machine: {manifest['cpus']} processors ({cpu}), {memory:.0f} GiB, Linux {manifest['kernel']}, "
        f"{manifest['distribution']}; all hosts of the testbed, its users and the tap share it. "
        f"Mirror: {manifest['mirror_method']}. Servers: {servers}.",
        "",
        *(f"    {line}" for line in commands),
        "",
    ]


def _workloads(found: Sequence[Workload], folder: Path) -> list[str]:
    hosts = list(dict.fromkeys(f.where for w in found for f in w.figures.figures if f.what == "CPU busy"))
    columns = {"requests/s": [_figure(w, ENTRY, "throughput") for w in found]}
    for what in ("mean", "p50", "p90", "p99"):
        columns[f"{what} ms"] = [_figure(w, ENTRY, f"response time, {what}") for w in found]
    drawn = {
        "requests/s": columns["requests/s"],
        "response time, mean (ms)": columns["mean ms"],
        "response time, p99 (ms)": columns["p99 ms"],
    }
    drawings.workloads([w.users for w in found], drawn, folder / "workloads.svg")
    columns |= {f"{host} CPU %": [_figure(w, host, "CPU busy") for w in found] for host in hosts}
    rows = [
        [w.users, *(values[place] for values in columns.values()), "; ".join(w.figures.flags) or "none"]
        for place, w in enumerate(found)
    ]
    return [
        "### Workloads",
        "",
        "By the tap, run phase only. CPU of hosts in percent of one core, of the machine in percent of all.",
        "",
        *table(["users", *columns, "flags"], rows),
        image("Throughput and response times by workload", folder, "workloads"),
    ]


def _figure(workload: Workload, where: str, what: str) -> float:
    """A figure of the run by its name, whatever its unit; NaN when it has none."""
    named = workload.figures.figures.items()
    return next((value for f, value in named if (f.where, f.what) == (where, what)), float("nan"))


def _paths(found: Sequence[Workload]) -> list[str]:
    head = ["users", "paths", "completeness %", "accuracy %", "edges", "right %", "wrong joins"]
    rows = []
    for workload in found:
        paths = workload.validation["paths"]
        if paths is not None:
            edges, right, wrong = (sum(e[n] for e in paths["edges"]) for n in ("edges", "right", "wrong"))
            shares = [_percent(paths["completeness"]), _percent(paths["accuracy"])]
            joined = _percent(right / edges if edges else None)
            rows.append([workload.users, paths["paths_exist"], *shares, edges, joined, wrong])
    return ["### Paths against the truth", "", *table(head, rows)] if rows else []


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"
