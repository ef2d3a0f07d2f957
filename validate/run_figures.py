"""What one run says about its system: throughput, response times, CPU by mode and disk bytes, one value each.

Times come from one observer only: the tap (a run file), or the load generator's own log (a run directory,
for runs that no tap watched). Warm-up and ramp-down are left out.
"""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.losses import loss_summary
from tapscope.analyze.symptoms import entry_nodes, transactions
from tapscope.hostmon.clock_layer import tap_times
from tapscope.hostmon.fuse import by_window, cpu_by_window, host_of_node
from tapscope.hostmon.load import load_host_files
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate.outside import DISTURBED

Ints = NDArray[np.int64]

PERCENTILES = (50, 90, 99)
ENTRY, MACHINE = "entry", "machine"
CGROUP = "cgroup_cpu"
WHOLE_DISKS = (
    ("collectl_disk", "read_kib_per_s", "written_kib_per_s"),
    ("vmstat_disk", "read_kib_per_s", "written_kib_per_s"),
    ("iostat_disk", "rkb_s", "wkb_s"),
)
"""Where a host's disk traffic is looked for, best first: kind of table, columns of KiB/s read and written."""
COVERED = 0.9
"""A host log that covers less of the run phase is flagged."""
SETTLE_NS = 1_000_000_000
"""Left out at the beginning of each turn: what was asked before is answered by then."""


class Figure(NamedTuple):
    """Name of a figure: whose (entry, a host, machine), what, and in which unit."""

    where: str
    what: str
    unit: str


@dataclass
class RunFigures:
    """One run. observer: tap or load generator; seed: of the workload, None when not known; options: of the
    testbed ({} elsewhere); seconds: length of the phase measured; flags: why not to trust it."""

    name: str
    observer: str
    seed: int | None
    options: dict[str, Any]
    seconds: float
    figures: dict[Figure, float]
    flags: list[str] = field(default_factory=list)


@dataclass
class _Watched:
    """What an observer saw of a run: requests (begin and end, ns) and logs of the hosts."""

    path: Path
    observer: str
    run: RunFile
    manifest: dict[str, Any]
    begin_ns: Ints
    end_ns: Ints
    flags: list[str]


def read(path: str | Path, lead_ns: int = 0, tail_ns: int = 0) -> RunFigures:
    """Figures of a run file, by the tap; or of a run directory, by its load generator.

    The phase is that of the manifest (`phases_ns`: run_begin, run_end), without one all that was observed;
    `lead_ns` and `tail_ns` are left out of either. TapscopeError for what is neither, or has nothing in it.
    """
    with _watched(Path(path)) as seen:
        return _figures(seen, *_phase(seen, lead_ns, tail_ns))


def read_turns(path: str | Path) -> tuple[list[RunFigures], list[RunFigures], list[str]]:
    """A run in which something was off and on in turns (`turns_ns` of the manifest), as if each turn were a
    run: those off, those on, in the order of time; and why not to trust the whole run.

    The first SETTLE_NS of a turn are left out. Pairs have the same seed, which is their number. TapscopeError
    as in `read`, and for a run without turns.
    """
    with _watched(Path(path)) as seen:
        turns = seen.manifest.get("turns_ns")
        if not isinstance(turns, list) or not turns:
            raise TapscopeError(
                "nothing was off and on in turns in this run",
                path=seen.path,
                remedy="Make one with `tapscope testbed run --record-threads --thread-turns SECONDS`.",
            )
        whole = _figures(seen, *_phase(seen, 0, 0))
        sides: tuple[list[RunFigures], list[RunFigures]] = ([], [])
        for begin_ns, end_ns, on in turns:
            side = sides[bool(on)]
            turn = _figures(seen, int(begin_ns) + SETTLE_NS, int(end_ns))
            number = len(side) + 1
            options = turn.options | {"turn": "on" if on else "off"}
            name = f"{turn.name} turn {number}"
            side.append(replace(turn, name=name, seed=number, options=options, flags=[]))
        return *sides, whole.flags


@contextmanager
def _watched(path: Path) -> Iterator[_Watched]:
    if path.is_dir():
        with _host_logs(path) as run:
            yield _by_load_generator(path, run)
    else:
        with RunFile.open(path) as run:
            yield _by_tap(run)


def _by_tap(run: RunFile) -> _Watched:
    calls, nodes, connections = (run.read_table(name) for name in ("calls", "nodes", "connections"))
    if not len(calls["server_node"]):
        raise TapscopeError(
            "there are no calls in this run",
            path=run.path,
            remedy="See `tapscope stats` for what was captured.",
        )
    asked = transactions(calls, connections, entry_nodes(nodes, calls))
    flags = _lost(loss_summary(run))
    return _Watched(run.path, "tap", run, run.meta("manifest", {}), asked.begin_ns, asked.end_ns, flags)


def _by_load_generator(folder: Path, run: RunFile) -> _Watched:
    logs = [
        path for name in ("requests.csv", "requests.csv.gz") if (path := folder / "users" / name).exists()
    ]
    log = logs[0] if logs else folder / "users" / "requests.csv"
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        with gzip.open(log, "rt") if log.suffix == ".gz" else log.open(encoding="utf-8") as file:
            rows = [(int(row["start_ns"]), int(row["end_ns"])) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TapscopeError(
            f"this is no finished run directory of the testbed: {error}",
            path=folder,
            remedy="Give directories with manifest.json and users/requests.csv, or run files.",
        ) from error
    start, answered = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    flags = [f"{np.count_nonzero(answered < 0)} requests without an answer"] if np.any(answered < 0) else []
    run.set_meta("manifest", manifest)
    known = answered >= 0
    return _Watched(folder, "load generator", run, manifest, start[known], answered[known], flags)


def _figures(seen: _Watched, begin_ns: int, end_ns: int) -> RunFigures:
    figures = _times(seen.begin_ns, seen.end_ns, begin_ns, end_ns)
    if seen.observer == "tap":
        figures |= _below_entry(seen.run, begin_ns, end_ns)
    flags = list(seen.flags)
    figures |= _host_figures(seen.run, begin_ns, end_ns, flags)
    options = seen.manifest.get("options", {})
    seed = options.get("seed")
    return RunFigures(
        name=seen.path.name,
        observer=seen.observer,
        seed=seed if isinstance(seed, int) else None,
        options=options,
        seconds=(end_ns - begin_ns) / 1e9,
        figures=figures,
        flags=flags,
    )


def _below_entry(run: RunFile, begin_ns: int, end_ns: int) -> dict[Figure, float]:
    """Mean response time of every tier but the first."""
    calls, nodes = run.read_table("calls"), run.read_table("nodes")
    hosts, names = host_of_node(run), run.node_names()
    figures = {}
    for node in np.setdiff1d(calls["server_node"], entry_nodes(nodes, calls)).tolist():
        here = (calls["server_node"] == node) & (calls["depart_ns"] >= begin_ns)
        here &= calls["depart_ns"] < end_ns
        if np.any(here):
            stay = calls["depart_ns"][here] - calls["arrive_ns"][here]
            where = hosts.get(node, names[node])
            figures[Figure(where, "response time, mean", "ms")] = float(stay.mean()) / 1e6
    return figures


@contextmanager
def _host_logs(folder: Path) -> Iterator[RunFile]:
    """A run file for the moment, with nothing in it but the host logs of a run directory."""
    with (
        tempfile.TemporaryDirectory(prefix="tapscope-") as scratch,
        RunFile.create(Path(scratch) / "hosts.db") as run,
    ):
        if (folder / "hosts").is_dir():
            load_host_files(run, folder / "hosts")
        yield run


def _phase(seen: _Watched, lead_ns: int, tail_ns: int) -> tuple[int, int]:
    phases = seen.manifest.get("phases_ns", {})
    if {"run_begin", "run_end"} <= set(phases):
        begin, end = int(phases["run_begin"]), int(phases["run_end"])
    elif len(seen.begin_ns):
        begin, end = int(seen.begin_ns.min()), int(seen.end_ns.max())
    else:
        begin = end = 0
    begin, end = begin + lead_ns, end - tail_ns
    if end <= begin or not np.any((seen.end_ns >= begin) & (seen.end_ns < end)):
        raise TapscopeError(
            "no request was answered in the time that is left of this run",
            path=seen.path,
            remedy="Leave out less of it (--warmup, --rampdown), or measure longer.",
        )
    return begin, end


def _times(start_ns: Ints, end_ns: Ints, begin_ns: int, until_ns: int) -> dict[Figure, float]:
    """Throughput and response times of the requests that were answered in the phase."""
    here = (end_ns >= begin_ns) & (end_ns < until_ns)
    took = (end_ns[here] - start_ns[here]) / 1e6
    figures = {Figure(ENTRY, "throughput", "1/s"): len(took) / ((until_ns - begin_ns) / 1e9)}
    if not len(took):
        return figures
    figures[Figure(ENTRY, "response time, mean", "ms")] = float(took.mean())
    for share, value in zip(PERCENTILES, np.percentile(took, PERCENTILES), strict=True):
        figures[Figure(ENTRY, f"response time, p{share}", "ms")] = float(value)
    return figures


def _lost(loss: dict[str, Any]) -> list[str]:
    """Why the tap's times of this run are not to be trusted."""
    flags = []
    if loss["dropped_packets"]:
        flags.append(f"{loss['dropped_packets']} packets dropped by the recorder")
    if loss["missing_bytes"]:
        flags.append(f"{loss['missing_bytes']} bytes never seen by the tap")
    if loss["lost_responses"]:
        flags.append(f"{loss['lost_responses']} responses lost")
    return flags


def _host_figures(run: RunFile, begin_ns: int, end_ns: int, flags: list[str]) -> dict[Figure, float]:
    """CPU by mode and disk bytes of every host; what hosts that share a kernel only have together stands
    under `machine`."""
    edges = np.array([begin_ns, end_ns], dtype=np.int64)
    kinds: dict[str, set[str]] = {}
    for table in run.dynamic_tables():
        kinds.setdefault(table.host, set()).add(table.kind)
    figures: dict[Figure, float] = {}
    whole = None
    for host, known in sorted(kinds.items()):
        cpu = cpu_by_window(run, host, edges)
        if cpu is not None:
            modes = {"busy": cpu.busy, "user": cpu.user, "system": cpu.system}
            modes |= {"steal": cpu.steal} if cpu.steal is not None else {}
            modes |= {"IO wait": cpu.wait} if cpu.wait is not None else {}
            for mode, values in modes.items():
                figures[Figure(host, f"CPU {mode}", cpu.unit)] = float(values[0])
        if CGROUP in known:
            whole = host if whole is None and known - {CGROUP} else whole
            disk = _disk(
                run, host, known, (("collectl_process", "read_bytes_per_s", "write_bytes_per_s"),), edges
            )
            figures |= {Figure(host, name, "kB/s"): value / 1e3 for name, value in disk.items()}
        else:
            disk = _disk(run, host, known, WHOLE_DISKS, edges)
            figures |= {Figure(host, name, "kB/s"): value * 1.024 for name, value in disk.items()}
    if whole is not None:
        figures |= _machine(run, whole, kinds[whole], edges)
        figures |= _outside(figures, run.meta("manifest", {}).get("cpus"), flags)
    for host in sorted(kinds):
        covered = _covered(run, host, begin_ns, end_ns)
        if covered < COVERED:
            flags.append(f"host logs of {host} cover {100 * covered:.0f} % of the time")
    return {name: value for name, value in figures.items() if not np.isnan(value)}


def _machine(run: RunFile, host: str, kinds: set[str], edges_ns: Ints) -> dict[Figure, float]:
    """What the kernel says of all hosts together, and of anything else that ran beside them."""
    figures = {}
    for mode, column in (("busy", "busy_pct"), ("IO wait", "wait_pct"), ("steal", "steal_pct")):
        values = by_window(run, host, "collectl_cpu", column, edges_ns)
        if values is not None:
            figures[Figure(MACHINE, f"CPU {mode}", "%")] = float(values[0])
    disk = _disk(run, host, kinds, WHOLE_DISKS, edges_ns)
    return figures | {Figure(MACHINE, name, "kB/s"): value * 1.024 for name, value in disk.items()}


def _outside(figures: dict[Figure, float], cpus: Any, flags: list[str]) -> dict[Figure, float]:
    """What none of the hosts used of the machine: the tap's recorder, and what had no business there."""
    busy = figures.get(Figure(MACHINE, "CPU busy", "%"))
    if busy is None or not isinstance(cpus, int):
        return {}
    hosts = sum(v for f, v in figures.items() if f.what == "CPU busy" and f.where != MACHINE)
    outside = max(busy * cpus - hosts, 0.0)
    if outside > DISTURBED * 100 * cpus:
        flags.append(f"other processes took {outside:.0f} % of a core of {cpus} from the hosts")
    return {Figure(MACHINE, "CPU outside the hosts", "% of one core"): outside}


def _disk(
    run: RunFile, host: str, kinds: set[str], sources: tuple[tuple[str, str, str], ...], edges_ns: Ints
) -> dict[str, float]:
    """Rates of bytes read and written, summed over all disks or processes that a table tells apart."""
    for kind, read_column, written_column in sources:
        if kind in kinds:
            columns = {"disk read": read_column, "disk written": written_column}
            return {name: _total(run, host, kind, column, edges_ns) for name, column in columns.items()}
    return {}


def _total(run: RunFile, host: str, kind: str, column: str, edges_ns: Ints) -> float:
    """Sum over the rows of a rate times the part of the phase that it holds for, divided by the phase; NaN
    without the column."""
    total = float("nan")
    for table in run.dynamic_tables():
        if table.host == host and table.kind == kind and any(c.name == column for c in table.columns):
            got = run.read_dynamic(table.table, ["begin_ns", "end_ns", column])
            begin, end = tap_times(run, host, got["begin_ns"], got["end_ns"])
            rate = got[column].astype(np.float64)
            known = ~np.isnan(rate) & (begin >= 0)
            overlap = np.minimum(end, edges_ns[1]) - np.maximum(begin, edges_ns[0])
            amount = float(rate[known] @ np.maximum(overlap[known], 0)) / float(edges_ns[1] - edges_ns[0])
            total = amount if np.isnan(total) else total + amount
    return total


def _covered(run: RunFile, host: str, begin_ns: int, end_ns: int) -> float:
    """Share of the phase between the first and the last sample of a host, of its best covered log."""
    best = 0.0
    for table in run.dynamic_tables():
        names = {column.name for column in table.columns}
        if table.host == host and {"begin_ns", "end_ns"} <= names:
            got = run.read_dynamic(table.table, ["begin_ns", "end_ns"])
            begins, ends = tap_times(run, host, got["begin_ns"], got["end_ns"])
            begins = begins[begins >= 0]
            if len(begins):
                reach = min(int(ends.max()), end_ns) - max(int(begins.min()), begin_ns)
                best = max(best, reach / (end_ns - begin_ns))
    return best
