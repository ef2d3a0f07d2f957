"""Reader of performance counters as CSV: `esxtop -b` (and resxtop), Windows' `typeperf` and `relog -f csv`.

The first column's name tells the zone: `(PDH-CSV 4.0) (ZONE)(BIAS)`, UTC = local + BIAS minutes. The other
names are paths, \\\\HOST\\OBJECT(INSTANCE)\\COUNTER; there are thousands, so every object becomes a table
of its own, with a row per instance and time and a column per counter.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from tapscope.hostmon.clock import NOTHING_TOLD, NS, LogClock, Told, of_day_ns
from tapscope.hostmon.rows import TOO_MANY
from tapscope.hostmon.samples import Float, HostLog, HostTable, Int, Series, recordings
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

FIRST = re.compile(r'"?\(PDH-CSV [\d.]+\) \(([^)]*(?:\([^)]*\))?)\)\((-?\d+)\)"?')
COLUMN = re.compile(
    r"\\\\(?P<host>[^\\]+)\\(?P<object>[^\\(]+)(?:\((?P<instance>.*)\))?\\(?P<counter>.+)", re.DOTALL
)
STAMP = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d(?:\.\d+)?)")
UNITS = tuple(
    (re.compile(pattern), unit)
    for pattern, unit in (
        (r"% ", "%"),
        (r"mbits", "Mbit/s"),
        (r"\bmbytes\b.*/sec|mb/sec", "MiB/s"),
        (r"\bkbytes\b.*/sec|kb/sec", "KiB/s"),
        (r"\bbytes\b.*/sec", "bytes/s"),
        (r"/sec", "1/s"),
        (r"millisec", "ms"),
        (r"mbytes", "MiB"),
        (r"kbytes", "KiB"),
        (r"mhz", "MHz"),
    )
)
"""By what is found first in a counter's name (in small letters): MBytes Read/sec, Disk Write Bytes/sec."""


def is_esxtop(first: list[str]) -> bool:
    """Whether the first line names PDH-CSV."""
    return bool(first) and FIRST.match(first[0].lstrip("\ufeff")) is not None


def unit(name: str) -> str:
    """Unit of a counter by its name."""
    low = name.lower()
    return next((found for pattern, found in UNITS if pattern.search(low)), "")


def read_esxtop(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """One table per object. Damaged lines are counted and left out."""
    counters: Counter[str] = Counter()
    rows = csv.reader(line.replace("\0", "") for line in lines)
    head = next(rows, [])
    first = FIRST.match(head[0].lstrip("\ufeff")) if head else None
    if first is None:
        raise TapscopeError("the first line does not name PDH-CSV", path=path, offset=0)
    bias_ns = int(first[2]) * 60 * NS
    columns = [COLUMN.fullmatch(name) for name in head[1:]]
    counters["host.esxtop.bad_column"] += sum(column is None for column in columns)
    clock = LogClock()
    ends: list[int] = []
    values: list[Float] = []
    while True:
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error:
            counters["host.esxtop.bad_line"] += 1
            continue
        if not row:
            continue
        stamp = STAMP.fullmatch(row[0])
        # A row may end early (cut) or late: esxtop grows columns when machines are started.
        if stamp is None or len(row) < len(head):
            counters["host.esxtop.bad_line"] += 1
            continue
        counters["host.esxtop.more_columns"] += len(row) > len(head)
        try:
            day = (int(stamp[3]), int(stamp[1]), int(stamp[2]))
            end = clock.local(day, of_day_ns(stamp[4])) + bias_ns
        except (ValueError, OverflowError):
            counters["host.esxtop.bad_line"] += 1
            continue
        ends.append(end)
        values.append(_numbers(row[1 : len(head)], counters))
    if not ends:
        raise TapscopeError(
            "this file has no sample", path=path, remedy="Record one with: esxtop -b -d 2 -n 100"
        )
    matrix = np.array(values)
    end_ns = np.array(ends, dtype=np.int64)
    return HostLog(
        "esxtop CSV",
        next((column["host"] for column in columns if column), ""),
        _tables(columns, matrix, end_ns, counters),
        dict(counters + clock.counters),
        {"samples": len(ends), "zone": first[1], "resolution_ns": NS},
        [text for text in clock.warnings() if "zone" not in text],
    )


def _numbers(row: list[str], counters: Counter[str]) -> Float:
    try:
        return np.array(row, dtype=np.float64)
    except ValueError:
        out = np.full(len(row), np.nan)
        for i, text in enumerate(row):
            try:
                out[i] = float(text)
            except ValueError:
                counters["host.esxtop.bad_value"] += bool(text.strip())
        return out


def _tables(
    columns: list[re.Match[str] | None], matrix: Float, end_ns: Int, counters: Counter[str]
) -> list[HostTable]:
    objects: dict[str, dict[str, dict[str, int]]] = {}
    for at, column in enumerate(columns):
        if column is not None:
            instances = objects.setdefault(folded(column["object"]), {})
            instances.setdefault(column["instance"] or "", {}).setdefault(column["counter"], at)
    tables = []
    part = recordings(end_ns)
    for name, instances in objects.items():
        wanted = list(dict.fromkeys(counter for found in instances.values() for counter in found))
        counters["host.esxtop.columns_left_out"] += max(0, len(wanted) - TOO_MANY)
        count = len(instances)
        series = Series(
            np.repeat(np.arange(count), len(end_ns)), np.tile(end_ns, count), np.tile(part, count)
        )
        table = HostTable(f"esxtop_{name}")
        table.add("begin_ns", series.begin_ns, "ns", "")
        table.add("end_ns", series.end_ns, "ns", "Time")
        if count > 1 or "" not in instances:
            table.add("instance", [text for text in instances for _ in end_ns])
        nothing = np.full(len(end_ns), np.nan)
        for counter in wanted[:TOO_MANY]:
            parts = [
                matrix[:, found[counter]] if counter in found else nothing for found in instances.values()
            ]
            stored = folded(counter)
            while stored in table.columns:
                stored += "_"
            table.add(stored, series.sorted(np.concatenate(parts)), unit(counter), counter)
        tables.append(table)
    return tables
