"""Every reader, and how a file's first lines call for it. More specific ones stand first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from typing import NamedTuple

from tapscope.hostmon.cgroup import read_cgroup
from tapscope.hostmon.clock import Told
from tapscope.hostmon.collectl_plot import is_plot_header, read_plot
from tapscope.hostmon.collectl_raw import STAMP, read_raw
from tapscope.hostmon.declared import DeclaredFormat, parse_format
from tapscope.hostmon.esxtop import is_esxtop, read_esxtop
from tapscope.hostmon.gc_legacy import is_gc_legacy, read_gc_legacy
from tapscope.hostmon.gc_unified import is_gc_unified, read_gc_unified
from tapscope.hostmon.iostat_text import is_iostat_text, read_iostat_text
from tapscope.hostmon.perf_stat import is_perf_stat, read_perf_stat
from tapscope.hostmon.sadf_csv import is_sadf_csv, read_sadf_csv
from tapscope.hostmon.samples import HostLog
from tapscope.hostmon.snapshots import is_snapshots, read_snapshots
from tapscope.hostmon.sysstat_json import is_sysstat_json, read_sysstat_json
from tapscope.hostmon.sysstat_text import is_sysstat_text, read_sysstat_text
from tapscope.hostmon.vmstat import is_vmstat, read_vmstat

SNIFFED_LINES = 60  # a Collectl header has 14 to 20 lines


@cache
def known_formats() -> tuple[DeclaredFormat, ...]:
    """The declared formats that come with tapscope (hostmon/formats)."""
    folder = resources.files("tapscope.hostmon") / "formats"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
    )
    return tuple(parse_format(file.read_text(encoding="utf-8"), file.name) for file in files)


class Reader(NamedTuple):
    """A reader of one format."""

    name: str
    sniff: Callable[[list[str]], bool]
    read: Callable[[Iterable[str], str, Told], HostLog]
    closed: bool = False  # every record says where it ends (JSON): the last line needs no line end


def _is_raw(first: list[str]) -> bool:
    return bool(first) and first[0].startswith("#") and any(STAMP.match(line) for line in first)


READERS = (
    Reader("Collectl raw", _is_raw, lambda lines, path, told: read_raw(lines, path)),
    Reader("Collectl plot", lambda first: any(is_plot_header(line) for line in first),
           lambda lines, path, told: read_plot(lines, path)),
    Reader("cgroup_cpu.csv", lambda first: bool(first) and first[0].lower().startswith("time_ns_begin"),
           lambda lines, path, told: read_cgroup(lines, path)),
    Reader("sadf -j, iostat and mpstat JSON", is_sysstat_json, read_sysstat_json, closed=True),
    Reader("sadf -d", is_sadf_csv, read_sadf_csv),
    Reader("iostat -t", is_iostat_text, read_iostat_text),
    Reader("mpstat, sar and pidstat text", is_sysstat_text, read_sysstat_text),
    Reader("vmstat -t", is_vmstat, read_vmstat),
    Reader("esxtop CSV", is_esxtop, read_esxtop),
    Reader("perf stat -I", is_perf_stat, read_perf_stat),
    Reader("snapshots of pressure, cgroup, lock_stat and cpufreq files", is_snapshots, read_snapshots),
    Reader("JVM unified GC log", is_gc_unified, read_gc_unified),
    Reader("GC log of JDK 5 to 8", is_gc_legacy, read_gc_legacy),
)  # fmt: skip
"""In the order in which they are asked."""
