"""Proposes a declared format from a sample of a log: which columns it has, where its times are, which
units.

First a table is tried (one separator, lines of equally many fields, a line of names), then lines of text:
their words are compared, numbers and words that change become columns, and each frequent shape becomes a
stage. The proposal is tried on the sample; the user reads and corrects it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tapscope.hostmon.clock import NOTHING_TOLD, Told
from tapscope.hostmon.declared import parse_format
from tapscope.hostmon.guess_parts import MOST_CHARACTERS, MOST_LINES
from tapscope.hostmon.guess_tables import tables
from tapscope.hostmon.guess_text import texts
from tapscope.hostmon.readers import READERS, SNIFFED_LINES
from tapscope.store.errors import TapscopeError


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
    for toml in (*tables(sample, name, year), *texts(sample, name, year)):
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
