"""Proposes a format for a log that is a table: one separator, lines of equally many fields, a line of
names."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tapscope.hostmon.guess_parts import (
    KEY_NAMES,
    NUMBER,
    SEPARATORS,
    SUFFIXES,
    TIMES,
    escaped,
    grows,
    head,
    quoted,
    unit_of_name,
)
from tapscope.store.dynamic import folded


def tables(sample: list[str], name: str, year: int) -> list[str]:
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
        begin = next((i for i in of_width if not _is_names(split[i])), 0)
        # Of several lines of names (groups above columns) the last one names the columns.
        at = max((i for i in of_width if i < begin and _is_names(split[i])), default=None)
        values = [split[i] for i in of_width if not _is_names(split[i])]
        labels = split[at] if at is not None else [""] * width
        names = [label.strip().lstrip("#").strip() or f"column_{i + 1}" for i, label in enumerate(labels)]
        time = _time_columns(names, values)
        if time is None or len(set(names)) < len(names):
            continue
        columns, form = time
        measured = [_unit_behind([fields[i] for fields in values]) for i in range(width)]
        numeric = [bool(measured[i]) or _all_numbers(fields[i] for fields in values) for i in range(width)]
        if at is None and sum(numeric) < 0.8 * (width - len(columns)):
            continue  # a line of names, or nearly nothing but numbers: else it is text
        header = escaped(sample[at][:80]) if at is not None else ""
        out = head(name, f"^{header}" if header else "", columns, form, year)
        if any(line.startswith("#") for i, line in enumerate(sample) if i != at):
            out += [
                "",
                "[[stage]]",
                "drop = '^#'" if not header.startswith("#") else f"drop = '^#(?!{header[1:]})'",
            ]
        if separator != "," and any(
            "," in fields[i] for fields in values for i in range(width) if numeric[i]
        ):
            out += ["", "[[stage]]", "replace = '(?<=\\d),(?=\\d)'  # decimal commas", "with = '.'"]
        if separator and any(measured):
            behind = "|".join(sorted(escaped(text) for text in SUFFIXES if SUFFIXES[text] in measured))
            unit_at_the_end = rf"(?<=\d) ?(?:{behind})(?=\s*(?:{escaped(separator)}|$))"
            out += ["", "[[stage]]", f"replace = {quoted(unit_at_the_end)}  # units, told below"]
            out.append("with = ''")
        out += ["", "[[stage]]"]
        if header:
            out.append(f"table = {quoted('^' + header)}  # the line that names the columns")
        else:
            out += ["table = '.'", f"names = [{', '.join(map(quoted, names))}]"]
        if separator:
            out.append(f"separator = {quoted(separator)}")
        for i, label in enumerate(names):
            if label in columns:
                continue
            told = []
            unit = measured[i] or unit_of_name(label)
            if unit:
                told.append(f"unit = {quoted(unit)}")
            if not numeric[i] or folded(label) in KEY_NAMES:
                distinct = len({fields[i] for fields in values})
                if distinct > 1 and (distinct <= len(values) // 2 or folded(label) in KEY_NAMES):
                    told.append("key = true  # tells series apart")
            if told:
                out += ["", f"[column.{quoted(label)}]", *told]
        found.append("\n".join(out) + "\n")
    return found


def _all_numbers(texts: Iterable[str]) -> bool:
    return all(NUMBER.fullmatch(text.strip()) or not text.strip() for text in texts)


def _unit_behind(texts: Sequence[str]) -> str:
    """The unit that stands behind every number of a column ("45 %"); '' where they have none, or several."""
    found = [NUMBER.match(text.strip()) for text in texts if text.strip()]
    units = {match.string[match.end() :].strip() if match else "" for match in found}
    return SUFFIXES.get(units.pop(), "") if len(units) == 1 else ""


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
        if texts and len(fits) >= 0.9 * len(texts) and (form != "uptime_s" or grows(fits)):
            return form
    return None
