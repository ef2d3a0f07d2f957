"""Names and units that sysstat's programs (sadf, iostat, mpstat, sar, pidstat) and vmstat use, made the same.

CPU columns get Collectl's names (user_pct, sys_pct, wait_pct, ..., and busy_pct = everything but idle and
waiting), so that one question reads every source. Everything else keeps the log's name. Sources: sar(1),
iostat(1), mpstat(1), vmstat(8).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tapscope.hostmon.rows import Rows, numeric
from tapscope.hostmon.samples import HostTable

CPU = {
    "usr": "user_pct", "user": "user_pct", "us": "user_pct",
    "nice": "nice_pct",
    "sys": "sys_pct", "system": "sys_pct", "sy": "sys_pct",
    "iowait": "wait_pct", "wa": "wait_pct",
    "steal": "steal_pct", "st": "steal_pct",
    "irq": "irq_pct", "soft": "soft_pct",
    "guest": "guest_pct", "gnice": "guest_nice_pct", "gu": "guest_pct",
    "idle": "idle_pct", "id": "idle_pct",
}  # fmt: skip
WHOLE_MACHINE = ("all", "-1", "")
KEYS = {"cpu": "core", "node": "node", "disk-device": "disk", "disk_device": "disk", "dev": "disk",
        "iface": "interface", "intr": "interrupt", "device": "disk", "number": "core"}  # fmt: skip
RATES = {  # of sadf's JSON, which has no /s in its names
    "rxpck", "txpck", "rxcmp", "txcmp", "rxmcst", "tps", "rtps", "wtps", "dtps", "bread", "bwrtn", "bdscd",
    "cswch", "proc", "pgpgin", "pgpgout", "fault", "majflt", "pgfree", "pgscank", "pgscand", "pgsteal",
    "pswpin", "pswpout", "rd_sec", "wr_sec", "dc_sec",
}  # fmt: skip
MEMORY = {
    "memfree",
    "avail",
    "memused",
    "buffers",
    "cached",
    "commit",
    "active",
    "inactive",
    "dirty",
    "anonpg",
    "slab",
    "kstack",
    "pgtbl",
    "vmused",
    "swpfree",
    "swpused",
    "swpcad",
    "hugfree",
    "hugused",
    "hugrsvd",
    "hugsurp",
    "swpd",
    "free",
    "buff",
    "cache",
    "inact",
}


def plain(name: str) -> str:
    """A column's name without its mark of percent."""
    return name.strip().removeprefix("%").lower()


def unit(name: str) -> str:
    """Unit of a column; '' where the name does not tell."""
    bare = plain(name)
    if name.startswith("%") or bare.endswith(("-percent", "%")) or bare in ("util", "rrqm", "wrqm", "drqm"):
        return "%"
    if bare.endswith("/s"):
        amount = re.match(r"([rwdtx]?x?kb|kb|mb)", bare)
        return f"{amount[1][-2:].replace('kb', 'KiB').replace('mb', 'MiB')}/s" if amount else "1/s"
    if re.fullmatch(r"[rwd]kb|[rt]xkb", bare):
        return "KiB/s"
    if bare in RATES:
        return "1/s"
    if bare.endswith("await") or bare == "svctm":
        return "ms"
    if bare.endswith("areq-sz") or bare in MEMORY or re.fullmatch(r"kb[a-z_]+", bare):
        return "KiB"
    if bare == "avgrq-sz":
        return "sectors"
    if bare in ("mhz", "wghmhz", "frequency"):
        return "MHz"
    return ""


def unit_in(kind: str) -> Callable[[str], str]:
    """Units of a section of sadf's JSON, whose names have none: most counters are per second there."""
    section = kind.partition("_")[2]
    if section.startswith(("memory", "hugepages", "swap_")) and section != "swap_pages":
        return unit
    if section.startswith("psi"):
        return lambda name: "%"
    rates = section.startswith(("net_", "interrupts", "serial", "softnet")) and "sock" not in section

    def known(name: str) -> str:
        if plain(name) in MEMORY:
            return "1/s" if rates else ""
        return unit(name) or ("1/s" if rates and name not in ("line", "blg_len") else "")

    return known


def is_cpu(names: tuple[str, ...]) -> bool:
    """Whether these are shares of the CPU's time."""
    known = {plain(name) for name in names}
    return bool(known & {"idle", "id"}) and bool(known & {"usr", "user", "us"})


def cpu_unit(name: str) -> str:
    """Unit in a table of CPU shares."""
    return "%" if plain(name) in CPU else unit(name)


def finished(rows: Rows) -> HostTable:
    """The rows as a table; CPU shares under their common names, with busy_pct."""
    names = rows.names()
    shares = {
        name: f"{plain(name).removesuffix('-percent')}_pct"
        for name in names
        if name[:1] == "%" or "-percent" in name
    }
    if not is_cpu(names):
        return rows.table(shares)
    shares |= {name: CPU[plain(name)] for name in names if plain(name) in CPU}
    table, _, columns = rows.table_and_columns(shares)
    by_plain = {plain(name): numeric(values) for name, values in columns.items()}
    idle = by_plain.get("idle", by_plain.get("id"))
    if idle is not None:
        wait = by_plain.get("iowait", by_plain.get("wa"))
        rest = idle if wait is None else idle + np.nan_to_num(wait)
        table.add("busy_pct", np.clip(100.0 - rest, 0.0, None), "%", "")
    return table


def of_cpu(kind: str, made: dict[str, Rows], key: str) -> Rows:
    """Rows of a CPU record: the whole machine and each core have a table of their own."""
    whole = key in WHOLE_MACHINE
    name = f"{kind}_cpu" if whole else f"{kind}_cpu_core"
    if name not in made:
        made[name] = Rows(name, "" if whole else "core", cpu_unit)
    return made[name]
