"""Declared formats: any text log read by rules in a TOML file instead of code (docs/hosts.md).

A line goes through the stages in their order until one takes it: `drop` forgets it, `replace` rewrites it
and goes on, `join` appends it to the line before, `context` keeps its groups for the rows that follow,
`row` makes a row of its groups, `header` names the columns of the lines that follow, and `table` makes a
row of a line's fields. Lines that no stage takes are counted.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.hostmon.clock import Told, day_of, zone_of
from tapscope.hostmon.rows import Rows, numeric
from tapscope.hostmon.samples import HostLog, HostTable
from tapscope.hostmon.time_form import WORDS, TimeForm, pattern_of, scaled_ns
from tapscope.store.dynamic import folded
from tapscope.store.errors import ExitCode, TapscopeError

ACTIONS = ("drop", "replace", "join", "context", "row", "table")
STAGE_KEYS = {"drop": set(), "replace": {"with"}, "join": set(), "context": set(), "row": {"kind"},
              "table": {"kind", "separator", "names"}}  # fmt: skip
TOP_KEYS = {"name", "recognise", "time", "stage", "column"}
TIME_KEYS = {"column", "form", "zone", "marks", "year", "date", "length", "length_unit"}
COLUMN_KEYS = {"name", "unit", "factor", "counter", "key", "keep"}
UNIT_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
LONGEST_LINE = 1 << 16  # characters; expressions see no more
MOST_LAYOUTS = 1000
MOST_JOINED = 1000  # lines of one record


@dataclass
class Stage:
    """One rule."""

    action: str
    pattern: re.Pattern[str]
    kind: str = ""
    replacement: str = ""
    separator: str = ""  # '' is any blank
    names: tuple[str, ...] = ()


@dataclass
class ColumnRule:
    """What is declared about a column."""

    name: str = ""
    unit: str = ""
    factor: float = 1.0
    counter: bool = False
    key: bool = False
    keep: bool = True


@dataclass
class DeclaredFormat:
    """A format as its TOML declares it."""

    name: str
    recognise: re.Pattern[str] | None
    time_columns: tuple[str, ...]
    form: str
    zone: str | None = None
    marks_begin: bool = False
    year: int | None = None
    date: str = ""
    length: str = ""  # column that tells how long the sample lasted
    length_ns: int = 1
    stages: list[Stage] = field(default_factory=list)
    columns: dict[str, ColumnRule] = field(default_factory=dict)

    def sniff(self, first: list[str]) -> bool:
        """Whether one of the first lines is what the format is recognised by."""
        return self.recognise is not None and any(
            self.recognise.search(line[:LONGEST_LINE]) for line in first
        )

    def read(self, lines: Iterable[str], path: str, told: Told) -> HostLog:
        """Tables of a log. What does not fit is counted."""
        return _Reader(self, told).read(lines, path)


def load_format(path: str | Path) -> DeclaredFormat:
    """The format that a TOML file declares. TapscopeError says what is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TapscopeError(
            f"cannot be read: {error}", path=path, remedy="Check the path.", exit_code=ExitCode.USAGE
        ) from error
    return parse_format(text, str(path))


def parse_format(text: str, path: str = "") -> DeclaredFormat:
    """The format that a TOML text declares."""
    try:
        return _format(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValueError, KeyError, TypeError, re.error) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise TapscopeError(
            f"this is no format of a log: {what}",
            path=path,
            remedy="docs/hosts.md tells what may stand in it; `tapscope hosts guess FILE` proposes one.",
            exit_code=ExitCode.USAGE,
        ) from error


def _format(declared: dict[str, Any]) -> DeclaredFormat:
    _only(declared, TOP_KEYS, "the file")
    time = declared["time"]
    _only(time, TIME_KEYS, "[time]")
    columns = time["column"] if isinstance(time["column"], list) else [time["column"]]
    form = time.get("form", "iso")
    if form not in WORDS:
        pattern_of(form)
    if time.get("marks", "end") not in ("end", "begin"):
        raise ValueError('[time] marks is "end" or "begin"')
    if "date" in time:
        day_of(str(time["date"]))
    if "zone" in time:
        zone_of(time["zone"])
    made = DeclaredFormat(
        name=folded(str(declared["name"])),
        recognise=re.compile(declared["recognise"]) if "recognise" in declared else None,
        time_columns=tuple(map(str, columns)),
        form=form,
        zone=time.get("zone"),
        marks_begin=time.get("marks") == "begin",
        year=time.get("year"),
        date=str(time.get("date", "")),
        length=time.get("length", ""),
        length_ns=UNIT_NS[time.get("length_unit", "s")],
    )
    for number, stage in enumerate(declared["stage"], 1):
        made.stages.append(_stage(stage, number))
    if not any(stage.action in ("row", "table") for stage in made.stages):
        raise ValueError("no stage makes rows (row or table)")
    for name, rule in declared.get("column", {}).items():
        _only(rule, COLUMN_KEYS, f"[column.{name}]")
        made.columns[name] = ColumnRule(**rule)
        made.columns[name].factor = float(made.columns[name].factor)
    return made


def _only(found: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(found) - known)
    if unknown:
        raise ValueError(
            f"{where} has {unknown[0]!r}, which nothing knows (known: {', '.join(sorted(known))})"
        )


def _stage(declared: dict[str, Any], number: int) -> Stage:
    actions = [action for action in ACTIONS if action in declared]
    if len(actions) != 1:
        raise ValueError(f"stage {number} needs exactly one of {', '.join(ACTIONS)}")
    action = actions[0]
    _only(declared, {action} | STAGE_KEYS[action], f"stage {number}")
    names = tuple(map(str, declared.get("names", ())))
    stage = Stage(
        action,
        re.compile(declared[action]),
        folded(declared["kind"]) if "kind" in declared else "",
        declared.get("with", ""),
        declared.get("separator", ""),
        names,
    )
    if action in ("row", "context") and not stage.pattern.groupindex:
        raise ValueError(f"stage {number} has no group with a name: (?P<name>...)")
    if action == "replace":
        stage.pattern.sub(stage.replacement, "")
    return stage


class _Reader:
    def __init__(self, declared: DeclaredFormat, told: Told) -> None:
        self.declared = declared
        self.time = TimeForm(declared.form, told, declared.zone, declared.year)
        if declared.date:
            self.time.day = day_of(declared.date)[0]
        self.counters: Counter[str] = Counter()
        self.context: dict[str, str] = {}
        self.header: dict[int, tuple[str, ...]] = {
            i: stage.names for i, stage in enumerate(declared.stages) if stage.names
        }
        self.made: dict[str, Rows] = {}
        self.host = ""
        self.untimed = 0
        self.keys = [name for name, rule in declared.columns.items() if rule.key]
        self.left_out = {name for name, rule in declared.columns.items() if not rule.keep}
        self.left_out |= {"host", "date", *declared.time_columns}
        self.kept: dict[tuple[str, ...], tuple[str, ...]] = {}  # columns of a line -> those that are stored
        self.joins = [stage.pattern for stage in declared.stages if stage.action == "join"]

    def read(self, lines: Iterable[str], path: str) -> HostLog:
        for line in self._records(lines):
            if line.strip() and not self._line(line):
                self.counters["host.declared.unmatched_line"] += 1
        if not self.made:
            raise TapscopeError(
                "no line of this file gave a sample with a time",
                path=path,
                remedy="Its times count since a start: tell it with --start."
                if self.untimed and self.declared.form == "uptime_s"
                else "`tapscope hosts try FILE --format FORMAT.toml` shows what a format makes of a file.",
            )
        return HostLog(
            f"declared: {self.declared.name}",
            self.host,
            [self._table(rows) for rows in self.made.values()],
            dict(self.counters + self.time.clock.counters),
            {"samples": len({end for rows in self.made.values() for end in rows.end_ns})},
            self.time.clock.warnings(),
        )

    def _records(self, lines: Iterable[str]) -> Iterator[str]:
        """Lines, with those that go on with the one before appended to it."""
        held: list[str] = []
        for line in lines:
            text = line.rstrip("\r\n")
            if len(text) > LONGEST_LINE:
                self.counters["host.declared.long_line"] += 1
                text = text[:LONGEST_LINE]
            if held and any(pattern.search(text) for pattern in self.joins):
                if len(held) < MOST_JOINED:
                    held.append(text)
                else:
                    self.counters["host.declared.long_line"] += 1
                continue
            if held:
                yield " ".join(held)
            held = [text]
        if held:
            yield " ".join(held)

    def _line(self, line: str) -> bool:
        """Put a line through the stages; False when none takes it."""
        for number, stage in enumerate(self.declared.stages):
            if stage.action == "replace":
                line = stage.pattern.sub(stage.replacement, line)
                continue
            if stage.action == "table":
                if self._table_line(number, stage, line):
                    return True
                continue
            match = stage.pattern.search(line)
            if match is None or stage.action == "join":
                continue
            if stage.action == "context":
                self._keep(match.groupdict())
            elif stage.action == "row":
                fields = {name: value for name, value in match.groupdict().items() if value is not None}
                self._row(stage.kind, fields)
            return True
        return False

    def _keep(self, found: dict[str, str | None]) -> None:
        for name, value in found.items():
            if value is None:
                continue
            self.context[name] = value
            if name == "host":
                self.host = self.host or value
            elif name == "date":
                try:
                    self.time.day = day_of(value)[0]
                except ValueError:
                    self.counters["host.declared.bad_time"] += 1

    def _table_line(self, number: int, stage: Stage, line: str) -> bool:
        if not stage.names and stage.pattern.search(line):
            names = [name.strip().lstrip("#") for name in _split(line.lstrip("# "), stage.separator)]
            self.header[number] = tuple(name or f"column_{i}" for i, name in enumerate(names))
            return True
        names_ = self.header.get(number)
        if names_ is None or (stage.names and not stage.pattern.search(line)):
            return False
        values = _split(line, stage.separator)
        if len(values) != len(names_):
            return False
        fields: dict[str, str] = {}
        for name, value in zip(names_, values, strict=True):
            while name in fields:  # two columns of one name
                name += "_"
            fields[name] = value.strip()
        self._row(stage.kind, fields)
        return True

    def _row(self, kind: str, fields: dict[str, str]) -> None:
        declared = self.declared
        whole = self.context | fields if self.context else fields
        try:
            at = self.time.ns(" ".join(whole[name] for name in declared.time_columns))
            length = scaled_ns(whole[declared.length], declared.length_ns) if declared.length else -1
        except (ValueError, KeyError, OverflowError):
            self.counters["host.declared.bad_time"] += 1
            self.untimed += 1
            return
        begin, end = (
            (at, at + max(length, 0)) if declared.marks_begin else (at - length if length >= 0 else -1, at)
        )
        key = " ".join([whole.get(name, "") for name in self.keys])
        name = f"{declared.name}_{kind}" if kind else declared.name
        if name not in self.made:
            self.made[name] = Rows(name)
        columns = tuple(whole)
        kept = self.kept.get(columns)
        if kept is None:
            if len(self.kept) >= MOST_LAYOUTS:
                self.kept.clear()
            kept = self.kept[columns] = tuple(column for column in columns if column not in self.left_out)
        self.made[name].add(end, kept, [whole[column] for column in kept], key, begin)

    def _table(self, rows: Rows) -> HostTable:
        rules = self.declared.columns
        rows.labels = frozenset(name for name, rule in rules.items() if rule.key)
        rows.unit = lambda name: rules[name].unit if name in rules else ""
        table, series, columns = rows.table_and_columns(
            {name: folded(rule.name) for name, rule in rules.items() if rule.name}
        )
        stored = {original: name for name, original in table.originals.items() if original}
        for name, rule in rules.items():
            amount = numeric(columns[name]) if name in columns else None
            if amount is None:
                continue
            if rule.factor != 1.0:
                table.columns[stored[name]] = amount * rule.factor
            if rule.counter:
                table.add(
                    f"{stored[name]}_per_s", series.rate(amount * rule.factor), f"{rule.unit or '1'}/s", ""
                )
        if series.resets:
            self.counters["host.counter_reset"] += series.resets
        assert np.all(np.diff([len(values) for values in table.columns.values()]) == 0)
        return table


def _split(line: str, separator: str) -> list[str]:
    if not separator:
        return line.split()
    if '"' in line and len(separator) == 1:
        return next(csv.reader([line], delimiter=separator), [])
    return line.split(separator)
