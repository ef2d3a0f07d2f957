"""Reader of the JVM's unified log (JDK 9 and newer, `-Xlog:gc*,safepoint:file=...`).

Each line has decorations in brackets, which the user chose: time with offset, milliseconds since the epoch,
uptime in s, ms or ns, level, tags. A line is written when its event has ended; the begin of a pause is its
end less the duration that the line tells. A log with uptimes alone needs to be told when the JVM was
started. Format: JEP 158, JEP 271.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tapscope.hostmon.clock import LATEST_NS, NOTHING_TOLD, LogClock, Told
from tapscope.hostmon.gc_events import CHANGE, STOPPED, GcTables, change, to_ns
from tapscope.hostmon.samples import HostLog
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

DECORATION = re.compile(r"\[([^\]\[]{0,80})\]")
WALL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}[+-]\d{4}")
UPTIME = re.compile(r"(\d{1,18}(?:[.,]\d{1,9})?)(s|ms|ns)")
UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "ns": 1}
EPOCH_MS = 10**11  # milliseconds above are since 1970, below since the JVM's start
EVENT = re.compile(r"GC\((\d+)\) (?:([yYoO]): )?(.*)")
PAUSE = re.compile(
    r"(Pause [A-Z][A-Za-z ]*?)((?: \([^()]*(?:\(\))?[^()]*\))*)(?: (\d\S*->\S+))?"
    r"(?: \([\d.,]+s, [\d.,]+s\))? (\d+[.,]\d+)ms$"
)
CONCURRENT = re.compile(r"(Concurrent [A-Za-z][A-Za-z \-]*?(?: \([^()]*\))*)(?: \d\S*->\S+)?"
                        r"(?: \([\d.,]+s, [\d.,]+s\))? (\d+[.,]\d+)ms$")  # fmt: skip
PHASE = re.compile(r"\s*([A-Z][A-Za-z0-9 :()/\-]*?):? (\d+[.,]\d+)ms$")
SPACE = re.compile(r"([A-Z][A-Za-z0-9 ]*?): ((?:\d+[.,]?\d*[BKMG])(?:\(\S+?\))?->\S+)")
REGIONS = re.compile(r"([A-Z][a-z]+) regions: (\d+)->(\d+)(?:\((\d+)\))?$")
TIMES = re.compile(r"User=(\d+[.,]\d+)s Sys=(\d+[.,]\d+)s Real=(\d+[.,]\d+)s")
SAFEPOINT = re.compile(r'Safepoint "([^"]*)", (.*)')
PART = re.compile(r"([A-Z][a-z ]+): +(\d+) ns")
NOT_EVENTS = re.compile(
    r"GC\(\d+\) (?:Pause|Concurrent|Garbage|Using|[YO]: )[^>]*$|Application time|Using |Entering"
)


def is_gc_unified(first: list[str]) -> bool:
    """Whether the first lines are of a unified log about garbage collection."""
    for line in first:
        decorations, message = decorated(line)
        if not decorations or not any(WALL.fullmatch(d) or UPTIME.fullmatch(d) for d in decorations):
            continue
        if message.startswith(("GC(", "Using ", "Safepoint ")) or any(
            re.match(r"(gc|safepoint)\b", d.strip()) for d in decorations
        ):
            return True
    return False


def decorated(line: str) -> tuple[list[str], str]:
    """The decorations at the start of a line, and what follows them."""
    found = []
    at = 0
    while True:
        match = DECORATION.match(line, at)
        if match is None:
            break
        found.append(match[1])
        at = match.end()
    return found, line[at:].strip()


def read_gc_unified(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Tables of pauses, concurrent phases and safepoints. Lines about anything else are counted."""
    reader = _Reader(told)
    for line in lines:
        if line.strip():
            reader.line(line.rstrip("\n"))
    if not len(reader.tables):
        raise TapscopeError(
            "its lines have uptimes alone, no time"
            if reader.untimed
            else "this log of the JVM has no collection",
            path=path,
            remedy="Say when the JVM was started with --start, or record with "
            "-Xlog:gc*,safepoint:file=gc.log:utctime,uptime,level,tags.",
        )
    reader.counters["host.gc.no_time"] += reader.untimed
    reader.counters["host.gc.unfinished"] += reader.open is not None
    return HostLog(
        "JVM unified log",
        "",
        reader.tables.tables(),
        dict(reader.counters + reader.clock.counters),
        {"samples": len(reader.tables.pauses), "collector": reader.collector, "jvm": reader.version,
         "resolution_ns": reader.resolution_ns},
        reader.clock.warnings(),
    )  # fmt: skip


class _Reader:
    def __init__(self, told: Told) -> None:
        self.told = told
        self.clock = LogClock(told.zone)
        self.tables = GcTables()
        self.counters: Counter[str] = Counter()
        self.details: dict[str, Any] = {}
        self.details_of: int | None = None
        self.open: str | None = None  # a pause that has begun
        self.cycle_ns: dict[int, int] = {}
        self.untimed = 0
        self.collector = self.version = ""
        self.resolution_ns = UNIT_NS["s"]

    def line(self, line: str) -> None:
        decorations, message = decorated(line)
        at = self._time(decorations)
        if at is None:
            known = bool(decorations) and any(UPTIME.fullmatch(d) for d in decorations)
            if known:
                self.untimed += 1
            else:
                self.counters["host.gc.bad_line"] += 1
            return
        event = EVENT.match(message)
        try:
            if event:
                self._event(
                    int(event[1]), event[2] or "", event[3], at, any("start" in d for d in decorations)
                )
            elif not self._safepoint(message, at):
                self._other(message)
        except (ValueError, KeyError, OverflowError):
            self.counters["host.gc.bad_line"] += 1

    def _time(self, decorations: list[str]) -> int | None:
        uptime = -1
        for text in decorations:
            if WALL.fullmatch(text):
                self.resolution_ns = 1_000_000
                try:
                    return self.clock.iso(text)
                except (ValueError, OverflowError):
                    return None
            match = UPTIME.fullmatch(text)
            if match:
                ns = to_ns(match[1], UNIT_NS[match[2]])
                if match[2] == "ms" and ns > EPOCH_MS * 1_000_000:
                    self.resolution_ns = 1_000_000
                    return ns if ns < LATEST_NS else None
                if uptime < 0 or match[2] == "ns":
                    uptime = ns
                    self.resolution_ns = min(self.resolution_ns, 1 if match[2] == "ns" else 1_000_000)
        if uptime >= 0 and self.told.start_ns is not None:
            at = self.told.start_ns + uptime
            return at if at < LATEST_NS else None
        return None

    def _event(self, gc_id: int, generation: str, text: str, at: int, starts: bool) -> None:
        if self.details_of != gc_id:
            self.details, self.details_of = {}, gc_id
        pause = PAUSE.match(text)
        if pause:
            duration = to_ns(pause[4], UNIT_NS["ms"])
            heap = CHANGE.match(pause[3]) if pause[3] else None
            before, after, size = change(heap) if heap else (None, None, None)
            name = pause[1].removeprefix("Pause ")
            causes = re.findall(r"\(((?:[^()]|\(\))*)\)", pause[2])
            # The last bracket is the cause; one before it belongs to the name: (Normal) (G1 ...).
            if len(causes) > 1:
                name += f" ({causes[0]})"
            if generation:
                name += " (old)" if generation in "oO" else " (young)"
            row = (gc_id, name, causes[-1] if causes else None, before, after, size, duration / 1e6)
            self.tables.pause(at - duration, at, row, self.details)
            self.details, self.open = {}, None
            return
        concurrent = CONCURRENT.match(text)
        if concurrent:
            duration = to_ns(concurrent[2], UNIT_NS["ms"])
            self.tables.phase(at - duration, at, gc_id, concurrent[1].removeprefix("Concurrent "))
            return
        if starts and text.startswith("Pause"):
            self.counters["host.gc.unfinished"] += self.open is not None
            self.open = text
            return
        if text.startswith("Garbage Collection"):  # a whole cycle: its begin and its end have a line each
            if "->" not in text:
                self.cycle_ns = {gc_id: at}
            elif gc_id in self.cycle_ns:
                self.tables.phase(self.cycle_ns.pop(gc_id), at, gc_id, text.split("(")[0].strip())
            return
        if not self._detail(text, starts):
            self.counters["host.gc.other_line"] += 1

    def _detail(self, text: str, starts: bool) -> bool:
        """What a line says about the collection that is going on; False when it is not understood."""
        if starts or (text.startswith(("Using", "Phase")) and not text.endswith("ms")):
            return True
        times = TIMES.match(text)
        if times:  # follows the pause that it is about
            self.tables.pauses.amend(
                dict(
                    zip(
                        ("user", "sys", "real"),
                        (float(t.replace(",", ".")) for t in times.groups()),
                        strict=True,
                    )
                )
            )
            return True
        regions = REGIONS.match(text)
        if regions:
            name = folded(regions[1])
            self.details[f"{name}_before_regions"] = int(regions[2])
            self.details[f"{name}_after_regions"] = int(regions[3])
            return True
        found = False
        for space in SPACE.finditer(text):
            values = CHANGE.match(space[2])
            if values:
                name = folded(space[1])
                before, after, size = change(values)
                self.details |= {f"{name}_before": before, f"{name}_after": after, f"{name}_size": size}
                found = True
        if found:
            return True
        phase = PHASE.match(text)
        if phase:
            self.details[f"{folded(phase[1])}_ms"] = float(phase[2].replace(",", "."))
            return True
        return False

    def _safepoint(self, message: str, at: int) -> bool:
        match = SAFEPOINT.match(message)
        if match:
            parts = {folded(name): int(value) for name, value in PART.findall(match[2])}
            total = parts.pop("total")
            reaching = parts.pop("reaching_safepoint", 0)
            parts.pop("time_since_last", None)
            self.tables.safepoint(
                at - total,
                at,
                match[1],
                reaching,
                {f"{name}_ms": value / 1e6 for name, value in parts.items()},
            )
            return True
        stopped = STOPPED.match(message)
        if stopped:
            total = to_ns(stopped[1], UNIT_NS["s"])
            reaching = to_ns(stopped[2], UNIT_NS["s"]) if stopped[2] else 0
            self.tables.safepoint(at - total, at, None, reaching, {})
            return True
        return False

    def _other(self, message: str) -> None:
        using = re.match(r"Using (?:The )?(\w+)( Garbage Collector)?$", message)
        version = re.match(r"Version: (\S+)", message)
        if using:
            self.collector = using[1]
        elif version:
            self.version = version[1]
        else:
            self.counters["host.gc.other_line"] += 1
