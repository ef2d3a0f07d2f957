"""Samples of a host as columns, and the one way in which counters become rates and shares.

A sample covers the time from `begin_ns` (when the previous one was taken) to `end_ns` (when it was taken
itself), int64 ns UTC by the host's clock; the first sample of a series has `begin_ns` = -1 and no derived
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
    bad_values: int = 0  # damaged values in columns of numbers; they are empty

    def add_log_column(
        self, name: str, values: Sequence[Any] | NDArray[Any], unit: str = "", original: str = ""
    ) -> Any:
        """Append a column as the log has it, typed; returns its values."""
        found, bad = measured(values)
        self.bad_values += bad
        self.add(name, found, unit, original)
        return found

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

    def __post_init__(self) -> None:
        kinds: Counter[str] = Counter()
        for table in self.tables:  # one recording with other options than the next: a table of its own
            kinds[table.kind] += 1
            if kinds[table.kind] > 1:
                table.kind = f"{table.kind}_{kinds[table.kind]}"


WORD = 2**32
"""Where a 32-bit counter starts again."""


class Series:
    """Rows of one or several series (one per disk, CPU, process, ...), in order of series, then time.

    `recording` numbers the stretches of a log between which its clock went back or it was started again: no
    sample reaches from one into the next.
    """

    def __init__(self, key: NDArray[Any], end_ns: Int, recording: Int | None = None) -> None:
        part = np.zeros(len(end_ns), dtype=np.int64) if recording is None else recording
        self.order = np.lexsort((end_ns, part, key))
        sorted_key, sorted_part, sorted_end = key[self.order], part[self.order], end_ns[self.order]
        self.first = np.ones(len(end_ns), dtype=np.bool_)
        self.first[1:] = (sorted_key[1:] != sorted_key[:-1]) | (sorted_part[1:] != sorted_part[:-1])
        self.end_ns: Int = sorted_end
        self.begin_ns: Int = np.concatenate([sorted_end[:1], sorted_end[:-1]])
        self.begin_ns[self.first] = -1
        self.resets = 0
        self.wraps = 0

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """A column in the order of the series."""
        return values[self.order]

    def delta(self, values: NDArray[Any]) -> Float:
        """Increase of a counter (already sorted) since the previous sample.

        NaN for the first sample and where the counter went down because it was reset (counted in `resets`).
        A counter of 32 bits that starts again at 2^32 goes on (counted in `wraps`): one that never was
        above, and whose step is then no more than four times the largest other one. 64-bit counters do not
        come round.
        """
        step = np.full(len(values), np.nan)
        step[1:] = np.diff(values)
        step[self.first] = np.nan
        down = step < 0
        if down.any() and np.nanmax(values) < WORD:
            usual = np.max(step, initial=0.0, where=step >= 0)
            round_ = down & (step + WORD <= 4 * usual)
            step[round_] += WORD
            self.wraps += int(round_.sum())
            down &= ~round_
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


def recordings(end_ns: Int) -> Int:
    """Number of the stretch that each sample belongs to; a new one begins where the log's clock went back."""
    part = np.zeros(len(end_ns), dtype=np.int64)
    part[1:] = np.cumsum(np.diff(end_ns) < 0)
    return part


LATEST_S = 1 << 32
"""Seconds since 1970 (in the year 2106) beyond which a number is no time; in ns it still fits."""

MOSTLY = 0.9
"""A column is of numbers when so many of its values are; the rest were damaged."""


def typed(values: Sequence[Any]) -> Any:
    """int64 or float64 (None and '' are NaN) where every value is a number, else the values as a list of
    texts."""
    if any(value is None or value == "" for value in values):
        if all(value is None or value == "" for value in values):
            return [None] * len(values)
        full = [np.nan if value is None or value == "" else value for value in values]
        try:
            return np.array(full, dtype=np.float64)
        except (ValueError, TypeError):
            return [None if value is None or value == "" else str(value) for value in values]
    if not any(isinstance(value, float) for value in values):  # which would be cut to integers
        try:
            return np.array(values, dtype=np.int64)
        except (ValueError, OverflowError, TypeError):
            pass
    try:
        return np.array(values, dtype=np.float64)
    except (ValueError, OverflowError, TypeError):
        return [str(value) for value in values]


def measured(values: Sequence[Any] | NDArray[Any]) -> tuple[Any, int]:
    """A column as `typed`, and how many damaged values in a column of numbers were left empty."""
    found = values if isinstance(values, np.ndarray) else typed(values)
    if isinstance(found, np.ndarray):
        return _finite(found, values)
    numbers: list[float | None] = []
    bad = known = 0
    for value in found:
        try:
            numbers.append(None if value is None else float(value))
            known += value is not None
        except ValueError:
            numbers.append(None)
            bad += 1
    if bad and known >= MOSTLY * (known + bad):
        return typed(numbers), bad
    return found, 0


def _finite(found: NDArray[Any], values: Sequence[Any] | NDArray[Any]) -> tuple[NDArray[Any], int]:
    """A column of numbers without those that no monitor measures ("nan", "1e999"); and how many they were."""
    if found.dtype.kind != "f" or np.isfinite(found).all():
        return found, 0
    bad = np.isinf(found)
    if values is not found:
        bad |= np.array([isinstance(value, str) and value != "" for value in values]) & np.isnan(found)
    return np.where(bad, np.nan, found), int(bad.sum())


def stamp_ns(text: str) -> int:
    """Nanoseconds of a decimal number of seconds ("1795219720.751"), exact. ValueError for more
    seconds than a clock has."""
    whole, _, fraction = text.partition(".")
    seconds = int(whole)
    if seconds >= LATEST_S:
        raise ValueError(text)
    return seconds * 1_000_000_000 + int((fraction + "000000000")[:9])
