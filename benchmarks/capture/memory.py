"""Peak memory of the engine: growing files, a million open connections, connections that come and go."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import generated
from measure import run

# Reads a capture and prints the resident bytes before it, at its peak, the bytes of the tables, and the
# resident bytes now and then while reading, each with the share of the file that was done.
WATCHED = """
import json, re, sys
from tapscope import capture
def resident(name):
    text = open("/proc/self/status").read()
    return int(re.search(name + r":\\s+(\\d+)", text)[1]) * 1024
before, series = resident("VmRSS"), []
tables = capture.read_files([sys.argv[1]], threads=int(sys.argv[2]),
    progress=lambda done, total: series.append((done / max(total, 1), resident("VmRSS"))))
columns = sum(column.nbytes for table in (tables.connections, tables.messages, tables.evidence)
              for column in table.values())
print(json.dumps({"before": before, "peak": resident("VmHWM"), "columns": columns, "series": series,
                  "connections": len(tables.connections["protocol"])}))
"""


def watch(path: Path, threads: int) -> dict[str, object]:
    """What the engine's process needed for one file, in bytes."""
    found: dict[str, object] = json.loads(
        run([sys.executable, "-c", WATCHED, str(path), str(threads)]).output
    )
    return found


def mb(value: object) -> str:
    """Bytes as MB."""
    assert isinstance(value, int | float)
    return f"{value / 1e6:.1f}"


def growing(program: Path, sizes_mb: Sequence[int], threads: Sequence[int], folder: Path) -> str:
    """Peak over file size, above what the interpreter had before and without the tables."""
    lines = [
        "### Peak memory in MB (tiers)",
        "| file | threads | peak | before reading | tables | peak - before - tables |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for size in sizes_mb:
        made = generated.generate(program, "tiers", folder / "grow.pcap", bytes=size * 1e6)
        for count in threads:
            lines.append(f"| {size} | {count} | {words(watch(made.path, count))} |")
        made.path.unlink()
    return "\n".join(lines) + "\n"


def words(found: dict[str, object]) -> str:
    """The cells of one run."""
    peak, before, columns = (found[key] for key in ("peak", "before", "columns"))
    assert isinstance(peak, int)
    assert isinstance(before, int)
    assert isinstance(columns, int)
    return f"{mb(peak)} | {mb(before)} | {mb(columns)} | {mb(peak - before - columns)}"


def open_connections(program: Path, count: int, folder: Path) -> str:
    """A handshake, one request and its answer each, and none is closed."""
    made = generated.generate(program, "open", folder / "open.pcap", connections=count, rate=50_000)
    found = watch(made.path, 1)
    made.path.unlink()
    return (
        f"### {found['connections']:,} connections open at once ({made.bytes / 1e6:.0f} MB, MB of memory)\n"
        "| peak | before reading | tables | peak - before - tables |\n| ---: | ---: | ---: | ---: |\n"
        f"| {words(found)} |\n"
    )


def churn(program: Path, seconds: int, folder: Path) -> str:
    """10,000 new connections a second of the capture's time, each closed after one exchange."""
    rate = 10_000
    made = generated.generate(program, "churn", folder / "churn.pcap", connections=seconds * rate, rate=rate)
    found = watch(made.path, 1)
    made.path.unlink()
    columns, before, series = found["columns"], found["before"], found["series"]
    assert isinstance(columns, int)
    assert isinstance(before, int)
    assert isinstance(series, list)
    lines = [
        f"### {rate:,} new connections a second for {seconds} s ({made.bytes / 1e6:.0f} MB, MB of memory)",
        "| share of the file | resident - before - tables so far |",
        "| ---: | ---: |",
    ]
    for share, resident in series:
        lines.append(f"| {share:.2f} | {mb(resident - before - columns * share)} |")
    lines.append(f"\nAt the end: {words(found)} (peak, before, tables, rest)")
    return "\n".join(lines) + "\n"
