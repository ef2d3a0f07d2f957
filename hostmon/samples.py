"""Samples of a host as columns, and the one way in which counters become rates and shares.

A sample covers the time from `begin_ns` (when the previous one was taken) to `end_ns` (when it was taken
itself), int64 ns UTC by the host's clock; the first sample of a series has `begin_ns` = -1 and no derived
values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass
class HostTable:
    """One kind of record of one log, ready to be stored: raw columns as the log has them, derived ones
    beside."""

    kind: str
    columns: dict[str, Any] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    originals: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, values: Any, unit: str = "", original: str | None = None) -> None:
        """Append a column; `original` is the log's own name of it ('' for a derived one)."""
        self.columns[name] = values
        self.units[name] = unit
        self.originals[name] = name if original is None else original


@dataclass
class HostLog:
    """What a reader made of one file."""

    format: str
    host: str  # as the file itself says; '' when it does not
    tables: list[HostTable]
    counters: dict[str, int] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Series:
    """Rows of one or several series (one per disk, CPU, process, ...), in order of series, then time."""

    def __init__(self, key: NDArray[Any], end_ns: Int) -> None:
        self.order = np.lexsort((end_ns, key))
        sorted_key, sorted_end = key[self.order], end_ns[self.order]
        self.first = np.ones(len(end_ns), dtype=np.bool_)
        self.first[1:] = sorted_key[1:] != sorted_key[:-1]
        self.end_ns: Int = sorted_end
        self.begin_ns: Int = np.concatenate([sorted_end[:1], sorted_end[:-1]])
        self.begin_ns[self.first] = -1
        self.resets = 0

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """A column in the order of the series."""
        return values[self.order]

    def delta(self, values: NDArray[Any]) -> Float:
        """Increase of a counter (already sorted) since the previous sample.

        NaN for the first sample and where the counter went down (it was reset or wrapped; counted in
        `resets`).
        """
        step = np.full(len(values), np.nan)
        step[1:] = np.diff(values)
        step[self.first] = np.nan
        down = step < 0
        self.resets += int(down.sum())
        step[down] = np.nan
        return step

    def never_down(self, values: NDArray[Any]) -> NDArray[Any]:
        """A counter (already sorted) whose small steps back are levelled within each series."""
        out = values.copy()
        for low, high in zip(
            np.flatnonzero(self.first), [*np.flatnonzero(self.first)[1:], len(values)], strict=True
        ):
            out[low:high] = np.maximum.accumulate(values[low:high])
        return out

    def seconds(self) -> Float:
        """Length of each sample in seconds; NaN for the first."""
        length = (self.end_ns - self.begin_ns) / 1e9
        length[self.first | (length <= 0)] = np.nan
        return length

    def rate(self, values: NDArray[Any]) -> Float:
        """Increase per second of a counter that is already sorted."""
        return self.delta(values) / self.seconds()


def share(part: Float, whole: Float) -> Float:
    """100 * part / whole in percent; NaN where the whole is zero or unknown."""
    out = np.full(len(part), np.nan)
    np.divide(100.0 * part, whole, out=out, where=whole > 0)
    return out


def stamp_ns(text: str) -> int:
    """Nanoseconds of a decimal number of seconds ("1795219720.751"), exact."""
    whole, _, fraction = text.partition(".")
    return int(whole) * 1_000_000_000 + int((fraction + "000000000")[:9])
