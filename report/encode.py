"""Columns to compact JSON that is safe inside a page: scaled integers, each as the step from the one before.

A column becomes {"scale": s, "delta": [...]}: value i is the sum of the first i + 1 steps divided by s;
null stands for "nothing observed" and does not move the sum. assets/decode.js is the other half.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def column(values: ArrayLike, scale: float = 1.0) -> dict[str, Any]:
    """Delta-coded column (any length), rounded to 1/scale. NaN and infinities become null."""
    numbers = np.asarray(values, dtype=np.float64) * scale
    known = np.isfinite(numbers)
    whole = np.zeros(len(numbers), dtype=np.int64)
    whole[known] = np.rint(numbers[known]).astype(np.int64)
    # A missing value repeats the last known one, so that the next step starts there.
    last = np.maximum.accumulate(np.where(known, np.arange(len(numbers)), -1))
    filled = np.where(last >= 0, whole[np.maximum(last, 0)], 0)
    steps: list[int | None] = np.diff(filled, prepend=0).tolist()
    for missing in np.flatnonzero(~known).tolist():
        steps[missing] = None
    return {"scale": scale, "delta": steps}


def axis(at_ns: np.ndarray[Any, np.dtype[np.int64]], start_ns: int) -> dict[str, Any]:
    """Times relative to `start_ns` as {"first", "step", "count"} in ns where they are even, else
    delta-coded µs."""
    relative = at_ns - start_ns
    if len(relative) > 1:
        steps = np.diff(relative)
        if (steps == steps[0]).all():
            return {"first": int(relative[0]), "step": int(steps[0]), "count": len(relative)}
    return {"micro": column(relative / 1000.0)["delta"]}


def script_json(value: Any) -> str:
    """JSON that cannot leave a script element, whatever text is in it: '<', '>' and '&' are coded."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
