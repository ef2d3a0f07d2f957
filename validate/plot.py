"""One self-contained HTML page: per tier both queue lengths, their difference, and one against the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tapscope.store.errors import TapscopeError
from tapscope.validate.validation import Validation

TAP, LOG, CALLER, DIFFERENCE = "#0b6e99", "#d9730d", "#9b9b9b", "#6b6b6b"
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
        windows = tier.windows
        concurrent = tier.reading("concurrent") is not None
        name = "load" if concurrent else "arrivals"
        tap, log = (np.asarray(windows[f"{side}_{name}"], dtype=float) for side in ("tap", "log"))
        at = windows["window_ns"].astype("datetime64[ns]")
        used = windows["left_out"] == ""
        difference = np.where(used, tap - log, np.nan)
        curves = [(log, "event monitor", LOG, "solid"), (tap, "tap", TAP, "dot")]
        if f"caller_{name}" in windows:
            curves.insert(0, (windows[f"caller_{name}"], "event monitor of the caller", CALLER, "solid"))
        for values, label, colour, dash in curves:
            line = {"color": colour, "width": 1.5, "dash": dash, "shape": "hv"}
            named = {"name": label, "legendgroup": label, "showlegend": label not in shown}
            shown.add(label)
            trace = go.Scattergl(x=at, y=values, line=line, **named)
            figure.add_trace(trace, row=row, col=1)
        line = {"color": DIFFERENCE, "width": 1, "shape": "hv"}
        figure.add_trace(go.Scattergl(x=at, y=difference, showlegend=False, line=line), row=row, col=2)
        marker = {"color": TAP, "size": 4, "opacity": 0.5}
        scatter = go.Scattergl(x=tap[used], y=log[used], mode="markers", showlegend=False, marker=marker)
        figure.add_trace(scatter, row=row, col=3)
        top = float(max(tap[used].max(initial=0), log[used].max(initial=0)))
        line = {"color": DIFFERENCE, "width": 1, "dash": "dash"}
        diagonal = go.Scattergl(x=[0, top], y=[0, top], mode="lines", showlegend=False, line=line)
        figure.add_trace(diagonal, row=row, col=3)
        reading = "concurrent requests" if concurrent else "requests started"
        figure.update_yaxes(title_text=f"{reading}", row=row, col=1, rangemode="tozero")
        figure.update_xaxes(title_text="tap", row=row, col=3)
        figure.update_yaxes(title_text="log", row=row, col=3)
        for column in (1, 2):
            figure.update_xaxes(matches="x", row=row, col=column)
    figure.update_layout(
        title=f"Queue length, tap against event monitors, {validation.window_ns / 1e6:g} ms windows: "
        f"{validation.verdict}",
        template="plotly_white",
        height=120 + ROW_HEIGHT * max(len(tiers), 1),
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1.0, "xanchor": "right"},
    )
    return figure
