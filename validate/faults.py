"""Are findings right? Findings of a run against a record of the stops that were caused in it on purpose.

The record is a CSV file with columns begin_ns, end_ns, host, cause, as `tapscope testbed run` leaves it in
truth/pauses.csv: cause is `stop` (the server was stopped by a signal) or the words of its collector.
"""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tapscope.analyze.findings import Finding, findings
from tapscope.hostmon.fuse import manifest_hosts
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate.summary import Table

LEAST_NS = 50_000_000
"""Shorter stops are left out: they hurt nobody for longer than a window."""

SLACK_NS = 100_000_000
COLUMNS = ("begin_ns", "end_ns", "host", "cause")


@dataclass(frozen=True)
class Fault:
    """One stop of the record, and the finding that covers it (None: missed)."""

    begin_ns: int
    end_ns: int
    host: str
    kind: str
    found: int | None
    node_right: bool
    cause_right: bool
    onset_error_ns: int | None


@dataclass(frozen=True)
class FaultScore:
    """How findings did. Shares are of the stops that took at least LEAST_NS; NaN becomes None in JSON."""

    run: str
    faults: list[Fault]
    short_faults: int
    findings: int
    false_findings: int
    hours: float

    def share(self, good: int, of: int) -> float:
        """good / of, NaN for nothing."""
        return good / of if of else float("nan")

    def as_json(self) -> dict[str, Any]:
        """Figures, and every stop."""
        hit = [fault for fault in self.faults if fault.found is not None]
        return {
            "run": self.run,
            "stops": len(self.faults),
            "short_stops": self.short_faults,
            "recall": self.share(len(hit), len(self.faults)),
            "node_right": self.share(sum(fault.node_right for fault in hit), len(hit)),
            "cause_right": self.share(sum(fault.cause_right for fault in hit), len(hit)),
            "median_onset_error_ms": _median([abs(fault.onset_error_ns or 0) / 1e6 for fault in hit]),
            "findings": self.findings,
            "findings_without_a_stop": self.false_findings,
            "hours": self.hours,
            "faults": [asdict(fault) for fault in self.faults],
        }

    def tables(self) -> list[Table]:
        """(title, column heads, rows) of what people read first."""
        rows: list[list[Any]] = []
        for kind in sorted({fault.kind for fault in self.faults}):
            of = [fault for fault in self.faults if fault.kind == kind]
            hit = [fault for fault in of if fault.found is not None]
            rows.append(
                [
                    kind,
                    len(of),
                    f"{self.share(len(hit), len(of)):.1%}",
                    f"{self.share(sum(fault.node_right for fault in hit), len(hit)):.1%}",
                    f"{self.share(sum(fault.cause_right for fault in hit), len(hit)):.1%}",
                    f"{_median([abs(fault.onset_error_ns or 0) / 1e6 for fault in hit]):.0f}",
                ]
            )
        heads = ["stop", "caused", "found", "right node", "right cause", "onset error ms (median)"]
        return [
            (f"Findings against stops of {LEAST_NS // 1_000_000} ms and more", heads, rows),
            (
                "Other findings",
                ["findings", "without a stop", "seconds of the run"],
                [[self.findings, self.false_findings, f"{self.hours * 3600:.0f}"]],
            ),
        ]


def validate(run_path: str | Path, faults_path: str | Path) -> FaultScore:
    """Score the findings of a run. Raises TapscopeError when a file cannot be used."""
    rows = _read(Path(faults_path))
    with RunFile.open(run_path) as run:
        found = findings(run)
        names = run.node_names()
        addresses = manifest_hosts(run.meta("manifest", {}))
        first, last = run.sql("SELECT min(arrive_ns), max(max(depart_ns, arrive_ns)) FROM call")[0]
    rows = [row for row in rows if first is not None and first <= row[0] and row[1] <= last]
    long = [row for row in rows if row[1] - row[0] >= LEAST_NS]
    faults = [_fault(row, found, names, addresses) for row in long]
    covered = {
        number for number, one in enumerate(found) for begin, end, *_ in rows if _overlaps(one, begin, end)
    }
    return FaultScore(
        run=str(run_path),
        faults=faults,
        short_faults=len(rows) - len(long),
        findings=len(found),
        false_findings=len(found) - len(covered),
        hours=((last or 0) - (first or 0)) / 3.6e12,
    )


def _fault(
    row: tuple[int, int, str, str], found: list[Finding], names: list[str], addresses: dict[str, str]
) -> Fault:
    begin, end, host, cause = row
    kind = "stop" if cause == "stop" else "garbage collection"
    expected = "node stood still" if kind == "stop" else kind
    hit = [number for number, one in enumerate(found) if _overlaps(one, begin, end)]
    if not hit:
        return Fault(begin, end, host, kind, None, False, False, None)
    best = min(hit, key=lambda number: abs(found[number].episode.begin_ns - begin))
    one = found[best]
    node = names[one.origin].partition(":")[0] if one.origin >= 0 else ""
    return Fault(
        begin,
        end,
        host,
        kind,
        best,
        node_right=node == addresses.get(host, host),
        cause_right=one.cause == expected,
        onset_error_ns=one.episode.begin_ns - begin,
    )


def _overlaps(one: Finding, begin: int, end: int) -> bool:
    return one.episode.begin_ns < end + SLACK_NS and one.episode.end_ns > begin


def _read(path: Path) -> list[tuple[int, int, str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or not set(COLUMNS) <= set(reader.fieldnames):
                raise TapscopeError(
                    "this is no record of stops",
                    path=path,
                    remedy=f"Its header must have {', '.join(COLUMNS)}.",
                )
            return [(int(r["begin_ns"]), int(r["end_ns"]), r["host"], r["cause"]) for r in reader]
    except (OSError, ValueError) as error:
        raise TapscopeError(
            f"the record of stops cannot be read: {error}", path=path, remedy="Check the file."
        ) from error


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return float("nan")
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
