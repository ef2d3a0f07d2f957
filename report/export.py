"""Exports of a run file's tables as CSV or JSON lines, streamed: memory does not grow with the table.

Column names are an interface that scripts rely on (docs/formats.md). In CSV a missing value is an empty
field, in JSON lines it is null.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tapscope.store.errors import TapscopeError
from tapscope.store.opening import refuse_over
from tapscope.store.runfile import RunFile

EXPORTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "links": (
        "v_link",
        (
            "child_ts_ns",
            "child_src",
            "child_sport",
            "child_dst",
            "child_dport",
            "child_tcp_seq",
            "parent_ts_ns",
            "parent_src",
            "parent_sport",
            "parent_dst",
            "parent_dport",
            "parent_tcp_seq",
            "probability",
            "runner_up_probability",
            "kind",
        ),
    ),
    "calls": (
        "v_call",
        (
            "ts_ns",
            "src",
            "sport",
            "dst",
            "dport",
            "tcp_seq",
            "protocol",
            "class",
            "arrive_ns",
            "request_end_ns",
            "response_begin_ns",
            "depart_ns",
            "status",
            "flags",
        ),
    ),
    "messages": (
        "v_message",
        (
            "id",
            "begin_ns",
            "end_ns",
            "client_addr",
            "client_port",
            "server_addr",
            "server_port",
            "direction",
            "protocol",
            "kind",
            "wire_bytes",
            "missing_bytes",
            "class",
            "status",
            "tcp_seq",
            "flags",
            "request",
        ),
    ),
    "traces": (
        "v_trace",
        (
            "id",
            "begin_ns",
            "end_ns",
            "response_time_ns",
            "calls",
            "complete",
            "probability",
            "protocol",
            "class",
            "status",
            "entry",
            "src",
            "sport",
        ),
    ),
    "loads": (
        "v_load",
        (
            "node",
            "window_start_ns",
            "width_ns",
            "load",
            "max",
            "arrivals",
            "completions",
            "pit_mean_ns",
            "pit_max_ns",
        ),
    ),
    "span_links": (
        "v_span_link",
        (
            "message_id",
            "parent_message_id",
            "kind",
            "probability",
            "runner_up_message_id",
            "runner_up_probability",
        ),
    ),
}
"""Export name -> (view, columns in order)."""

ORDER = {"links": "child", "calls": "id", "messages": "id", "traces": "id", "loads": "id"} | {
    "span_links": "call"
}


def export(run: RunFile, table: str, format_: str, out: str | Path) -> int:
    """Write `table` (a key of EXPORTS) as "csv" or "jsonl" to a file, or to stdout for "-"; returns the rows.

    A file is replaced only when the new one is whole.
    """
    if str(out) != "-":
        refuse_over(run.path, Path(out))
    view, columns = EXPORTS[table]
    _, rows = run.query(f"SELECT {', '.join(columns)} FROM {view} ORDER BY {ORDER[table]}")
    with opened(out) as file:
        return write_rows(file, columns, rows, format_)


class _Terminal:
    """A terminal that is shown no control characters: texts come from the network, and it might obey them."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(
            "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
        )
        return len(text)


def write_rows(file: IO[str], columns: Sequence[str], rows: Iterable[Sequence[Any]], format_: str) -> int:
    """Write rows as "csv" (with a header line) or "jsonl" (one object per line); returns how many."""
    count = 0
    out: IO[str] | _Terminal = _Terminal(file) if file.isatty() else file
    if format_ == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([value.hex() if isinstance(value, bytes) else value for value in row])
            count += 1
        return count
    for row in rows:
        out.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=_plain))
        out.write("\n")
        count += 1
    return count


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


@contextmanager
def opened(out: str | Path) -> Iterator[IO[str]]:
    """A text stream to stdout ("-") or to a file that appears under its name only when it is whole."""
    if str(out) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(out)
    if path.is_dir():
        raise TapscopeError("this is a folder", path=path, remedy="Name a file to write.")
    if not path.parent.is_dir():
        raise TapscopeError("its folder does not exist", path=path, remedy=f"Make it: mkdir -p {path.parent}")
    # A device or a pipe is written to, never replaced.
    in_place = path.exists() and not path.is_file()
    written = path if in_place else path.with_name(f"{path.name}.partial")
    try:
        with written.open("w", encoding="utf-8", newline="") as file:
            yield file
        if not in_place:
            written.replace(path)
    except BaseException as error:
        if not in_place:
            with suppress(OSError):
                written.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise TapscopeError(
                f"cannot be written: {(error.strerror or str(error)).lower()}",
                path=path,
                remedy="Choose another file, or free some space.",
            ) from error
        raise
