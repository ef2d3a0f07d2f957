"""Reader of what sysstat's programs write as JSON: `sadf -j`, `iostat -o JSON -t`, `mpstat -o JSON`.

Every sample is one object of the array `statistics`, laid out one level per line; it is parsed by itself, so
that a cut or damaged file gives all samples but the damaged ones, and memory holds one sample's text. Section
names become kinds of table (`sadf_net_dev`). The clock's resolution is one second.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any

from tapscope.hostmon.clock import NOTHING_TOLD, NS, Day, LogClock, Told, day_of, of_day_ns
from tapscope.hostmon.collectl_raw import whole_number
from tapscope.hostmon.decimals import parsed_json
from tapscope.hostmon.rows import Rows
from tapscope.hostmon.samples import HostLog
from tapscope.hostmon.sysstat_names import KEYS, finished, of_cpu, unit_in
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

HEAD = re.compile(r'^\s*"(nodename|timezone|file-date|date|number-of-cpus)": "?([^",]*)"?,?\s*$')
HEAD_WITHIN = re.compile(r'"(nodename|timezone|file-date|date|number-of-cpus)": ?"?([^",}]*)')
RECORDING = "recording"
LONGEST_S = 10**7  # of an interval
LONGEST_SAMPLE = 32 << 20  # characters
CPU_SECTIONS = ("cpu-load", "avg-cpu", "cpu-load-all")


def is_sysstat_json(first: list[str]) -> bool:
    """Whether the first lines are JSON of a sysstat program."""
    return any('"sysstat"' in line[:400] for line in first[:3])


def samples_of(
    lines: Iterable[str], head: dict[str, str], counters: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Every sample of the file, with `head` filled from the lines before it; its RECORDING changes with every
    recording of a file that several were appended to."""
    inside = False
    opening = ""
    block: list[str] = []
    size = 0
    for line in lines:
        if not inside:
            match = HEAD.match(line)
            if match:
                head[match[1]] = match[2]
            if '"statistics": [' in line or '"statistics":[' in line:
                head[RECORDING] = str(int(head.get(RECORDING, 0)) + 1)
                rest = line.partition('"statistics"')[2].partition("[")[2]
                if rest.strip():
                    for name, value in HEAD_WITHIN.findall(line.partition('"statistics"')[0]):
                        head[name] = value
                    yield from _on_one_line(rest, counters)
                else:
                    inside, opening = True, ""
            continue
        bare = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        if bare == "{" and (not opening or indent == opening):
            if block:
                counters["host.sysstat.bad_sample"] += 1  # its end was not seen
            opening, block, size = indent, [line], len(line)
        elif block:
            block.append(line)
            size += len(line)
            if bare in ("}", "},") and indent == opening:
                text = "".join(block).rstrip().rstrip(",")
                block = []
                try:
                    sample = parsed_json(text)
                except (ValueError, RecursionError):
                    counters["host.sysstat.bad_sample"] += 1
                else:
                    yield sample
            elif size > LONGEST_SAMPLE:
                counters["host.sysstat.bad_sample"] += 1
                block = []
        elif bare.startswith("]"):
            inside = False
        elif bare:
            counters["host.sysstat.bad_line"] += 1
    if block:
        counters["host.sysstat.cut_sample"] += 1


def _on_one_line(text: str, counters: Counter[str]) -> Iterator[dict[str, Any]]:
    """Samples of an array that a program has rewritten without line ends."""
    decoder = json.JSONDecoder()
    at = 0
    while True:
        at = text.find("{", at)
        if at < 0:
            return
        try:
            sample, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            counters["host.sysstat.cut_sample"] += 1
            return
        yield sample
        if not text[at : at + 2].lstrip().startswith(","):
            return


def read_sysstat_json(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Tables of every section. Samples that cannot be parsed or have no time are counted and left out."""
    head: dict[str, str] = {}
    counters: Counter[str] = Counter()
    clock = LogClock(told.zone)
    made: dict[str, Rows] = {}
    program = recording = ""
    untimed = count = 0
    warnings = []
    either = False  # month and day of the header's date could be the other way round
    for sample in samples_of(lines, head, counters):
        stamp = sample.pop("timestamp", None)
        if stamp is None:
            untimed += 1
            continue
        program = program or (
            "sadf" if isinstance(stamp, dict) else "mpstat" if len(stamp) < 13 else "iostat"
        )
        try:
            end, begin = _time(stamp, head, clock)
        except (ValueError, TypeError, KeyError, OverflowError):
            counters["host.sysstat.bad_time"] += 1
            continue
        if recording != head[RECORDING]:
            recording = head[RECORDING]
            for rows in made.values():
                rows.restart()
        count += 1
        either |= program == "mpstat" and day_of(head["date"])[1]
        for section, value in sample.items():
            try:
                _section(program, section, value, end, begin, made)
            except (AttributeError, TypeError):
                counters["host.sysstat.bad_section"] += 1
    if not made:
        raise TapscopeError(
            "its samples have no time" if untimed else "this file of sysstat has no sample",
            path=path,
            remedy="Record with `iostat -t -o JSON 1`, `mpstat -o JSON 1` or `sadf -j FILE -- -A`.",
        )
    if untimed:
        counters["host.sysstat.no_time"] += untimed
    if either:
        warnings.append("the date in the file's header was read with the month first")
    return HostLog(
        f"{program} JSON",
        head.get("nodename", ""),
        [finished(rows) for rows in made.values()],
        dict(counters + clock.counters),
        {"samples": count, "cpus": whole_number(head, "number-of-cpus", 0), "resolution_ns": NS},
        warnings + clock.warnings(),
    )


def _time(stamp: Any, head: dict[str, str], clock: LogClock) -> tuple[int, int]:
    """End and begin (-1: not told) of a sample."""
    if isinstance(stamp, dict):
        year, month, day = map(int, stamp["date"].split("-"))
        of_day = of_day_ns(stamp["time"])
        if stamp.get("utc"):
            end = LogClock(UTC).local((year, month, day), of_day)
        else:
            end = clock.local((year, month, day), of_day)
        interval = int(stamp.get("interval", 0))
        return end, end - interval * NS if 0 < interval < LONGEST_S else -1
    if len(stamp) < 13:  # mpstat: a time of day, the date is in the header
        return clock.time_of_day(_header_day(head), of_day_ns(stamp)), -1
    try:
        return clock.iso(stamp), -1
    except ValueError:
        date, _, time = stamp.partition(" ")
        return clock.local(day_of(date)[0], of_day_ns(time)), -1


def _header_day(head: dict[str, str]) -> Day:
    return day_of(head["date"])[0]


def _section(program: str, section: str, value: Any, end: int, begin: int, made: dict[str, Rows]) -> None:
    if section in CPU_SECTIONS:
        for record in value if isinstance(value, list) else [value]:
            fields = dict(record)
            key = str(fields.pop("cpu", ""))
            rows = of_cpu(program, made, key)
            rows.add(end, tuple(fields), list(fields.values()), "" if not rows.key else key, begin)
        return
    kind = f"{program}_{folded(section)}"
    if isinstance(value, list):
        for record in value:
            fields = dict(record)
            first = next(iter(fields), "")
            key = str(fields.pop(first, ""))
            if kind not in made:
                made[kind] = Rows(kind, KEYS.get(first, folded(first)), unit_in(kind))
            made[kind].add(end, tuple(fields), [_scalar(v) for v in fields.values()], key, begin)
        return
    flat: dict[str, Any] = {}
    holds_values = any(not isinstance(inner, (dict, list)) for inner in value.values())
    for name, inner in value.items():
        if isinstance(inner, list) or (isinstance(inner, dict) and not holds_values):
            _section(
                program, name, inner, end, begin, made
            )  # network, psi, power-management: groups of sections
        elif isinstance(inner, dict):
            flat.update(inner)
        else:
            flat[name] = inner
    if flat:
        if kind not in made:
            made[kind] = Rows(kind, "", unit_in(kind))
        made[kind].add(end, tuple(flat), [_scalar(v) for v in flat.values()], "", begin)


def _scalar(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else str(value)
