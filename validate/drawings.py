"""Figures of the validation chapter, as SVG: queue lengths (milliScope Fig. 20-22), agreement by workload,
and what monitors cost (Fig. 23-25). Data in, one file out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tapscope.store.errors import TapscopeError

TAP, LOG, CALLER, SENDERS = "#0b6e99", "#d9730d", "#b9c4a0", "#8a5a9e"
OFF, ON = "#9bb7c4", "#0b6e99"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tapscope",  # the same data gives the same file
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.0,
}
WIDTH = 9.0  # inches
MOST_PERCENT = 1000.0
"""A larger difference is one from next to nothing, and no number of percent says anything about it."""

Series = Mapping[str, NDArray[np.float64]]


@mpl.rc_context(STYLE)
def queue_lengths(tiers: Mapping[str, Series], path: Path) -> None:
    """One panel per tier, entry first: queue length over time. A series has at_s (begin of the window), tap,
    log and, where the tier's caller logged it, caller."""
    figure, axes = _panels(len(tiers), 1, height=1.35 * len(tiers) + 0.5, sharex=True)
    for axis, (title, series) in zip(axes, tiers.items(), strict=True):
        curves = (
            ("caller", "caller's log", CALLER, 2.2),
            ("log", "server's log", LOG, 2.2),
            ("tap", "tap", TAP, 0.9),
        )
        for name, label, colour, width in curves:
            if name in series:
                axis.step(
                    series["at_s"], series[name], where="post", color=colour, linewidth=width, label=label
                )
        axis.set_title(title)
        axis.set_ylim(bottom=0)
    _legend(figure, axes[0])
    axes[-1].set_xlabel("s")
    figure.supylabel("calls inside, mean of 50 ms", fontsize=8.5)
    _save(figure, path)


@mpl.rc_context(STYLE)
def by_workload(
    users: Sequence[int], lack: Mapping[str, Mapping[str, Sequence[float]]], bar: float, path: Path
) -> None:
    """Distance of r from 1, per tier and reading, against the workload. `lack` maps tier to reading to one
    value 1 - r per workload (NaN: none); `bar` is the line to stay below."""
    figure, axes = _panels(1, len(lack), height=2.4, sharey=True)
    colours = (LOG, CALLER, SENDERS, TAP)
    for axis, (tier, readings) in zip(axes, lack.items(), strict=True):
        for (name, values), colour in zip(readings.items(), colours, strict=False):
            axis.plot(users, np.maximum(values, 1e-7), "o-", color=colour, label=name, markersize=3.5)
        axis.axhline(bar, color="#333333", linewidth=0.8, linestyle="--")
        axis.set(yscale="log", xscale="log", title=tier, xlabel="users")
        axis.set_xticks(list(users), [str(n) for n in users])
        axis.minorticks_off()
    axes[0].set_ylabel("1 - r")
    _legend(figure, axes[0])
    _save(figure, path)


@mpl.rc_context(STYLE)
def workloads(users: Sequence[int], columns: Mapping[str, Sequence[float]], path: Path) -> None:
    """One panel per column (its title has the unit), each over the number of users."""
    figure, axes = _panels(1, len(columns), height=2.2)
    for axis, (title, values) in zip(axes, columns.items(), strict=True):
        axis.plot(users, values, "o-", color=TAP, markersize=3.5)
        axis.set(title=title, xlabel="users")
        axis.margins(y=0.1)
        axis.set_ylim(bottom=0)
    _save(figure, path)


@mpl.rc_context(STYLE)
def costs(
    workloads: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], labels: tuple[str, str], path: Path
) -> None:
    """One row of panels per workload, one panel per title; bars in pairs (A and B), each with one standard
    deviation of its runs, and above a pair the difference in percent. A row has label, a, b, sd_a, sd_b,
    percent (None: not defined)."""
    titles = list(dict.fromkeys(title for panels in workloads.values() for title in panels))
    figure, axes = _panels(len(workloads), len(titles), height=2.2 * len(workloads) + 0.4)
    places = iter(axes)
    for name, panels in workloads.items():
        for title in titles:
            axis = next(places)
            _bars(axis, panels.get(title, ()), labels)
            axis.set_title(title)
            if title == titles[0] and len(workloads) > 1:
                axis.set_ylabel(name)
    _legend(figure, axes[0])
    _save(figure, path)


def _bars(axis: Axes, rows: Sequence[Mapping[str, Any]], labels: tuple[str, str]) -> None:
    place = np.arange(len(rows))
    for side, shift, colour, label in (("a", -0.19, OFF, labels[0]), ("b", 0.19, ON, labels[1])):
        height = [row[side] for row in rows]
        spread = [row[f"sd_{side}"] or 0.0 for row in rows]
        line = {"linewidth": 0.8}
        axis.bar(place + shift, height, 0.36, yerr=spread, color=colour, label=label, error_kw=line)
    for at, row in zip(place, rows, strict=True):
        if row["percent"] is not None and abs(row["percent"]) < MOST_PERCENT:
            top = max(row["a"] + (row["sd_a"] or 0), row["b"] + (row["sd_b"] or 0))
            axis.text(float(at), top, f"{row['percent']:+.1f} %", ha="center", va="bottom", fontsize=7)
    axis.set_xticks(place, [row["label"] for row in rows])
    axis.margins(y=0.15)
    axis.set_ylim(bottom=0)


def _panels(rows: int, columns: int, *, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(max(rows, 1), max(columns, 1), squeeze=False, **shared)
    return figure, list(axes.flat)


def _legend(figure: Figure, axis: Axes) -> None:
    """One legend below all panels, by what one of them shows."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), frameon=False)


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    except OSError as error:
        raise TapscopeError(f"cannot be written: {error.strerror}", path=path) from error
