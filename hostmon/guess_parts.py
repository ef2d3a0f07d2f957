"""What both kinds of proposals are made of: forms of times, units, and pieces of TOML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

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
    ("%Y/%m/%d %H:%M:%S.%f", r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%Y/%m/%d %H:%M:%S", r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d"),
    ("%d-%b-%Y %H:%M:%S.%f", r"\d\d-[A-Z][a-z]{2}-\d{4} \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%d-%b-%Y %H:%M:%S", r"\d\d-[A-Z][a-z]{2}-\d{4} \d\d:\d\d:\d\d"),
    ("%d.%m.%Y %H:%M:%S.%f", r"\d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d[.,]\d{1,9}"),
    ("%d.%m.%Y %H:%M:%S", r"\d\d\.\d\d\.\d{4} \d\d:\d\d:\d\d"),
    ("%m/%d/%Y %H:%M:%S.%f", r"(?:0\d|1[0-2])/\d\d/\d{4} \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%m/%d/%Y %H:%M:%S", r"(?:0\d|1[0-2])/\d\d/\d{4} \d\d:\d\d:\d\d"),
    ("%d/%m/%Y %H:%M:%S.%f", r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%d/%m/%Y %H:%M:%S", r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d"),
    ("%Y%m%d %H:%M:%S.%f", r"\d{8} \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%Y%m%d %H:%M:%S", r"\d{8} \d\d:\d\d:\d\d"),
    ("%b %d %H:%M:%S.%f", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d\.\d{1,9}"),
    ("%b %d %H:%M:%S", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"),
    ("%d-%m %H:%M:%S", r"\d\d-\d\d \d\d:\d\d:\d\d"),
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
WORD = r'[^\s,;=:|(){}\[\]"]+'
TOKEN = re.compile(r'"[^"]*"|\[[^\]\s]*\]|[^\s,;=:|(){}\[\]"]+|\S')


def quoted(text: str) -> str:
    """A TOML string."""
    if "'" in text or any(ord(character) < 32 for character in text):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return f'"{escaped}"'
    return f"'{text}'"


def head(name: str, recognise: str, columns: Sequence[str], form: str, year: int) -> list[str]:
    listed = quoted(columns[0]) if len(columns) == 1 else f"[{', '.join(map(quoted, columns))}]"
    out = [f"name = {quoted(name)}"]
    if recognise:
        out += [
            f"recognise = {quoted(recognise)}  # a file with such a line among its first is of this format"
        ]
    out += ["", "[time]", f"column = {listed}", f"form = {quoted(form)}"]
    if form == "uptime_s":
        out.append("# counts since the program's start: tell it with --start")
    elif "%" in form and "%z" not in form:
        out.append("# zone = 'Europe/Berlin'  # of the log's host; UTC when it is not told")
    if "%d" in form and "%Y" not in form:
        out.append(f"year = {year}  # the log's times have none")
    if form in ("%H:%M:%S", "%H:%M:%S.%f"):
        out.append(f"date = '{year}-01-01'  # the log's times have none: the day on which it begins")
    return out


def escaped(text: str) -> str:
    """A text as an expression, without the backslashes that only confuse."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text).replace("\t", r"\t")


def unit_of_name(label: str) -> str:
    """Unit that the end of a column's name tells: latency_ms, memory.used [MiB], cpu %."""
    low = label.strip().lower()
    if low.startswith("%") or low.endswith(("%", "[%]", "(%)", "pct", "percent")):
        return "%"
    match = re.search(r"[_\s(\[/](ms|us|ns|s|sec|kb|mb|bytes|mhz|kib|mib|w)[)\]]?$", low)
    if match is None:
        return ""
    known = {"sec": "s", "kb": "KiB", "kib": "KiB", "mb": "MiB", "mib": "MiB", "mhz": "MHz", "w": "W"}
    return known.get(match[1], match[1])


def grows(texts: Sequence[str]) -> bool:
    numbers = [float(text.strip()) for text in texts]
    return len(numbers) > 1 and all(a <= b for a, b in pairwise(numbers)) and numbers[0] < numbers[-1]
