"""Reader of garbage-collector logs of JDK 5 to 8 (-verbose:gc, -XX:+PrintGC, -XX:+PrintGCDetails with
-XX:+PrintGCTimeStamps or -XX:+PrintGCDateStamps, -XX:+PrintGCApplicationStoppedTime).

A line's stamp is when the collection began, a date with offset or seconds since the JVM's start (or both);
the last `secs` outside of inner brackets is how long the program stood still. G1 tells details on the lines
that follow. Lines about stopped threads are stamped when the stop has ended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tapscope.hostmon.clock import NOTHING_TOLD, NS, LogClock, Told
from tapscope.hostmon.gc_events import CHANGE, STOPPED, GcTables, change, to_ns
from tapscope.hostmon.samples import HostLog
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

STAMPS = re.compile(
    r"(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}[+-]\d{4}): ?)?(?:(\d{1,9}[.,]\d{3}): ?)?"
    r"(?=\[|Total|Application)"
)
COLLECTION = re.compile(r"\[(Full GC|GC)( pause| remark| cleanup)?[ \[(\d:]")
CONCURRENT = re.compile(
    r"\[(?:GC concurrent|CMS-concurrent)-([a-z\-]+?)(?:-end)?"
    r"(?:: (\d+[.,]\d+)/(\d+[.,]\d+)|, (\d+[.,]\d+)) sec"
)
STARTS = re.compile(r"\[(?:GC concurrent|CMS-concurrent)-[a-z\-]+-start\]")
SECS = re.compile(r", (\d+[.,]\d+) secs")
CAUSE = re.compile(r"\(([A-Z](?:[^()]|\(\))*)\)")
MODE = re.compile(
    r"\((young|mixed|initial-mark|promotion failed|concurrent mode failure|to-space exhausted)\)"
)
SPACE = re.compile(
    r"(?<![\w ])([A-Za-z][A-Za-z0-9 \-]*?) ?: (?=(\d+(?:[.,]\d+)?[BKMG](?:\([^()]*\))?->[^,\s\]]+))"
)
HEAP_OF_G1 = re.compile(r"(Eden|Survivors|Heap): (\d\S*->\S+?)(?=[ \]])")
TIMES = re.compile(r"\[Times: user=(\d+[.,]\d+) sys=(\d+[.,]\d+), real=(\d+[.,]\d+) secs\]")
DETAIL = re.compile(r"\s+\[([A-Z][A-Za-z0-9 ()/]*?)(?: \(ms\))?: (\d+[.,]\d+) ms[,\]]")
WRITTEN_BETWEEN = re.compile(
    r"(?:(\d{4}-\d\d-\d\dT\S+): ?)?(?:(\d+[.,]\d{3}): ?)?"
    r"(\[CMS-concurrent-[a-z\-]+: [^\]]*\])(?: \[Times:[^\]]*\])?"
)
"""CMS ends a concurrent phase in the middle of a collection's line, which then goes on in the next line."""

NOTES = re.compile(
    r"Java HotSpot|OpenJDK|Memory:|CommandLine flags:|Heap\b|\{Heap|\}|\s|.*Application time:|$|\[Times"
)


def is_gc_legacy(first: list[str]) -> bool:
    """Whether the first lines are of a JVM before 9."""
    if any(line.startswith("CommandLine flags:") and "GC" in line for line in first[:5]):
        return True
    for line in first:
        stamps = STAMPS.match(line)
        if stamps and stamps.end() > 0:
            rest = line[stamps.end() :]
            if COLLECTION.match(rest) or CONCURRENT.match(rest) or STARTS.match(rest) or STOPPED.match(rest):
                return True
        elif re.match(r"\[(Full GC|GC)\b.*->.*secs\]", line):
            return True
    return False


def read_gc_legacy(lines: Iterable[str], path: str = "", told: Told = NOTHING_TOLD) -> HostLog:
    """Tables of pauses, concurrent phases and stops. Lines about anything else are counted."""
    reader = _Reader(told)
    for line in lines:
        reader.line(line.rstrip("\n"))
    reader.flush()
    if not len(reader.tables):
        raise TapscopeError(
            "its lines have no date" if reader.untimed else "this log of the JVM has no collection",
            path=path,
            remedy="Say when the JVM was started with --start, or record with -XX:+PrintGCDateStamps.",
        )
    reader.counters["host.gc.no_time"] += reader.untimed
    return HostLog(
        "JVM log before JDK 9",
        "",
        reader.tables.tables(),
        dict(reader.counters + reader.clock.counters),
        {"samples": len(reader.tables.pauses), "jvm": reader.version, "resolution_ns": 1_000_000},
        reader.clock.warnings(),
    )


class _Reader:
    def __init__(self, told: Told) -> None:
        self.told = told
        self.clock = LogClock(told.zone)
        self.tables = GcTables()
        self.counters: Counter[str] = Counter()
        self.untimed = self.number = 0
        self.version = ""
        # A pause is stored when its following lines, which tell more about it, have been read.
        self.held: tuple[int, int, list[Any], dict[str, Any]] | None = None
        self.cut: tuple[int, str] | None = None  # a line that something was written into

    def flush(self) -> None:
        """Store the pause whose details were being read."""
        if self.held:
            begin, end, fields, details = self.held
            self.tables.pause(begin, end, tuple(fields), details)
            self.held = None
        self.counters["host.gc.bad_line"] += self.cut is not None
        self.cut = None

    def line(self, line: str) -> None:
        if not line.strip():
            return
        stamps = STAMPS.match(line)
        rest = line[stamps.end() :] if stamps else line
        try:
            if stamps is None or not rest.startswith(("[GC", "[Full", "[CMS", "Total", "Application")):
                self._following(line)
                return
            began_ns = self._time(stamps)
            if began_ns is None:
                self.untimed += not rest.startswith("Application") and not STARTS.match(rest)
                return
            self.flush()
            self._event(rest, began_ns)
        except (ValueError, KeyError, OverflowError):
            self.counters["host.gc.bad_line"] += 1

    def _time(self, stamps: re.Match[str]) -> int | None:
        if stamps[1]:
            return self.clock.iso(stamps[1])
        if stamps[2] and self.told.start_ns is not None:
            return self.told.start_ns + to_ns(stamps[2], NS)
        return None

    def _event(self, text: str, at: int) -> None:
        if STARTS.match(text) or text.startswith("Application time"):
            return
        stopped = STOPPED.match(text)
        if stopped:
            total = to_ns(stopped[1], NS)
            reaching = to_ns(stopped[2], NS) if stopped[2] else 0
            self.tables.safepoint(at - total, at, None, reaching, {})
            return
        concurrent = CONCURRENT.match(text)
        if concurrent:  # CMS tells CPU time/wall time; both collectors stamp the end
            wall = to_ns(concurrent[3] or concurrent[4], NS)
            self.tables.phase(at - wall, at, None, concurrent[1])
            return
        kind = COLLECTION.match(text)
        times = TIMES.search(text)
        body = text[: times.start()] if times else text
        outer = _outside_brackets(body)
        seconds = SECS.findall(outer)
        if kind is not None and WRITTEN_BETWEEN.search(text):
            for phase in WRITTEN_BETWEEN.finditer(text):
                stamped = STAMPS.match(f"{phase[1]}: [" if phase[1] else f"{phase[2]}: [")
                ended = self._time(stamped) if stamped else None
                if ended is not None:
                    self._event(phase[3], ended)
            self.cut = (at, WRITTEN_BETWEEN.sub("", text).strip())
            return
        if kind is None or not seconds:
            self.counters["host.gc.bad_line"] += 1  # two lines written into each other, or a cut one
            return
        duration = to_ns(seconds[-1], NS)
        cause = CAUSE.search(outer)
        name = {" pause": "Pause", " remark": "Remark", " cleanup": "Cleanup"}.get(kind[2] or "", "")
        name = "Full" if kind[1] == "Full GC" else name or "Young"
        if "CMS-initial-mark" in text:
            name = "Initial Mark"
        elif "CMS-remark" in text or "CMS Final Remark" in text:
            name = "Remark"
        modes = MODE.findall(outer)
        if modes:
            name = f"{name} ({', '.join(modes)})"
        details: dict[str, Any] = {}
        for space in SPACE.finditer(body):
            values = CHANGE.match(space[2])
            if values:
                before, after, size = change(values)
                column = folded(space[1])
                details |= {f"{column}_before": before, f"{column}_after": after, f"{column}_size": size}
        heap = CHANGE.search(outer)
        used = change(heap) if heap else (None, None, None)
        self.number += 1
        fields = [self.number - 1, name, cause[1] if cause else None, *used, duration / 1e6]
        self.held = (at, at + duration, fields, details)
        if times:
            self._times(times)

    def _times(self, times: re.Match[str]) -> None:
        if self.held:
            user, system, real = (float(value.replace(",", ".")) for value in times.groups())
            self.held[3].update(user=user, sys=system, real=real)

    def _following(self, line: str) -> None:
        """A line without a stamp: details of G1, the JVM's introduction, or what nobody knows."""
        times = TIMES.search(line)
        if self.cut:
            began_ns, begun = self.cut
            self.cut = None
            self._event(f"{begun} {line.strip()}", began_ns)
            return
        if self.held and line[:1] in " \t[":
            if times:
                self._times(times)
                return
            known = False
            for space in HEAP_OF_G1.finditer(line):
                values = CHANGE.match(space[2])
                if values:
                    before, after, size = change(values)
                    if space[1] == "Heap":
                        self.held[2][3:6] = before, after, size
                    else:
                        name = folded(space[1])
                        self.held[3].update({f"{name}_before": before, f"{name}_after": after})
                    known = True
            detail = DETAIL.match(line)
            if detail:
                self.held[3][f"{folded(detail[1])}_ms"] = float(detail[2].replace(",", "."))
            self.counters["host.gc.other_line"] += not known and detail is None
            return
        jvm = re.search(r"\((\d+\.\d+[^)]*)\) for \S+ JRE \(([^)]*)\)", line)
        if jvm:
            self.version = jvm[2]
        elif line.startswith("[") and "->" in line:
            self.untimed += 1
        else:
            self.counters["host.gc.other_line" if NOTES.match(line) else "host.gc.bad_line"] += 1


def _outside_brackets(text: str) -> str:
    """A collection's line without its inner brackets: only what is said about the whole."""
    depth = 0
    kept = []
    for character in text:
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif depth <= 1:
            kept.append(character)
    return "".join(kept)
