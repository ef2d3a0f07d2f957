"""Proposes a declared format from a sample of a log: which columns it has, where its times are, which
units.

First a table is tried (one separator, lines of equally many fields, a line of names), then lines of text:
their words are compared, numbers and words that change become columns, and each frequent shape becomes a
stage. The proposal is tried on the sample; the user reads and corrects it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tapscope.hostmon.clock import NOTHING_TOLD, Told
from tapscope.hostmon.declared import parse_format
from tapscope.hostmon.readers import READERS, SNIFFED_LINES
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

MOST_LINES = 2000
MOST_CHARACTERS = 1 << 20
MOST_SHAPES = 8
MOST_GROUPS = 200
SEPARATORS = (",", ";", "\t", "|", "")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")
TIMES = (
    ("iso", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"),
    ("%d/%b/%Y:%H:%M:%S.%f %z", r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d\.\d{1,9} [+-]\d{4}"),
    ("%d/%b/%Y:%H:%M:%S %z", r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"),
    ("%a %b %d %H:%M:%S.%f %Y", r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d\.\d{1,9} \d{4}"),
    ("%a %b %d %H:%M:%S %Y", r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"),
    ("%m/%d/%Y %H:%M:%S.%f", r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%m/%d/%Y %H:%M:%S", r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d"),
    ("%Y%m%d %H:%M:%S.%f", r"\d{8} \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%Y%m%d %H:%M:%S", r"\d{8} \d\d:\d\d:\d\d"),
    ("%b %d %H:%M:%S", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"),
    ("epoch_ns", r"1[0-9]{18}"),
    ("epoch_us", r"1[0-9]{15}"),
    ("epoch_ms", r"1[0-9]{12}(?:\.\d{1,6})?"),
    ("epoch_s", r"1[0-9]{9}(?:\.\d{1,9})?"),
    ("%H:%M:%S.%f", r"\d\d:\d\d:\d\d\.\d{1,9}"),
    ("%H:%M:%S", r"\d\d:\d\d:\d\d"),
    ("uptime_s", r"\d{1,7}\.\d{2,9}"),
)
"""Forms of times, the surest first."""

SUFFIXES = {
    "%": "%",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
    "s": "s",
    "sec": "s",
    "secs": "s",
    "KB": "KiB",
    "kB": "KiB",
    "KiB": "KiB",
    "MB": "MiB",
    "MiB": "MiB",
    "GB": "GiB",
    "B": "bytes",
    "K": "KiB",
    "M": "MiB",
    "G": "GiB",
    "bytes": "bytes",
    "MHz": "MHz",
    "C": "degrees C",
    "W": "W",
}
KEY_NAMES = {
    "cpu",
    "core",
    "disk",
    "dev",
    "device",
    "iface",
    "interface",
    "node",
    "name",
    "instance",
    "pool",
    "pid",
}
LEVELS = {"TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "FATAL", "SEVERE", "FINE"}
ONLY_AT_THE_BEGINNING = ("uptime_s", "%H:%M:%S", "%H:%M:%S.%f")
WORD = r'[^\s,;=:|()\[\]"]+'
TOKEN = re.compile(r'"[^"]*"|\[[^\]\s]*\]|[^\s,;=:|()\[\]"]+|\S')


@dataclass
class Guess:
    """A proposal: the TOML text, and what it makes of the sample."""

    toml: str  # '' when a reader knows the file already
    known_as: str  # name of that reader
    lines: int
    rows: int
    kinds: dict[str, int]  # rows per kind of table
    unmatched: int
    warnings: list[str]


def guess_format(lines: Iterable[str], name: str, year: int, told: Told = NOTHING_TOLD) -> Guess:
    """Propose a format named `name` from the first lines of a log; `year` is taken where its times have none.

    TapscopeError when nothing in the lines looks like a time.
    """
    sample: list[str] = []
    size = 0
    for line in lines:
        sample.append(line.rstrip("\r\n"))
        size += len(line)
        if len(sample) >= MOST_LINES or size > MOST_CHARACTERS:
            break
    for reader in READERS:
        if reader.sniff([f"{line}\n" for line in sample[:SNIFFED_LINES]]):
            return Guess("", reader.name, len(sample), 0, {}, 0, [])
    best: Guess | None = None
    for toml in (*_tables(sample, name, year), *_texts(sample, name, year)):
        found = _tried(toml, sample, told)
        if found is not None and (best is None or found.unmatched < best.unmatched * 0.9):
            best = found
    if best is None:
        raise TapscopeError(
            "no line of this file begins with a time or has one in a column",
            remedy="Write the format by hand (docs/hosts.md).",
        )
    return best


def _tried(toml: str, sample: list[str], told: Told) -> Guess | None:
    try:
        declared = parse_format(toml)
        start = Told(told.zone, told.start_ns if told.start_ns is not None else 0)
        log = declared.read(sample, "", start)
    except TapscopeError:
        return None
    unmatched = sum(log.counters.get(f"host.declared.{name}", 0) for name in ("unmatched_line", "bad_time"))
    kinds = {table.kind: len(table.columns["end_ns"]) for table in log.tables}
    return Guess(toml, "", len(sample), sum(kinds.values()), kinds, unmatched, log.warnings)


def _quoted(text: str) -> str:
    """A TOML string."""
    if "'" in text or any(ord(character) < 32 for character in text):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return f'"{escaped}"'
    return f"'{text}'"


def _head(name: str, recognise: str, columns: Sequence[str], form: str, year: int) -> list[str]:
    listed = _quoted(columns[0]) if len(columns) == 1 else f"[{', '.join(map(_quoted, columns))}]"
    out = [f"name = {_quoted(name)}"]
    if recognise:
        out += [
            f"recognise = {_quoted(recognise)}  # a file with such a line among its first is of this format"
        ]
    out += ["", "[time]", f"column = {listed}", f"form = {_quoted(form)}"]
    if form == "uptime_s":
        out.append("# counts since the program's start: tell it with --start")
    elif "%" in form and "%z" not in form:
        out.append("# zone = 'Europe/Berlin'  # of the log's host; UTC when it is not told")
    if "%b %d" in form and "%Y" not in form:
        out.append(f"year = {year}  # the log's times have none")
    if form in ("%H:%M:%S", "%H:%M:%S.%f"):
        out.append(f"date = '{year}-01-01'  # the log's times have none: the day on which it begins")
    return out


def _escaped(text: str) -> str:
    """A text as an expression, without the backslashes that only confuse."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text).replace("\t", r"\t")


# ---- tables ----


def _tables(sample: list[str], name: str, year: int) -> list[str]:
    """Proposals that read the sample as a table, one per separator that fits."""
    found = []
    for separator in SEPARATORS:
        split = [_fields(line, separator) for line in sample]
        widths = Counter(len(fields) for fields in split if len(fields) > 1)
        if not widths:
            continue
        width, count = widths.most_common(1)[0]
        if count < 3 or count < 0.6 * sum(1 for line in sample if line.strip()):
            continue
        of_width = [i for i, fields in enumerate(split) if len(fields) == width]
        at = next((i for i in of_width if _is_names(split[i])), None)
        values = [split[i] for i in of_width if not _is_names(split[i])]
        labels = split[at] if at is not None else [""] * width
        names = [label.strip().lstrip("#").strip() or f"column_{i + 1}" for i, label in enumerate(labels)]
        time = _time_columns(names, values)
        if time is None or len(set(names)) < len(names):
            continue
        columns, form = time
        numeric = [_all_numbers(fields[i] for fields in values) for i in range(width)]
        if at is None and sum(numeric) < 0.8 * (width - len(columns)):
            continue  # a line of names, or nearly nothing but numbers: else it is text
        header = _escaped(sample[at][:80]) if at is not None else ""
        out = _head(name, f"^{header}" if header else "", columns, form, year)
        if any(line.startswith("#") for i, line in enumerate(sample) if i != at):
            out += [
                "",
                "[[stage]]",
                "drop = '^#'" if not header.startswith("#") else f"drop = '^#(?!{header[1:]})'",
            ]
        out += ["", "[[stage]]"]
        if header:
            out.append(f"table = {_quoted('^' + header)}  # the line that names the columns")
        else:
            out += ["table = '.'", f"names = [{', '.join(map(_quoted, names))}]"]
        if separator:
            out.append(f"separator = {_quoted(separator)}")
        for i, label in enumerate(names):
            if label in columns:
                continue
            told = []
            if _unit_of_name(label):
                told.append(f"unit = {_quoted(_unit_of_name(label))}")
            if not numeric[i] or folded(label) in KEY_NAMES:
                distinct = len({fields[i] for fields in values})
                if distinct > 1 and (distinct <= len(values) // 2 or folded(label) in KEY_NAMES):
                    told.append("key = true  # tells series apart")
            if told:
                out += ["", f"[column.{_quoted(label)}]", *told]
        found.append("\n".join(out) + "\n")
    return found


def _all_numbers(texts: Iterable[str]) -> bool:
    return all(NUMBER.fullmatch(text.strip()) or not text.strip() for text in texts)


def _fields(line: str, separator: str) -> list[str]:
    if not separator:
        return line.lstrip("# ").split()
    if '"' in line:
        return next(csv.reader([line], delimiter=separator), [])
    return line.lstrip("# ").split(separator)


def _is_names(fields: Sequence[str]) -> bool:
    """Whether these are names: each a word, none a number or a time."""
    return all(
        re.search(r"[A-Za-z%]", text)
        and not NUMBER.fullmatch(text.strip())
        and not re.search(r"\d\d:\d\d", text)
        for text in fields
        if text.strip()
    )


def _time_columns(names: list[str], rows: list[list[str]]) -> tuple[list[str], str] | None:
    """The columns that hold the time, and its form: one of them, or a date and a time beside each other."""
    forms = [form for form, _ in TIMES]
    found: list[tuple[int, list[str], str]] = []
    for width in (2, 1):
        for i in range(len(names) - width + 1):
            time = _time_of([" ".join(fields[i : i + width]) for fields in rows])
            if time is not None:
                found.append((forms.index(time), names[i : i + width], time))
    if not found:
        return None
    _, columns, form = min(found, key=lambda one: one[0])
    return columns, form


def _time_of(texts: Sequence[str]) -> str | None:
    """The form that nearly all of these texts have."""
    for form, pattern in TIMES:
        compiled = re.compile(pattern)
        fits = [text for text in texts if compiled.fullmatch(text.strip())]
        if texts and len(fits) >= 0.9 * len(texts) and (form != "uptime_s" or _grows(fits)):
            return form
    return None


def _grows(texts: Sequence[str]) -> bool:
    numbers = [float(text.strip()) for text in texts]
    return len(numbers) > 1 and all(a <= b for a, b in pairwise(numbers)) and numbers[0] < numbers[-1]


def _unit_of_name(label: str) -> str:
    low = label.strip().lower()
    if low.startswith("%") or low.endswith(("%", "pct", "percent")):
        return "%"
    match = re.search(r"[_\s(\[/](ms|us|ns|s|sec|kb|mb|bytes|mhz|kib|mib)[)\]]?$", low)
    if match is None:
        return ""
    return {"sec": "s", "kb": "KiB", "kib": "KiB", "mb": "MiB", "mib": "MiB", "mhz": "MHz"}.get(
        match[1], match[1]
    )


# ---- lines of text ----


class Token(NamedTuple):
    """A word of a line, and whether a blank stands before it."""

    text: str
    apart: bool


TIME = "\0time"


def _texts(sample: list[str], name: str, year: int) -> list[str]:
    """A proposal that reads lines of text: a time, and words of which some change."""
    timed = [line for line in sample if line.strip()]
    best: tuple[str, list[tuple[str, re.Match[str]]], str] | None = None
    for form, pattern in TIMES:
        where = r"^\W*" if form in ONLY_AT_THE_BEGINNING else r"(?<![\w.])"
        compiled = re.compile(f"{where}(?P<time>{pattern})(?![\\d])")
        fits = [(line, match) for line in timed for match in [compiled.search(line)] if match]
        if len(fits) < 3 or (best is not None and len(fits) <= 1.1 * len(best[1])):
            continue
        if form == "uptime_s" and not _grows([match["time"] for _, match in fits]):
            continue
        best = (form, fits, pattern)
    if best is None:
        return []
    form, fits, pattern = best
    shapes: dict[tuple[str, ...], list[list[Token]]] = defaultdict(list)
    for line, match in fits:
        tokens = [
            *_tokens(line[: match.start("time")]),
            Token(TIME, line[: match.start("time")].endswith(" ")),
        ]
        tokens += _tokens(line[match.end("time") :])
        shapes[tuple(_shape(token.text) for token in tokens)].append(tokens)
    frequent = sorted(_merged(shapes), key=len, reverse=True)[:MOST_SHAPES]
    units: dict[str, str] = {}
    free: set[str] = set()
    stages = []
    kinds: Counter[str] = Counter()
    for lines in frequent:
        if len(lines) < max(2, 0.01 * len(fits)):
            continue
        row, kind, found, texts = _row(lines, pattern)
        if not row:
            continue
        units |= found
        free |= texts
        kinds[kind] += 1
        stages += ["", "[[stage]]", f"row = {_quoted(row)}"]
        if len(frequent) > 1:
            stages.append(f"kind = {_quoted(kind if kinds[kind] == 1 else f'{kind}_{kinds[kind]}')}")
    if not stages:
        return []
    for label, unit in units.items():
        stages += ["", f"[column.{label}]", f"unit = {_quoted(unit)}"]
    for label in sorted(free):
        stages += ["", f"[column.{label}]", "keep = false  # free text may hold secrets: it is not stored"]
    return ["\n".join([*_head(name, "", ["time"], form, year), *stages]) + "\n"]


def _tokens(text: str) -> list[Token]:
    return [
        Token(match[0], match.start() > 0 and text[match.start() - 1].isspace())
        for match in TOKEN.finditer(text)
    ]


def _shape(token: str) -> str:
    """Numbers (with their unit behind) are alike; so are quoted texts and identifiers."""
    if token[0] == '"' and len(token) > 1:
        return '""'
    number = NUMBER.match(token)
    if number and (not token[number.end() :] or token[number.end() :] in SUFFIXES):
        return f"#{token[number.end() :]}"
    return "?" if re.search(r"\d", token) else token


def _merged(shapes: dict[tuple[str, ...], list[list[Token]]]) -> list[list[list[Token]]]:
    """Shapes of equal length that differ in few words are one: those words are values."""
    groups: list[tuple[list[str], list[list[Token]]]] = []
    for shape, lines in sorted(shapes.items(), key=lambda item: -len(item[1])):
        for pattern, taken in groups:
            if len(pattern) != len(shape) or pattern.index(TIME) != shape.index(TIME):
                continue
            differ = [i for i, (a, b) in enumerate(zip(pattern, shape, strict=True)) if a != b and a != "?"]
            if len(differ) <= max(1, len(shape) // 4):
                for i in differ:
                    pattern[i] = "?"
                taken += lines
                break
        else:
            if len(groups) < MOST_GROUPS:
                groups.append((list(shape), list(lines)))
    return [lines for _, lines in groups]


def _row(lines: list[list[Token]], time: str) -> tuple[str, str, dict[str, str], set[str]]:
    """Expression, kind, units and free texts of lines of one shape; '' when nothing in them changes."""
    parts = ["^"]
    units: dict[str, str] = {}
    used: set[str] = {"time"}
    free: set[str] = set()
    words: list[str] = []
    first = [token.text for token in lines[0]]
    for i, token in enumerate(first):
        column = {line[i].text for line in lines}
        apart = {line[i].apart for line in lines}
        parts.append(r"\s*" if len(apart) > 1 or i == 0 else r"\s+" if apart == {True} else "")
        shape = {_shape(text) for text in column}
        if token == TIME:
            parts.append(f"(?P<time>{time})")
        elif len(shape) == 1 and next(iter(shape)).startswith("#"):
            suffix = next(iter(shape))[1:]
            label = _label(first, i, used)
            parts.append(rf"(?P<{label}>[-+]?\d+(?:[.,]\d+)?){_escaped(suffix)}")
            unit = SUFFIXES.get(suffix, "") or (SUFFIXES.get(first[i + 1], "") if i + 1 < len(first) else "")
            if unit:
                units[label] = unit
        elif len(column) == 1 and not re.search(r"\d", token):
            parts.append(_escaped(token))
            if re.fullmatch(r"[A-Za-z][\w\-]*", token):
                words.append(token)
        else:
            label = "level" if column <= LEVELS and "level" not in used else _label(first, i, used)
            used.add(label)
            if all(text.startswith('"') and len(text) > 1 for text in column):
                parts.append(rf'"(?P<{label}>[^"]*)"')
                free.add(label)
            else:
                pattern = WORD if all(re.fullmatch(WORD, text) for text in column) else r"\S+"
                parts.append(f"(?P<{label}>{pattern})")
    if used == {"time"}:
        return "", "", {}, free
    return "".join(parts) + r"\s*$", folded("_".join(words[:2])) if words else "line", units, free


def _label(tokens: list[str], at: int, used: set[str]) -> str:
    """A name for the value at `at`: the word before it, or behind it, or its place."""
    word = re.compile(r"[A-Za-z][\w.\-/]*")
    before = [token for token in tokens[:at] if word.fullmatch(token) and token not in LEVELS]
    after = tokens[at + 1] if at + 1 < len(tokens) else ""
    follows_a_name = at > 0 and (tokens[at - 1] in "=:(" or word.fullmatch(tokens[at - 1]))
    if not follows_a_name and word.fullmatch(after) and after not in SUFFIXES:
        base = after
    else:
        base = before[-1] if follows_a_name and before else f"value_{at + 1}"
    base = folded(base)
    label, ordinal = base, 2
    while label in used:
        label = f"{base}_{ordinal}"
        ordinal += 1
    used.add(label)
    return label
