"""Reader of Collectl raw files: text copies of /proc under a `>>> epoch <<<` line per sample.

The stamp is the host's clock in UTC when the sample was begun, so no time zone is involved. Collectl copies
the kernel's counters as they are; percentages and rates are made here. CPU counters are in jiffies (10 ms at
HZ 100): at an interval of 50 ms one core's share moves in steps of 20 percent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from tapscope.hostmon.raw_more import MoreRecords
from tapscope.hostmon.raw_tables import RawRecords, tables_of
from tapscope.hostmon.samples import HostLog, stamp_ns
from tapscope.store.errors import TapscopeError

STAMP = re.compile(r">>> (\d{1,10}(?:\.\d+)?) <<<")
HEADER = re.compile(r"(\w+):[ \t]+(\S*[^\s:])(?=\s|$)")
STAT_SINGLES = {"ctxt", "processes", "procs_running", "procs_blocked"}
MOST_DIGITS_OF_PID = 10
VMSTAT = re.compile(r"[a-z][a-z0-9_]*$")


def header_fields(lines: Iterable[str]) -> dict[str, str]:
    """Fields of the `# Name: value` block at the top of raw and plot files, names in lower case."""
    fields: dict[str, str] = {}
    for line in lines:
        for name, value in HEADER.findall(line[1:]):
            fields.setdefault(name.lower(), value)
        options = re.search(r"Options: (.*?)\s*$", line) if line.startswith("# Collectl:") else None
        if options:
            fields["command_options"] = options[1]
    return fields


def whole_number(fields: dict[str, str], name: str, otherwise: int) -> int:
    """A number in a header; `otherwise` when it is missing, damaged or nothing."""
    text = fields.get(name, "")
    return int(text) if re.fullmatch(r"[1-9]\d{0,8}", text) else otherwise


def read_raw(lines: Iterable[str], path: str = "") -> HostLog:
    """Tables of a raw file. Records that are not understood are counted by name; a cut last line is left
    out."""
    records = RawRecords()
    more = MoreRecords()
    head: list[str] = []
    unread: Counter[str] = Counter()
    bad = 0
    tcp_names: dict[str, list[str]] = {}
    vmstat: dict[str, int] = {}
    memory: dict[str, int] = {}
    stat: dict[str, Any] = {}
    process: dict[tuple[str, int], dict[str, Any]] = {}
    tcp: dict[str, int] = {}

    def finish_sample() -> None:
        for kind, row in (("memory", memory), ("vmstat", vmstat), ("stat", stat), ("tcp", tcp)):
            if row:
                records.add_named(kind, dict(row))
                row.clear()
        for (kind, pid), fields in process.items():
            records.add_process(kind, pid, fields)
        process.clear()
        if records.stamps:
            more.finish_sample(records.stamps[-1])

    for line in lines:
        if line.startswith("#"):
            if not records.stamps:
                head.append(line)
            continue
        if line.startswith(">>>"):
            match = STAMP.match(line)
            if match is None:
                bad += 1
                continue
            finish_sample()
            records.stamps.append(stamp_ns(match[1]))
            continue
        if not records.stamps:
            if line.strip():
                bad += 1
            continue
        word, _, rest = line.partition(" ")
        try:
            if word.startswith("cpu"):
                if word[3:] and not re.fullmatch(r"[0-9]{1,6}", word[3:]):
                    raise ValueError(word)
                records.add_row("cpu", word[3:], rest.split(), 10)
            elif word == "disk":
                fields = rest.split()
                records.add_row("disk", fields[2], fields[3:], 17)
            elif word == "Net":
                name, _, values = rest.partition(":")
                records.add_row("net", name.strip(), values.split(), 16)
            elif word.startswith("tcp-"):
                proto, values_ = word[4:].rstrip(":"), rest.split()
                if not values_[0].lstrip("-").isdigit():
                    tcp_names[proto] = values_
                else:
                    for name, value in zip(tcp_names[proto], values_, strict=True):
                        tcp[f"{proto}_{name}"] = int(value)
            elif word.startswith(("proc:", "procT:")):
                kind, _, pid = word.partition(":")
                if len(pid) > MOST_DIGITS_OF_PID:
                    raise ValueError(word)
                of = ("thread" if kind == "procT" else "process", int(pid))
                _process_line(process.setdefault(of, {}), rest)
            elif word.endswith(":") and rest.rstrip().endswith("kB"):
                memory[word[:-1]] = int(rest.split()[0])
            elif word in STAT_SINGLES:
                stat[word] = int(rest)
            elif word == "intr":
                stat["intr"] = int(rest.split(maxsplit=1)[0])
            elif word == "load":
                values_ = rest.split()
                running, _, total = values_[3].partition("/")
                stat.update(load_1=float(values_[0]), load_5=float(values_[1]), load_15=float(values_[2]))
                stat.update(tasks_running=int(running), tasks=int(total))
            elif word.endswith(":") and word[0].isupper() and rest.strip().isdigit():
                memory[word[:-1]] = int(rest)
            elif VMSTAT.match(word) and rest.strip().isdigit():
                vmstat[word] = int(rest)
            elif line.strip() and not more.line(word, rest):
                unread[re.split(r"[\d:\-]", word, maxsplit=1)[0].strip() or "?"] += 1
        except (ValueError, IndexError, KeyError):
            bad += 1  # cut or damaged line
    finish_sample()

    header = header_fields(head)
    if not records.stamps:
        raise TapscopeError(
            "this Collectl raw file has no sample",
            path=path,
            remedy="Record one with: collectl -i 0.05 -f DIR",
        )
    counters = {f"host.collectl.unread.{name}": count for name, count in sorted(unread.items())}
    if bad:
        counters["host.collectl.bad_line"] = bad
    tables, resets = tables_of(
        records, whole_number(header, "hz", 100), whole_number(header, "pagesize", 4096)
    )
    tables += more.tables()
    resets += more.resets
    if records.wraps:
        counters["host.collectl.counter_wrap"] = records.wraps
    if resets:
        counters["host.collectl.counter_reset"] = resets
    stamps = np.array(records.stamps, dtype=np.int64)
    detail = {
        "samples": len(stamps),
        "interval": header.get("interval", ""),
        "subsys": header.get("subsys", ""),
        "collectl": header.get("collectl", ""),
        "cpus": whole_number(header, "numcpus", 0),
        "disks": whole_number(header, "numdisks", 0),
    }
    warnings = []
    if detail["disks"] == 0 and re.search("[dD]", str(detail["subsys"])):
        warnings.append("Collectl found no disk on this host (NumDisks: 0): it has no disk series")
    if np.any(np.diff(stamps) <= 0):
        warnings.append("the host's clock went backwards between samples")
    return HostLog("collectl raw", header.get("host", ""), tables, counters, detail, warnings)


def _process_line(fields: dict[str, Any], rest: str) -> None:
    """A `proc:PID ...` line. The command line is not kept: arguments may hold secrets; the name in stat
    is."""
    word, _, value = rest.partition(" ")
    if word == "stat":
        after = value.rpartition(")")
        fields["command"] = after[0].partition("(")[2]
        numbers = after[2].split()
        fields["state"] = numbers[0]
        for name, index in PROCESS_STAT.items():
            fields[name] = int(numbers[index])
    elif word == "io":
        name, _, amount = value.partition(":")
        fields[f"io_{name}"] = int(amount)
    elif word == "cmd":
        return
    elif "\t" in rest:
        name, _, amount = rest.partition(":")
        first = amount.split()[0]
        if name in PROCESS_STATUS:
            fields[name] = int(first)


PROCESS_STAT = {
    "ppid": 1,
    "minflt": 7,
    "majflt": 9,
    "utime": 11,
    "stime": 12,
    "threads": 17,
    "vsize": 20,
    "rss": 21,
    "processor": 36,
}
"""Fields of /proc/PID/stat, counted from the state (proc(5) field 3 = 0)."""

PROCESS_STATUS = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "VmHWM", "VmSwap")
