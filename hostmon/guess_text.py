"""Proposes a format for lines of text: a time, and words of which some change.

Words are compared between lines of the same shape: numbers and words that change become columns, those that
stay are the line's own text, and every frequent shape becomes a stage.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from tapscope.hostmon.guess_parts import (
    LEVELS,
    MOST_GROUPS,
    MOST_SHAPES,
    NUMBER,
    ONLY_AT_THE_BEGINNING,
    SUFFIXES,
    TIMES,
    TOKEN,
    WORD,
    escaped,
    grows,
    head,
    quoted,
    unit_of_name,
)
from tapscope.store.dynamic import folded


class Token(NamedTuple):
    """A word of a line, and whether a blank stands before it."""

    text: str
    apart: bool


TIME = "\0time"


def texts(sample: list[str], name: str, year: int) -> list[str]:
    """A proposal that reads lines of text: a time, and words of which some change."""
    timed = [line for line in sample if line.strip()]
    best: tuple[str, list[tuple[str, re.Match[str]]], str] | None = None
    for form, pattern in TIMES:
        where = r"^\W*" if form in ONLY_AT_THE_BEGINNING else r"(?<![\w.])"
        compiled = re.compile(f"{where}(?P<time>{pattern})(?![\\d])")
        fits = [(line, match) for line in timed for match in [compiled.search(line)] if match]
        if len(fits) < 3 or (best is not None and len(fits) <= 1.1 * len(best[1])):
            continue
        if form == "uptime_s" and not grows([match["time"] for _, match in fits]):
            continue
        best = (form, fits, pattern)
    if best is None:
        return []
    form, fits, pattern = best
    shapes: dict[tuple[str, ...], list[list[Token]]] = defaultdict(list)
    for line, match in fits:
        tokens = _around(line, match.start("time"), match.end("time"))
        shapes[tuple(_shape(token.text) for token in tokens)].append(tokens)
    frequent = sorted(_merged(shapes), key=len, reverse=True)[:MOST_SHAPES]
    units: dict[str, str] = {}
    free: set[str] = set()
    keys: set[str] = set()
    stages = []
    kinds: Counter[str] = Counter()
    for lines in frequent:
        if len(lines) < max(2, 0.01 * len(fits)):
            continue
        row, kind, found, texts, names = _row(lines, pattern)
        if not row:
            continue
        units |= found
        free |= texts
        keys |= names
        kinds[kind] += 1
        stages += ["", "[[stage]]", f"row = {quoted(row)}"]
        if len(frequent) > 1:
            stages.append(f"kind = {quoted(kind if kinds[kind] == 1 else f'{kind}_{kinds[kind]}')}")
    if not stages:
        return []
    for label, unit in units.items():
        stages += ["", f"[column.{label}]", f"unit = {quoted(unit)}"]
    for label in sorted(keys - free):
        stages += ["", f"[column.{label}]", "key = true  # tells series apart"]
    for label in sorted(free):
        stages += ["", f"[column.{label}]", "keep = false  # free text may hold secrets: it is not stored"]
    return ["\n".join([*head(name, "", ["time"], form, year), *stages]) + "\n"]


def _around(line: str, begin: int, end: int) -> list[Token]:
    """The words of a line with the time from `begin` to `end` as one of them. The quotes around a time (JSON)
    are words, lest they be taken for those of the texts beside it."""
    before, after = line[:begin], line[end:]
    if before.endswith('"') and after.startswith('"'):
        quotes = Token('"', before[:-1].endswith(" ")), Token('"', False)
        return [*_tokens(before[:-1]), quotes[0], Token(TIME, False), quotes[1], *_tokens(after[1:])]
    return [*_tokens(before), Token(TIME, before.endswith(" ")), *_tokens(after)]


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


def _row(lines: list[list[Token]], time: str) -> tuple[str, str, dict[str, str], set[str], set[str]]:
    """Expression, kind, units, free texts and keys of lines of one shape; '' when nothing in them changes."""
    parts = ["^"]
    units: dict[str, str] = {}
    used: set[str] = {"time"}
    free: set[str] = set()
    keys: set[str] = set()
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
            parts.append(rf"(?P<{label}>[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?){escaped(suffix)}")
            unit = SUFFIXES.get(suffix, "") or (SUFFIXES.get(first[i + 1], "") if i + 1 < len(first) else "")
            unit = unit or unit_of_name(label)
            if unit:
                units[label] = unit
        elif len(column) == 1 and (not re.search(r"\d", token) or _names_value(first, i)):
            parts.append(escaped(token))
            if re.fullmatch(r"[A-Za-z][\w\-]*", token):
                words.append(token)
        else:
            label = "level" if column <= LEVELS and "level" not in used else _label(first, i, used)
            used.add(label)
            if all(text.startswith('"') and len(text) > 1 for text in column):
                parts.append(rf'"(?P<{label}>[^"]*)"')
                if _names_value(first, i - 2) and all(re.fullmatch(WORD, text[1:-1]) for text in column):
                    few = len(column) <= max(2, len(lines) // 10)
                    (keys if few else free).add(label)
                else:
                    free.add(label)
            else:
                pattern = WORD if all(re.fullmatch(WORD, text) for text in column) else r"\S+"
                parts.append(f"(?P<{label}>{pattern})")
    if used == {"time"}:
        return "", "", {}, free, keys
    return "".join(parts) + r"\s*$", folded("_".join(words[:2])) if words else "line", units, free, keys


def _names_value(tokens: list[str], at: int) -> bool:
    """Whether this word is the name of a value in JSON: "active":"""
    return at >= 0 and tokens[at][:1] == '"' and len(tokens[at]) > 2 and tokens[at + 1 : at + 2] == [":"]


def _label(tokens: list[str], at: int, used: set[str]) -> str:
    """A name for the value at `at`: the word before it, or behind it, or its place."""
    word = re.compile(r"[A-Za-z][\w.\-/]*")
    before = [
        token.strip('"')
        for i, token in enumerate(tokens[:at])
        if (word.fullmatch(token) and token not in LEVELS) or _names_value(tokens, i)
    ]
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
