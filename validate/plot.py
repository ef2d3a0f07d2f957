"""One self-contained HTML page: per tier both queue lengths, their difference, and one against the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tapscope.store.errors import TapscopeError
from tapscope.validate.agreement import TierAgreement
from tapscope.validate.validation import Validation

TAP, LOG, CALLER, DIAGONAL = "#0b6e99", "#d9730d", "#9b9b9b", "#6b6b6b"
ROW_HEIGHT = 300  # pixels


def write(validation: Validation, path: str | Path) -> Path:
    """Write the page; returns its path. TapscopeError when it cannot be written."""
    path = Path(path)
    try:
        path.write_text(page(validation), encoding="utf-8")
    except OSError as error:
        raise TapscopeError(
            f"cannot be written: {error.strerror}", path=path, remedy="Name another file."
        ) from error
    return path


def page(validation: Validation) -> str:
    """The page as text, with plotly's library inside, so that it opens without a network."""
    figure = draw(validation)
    return str(figure.to_html(full_html=True, include_plotlyjs=True, config={"displaylogo": False}))


def draw(validation: Validation) -> go.Figure:
    """One row of panels per tier. Windows that were left out show in the curves, not in difference and
    scatter."""
    tiers = validation.tiers
    titles = []
    for tier in tiers:
        titles += [f"{tier.tier}: {tier.what}", "tap minus log", "log against tap"]
    figure = make_subplots(
        rows=max(len(tiers), 1),
        cols=3,
        column_widths=[0.5, 0.28, 0.22],
        subplot_titles=titles,
        horizontal_spacing=0.06,
        vertical_spacing=0.35 / max(len(tiers), 1),
    )
    shown: set[str] = set()
    for row, tier in enumerate(tiers, start=1):
        _draw_tier(figure, row, tier, shown)
    figure.update_layout(
        title=f"Queue length, tap against event monitors, {validation.window_ns / 1e6:g} ms windows: "
        f"{validation.verdict}",
        template="plotly_white",
        height=120 + ROW_HEIGHT * max(len(tiers), 1),
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0.965,
            "yanchor": "top",
            "x": 1.0,
            "xanchor": "right",
        },
    )
    return figure


def _draw_tier(figure: go.Figure, row: int, tier: TierAgreement, shown: set[str]) -> None:
    """The three panels of one tier; `shown` has the labels that the legend has already."""
    windows = tier.windows
    concurrent = tier.reading("concurrent") is not None
    name = "load" if concurrent else "arrivals"
    tap = np.asarray(windows[f"tap_{name}"], dtype=float)
    at = windows["window_ns"].astype("datetime64[ns]")
    used = windows["left_out"] == ""
    logs = [("caller", "event monitor of the caller", CALLER), ("log", "event monitor", LOG)]
    top = float(tap[used].max(initial=0))
    for side, label, colour in logs:
        if f"{side}_{name}" not in windows:
            continue
        log = np.asarray(windows[f"{side}_{name}"], dtype=float)
        named = {"name": label, "legendgroup": label}
        line = {"color": colour, "width": 1.5, "shape": "hv"}
        curve = go.Scattergl(x=at, y=log, line=line, showlegend=label not in shown, **named)
        figure.add_trace(curve, row=row, col=1)
        shown.add(label)
        hidden = {"legendgroup": label, "showlegend": False}
        difference = go.Scattergl(
            x=at, y=np.where(used, tap - log, np.nan), line=line | {"width": 1}, **hidden
        )
        figure.add_trace(difference, row=row, col=2)
        marker = {"color": colour, "size": 4, "opacity": 0.5}
        scatter = go.Scattergl(x=tap[used], y=log[used], mode="markers", marker=marker, **hidden)
        figure.add_trace(scatter, row=row, col=3)
        top = max(top, float(log[used].max(initial=0)))
    line = {"color": TAP, "width": 1.5, "dash": "dot", "shape": "hv"}
    curve = go.Scattergl(x=at, y=tap, name="tap", legendgroup="tap", showlegend="tap" not in shown, line=line)
    figure.add_trace(curve, row=row, col=1)
    shown.add("tap")
    line = {"color": DIAGONAL, "width": 1, "dash": "dash"}
    diagonal = go.Scattergl(x=[0, top], y=[0, top], mode="lines", showlegend=False, line=line)
    figure.add_trace(diagonal, row=row, col=3)
    reading = "concurrent requests" if concurrent else "requests started"
    figure.update_yaxes(title_text=reading, row=row, col=1, rangemode="tozero")
    figure.update_xaxes(title_text="tap", row=row, col=3)
    figure.update_yaxes(title_text="log", row=row, col=3)
    for column in (1, 2):
        figure.update_xaxes(matches="x", row=row, col=column)
