"""Times in declared formats: a form such as `%d/%b/%Y:%H:%M:%S.%f %z`, or a word for plain numbers, turned
into ns.

Forms have the letters of strptime(3): %Y %y %m %b %d %H %I %M %S %p %f %z %a; %f takes one to nine digits.
`iso` is ISO 8601; `epoch_s`, `epoch_ms`, `epoch_us` and `epoch_ns` count since 1970 UTC, `uptime_s` since
the program's start.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tapscope.hostmon.clock import MONTHS, NS, LogClock, Told, fraction_ns, zone_of

EPOCH = {"epoch_s": NS, "epoch_ms": 10**6, "epoch_us": 10**3, "epoch_ns": 1}
WORDS = ("iso", "uptime_s", *EPOCH)
PATTERNS = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d\d)",
    "m": r"(?P<m>\d\d?)",
    "b": r"(?P<b>[A-Za-z]{3})",
    "d": r" ?(?P<d>\d\d?)",
    "H": r"(?P<H>\d\d?)",
    "I": r"(?P<I>\d\d?)",
    "M": r"(?P<M>\d\d)",
    "S": r"(?P<S>\d\d)",
    "p": r"(?P<p>[AaPp])\.?[Mm]\.?",
    "f": r"(?P<f>\d{1,9})",
    "z": r"(?P<z>Z|UTC|[+-]\d\d:?\d\d)",
    "a": r"[A-Za-z]{3}",
    "%": "%",
}
NUMBER = re.compile(r"(\d{1,19})(?:[.,](\d{1,12}))?")


def pattern_of(form: str) -> re.Pattern[str]:
    """Regular expression of a form. ValueError names a letter that is not known."""
    parts = []
    at = 0
    while at < len(form):
        if form[at] != "%":
            parts.append(re.escape(form[at]))
            at += 1
            continue
        letter = form[at + 1 : at + 2]
        if letter not in PATTERNS:
            raise ValueError(f"%{letter} is no part of a time")
        parts.append(PATTERNS[letter])
        at += 2
    return re.compile("".join(parts))


def scaled_ns(text: str, unit_ns: int) -> int:
    """Nanoseconds of a decimal number of units, exact down to the last digit that ns have."""
    match = NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    digits = match[2] or ""
    return int(match[1]) * unit_ns + (int(digits) * unit_ns // 10 ** len(digits) if digits else 0)


class TimeForm:
    """Reads times of one form. `year` and `day` stand in for what the log's times leave out."""

    def __init__(self, form: str, told: Told, zone: str | None = None, year: int | None = None) -> None:
        self.clock = LogClock(told.zone or (zone_of(zone) if zone else None))
        self.year = year
        self.day: tuple[int, int, int] | None = None  # of times of day alone, from the context
        self.start_ns = told.start_ns
        self._month = 0
        self._read: Callable[[str], int]
        if form == "iso":
            self._read = self.clock.iso
        elif form in EPOCH:
            unit_ns = EPOCH[form]
            self._read = lambda text: self.clock.saw(scaled_ns(text, unit_ns))
        elif form == "uptime_s":
            self._read = self._uptime
        else:
            self._pattern = pattern_of(form)
            self._read = self._by_form

    def ns(self, text: str) -> int:
        """The time in ns UTC. ValueError or OverflowError when it is none of this form."""
        return self._read(text)

    def _uptime(self, text: str) -> int:
        if self.start_ns is None:
            raise ValueError("the start is not known")
        return self.clock.saw(self.start_ns + scaled_ns(text, NS))

    def _by_form(self, text: str) -> int:
        match = self._pattern.fullmatch(text.strip())
        if match is None:
            raise ValueError(text)
        found = match.groupdict()
        hour = int(found.get("H") or found.get("I") or 0)
        if found.get("p"):
            hour = hour % 12 + (12 if found["p"] in "Pp" else 0)
        minute, second = int(found.get("M") or 0), int(found.get("S") or 0)
        if hour > 24 or minute > 59 or second > 60:
            raise ValueError(text)
        of_day = (hour * 3600 + minute * 60 + second) * NS + fraction_ns(found.get("f"))
        if "d" not in found:
            if self.day is None:
                raise ValueError("no date is known")
            return self.clock.time_of_day(self.day, of_day)
        month = MONTHS[found["b"].lower()] if "b" in found else int(found["m"])
        day = (self._year_of(found, month), month, int(found["d"]))
        if found.get("z"):
            return self.clock.saw(self.clock.midnight_ns(day, found["z"]) + of_day)
        return self.clock.local(day, of_day)

    def _year_of(self, found: dict[str, str], month: int) -> int:
        if "Y" in found:
            return int(found["Y"])
        if "y" in found:
            return 2000 + int(found["y"])
        if self.year is None:
            raise ValueError("no year is known")
        if self._month:  # the nearest year: a log goes on over New Year, and a late line may go back over it
            self.year += (month < self._month - 6) - (month > self._month + 6)
        self._month = month
        return self.year
