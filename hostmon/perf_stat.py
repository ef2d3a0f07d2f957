"""Reader of `perf stat -I MS -x SEP` (also -A, --per-socket, -G) and `-j`: a line per event and interval.

Counts are per interval. Times are seconds since perf was started; `# started on` (with -o) tells that
moment to one second, in the host's zone, so all times of a file may be up to a second late: `--start` says
better. Events that could not be counted have no value and are counted here. Format: perf-stat(1), CSV
FORMAT.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from tapscope.hostmon.clock import MONTHS, NOTHING_TOLD, NS, LogClock, Told, of_day_ns
from tapscope.hostmon.decimals import parsed_json, with_point
from tapscope.hostmon.rows import Rows, numeric
from tapscope.hostmon.samples import HostLog, HostTable, stamp_ns
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

STARTED = re.compile(r"# started on \w{3} (\w{3}) +(\d+) (\d\d:\d\d:\d\d) (\d{4})")
INTERVAL = re.compile(r"\s*(\d{1,9}[.,]\d{9})([^\w.\s<-])(.*)")
PLACE = re.compile(r"(CPU\d+|S\d+(-[A-Z]\d+)*|N\d+|[\w\-]+-\d+)$")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
MISSING = ("<not counted>", "<not supported>")
SCALES = {"K/sec": 1e3, "M/sec": 1e6, "G/sec": 1e9, "/sec": 1.0}


def is_perf_stat(first: list[str]) -> bool:
    """Whether the first lines are of `perf stat -I` in CSV or JSON."""
    return any(
        (match is not None and len(match[3].split(match[2])) >= 5)
        or (line.startswith('{"interval"') and '"event"' in line)
        for line in first
        for match in [INTERVAL.match(line)]
    )


def read_perf_stat(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Table with a row per interval (and place, with -A) and a column per event."""
    clock = LogClock(told.zone)
    counters: Counter[str] = Counter()
    start = told.start_ns
    warnings = []
    reader = _Events(counters)
    for line in lines:
        started = STARTED.match(line)
        if started:
            if told.start_ns is None:
                day = (int(started[4]), MONTHS[started[1].lower()], int(started[2]))
                start = clock.local(day, of_day_ns(started[3]))
            reader.restart(start)
        elif line.strip() and not line.startswith("#"):
            reader.line(line.rstrip("\n"), start)
    reader.flush()
    if not len(reader.rows):
        raise TapscopeError(
            "it does not tell when it was started"
            if reader.untimed
            else "this file of perf stat has no sample",
            path=path,
            remedy="Record with `perf stat -I 50 -x ';' -o FILE`, or give the time with --start.",
        )
    if told.start_ns is None:
        warnings.append("perf tells its start to the second: times may be up to 1 s early")
    counters["host.perf.no_start"] += reader.untimed
    return HostLog(
        "perf stat",
        "",
        [reader.table()],
        dict(+counters + clock.counters),
        {"samples": len(reader.rows), "resolution_ns": 1 if told.start_ns is not None else NS},
        warnings + clock.warnings(),
    )


class _Events:
    """Lines of one interval become one row per place."""

    def __init__(self, counters: Counter[str]) -> None:
        self.counters = counters
        self.rows = Rows("perf_stat", "place")
        self.units: dict[str, str] = {}
        self.at = -1
        self.before: dict[str, int] = {}
        self.start: int | None = None
        self.open: dict[str, dict[str, Any]] = {}
        self.untimed = 0

    def restart(self, start: int | None) -> None:
        """perf was started again into the same file."""
        self.flush()
        self.start, self.before, self.at = start, {}, -1
        self.rows.restart()

    def line(self, line: str, start: int | None) -> None:
        try:
            fields = self._json(line) if line.startswith("{") else self._csv(line)
        except (ValueError, KeyError, IndexError, TypeError, OverflowError):
            self.counters["host.perf.bad_line"] += 1
            return
        at, place, value, unit, event, running, metric, metric_unit = fields
        if start is None:
            self.untimed += 1
            return
        self.start = start
        if at != self.at:
            self.flush()
            self.at = at
        if value in MISSING:
            self.counters["host.perf.not_counted"] += 1
        row = self.open.setdefault(place, {})
        name = event
        while name in row:  # the same event twice on perf's command line
            name += "_"
        row[name] = None if value in MISSING else float(value)
        self.units.setdefault(name, f"{unit}/sample" if unit else "1/sample")
        if running not in ("", "100.00"):
            row[f"{name}_running_pct"] = float(running)
            self.units[f"{name}_running_pct"] = "%"
        if NUMBER.fullmatch(metric) and metric_unit:
            scale = SCALES.get(metric_unit, 0.0)
            column = f"{name} {'/sec' if scale else metric_unit}"
            row[column] = float(metric) * (scale or 1.0)
            self.units[column] = "1/s" if scale else metric_unit

    def _csv(self, line: str) -> tuple[int, str, str, str, str, str, str, str]:
        match = INTERVAL.match(line)
        if match is None:
            raise ValueError(line)
        fields = [with_point(field.strip()) for field in match[3].split(match[2])]
        place = ""
        if not (NUMBER.fullmatch(fields[0]) or fields[0] in MISSING):
            if not PLACE.match(fields[0]):
                raise ValueError(line)
            place = fields.pop(0)
            # With --per-socket and its like the number of CPUs stands between the place and the value.
            if (
                len(fields) > 3
                and re.fullmatch(r"\d+", fields[0])
                and (NUMBER.fullmatch(fields[1]) or fields[1] in MISSING)
            ):
                fields.pop(0)
        value, unit, event = fields[:3]
        if not (NUMBER.fullmatch(value) or value in MISSING) or not re.match(r"[A-Za-z]", event):
            raise ValueError(line)
        more = fields[3:]
        if more and not NUMBER.fullmatch(more[0]) and more[0]:  # -G: the control group follows the event
            place = " ".join(filter(None, (place, more.pop(0))))
        more += [""] * (4 - len(more))
        if more[1] and not NUMBER.fullmatch(more[1]):
            raise ValueError(line)
        return stamp_ns(match[1].replace(",", ".")), place, value, unit, event, more[1], more[2], more[3]

    def _json(self, line: str) -> tuple[int, str, str, str, str, str, str, str]:
        found = parsed_json(line)
        value = with_point(str(found["counter-value"]))
        if value not in MISSING:
            float(value)
        place = str(found.get("cpu", found.get("core", found.get("socket", found.get("cgroup", "")))))
        running, metric = found.get("pcnt-running", ""), found.get("metric-value", "")
        return (
            round(float(found["interval"]) * NS),
            place,
            value,
            str(found.get("unit", "")),
            str(found["event"]),
            f"{running:.2f}" if isinstance(running, float) else "",
            with_point(str(metric)),
            str(found.get("metric-unit", "")),
        )

    def flush(self) -> None:
        """Store the rows of the interval that ends here."""
        if self.start is not None:
            for place, row in self.open.items():
                before = self.before.get(place, 0)
                begin = self.start + before if before <= self.at else -1
                self.rows.add(self.start + self.at, tuple(row), tuple(row.values()), place, begin)
                self.before[place] = self.at
        self.open = {}

    def table(self) -> HostTable:
        """The rows, with a rate per second of everything that is counted."""
        self.rows.unit = lambda name: self.units.get(name, "")
        table, series, columns = self.rows.table_and_columns()
        length = (series.end_ns - series.begin_ns) / 1e9
        for name, values in columns.items():
            amount = numeric(values)
            if amount is None or self.units.get(name) not in ("1/sample", "msec/sample"):
                continue
            per_second = np.divide(amount, length, out=np.full(len(length), np.nan), where=length > 0)
            if self.units[name] == "msec/sample":
                table.add(f"{folded(name)}_pct", per_second / 10, "% of one core", "")
            else:
                table.add(f"{folded(name)}_per_s", per_second, "1/s", "")
        return table
