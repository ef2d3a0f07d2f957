"""Markdown of the validation chapter: tables, values, figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A table in Markdown, with an empty line behind it."""
    lines = [head, ["---"] * len(head), *rows]
    return [*("| " + " | ".join(map(cell, line)) + " |" for line in lines), ""]


def cell(value: Any) -> str:
    """A value as the chapter shows it: three figures that count, nothing for what is not defined."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)


def image(title: str, folder: Path, name: str) -> str:
    return f"![{title}]({folder.name}/{name}.svg)\n"
