"""Logs of a real run with things done to them: other clocks, lost and repeated lines, other IDs."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

Clock = Callable[[int], int]
"""What the clock shows (ns) when the true time is this."""

_SECOND = 1_000_000_000
_FIELDS = re.compile(r"\b(beg|end)=(\d{13,16})\b")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")
_COLUMNS = {"requests.tsv": (1, 2), "statements.tsv": (2, 3)}


def copy_of(run: Path, target: Path) -> Path:
    """The run directory without its capture, logs unpacked."""
    for path in run.rglob("*"):
        if path.is_dir() or "capture" in path.parts or "hosts" in path.parts:
            continue
        place = target / path.relative_to(run)
        place.parent.mkdir(parents=True, exist_ok=True)
        if "events" in path.parts and path.suffix == ".gz":
            place.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copyfile(path, place)
    return target


def lines_of(path: Path) -> list[str]:
    """With their ends."""
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


def edit(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Replace the lines of a file."""
    path.write_text("".join(change(lines_of(path))), encoding="utf-8")


def set_clock(folder: Path, clock: Clock) -> None:
    """Every stamp of one server's logs as if its host had had this clock."""
    for path in folder.iterdir():
        if path.name != "checkouts.tsv":
            edit(path, lambda lines, name=path.name: [_moved(line, name, clock) for line in lines])


def _moved(line: str, name: str, clock: Clock) -> str:
    if name in _COLUMNS and line.split("\t")[1].isdigit():
        cells = line.split("\t")
        for at in _COLUMNS[name]:
            cells[at] = str(clock(int(cells[at]) * 1000) // 1000)
        return "\t".join(cells)
    line = _FIELDS.sub(lambda found: f"{found[1]}={_same_unit(found[2], clock)}", line)
    return _STAMP.sub(lambda found: _text(clock(_ns(found[0]))), line, count=1)


def _same_unit(digits: str, clock: Clock) -> int:
    unit = 10 ** (19 - len(digits))
    return clock(int(digits) * unit) // unit


def _ns(text: str) -> int:
    at = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def _text(at_ns: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)
    return f"{at:%Y-%m-%d %H:%M:%S.%f}"
