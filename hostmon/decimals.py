"""What programs print in other languages: decimal commas, times with other marks, averages by other names.

sysstat and perf print numbers and times of day as the user's locale has them, in tables, CSV and (sysstat
until 12, perf) even in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

COMMA = re.compile(r"(?<![^\s;])(-?\d+),(\d+)(?![^\s;])")
"""A number with a decimal comma that is a word of its own."""

JSON_COMMA = re.compile(r'("\s*:\s*"?-?\d+),(\d+)(?="?\s*[,}\]])')
"""The same as the value of a JSON name; in JSON no number follows a comma there."""

OF_DAY = r"\d{1,2}(?:[:.]|[時时시] ?)\d\d(?:[:.]|[分분] ?)\d\d[秒초]?(?: [AP]M)?"
"""A time of day: 14:03:07, 02:03:07 PM, 14.03.07, 14時03分07秒."""

AVERAGE = re.compile(r"[^\W\d][^\d:]*:(?:\s|$)")
"""Begin of a line that sums up: Average: in any language."""


def with_point(text: str) -> str:
    """A line, or a field, with the decimal commas of its numbers made points."""
    return COMMA.sub(r"\1.\2", text) if "," in text else text


def with_points(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a table whose numbers may have decimal commas."""
    return map(with_point, lines)


def parsed_json(text: str) -> Any:
    """JSON that may have decimal commas. ValueError or RecursionError when it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(JSON_COMMA.sub(r"\1.\2", text))


def with_colons(of_day: str) -> str:
    """A time of day with colons."""
    return re.sub(r"[.時时시分분] ?", ":", of_day).rstrip("秒초")
