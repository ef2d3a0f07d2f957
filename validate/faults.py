"""Are findings right? Findings of a run against a record of the faults that were caused in it on purpose.

The record is a CSV file with columns begin_ns, end_ns, host, cause, as `tapscope testbed run` leaves it in
truth/faults.csv: cause is a kind of fault (`stop`, `disk` ...) or the words of a JVM's collector. Every fault
has one cause that is right; a finding is judged by its strongest mechanism alone.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tapscope.analyze.finding import Finding
from tapscope.analyze.findings import findings
from tapscope.analyze.onset import FROM_LOG
from tapscope.hostmon.fuse import manifest_hosts
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate import outside

LEAST_NS = 50_000_000
"""Shorter faults are left out: they hurt nobody for longer than a window."""

SLACK_NS = 100_000_000
"""A finding that begins so long after a fault still is of this fault."""

AFTERMATH_NS = 1_500_000_000
"""What begins later than SLACK_NS, but within this time after a fault, is neither found nor false: clients
whose SYNs were dropped come again after a second, all at once."""

EARLY_NS = {"overflow": 3_500_000, "pool": 3_500_000}
"""By how much a record's begin may be too early, by kind: the program that makes a crowd notes it, and
has its visitors' first packet out 2 to 4 ms later."""

RIGHT = {
    "stop": "node stood still",
    "gc": "garbage collection",
    "disk": "disk writes",
    "cpu": "CPU saturation",
    "dirty": "dirty-page recycling",
    "overflow": "accept queue overflow",
    "pool": "connection or thread limit",
    "neighbour": "CPU taken by a neighbour",
    "clock": "CPU quota",
    "lock": "lock contention",
}
"""The cause that a finding must name, by kind of fault."""

COLUMNS = ("begin_ns", "end_ns", "host", "cause")


class Caused(NamedTuple):
    """One row of the record; kind: its cause in the words of RIGHT."""

    begin_ns: int
    end_ns: int
    host: str
    kind: str


@dataclass(frozen=True)
class Fault:
    """One fault, and what was found of it: `found` numbers a finding (None: missed), `named` is its cause.

    By how much the finding is late (negative: early): `onset_error_ns` the harm that it tells of,
    `cause_error_ns` what it takes for the begin of the cause, and whether the interval of that holds the
    fault's begin (None: it has none). Neither is judged where the finding has it from the very log that is
    the record.
    """

    begin_ns: int
    end_ns: int
    host: str
    kind: str
    found: int | None
    named: str
    origin: str
    node_right: bool
    onset_error_ns: int | None
    cause_error_ns: int | None = None
    cause_interval_holds: bool | None = None

    @property
    def cause_right(self) -> bool:
        """Whether the strongest mechanism is the right one."""
        return self.named == RIGHT.get(self.kind)


@dataclass(frozen=True)
class FaultScore:
    """How the findings of one run did.

    faults: those that took at least LEAST_NS. false: causes named by findings at times at which there was no
    fault, not even a short one, and no aftermath of one. quiet_ns: length of those times. Where it was
    recorded what else ran on the machine (outside.py), disturbed are the false findings at times at which
    that was much, and calm_ns is the quiet time in which it was not; else None.
    """

    run: str
    faults: list[Fault]
    short_faults: int
    findings: int
    aftermath: int
    false: list[str]
    quiet_ns: int
    disturbed: list[str] | None
    calm_ns: int | None

    @property
    def joined(self) -> int:
        """Faults that share their finding with another one."""
        found = [fault.found for fault in self.faults if fault.found is not None]
        return len(found) - len(set(found))


def validate(run_path: str | Path, faults_path: str | Path) -> FaultScore:
    """Score the findings of a run. Raises TapscopeError when a file cannot be used.

    Judged is the run phase that a testbed's manifest names, else all the time from the first call to the
    last: servers that warm up are slow without a fault.
    """
    rows = read(Path(faults_path))
    with RunFile.open(run_path) as run:
        found = findings(run)
        names = run.node_names()
        manifest = run.meta("manifest", {})
        first, last = run.sql("SELECT min(arrive_ns), max(max(depart_ns, arrive_ns)) FROM call")[0]
    phases = manifest.get("phases_ns") or {}
    begin, end = phases.get("run_begin", first or 0), phases.get("run_end", last or 0)
    rows = [row for row in rows if begin <= row.begin_ns and row.end_ns <= end]
    found = [one for one in found if begin <= one.episode.begin_ns < end]
    long = [row for row in rows if row.end_ns - row.begin_ns >= LEAST_NS]
    addresses = manifest_hosts(manifest)
    near = [_distance(one, rows) for one in found]
    false = [one for one, far in zip(found, near, strict=True) if far >= AFTERMATH_NS]
    busy = _busy(rows)
    others = outside.read(Path(faults_path).parent.parent, begin, end, manifest.get("cpus") or 1)
    disturbed = None
    if others is not None:
        disturbed = [one for one in false if others.during(one.episode.begin_ns, one.episode.end_ns)]
    return FaultScore(
        run=str(run_path),
        faults=[_fault(row, found, names, addresses) for row in long],
        short_faults=len(rows) - len(long),
        findings=len(found),
        aftermath=sum(SLACK_NS <= one < AFTERMATH_NS for one in near),
        false=[one.cause for one in false],
        quiet_ns=_quiet(busy, begin, end),
        disturbed=None if disturbed is None else [one.cause for one in disturbed],
        calm_ns=None if others is None else outside.quiet_ns(others, busy),
    )


def _fault(row: Caused, found: list[Finding], names: list[str], addresses: dict[str, str]) -> Fault:
    hit = [number for number, one in enumerate(found) if _distance(one, [row]) < SLACK_NS]
    if not hit:
        return Fault(*row, found=None, named="", origin="", node_right=False, onset_error_ns=None)
    best = min(hit, key=lambda number: abs(found[number].episode.begin_ns - row.begin_ns))
    one = found[best]
    node = names[one.origin].partition(":")[0] if one.origin >= 0 else ""
    began_ns = one.episode.begin_ns if one.began is None else one.began.at_ns
    same_log = row.kind == "gc" and one.began is not None and one.began.signs == FROM_LOG
    latest_ns = row.begin_ns + EARLY_NS.get(row.kind, 0)
    return Fault(
        *row,
        found=best,
        named=one.cause,
        origin=next((host for host, address in addresses.items() if address == node), node),
        node_right=node == addresses.get(row.host, row.host),
        onset_error_ns=one.episode.begin_ns - row.begin_ns,
        cause_error_ns=None if same_log else began_ns - row.begin_ns,
        cause_interval_holds=(
            None
            if same_log or one.began is None
            else one.began.low_ns <= latest_ns and row.begin_ns <= one.began.high_ns
        ),
    )


def _distance(one: Finding, rows: list[Caused]) -> int:
    """By how many ns a finding begins after the end of the last fault before its own end; 0 within one."""
    before = [row.end_ns for row in rows if row.begin_ns < one.episode.end_ns]
    return max(0, one.episode.begin_ns - max(before)) if before else np.iinfo(np.int64).max


def _busy(rows: list[Caused]) -> list[tuple[int, int]]:
    """Faults with their aftermaths, as stretches that do not overlap, in order."""
    out: list[tuple[int, int]] = []
    for row in sorted(rows):
        end = row.end_ns + AFTERMATH_NS
        if out and row.begin_ns <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((row.begin_ns, end))
    return out


def _quiet(busy: list[tuple[int, int]], begin: int, end: int) -> int:
    """Time between begin and end outside of the stretches."""
    return end - begin - sum(max(0, min(last, end) - max(first, begin)) for first, last in busy)


def read(path: Path) -> list[Caused]:
    """The rows of a record. Raises TapscopeError when it is none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or not set(COLUMNS) <= set(reader.fieldnames):
                raise TapscopeError(
                    "this is no record of faults",
                    path=path,
                    remedy=f"Its header must have {', '.join(COLUMNS)}.",
                )
            return [_caused(row) for row in reader]
    except (OSError, ValueError) as error:
        raise TapscopeError(
            f"the record of faults cannot be read: {error}", path=path, remedy="Check the file."
        ) from error


def _caused(row: dict[str, Any]) -> Caused:
    kind = "gc" if row["cause"].startswith("Pause ") else row["cause"]
    return Caused(int(row["begin_ns"]), int(row["end_ns"]), row["host"], kind)
