"""One validation: a run file against its event monitors and, where it is known, against the true paths."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import WINDOW_NS
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile
from tapscope.validate import (
    accuracy,
    agreement,
    ids_in_capture,
    reading,
    request_agreement,
    summary,
    tap,
    tiers,
    truth,
)
from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.agreement import TierAgreement
from tapscope.validate.aligned import Aligned, align
from tapscope.validate.clocks import HostClock, Sightings, by_requests, corrected
from tapscope.validate.event_calls import TIERS, EventCalls, Names, Table
from tapscope.validate.request_agreement import RequestAgreement
from tapscope.validate.stored import store
from tapscope.validate.threads import monitor
from tapscope.validate.verdict import Thresholds, judge, judge_paths
from tapscope.validate.zones import ZONE_STEP_NS

FORMAT = 2
"""Version of the JSON structure; raised when a key changes its meaning or goes."""

ZONE_SLACK_NS = 60_000_000_000
"""A clock that is so near to a whole number of quarters of an hour wrong was taken for another time zone."""

Progress = Callable[[str, int, int], None]


@dataclass
class Validation:
    """What came out. `verdict` is passed, failed or undecided (too little to judge by); docs/validating.md
    has the keys of `as_json`."""

    run: str
    events: str
    truth: str | None
    window_ns: int
    tiers: list[TierAgreement]
    requests: list[RequestAgreement]
    thresholds: Thresholds
    clocks: list[dict[str, Any]]
    paths: PathAccuracy | None
    sources: list[dict[str, Any]]
    counters: list[tuple[str, int, str]]
    failures: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """passed, failed or undecided."""
        return "failed" if self.failures else "undecided" if self.undecided else "passed"

    @property
    def exit_code(self) -> ExitCode:
        """DONE, VALIDATION_FAILED, or LOW_QUALITY when there was too little to judge by."""
        codes = {
            "passed": ExitCode.DONE,
            "failed": ExitCode.VALIDATION_FAILED,
            "undecided": ExitCode.LOW_QUALITY,
        }
        return codes[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """Plain values, NaN as None; without the windows, which are in the run file's table event_load."""
        tiers = []
        for tier in self.tiers:
            values = {
                name: value for name, value in vars(tier).items() if name not in ("windows", "readings")
            }
            values |= {"readings": {reading.name: asdict(reading) for reading in tier.readings}}
            tiers.append(values | {"between": None if tier.between is None else asdict(tier.between)})
        document = {
            "format": FORMAT,
            "run": self.run,
            "events": self.events,
            "truth": self.truth,
            "window_ns": self.window_ns,
            "thresholds": asdict(self.thresholds),
            "verdict": self.verdict,
            "failures": self.failures,
            "undecided": self.undecided,
            "tiers": tiers,
            "requests": [asdict(each) for each in self.requests],
            "clocks": self.clocks,
            "paths": None if self.paths is None else self.paths.as_json(),
            "sources": self.sources,
            "counters": {name: value for name, value, _ in self.counters},
        }
        return dict(plain(document))

    def tables(self) -> list[summary.Table]:
        """(title, column heads, rows) of what people read first."""
        return summary.tables(self)


def validate(
    run_path: str | Path,
    events_dir: str | Path,
    truth_path: str | Path | None = None,
    *,
    by_threads: bool = False,
    width_ns: int = WINDOW_NS,
    zone: str | None = None,
    ids_in: Path | None = None,
    thresholds: Thresholds | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Validate a run file and store the result in it (tables event_call, event_load, agreement; meta
    validation).

    events_dir : folder of the event monitors' logs, or a run directory that holds it as events/ (threads/)
    truth_path : truth file, looked for beside that folder (../truth/calls.csv.gz) when not given
    by_threads : the folder holds logs of the servers' threads (threads.monitor), not of their requests
    ids_in     : capture in which the request IDs still stand: the truth is made from it
    width_ns   : of the windows; zone : of logs without one (events.load); thresholds : of the verdict
    Raises TapscopeError for unusable input; a disagreement is a result, not an error.
    """
    limits = thresholds or Thresholds()
    say = progress or (lambda what, done, total: None)
    say("event-monitor logs", 0, 4)
    events_dir = Path(events_dir)
    within = events_dir / ("threads" if by_threads else "events")
    if within.is_dir():
        events_dir = within
    truth_file = ids_in or (Path(truth_path) if truth_path is not None else _beside(events_dir))
    names, true, linked = Names(), None, None
    clients = _clients(events_dir)
    with nullcontext() if by_threads else reading.begun(events_dir, zone, clients) as read_logs:
        # What needs no logs is done while another process reads them.
        with RunFile.open(run_path) as run:  # not for writing: a reader may read with all processors
            say("run file", 1, 4)
            seen = tap.read(run)
            links = None if truth_file is None else accuracy.read_links(run)
            threads = _by_threads(run, seen, events_dir, clients) if by_threads else None
        if truth_file is not None and links is not None:
            linked = accuracy.from_run(seen, links, names)
            if ids_in is None:
                true = truth.read(truth_file, names)
        if threads is None:
            assert read_logs is not None
            logs = read_logs()
        else:
            logs = threads.logs
    if ids_in is not None and linked is not None:
        true = ids_in_capture.read(ids_in, logs, seen, names)
    with RunFile.open(run_path, write=True) as run:
        say("agreement", 2, 4)
        if threads is None:
            nodes = tiers.nodes_of_tiers(seen, logs, _manifest(events_dir))
        else:
            nodes = threads.nodes
            seen = replace(seen, begin_ns=np.where(threads.left_out, -1, seen.begin_ns))
        pairs = [tiers.compared(seen, logs, tier, nodes[tier]) for tier in logs.tiers() if tier in nodes]
        call_id = None if threads is None else threads.call_id
        paths = None
        if true is not None and linked is not None:
            row_of = truth.match(linked.keys, true.keys)
            if call_id is None:
                call_id = request_agreement.ids_of_calls(logs, true, row_of)
            say("paths", 3, 4)
            paths = accuracy.paths(linked, true, row_of)
        known = {} if call_id is None else _clocks(pairs, logs, call_id)
        aligned = [align(pair, seen.capture_ns, known) for pair in pairs]
        requests = (
            [] if call_id is None else [request_agreement.agree(each, logs, call_id) for each in aligned]
        )
        compared = [
            _compare(seen, logs, each, width_ns, requests[place] if requests else None)
            for place, each in enumerate(aligned)
        ]
        for place, tier in enumerate(compared):
            _refuse_coarse(tier, logs.calls["arrive_precision_ns"][pairs[place].log_rows], width_ns)
            judge(tier, requests[place] if requests else None, limits)
        result = Validation(
            run=str(run_path),
            events=str(events_dir),
            truth=None if truth_file is None else str(truth_file),
            window_ns=width_ns,
            tiers=compared,
            requests=requests,
            thresholds=limits,
            clocks=_clocks_as_json(aligned, logs),
            paths=paths,
            sources=logs.sources,
            counters=[
                *logs.counters,
                *(counter for counter in seen.counters if counter[1]),
                *_clock_counters(aligned, logs),
            ],
        )
        _verdict(result, logs)
        if paths is not None:
            result.failures += [f"paths: {why}" for why in judge_paths(paths, limits)]
        store(run, result.as_json(), compared, logs, nodes)
    say("done", 4, 4)
    return result


def _clocks(
    pairs: list[tiers.Compared], logs: EventCalls, call_id: NDArray[np.int64]
) -> dict[int, HostClock]:
    """Every log host's clock, of which enough requests are matched: a host's stamps may be in two tiers'
    rows."""
    seen: dict[int, Sightings] = {}
    for pair in pairs:
        for owner, found in request_agreement.sightings(pair, logs, call_id).items():
            mine = seen.setdefault(owner, Sightings())
            mine.received += found.received
            mine.sent += found.sent
            mine.departed += found.departed
    return {owner: by_requests(found) for owner, found in seen.items()}


def _clock_counters(aligned: list[Aligned], logs: EventCalls) -> list[tuple[str, int, str]]:
    """Clocks that were set, and clocks that are wrong by a time zone, as every number of quarters of an hour
    is."""
    counts: dict[str, int] = {}
    for owner, clock in {owner: clock for each in aligned for owner, clock in each.clocks.items()}.items():
        of, _ = logs.owner_names(owner)
        zones = [round(line.offset_ns / ZONE_STEP_NS) for line in clock.lines]
        near = [
            abs(line.offset_ns - zone * ZONE_STEP_NS) for line, zone in zip(clock.lines, zones, strict=True)
        ]
        wrong = any(zone and away < ZONE_SLACK_NS for zone, away in zip(zones, near, strict=True))
        counts[f"clock.{of}.zone_wrong"] = int(wrong)
        counts[f"clock.{of}.steps"] = len(clock.steps())
    return [(name, count, "") for name, count in counts.items() if count]


def _clocks_as_json(aligned: list[Aligned], logs: EventCalls) -> list[dict[str, Any]]:
    clocks = {owner: clock for each in aligned for owner, clock in each.clocks.items()}
    rows = []
    for owner, clock in sorted(clocks.items()):
        of, host = logs.owner_names(owner)
        rows.append({"of": of, "host": host, **clock.as_json()})
    return rows


def _compare(
    seen: tap.Tap,
    logs: EventCalls,
    aligned: Aligned,
    width_ns: int,
    requests: RequestAgreement | None,
) -> TierAgreement:
    pair = aligned.compared
    in_nodes = np.isin(seen.holes["node"], pair.nodes)
    place = TIERS.index(pair.tier)
    # A line that its caller's log lost is missing in every reading that uses that log.
    in_tiers = np.isin(logs.gaps["tier"], [place, *np.unique(logs.callers["by"][pair.caller_rows])])
    gaps: Table = {name: values[in_tiers] for name, values in logs.gaps.items()}
    host = np.array([logs.hosts.index(source["host"]) for source in logs.sources], dtype=np.int64)
    owner = logs.owner(gaps["tier"], host[gaps["source"]])
    for name in ("begin_ns", "end_ns"):
        gaps[name] = corrected(aligned.clocks, owner, gaps[name])
    return agreement.agree(
        aligned,
        seen.capture_ns,
        {name: values[in_nodes] for name, values in seen.holes.items()},
        gaps,
        seen.node_names,
        width_ns,
        None if requests is None else requests.position_ns(),
    )


def _refuse_coarse(tier: TierAgreement, precision_ns: NDArray[np.int64], width_ns: int) -> None:
    """A log whose stamps are coarser than the windows (MariaDB's slow log as a file) cannot be judged by."""
    if len(precision_ns) and np.median(precision_ns) > width_ns / 2:
        known = np.median(precision_ns) / 1e6
        tier.undecided.append(
            f"the log's arrivals are known to {known:g} ms, windows are {width_ns / 1e6:g} ms"
        )


def _verdict(result: Validation, logs: EventCalls) -> None:
    """The verdict over all tiers: failed when one fails, else undecided when one cannot be judged."""
    for tier in result.tiers:
        if tier.undecided:
            result.undecided += [f"{tier.tier}: {why}" for why in tier.undecided]
        else:
            result.failures += [f"{tier.tier}: {why}" for why in tier.failures]
    for name in logs.tiers():
        if name not in {each.tier for each in result.tiers}:
            result.undecided.append(f"{name}: no node of the run goes with this log")
    for path, promised in logs.empty:
        if not set(promised) <= set(logs.tiers()):
            result.undecided.append(f"{' or '.join(promised)}: {path} is empty")


def _by_threads(run: RunFile, seen: tap.Tap, folder: Path, clients: list[Path]) -> monitor.ThreadMonitor:
    """Thread logs of the servers and, if there is one beside them, of the load generator."""
    users = folder.resolve().parent / "users" / "threads"
    named = _manifest(folder).get("tiers")
    if users.is_dir():
        return monitor.read(run, seen, [folder, users], named=named)
    return monitor.read(run, seen, [folder], clients, named)


def _beside(events_dir: Path) -> Path | None:
    for name in ("calls.csv.gz", "calls.csv"):
        found = events_dir.resolve().parent / "truth" / name
        if found.exists():
            return found
    return None


def _clients(events_dir: Path) -> list[Path]:
    """The load generator's record of the run directory, if there is one."""
    folder = events_dir.resolve().parent / "users"
    return [path for name in ("requests.csv.gz", "requests.csv") if (path := folder / name).exists()][:1]


def _manifest(events_dir: Path) -> dict[str, Any]:
    """The manifest of the run directory, {} when there is none."""
    path = events_dir.resolve().parent / "manifest.json"
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TapscopeError(
            f"the manifest is not JSON: {error}", path=path, remedy="Restore it or move it away."
        ) from error
    return found if isinstance(found, dict) else {}


def plain(value: Any) -> Any:
    """Plain values for JSON; what is not finite becomes None."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
