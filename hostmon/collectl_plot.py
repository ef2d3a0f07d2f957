"""Reader of Collectl plot files (`-P`): one line per sample, columns named by the file's own `#Date Time ...`
line.

Times are local time of the host with the offset of the header's `TZ:` field, or seconds of UTC after `#UTC`.
Collectl has turned counters into rates already, unless its options had `n`; then values are per sample. One
file may hold several recordings, one after the other, each with its own header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone

import numpy as np

from tapscope.hostmon.clock import LATEST_NS
from tapscope.hostmon.collectl_raw import header_fields, whole_number
from tapscope.hostmon.rows import Packed
from tapscope.hostmon.samples import HostLog, HostTable, Series, recordings, stamp_ns
from tapscope.store.dynamic import folded
from tapscope.store.errors import TapscopeError

KINDS = {
    "[CPU]": "collectl_plot",
    "[CPU:": "collectl_plot_core",
    "[DSK:": "collectl_plot_disk",
    "[NET:": "collectl_plot_net",
    "[TCPD]": "collectl_plot_tcp",
    "PID": "collectl_plot_process",
    "SlabName": "collectl_plot_slab",
}
"""Kind of table by the first column that the log names itself."""


def is_plot_header(line: str) -> bool:
    """The line that names the columns."""
    return bool(re.match(r"#(Date[ ,|\t;]Time|UTC)[ ,|\t;]", line))


def read_plot(lines: Iterable[str], path: str = "") -> HostLog:
    """Tables of a plot file, one per set of columns. Damaged lines are counted and left out."""
    parts: dict[tuple[str, ...], _Part] = {}
    part: _Part | None = None
    head: list[str] = []
    bad = 0
    fields: dict[str, str] = {}
    for line in lines:
        if is_plot_header(line):
            fields = header_fields(head) | {"plot_options": _options(head)}
            separator = " " if " " in line else line[4] if line.startswith("#UTC") else line[5]
            names = tuple(line[1:].rstrip("\n").split(separator))
            part = parts.setdefault(names, _Part(names, separator))
            part.start(fields)
            head = []
        elif line.startswith("#"):
            head.append(line)
        elif part is None:
            bad += bool(line.strip())
        elif line.strip():
            taken = part.add(line)
            if not taken and part.fresh and any(name.startswith("[IB]") for name in part.names):
                # Without such hardware Collectl 4.3 names the columns of InfiniBand and prints none.
                names = tuple(name for name in (*part.leading, *part.names) if not name.startswith("[IB]"))
                part = parts.setdefault(names, _Part(names, part.separator))
                part.start(fields)
                taken = part.add(line)
            bad += not taken
    if not parts or not any(p.end_ns for p in parts.values()):
        raise TapscopeError(
            "this Collectl plot file has no sample",
            path=path,
            remedy="Record one with: collectl -i 0.05 -P -oTm -f DIR",
        )
    counters = {"host.collectl.bad_line": bad} if bad else {}
    tables = [p.table() for p in parts.values() if p.end_ns]
    detail = {
        "samples": sum(len(p.end_ns) for p in parts.values()),
        "interval": fields.get("interval", ""),
        "subsys": fields.get("subsys", ""),
        "collectl": fields.get("collectl", ""),
        "cpus": whole_number(fields, "numcpus", 0),
    }
    warnings = []
    if not fields.get("tz") and not all(names[0] == "UTC" for names in parts):
        warnings.append("the file has no time zone: its times were taken as UTC")
    return HostLog("collectl plot", fields.get("host", ""), tables, counters, detail, warnings)


def _options(head: list[str]) -> str:
    for line in head:
        match = re.match(r"# SubSys:.*Options: (\S+) ", line)
        if match:
            return match[1]
    return ""


class _Part:
    """Lines that have the same columns."""

    def __init__(self, names: tuple[str, ...], separator: str) -> None:
        self.utc = names[0] == "UTC"
        self.leading = names[:1] if self.utc else names[:2]
        self.names = names[len(self.leading) :]
        self.key = next((name for name in ("PID", "SlabName") if name in self.names), "")
        self.separator = separator
        self.end_ns: list[int] = []
        self.begun: list[int] = []  # -1: take the sample before; else the begin of a recording's first sample
        self.rows = Packed()
        self.zone: timezone = UTC
        self.interval_ns = 0
        self.per_sample = False
        self.fresh = True
        self.day: dict[str, int] = {}

    def start(self, fields: dict[str, str]) -> None:
        """A recording begins here; its header holds for the lines that follow."""
        tz = re.fullmatch(r"([+-])([01]\d)([0-5]\d)", fields.get("tz", ""))
        if tz:
            offset = timedelta(hours=int(tz[2]), minutes=int(tz[3]))
            self.zone = timezone(-offset if tz[1] == "-" else offset)
        intervals = fields.get("interval", "").split(":")
        wanted = intervals[-1] if self.key else intervals[0]
        self.interval_ns = stamp_ns(wanted) if re.fullmatch(r"\d{1,6}(\.\d+)?", wanted) else 0
        self.per_sample = "n" in fields.get("plot_options", "")
        self.fresh = True
        self.day = {}

    def add(self, line: str) -> bool:
        """Take one line; False when it is damaged."""
        leading = 1 if self.utc else 2
        # The last column of process lines is a command line with separators inside.
        words = line.rstrip("\n").split(self.separator, leading + len(self.names) - 1)
        if len(words) != leading + len(self.names):
            return False
        if self.key == "PID" and not re.fullmatch(r"\d{1,9}", words[leading + self.names.index("PID")]):
            return False
        try:
            end = stamp_ns(words[0]) if self.utc else self._local_ns(words[0], words[1])
        except (ValueError, OverflowError):
            return False
        if not 0 <= end < LATEST_NS:
            return False
        self.begun.append(
            end - self.interval_ns if self.fresh and self.interval_ns else 0 if self.fresh else -1
        )
        self.fresh = self.fresh and self.key != "" and (not self.end_ns or self.end_ns[-1] == end)
        self.end_ns.append(end)
        self.rows.add(words[leading:])
        return True

    def _local_ns(self, date: str, time: str) -> int:
        if date not in self.day:
            day = datetime.strptime(date, "%Y%m%d").replace(tzinfo=self.zone)
            self.day[date] = int(day.timestamp()) * 1_000_000_000
        hours, minutes, seconds = time.split(":")
        return self.day[date] + (int(hours) * 3600 + int(minutes) * 60) * 1_000_000_000 + stamp_ns(seconds)

    def table(self) -> HostTable:
        """The part as a table."""
        kind = next(
            (k for prefix, k in KINDS.items() if self.names and self.names[0].startswith(prefix)), None
        )
        if kind is None:
            kind = f"collectl_plot_{folded(re.sub(r':.*?]', ']', self.names[0]).partition(']')[0])}"
        self.rows.pack()
        columns = [self.rows.column(i) for i in range(len(self.names))]
        key = np.zeros(len(self.end_ns), dtype=np.int64)
        if self.key == "PID":
            key = np.array(columns[self.names.index("PID")], dtype=np.int64)
        elif self.key:
            key = np.array(columns[self.names.index(self.key)])
        end_ns = np.array(self.end_ns, dtype=np.int64)
        series = Series(key, end_ns, recordings(end_ns))
        begun = np.array(self.begun, dtype=np.int64)[series.order]
        begin = np.where(begun > 0, begun, series.begin_ns)
        if self.interval_ns:
            begin = np.where(begin < 0, series.end_ns - self.interval_ns, begin)
        table = HostTable(kind)
        table.add("begin_ns", begin, "ns", "")
        table.add("end_ns", series.end_ns, "ns", "UTC" if self.utc else "Date Time")
        for name, values in zip(self.names, columns, strict=True):
            if name == "Command":  # arguments may hold secrets: keep the program's name only
                values = [str(v).split(" ", 1)[0].rsplit("/", 1)[-1] for v in values]
            ordered = (
                values[series.order] if isinstance(values, np.ndarray) else [values[i] for i in series.order]
            )
            table.add_log_column(folded(name), ordered, self.unit(name), name)
        return table

    def unit(self, name: str) -> str:
        """Unit of a column by Collectl's naming; '' where the name does not tell."""
        per = "/sample" if self.per_sample else "/s"
        word = name.rpartition("]")[2]
        if word.endswith("%") or word in ("Util", "PCT"):
            return "%"
        if word.endswith("/sec"):
            return "1/s"
        if word.endswith("/int"):
            return "1/sample"
        if name.startswith("[MEM]"):
            gauge = word in ("SwapTot", "SwapUsed", "SwapFree")
            return "" if word.startswith(("Page", "Huge", "Swap")) and not gauge else "KiB"
        if name.startswith(("[NET", "[DSK")):
            if word == "Name":
                return ""
            if word in ("WaitR", "WaitW", "Wait", "SvcTim"):
                return "ms"
            if word in ("Request", "QueLen"):
                return ""
            if "KB" in word or "Kb" in word:
                return f"KiB{per}"
            return f"{'packets' if name.startswith('[NET') else 'operations'}{per}"
        if word in ("VmSize", "VmLck", "VmRSS", "VmData", "VmStk", "VmExe", "VmLib"):
            return "KiB"
        return ""
