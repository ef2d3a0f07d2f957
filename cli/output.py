"""Tables, JSON and progress of the command line. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click

from tapscope.store.errors import TapscopeError

_CONTROLS = re.compile(r"[\x7f-\x9f\ud800-\udfff]")
PLAIN_WIDTH = 240  # columns of a table that is not shown on a terminal
Progress = Callable[[str, int, int], None]
"""progress(what, done, total), called a few times a second at most."""


def printable(text: str) -> str:
    """Text from the network without control characters, which a terminal might obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers to the right. A column named `... ms` and the like says its unit."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    listed = [list(row) for row in rows]
    table = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    for i, name in enumerate(columns):
        numeric = any(_is_number(row[i]) for row in listed)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(cell(value) for value in row))
    # Class texts may look like markup: none is interpreted.
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=width)
    console.print(table)
    console.print()


def cell(value: Any) -> str:
    """A value as a table shows it."""
    value = _unwrapped(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        size = abs(float(value))
        return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3g}"
    return printable(str(value))


def _unwrapped(value: Any) -> Any:
    """A numpy scalar or array as plain Python (known by its method: importing numpy for it would cost
    time)."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_number(value: Any) -> bool:
    return isinstance(_unwrapped(value), int | float)


def print_json(value: Any) -> None:
    """Print one JSON document; NaN becomes null."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    # JSON itself escapes only what is below a blank; some terminals obey what follows ASCII, too.
    sys.stdout.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def plain(value: Any) -> Any:
    """The value with plain Python types, as JSON knows them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    value = _unwrapped(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, str | int | float):
        return value
    return float(value) if isinstance(value, Decimal) else str(value)  # DuckDB has types of its own


def print_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], *, as_csv: bool, as_json: bool) -> None:
    """Print the rows of a query as a table, as CSV or as JSON."""
    if as_csv and as_json:
        raise click.UsageError("--csv and --json: choose one.")
    if as_csv:
        from tapscope.report.export import write_rows

        write_rows(sys.stdout, names, rows, "csv")
    elif as_json:
        keys = _different(names)
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table("", names, rows)


def _different(names: Sequence[str]) -> list[str]:
    """Names of columns, which a query may give twice, as keys: the second `a` is `a_2`."""
    keys: list[str] = []
    for name in names:
        key, number = name, 1
        while key in keys:
            number += 1
            key = f"{name}_{number}"
        keys.append(key)
    return keys


def print_records(title: str, records: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print records of the same keys, as a table or as JSON."""
    if as_json:
        print_json(records)
    elif records:
        print_table(title, list(records[0]), [list(record.values()) for record in records])
    else:
        print(f"{title}: none" if title else "nothing found")


def utc(at_ns: int) -> str:
    """A time as text, UTC, milliseconds; '-' when it was not observed."""
    if at_ns < 0:
        return "-"
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d}"


def note(text: str) -> None:
    """A line for the user that is no result."""
    print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar on stderr, or None where nobody looks at it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    layout = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with RichProgress(*layout, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=total or None)
            bars.update(known[what], completed=done, total=total or None)

        yield show


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of "50ms", "1s", "250us", "2min", "3h", "7d"; TapscopeError otherwise."""
    minute = 60_000_000_000
    units = {"min": minute, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
    units |= {"h": 60 * minute, "d": 24 * 60 * minute}
    for unit, factor in units.items():
        if text.endswith(unit):
            try:
                value = float(text[: -len(unit)]) * factor
            except ValueError:
                break
            if math.isfinite(value) and value >= 1:
                return round(value)
    raise TapscopeError(f"{text!r} is no length of time", remedy="Write it like 50ms, 1s or 250us.")


def parse_size_bytes(text: str) -> int:
    """Bytes of "500MB" (decimal) or "2GiB" (binary); TapscopeError otherwise."""
    powers = {letter: power for power, letter in enumerate("KMGT", 1)}
    for unit in (f"{letter}{kind}" for letter in powers for kind in ("iB", "B")):
        if text.endswith(unit):
            try:
                value = float(text[: -len(unit)]) * (1024 if "i" in unit else 1000) ** powers[unit[0]]
            except ValueError:
                break
            if math.isfinite(value) and value >= 1:
                return round(value)
    raise TapscopeError(f"{text!r} is no size", remedy="Write it like 500MB or 2GiB.")
