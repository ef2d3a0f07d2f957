"""Times in logs to int64 ns UTC: offsets that a log tells, else the host's time zone with its changes in
spring and autumn.

Python's `datetime` counts microseconds, so fractions are parsed as integers here. An hour that the wall clock
shows twice is the first one until the log's times would go back; a time that the wall clock skipped counts as
if it had not.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tapscope.hostmon.samples import stamp_ns
from tapscope.store.errors import ExitCode, TapscopeError

NS = 1_000_000_000
DAY_NS = 86_400 * NS
HOUR_NS = 3600 * NS
HALF_HOUR_S = 1800
ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?"
)
OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)")
MONTHS = {name: i for i, name in enumerate(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep",
                                            "oct", "nov", "dec"), 1)}  # fmt: skip
KEPT_HALF_HOURS = 4096
LATEST_NS = 1 << 62  # in the year 2116

Day = tuple[int, int, int]


@dataclass(frozen=True)
class Told:
    """What the user says about the times of a log that does not tell it itself."""

    zone: tzinfo | None = None
    start_ns: int | None = None  # when the program was started whose log counts seconds since then


NOTHING_TOLD = Told()


def zone_of(text: str) -> tzinfo:
    """Time zone by IANA name (Europe/Berlin), `UTC`, or a fixed offset (+0530, -05:00)."""
    if text.upper() in ("UTC", "GMT", "Z"):
        return UTC
    try:
        if OFFSET.fullmatch(text):
            return timezone(timedelta(seconds=_offset_s(text)))
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise TapscopeError(
            f"no time zone is called {text!r}",
            remedy="Give a name such as Europe/Berlin, an offset such as +0200, or UTC.",
            exit_code=ExitCode.USAGE,
        ) from error


def told(zone: str | None, start: str | None) -> Told:
    """What a user's `--zone` and `--start` say. TapscopeError when one of them is no zone or no time."""
    zone_ = None if zone is None else zone_of(zone)
    if start is None:
        return Told(zone_)
    try:
        if re.fullmatch(r"\d{1,10}(\.\d{1,9})?", start):
            return Told(zone_, stamp_ns(start))
        return Told(zone_, LogClock(zone_).iso(start))
    except (ValueError, OverflowError) as error:
        raise TapscopeError(
            f"{start!r} is no time",
            remedy="Give one such as 2026-11-21T14:03:07.250+01:00, or seconds since 1970.",
            exit_code=ExitCode.USAGE,
        ) from error


def _offset_s(text: str) -> int:
    match = OFFSET.fullmatch(text)
    if match is None:
        return 0  # Z, UTC, GMT
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return -seconds if match[1] == "-" else seconds


def fraction_ns(digits: str | None) -> int:
    """Nanoseconds of the digits behind the decimal point."""
    return int((digits + "000000000")[:9]) if digits else 0


@dataclass
class LogClock:
    """Turns the times of one log, in their order, into ns UTC. `counters` say what was assumed."""

    zone: tzinfo | None = None  # None: none was told, UTC is assumed
    counters: Counter[str] = field(default_factory=Counter)
    assumed_utc: bool = False
    last_ns: int = -1
    _halves: dict[tuple[Day, int], tuple[int, int]] = field(default_factory=dict)
    _midnights: dict[tuple[Day, str], int] = field(default_factory=dict)
    _last_text: str = ""
    _day: Day | None = None
    _told_day: Day | None = None
    _time_of_day: int = -1

    def local(self, day: Day, of_day_ns: int) -> int:
        """Time `of_day_ns` after midnight of `day` by the wall clock of the log's host. ValueError for no
        such day."""
        half, rest = divmod(of_day_ns, HALF_HOUR_S * NS)
        bounds = self._halves.get((day, half))
        if bounds is None:
            bounds = self._half_hour(day, half)
        early, late = bounds
        at = early * NS + rest
        if early < late:
            if self.last_ns >= 0 and at < self.last_ns:
                at = late * NS + rest
            else:
                self.counters["host.time.ambiguous"] += 1
        elif early > late:
            self.counters["host.time.skipped_hour"] += 1
        return self.saw(at)

    def saw(self, at: int) -> int:
        """Note a time of the log; one before the last counts as the clock having gone back. OverflowError
        when it is none that can be stored."""
        if not 0 <= at < LATEST_NS:
            raise OverflowError(at)
        self._last_text = ""
        self.counters["host.time.went_back"] += at < self.last_ns
        self.last_ns = at
        return at

    def again(self) -> None:
        """The log goes over the same time once more (another section)."""
        self.last_ns = -1
        self._last_text = ""

    def _half_hour(self, day: Day, half: int) -> tuple[int, int]:
        """Seconds UTC at which this half hour of the wall clock begins: the first and the second time."""
        if len(self._halves) >= KEPT_HALF_HOURS:
            self._halves.clear()
        if not 0 <= half < 50:  # 24:00:00 and leap seconds are written by some programs
            raise ValueError(half)
        naive = datetime(*day) + timedelta(seconds=half * HALF_HOUR_S)
        seconds = (date(*day).toordinal() - date(1970, 1, 1).toordinal()) * 86_400 + half * HALF_HOUR_S
        if self.zone is None:
            self.assumed_utc = True
        zone = self.zone or UTC
        both = [zone.utcoffset(naive.replace(tzinfo=zone, fold=fold)) or timedelta() for fold in (0, 1)]
        found = (seconds - int(both[0].total_seconds()), seconds - int(both[1].total_seconds()))
        self._halves[day, half] = found
        return found

    def time_of_day(self, day: Day, of_day_ns: int) -> int:
        """A time without a date, in a log that was begun on `day`; it is of the day on which it is nearest to
        the time before.

        The clock may be set back over midnight. Before the day that the log tells this is believed of an hour
        only: a sar file of one day in which the host stood from 1:00 to 23:00 says nothing of the day before.
        """
        if self._day is None or (day != self._told_day and day > self._day):
            self._day = day
        elif self._time_of_day >= 0:
            later = of_day_ns - self._time_of_day
            if later < -DAY_NS // 2:
                self._day = _days_after(self._day, 1)
            elif later > DAY_NS // 2 and (self._day > day or later >= DAY_NS - HOUR_NS):
                self._day = _days_after(self._day, -1)
        self._told_day = day
        self._time_of_day = of_day_ns
        return self.local(self._day, of_day_ns)

    def new_day(self, day: Day) -> None:
        """The log says the date anew: its next time of day belongs to `day`."""
        self._day, self._told_day, self._time_of_day = day, day, -1

    def iso(self, text: str) -> int:
        """A date with time in ISO 8601, with or without an offset. ValueError when it is none."""
        if text == self._last_text:  # many lines tell the same time
            return self.last_ns
        match = ISO.fullmatch(text.strip())
        if match is None:
            raise ValueError(text)
        day = (int(match[1]), int(match[2]), int(match[3]))
        of_day = (int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])) * NS + fraction_ns(match[7])
        if match[8] is None:
            at = self.local(day, of_day)
        else:
            at = self.saw(self.midnight_ns(day, match[8]) + of_day)
        self._last_text = text
        return at

    def midnight_ns(self, day: Day, offset: str) -> int:
        """When `day` begins where clocks have this offset (+0100, Z)."""
        midnight = self._midnights.get((day, offset))
        if midnight is None:
            if len(self._midnights) >= KEPT_HALF_HOURS:
                self._midnights.clear()
            days = date(*day).toordinal() - date(1970, 1, 1).toordinal()
            midnight = self._midnights[day, offset] = days * DAY_NS - _offset_s(offset) * NS
        return midnight

    def warnings(self) -> list[str]:
        """What a user should know about these times."""
        found = []
        if self.counters["host.time.went_back"]:
            found.append("the host's clock went backwards between samples")
        if self.assumed_utc:
            found.append("the file tells no time zone: its times were taken as UTC (--zone says another)")
        if self.counters["host.time.ambiguous"]:
            found.append("times in an hour that the clock showed twice were taken as the first of them")
        return found


def _days_after(day: Day, days: int) -> Day:
    found = date(*day) + timedelta(days=days)
    return (found.year, found.month, found.day)


TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: ?([AaPp])\.?[Mm]\.?)?")


def of_day_ns(text: str) -> int:
    """Nanoseconds since midnight of a time such as 14:03:07, 02:03:07 PM or 14:03:07.250. ValueError when it
    is none."""
    match = TIME_OF_DAY.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    hour = int(match[1])
    if match[5]:
        hour = hour % 12 + (12 if match[5] in "Pp" else 0)
    if hour > 24 or int(match[2]) > 59 or int(match[3]) > 60:
        raise ValueError(text)
    return (hour * 3600 + int(match[2]) * 60 + int(match[3])) * NS + fraction_ns(match[4])


def day_of(text: str) -> tuple[Day, bool]:
    """Day of a date as programs print it in their locale, and whether month and day could be the other way
    round.

    2026-11-21, 11/21/26, 11/21/2026, 21.11.2026, 21/11/26 (no month 21): month first where both fit.
    """
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    if len(numbers) != 3 or max(numbers) > 9999:
        raise ValueError(text)
    if numbers[0] > 31:
        year, month, day = numbers
        either = False
    else:
        first, second, year = numbers
        if year < 100:
            year += 2000
        if "." in text or first > 12:
            day, month, either = first, second, False
        else:
            month, day, either = first, second, second <= 12 and first != second
    date(year, month, day)
    return (year, month, day), either
