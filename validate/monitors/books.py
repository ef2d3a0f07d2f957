"""The books of one log file: which lines were calls, which could not be read, and what that leaves unknown.
And logs read line by line: those that cannot be taken apart column by column (monitors.columns).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tapscope.validate.event_calls import TIERS, Cells, Collector, Ints
from tapscope.validate.monitors.lines import (
    UTC_EPOCH,
    Format,
    LogFile,
    UnreadableError,
    lines,
    wrong_format,
)

RECORD_CHARACTERS = 1 << 20
"""A record of several lines that is longer (a bulk INSERT) is not kept whole."""

OUT_OF_ORDER = 0.1
"""A line that stands so much of a file's time behind a later one: the file is not in order of time."""


class Books:
    """What is noted about one log file: its calls' stays, its unreadable lines, and the times that these may
    have meant.

    A lost line may have been a call: the time it may have lasted is stored as a gap, so that no comparison
    uses it. More unreadable than readable lines: the log is not of this format.
    """

    def __init__(self, file: LogFile, collector: Collector, form: Format, zone: str) -> None:
        self.source = len(collector.sources)
        self.lines = 0
        """Number of the last line."""
        self._file, self._collector, self._form, self._zone = file, collector, form, zone
        nothing = np.empty(0, dtype=np.int64)
        self._stays: list[tuple[Ints, Ints, Ints]] = [(nothing, nothing, nothing)]
        self._lost: list[Ints] = [nothing]
        self._cuts = self._cut_files()

    def add(self, line: Ints, arrive_ns: Ints, depart_ns: Ints) -> None:
        """Calls that were stored, with the numbers of their lines in ascending order; departure -1: not
        known."""
        self._stays.append((line, arrive_ns, depart_ns))

    def lost(self, line: Ints) -> None:
        """Lines that should have been calls and could not be read."""
        self._collector.count("unreadable_line", len(line))
        self._lost.append(line)

    def close(self) -> None:
        """Store the gaps and the file among the sources; TapscopeError where it is no such log."""
        collector, file = self._collector, self._file
        line, arrive, depart = map(np.concatenate, zip(*self._stays, strict=True))
        lost = np.sort(np.concatenate(self._lost))
        if len(lost) > len(line):
            first = int(lost[0])
            text = next(text for number, text in lines(file.path) if number == first)
            raise wrong_format(file.path, first, text, self._form.expected)
        is_cut = self._cut_files() > self._cuts
        if is_cut:
            self.lines += 1
            lost = np.append(lost, self.lines)
        if len(line) and len(lost):
            self._add_gaps(np.searchsorted(line, lost), arrive, depart, is_cut)
        stamps = np.concatenate([arrive, depart])
        stamps = stamps[stamps >= 0]
        collector.sources.append(
            {
                "path": str(file.path),
                "kind": "events",
                "monitor": self._form.name,
                "tier": self._form.tier,
                "host": file.host,
                "bytes": file.path.stat().st_size,
                "lines": self.lines,
                "calls": len(line),
                "unreadable_lines": len(lost),
                "first_ns": int(stamps.min()) if len(stamps) else -1,
                "last_ns": int(stamps.max()) if len(stamps) else -1,
                "zone": self._zone,
            }
        )

    def _cut_files(self) -> int:
        counts = self._collector.counts
        return counts.get("truncated_last_line", 0) + counts.get("truncated_compressed_file", 0)

    def _add_gaps(self, place: Ints, arrive: Ints, depart: Ints, is_cut: bool) -> None:
        """A lost line departed between its neighbours (servers log at departure) and stayed as long as most
        calls do. place : of every lost line, how many calls stand in front of it.

        What followed the end of a file that was cut (the last of the lost lines) departed later than its
        lines, if they stand in order of time. If they do not, as in a table that was exported thread by
        thread, calls of any time are missing.
        """
        lengths = (depart - arrive)[depart >= 0]
        usual = int(np.percentile(lengths, 99)) if len(lengths) else 0
        left = np.maximum(arrive, depart)
        before, after = left[np.maximum(place - 1, 0)], left[np.minimum(place, len(left) - 1)]
        if is_cut:
            latest = np.maximum.accumulate(left)
            in_order = (latest - left).max() <= OUT_OF_ORDER * (latest[-1] - left.min())
            before[-1], after[-1] = latest[-1] if in_order else left.min(), latest[-1]
        columns: dict[str, Cells] = {"tier": TIERS.index(self._form.tier), "source": self.source}
        columns["begin_ns"] = np.minimum(before, after) - usual
        columns["end_ns"] = np.maximum(before, after) + usual
        self._collector.gaps.block(len(place), columns)


Stay = tuple[int, int]
Numbered = tuple[int, str]
"""A line's number from 1 and its text; of a record of several lines, the number of its first."""


def read_lines(
    file: LogFile,
    collector: Collector,
    form: Format,
    parse: Callable[[int, int, str], Stay | None],
    *,
    zone: str = UTC_EPOCH,
    fold: Callable[[Iterator[Numbered]], Iterator[Numbered]] = iter,
) -> None:
    """Feed every line to `parse(source, number, text)` and keep the books of the file. For logs whose lines
    cannot be taken apart many at once (monitors.columns).

    fold : joins the lines of one record, where a record has several

    parse gives (arrive_ns, depart_ns) of the call it stored, None for a line that is no call, and raises
    UnreadableError for a line that should have been one.
    """
    books = Books(file, collector, form, zone)
    found: list[tuple[int, int, int]] = []
    bad: list[int] = []
    for number, text in fold(lines(file.path, collector)):
        books.lines = number
        if not text:
            continue
        try:
            stay = parse(books.source, number, text)
        except UnreadableError:
            bad.append(number)
            continue
        if stay is not None:
            found.append((number, *stay))
    books.add(*np.array(found, dtype=np.int64).reshape(-1, 3).T)
    books.lost(np.array(bad, dtype=np.int64))
    books.close()


def records(starts: Callable[[str, str], bool]) -> Callable[[Iterator[Numbered]], Iterator[Numbered]]:
    """A `fold` that joins the lines of a record with line ends.

    starts(last line of the record so far, this line): does this line begin the next record? Of a record
    beyond RECORD_CHARACTERS only the last line is kept besides: request IDs stand at the end.
    """

    def fold(numbered: Iterator[Numbered]) -> Iterator[Numbered]:
        first, size, parts = 0, 0, list[str]()
        for number, text in numbered:
            if parts and starts(parts[-1], text):
                yield first, "\n".join(parts)
                size, parts = 0, []
            if not parts:
                first = number
            if size > RECORD_CHARACTERS:
                parts[-1] = text
            else:
                parts.append(text)
                size += len(text)
        if parts:
            yield first, "\n".join(parts)

    return fold
