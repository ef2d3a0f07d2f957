"""Numbers in words: durations, counts, bytes and shares as people read them, always with their unit."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def significant(value: float, digits: int = 3) -> str:
    """The value with so many significant digits, without exponent, thousands apart by a thin space."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace(",", "\u202f")


def count(value: int, noun: str = "", plural: str = "") -> str:
    """A whole number, with its noun in the right form: 1 call, 12 345 calls."""
    text = f"{value:,}".replace(",", "\u202f")
    if not noun:
        return text
    return f"{text} {noun if value == 1 else plural or noun + 's'}"


def milliseconds(value_ns: float) -> str:
    """A duration in milliseconds, unit not included (columns carry it in the head)."""
    return significant(value_ns / 1e6) if value_ns >= 0 else "–"


def duration(value_ns: float) -> str:
    """A duration with the unit that suits it."""
    if not math.isfinite(value_ns) or value_ns < 0:
        return "–"
    for limit, divisor, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (120e9, 1e9, "s")):
        if value_ns < limit:
            return f"{significant(value_ns / divisor)} {unit}"
    minutes, seconds = divmod(round(value_ns / 1e9), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min {seconds:02d} s" if hours else f"{minutes} min {seconds:02d} s"


def size(value: int) -> str:
    """A number of bytes with a decimal prefix."""
    number = float(value)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{significant(number)} {unit}" if unit != "bytes" else count(value, "byte")


def share(part: float, whole: float) -> str:
    """A part in percent; more than nothing never reads as 0 %, and less than all never as 100 %."""
    if whole <= 0:
        return "–"
    percent = 100.0 * part / whole
    if 0 < percent < 0.01:
        return "< 0.01\u00a0%"
    if 99.99 < percent < 100:
        return "> 99.99\u00a0%"
    return f"{significant(percent) if percent < 99 else f'{percent:.2f}'.rstrip('0').rstrip('.')}\u00a0%"


def utc(at_ns: int) -> str:
    """An instant as ISO 8601 with milliseconds; '–' if it was not observed."""
    if at_ns < 0:
        return "–"
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d} UTC"
