"""Sets with known truth, and what the matcher makes of them."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import recorded
from baselines import BASELINES, parents
from numpy.typing import NDArray

from tapscope.capture import CaptureTables
from tapscope.reconstruct import span_tables
from tapscope.reconstruct.match.refusal import Refusal, unlink
from tapscope.reconstruct.run import Reconstruction
from tapscope.reconstruct.self_check import Expectation, expectation
from tapscope.reconstruct.spans import Spans
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table, empty
from tapscope.validate import accuracy, span_truth, superpose, truth
from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.event_calls import Names
from tapscope.validate.span_truth import SpanTruth

WARM_UP_S = 4
"""A recording begins when the servers do, which compile their code and open connections at first."""

EXPECTED_WRONG = 0.005
"""What `tapscope trace --max-wrong-joins` is tried with: the bar of wrong joins."""

CHEAP_BASELINES = [name for name in BASELINES if name != "TraceWeaver-style"]
"""For recordings: tuples of many statements, in numbers that vary, are not what the other one is for."""


@dataclass
class Measured:
    """One row of the table: a set under one kind of evidence. Shares are 0..1, NaN unknown."""

    name: str
    group: str
    evidence: str
    calls: int
    in_flight: float
    """Mean number of calls at the busiest of the nodes that call others."""
    paths: PathAccuracy
    end_to_end: float
    cpu_s: float
    expected_edges: float
    expected_paths: float
    """What the matcher says of itself: mean probability of its links, and of its traces."""
    check: Expectation | None = None
    check_cpu_s: float = 0.0
    warmed_up: float = math.nan
    """Exact paths of the transactions that began WARM_UP_S after the first call or later."""
    refused: float = math.nan
    """Share of the links that is refused so that at most EXPECTED_WRONG of the others are expected wrong,"""
    wrong_of_others: float = math.nan
    """and the share of the others that is."""
    baselines: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Share of edges and of paths (end to end where there is a scope) that each baseline gets right."""

    @property
    def edges(self) -> int:
        """Calls with a true parent."""
        return sum(edge.edges for edge in self.paths.edges)

    @property
    def right(self) -> int:
        """Those whose parent was found."""
        return sum(edge.right for edge in self.paths.edges)

    @property
    def wrong_joins(self) -> float:
        """Share of the links that are wrong."""
        return wrong_share(self.paths)


class KnownSet(Protocol):
    """Calls whose true parents are known."""

    def measure(self, modes: Sequence[str], with_baselines: bool) -> Iterator[Measured]:
        """One row per kind of evidence."""
        ...


@dataclass
class RunSet:
    """A run directory of the testbed with its truth."""

    path: Path
    group: str
    join_s: float = 0.0
    """Leave out what was captured before, as a tap that is attached late: then transactions count that began
    behind it."""

    def _read(self) -> CaptureTables:
        """The captures of the run, or their later part."""
        from tapscope import capture
        from tapscope.cli.inputs import find_inputs

        files = find_inputs([self.path]).captures
        if self.join_s <= 0:
            return capture.read_files([str(path) for path in files])
        with tempfile.TemporaryDirectory() as folder:
            late = Path(folder) / "late.pcap"
            packets = [packet for file in files for packet in recorded.read_packets(file)]
            packets.sort(key=lambda packet: packet[0])
            since = packets[0][0] + int(self.join_s * 1e9)
            recorded.write_packets(late, (packet for packet in packets if packet[0] >= since))
            return capture.read_files([str(late)])

    def measure(self, modes: Sequence[str], with_baselines: bool) -> Iterator[Measured]:
        """Read the captures once; match once per kind of evidence."""
        from tapscope.reconstruct import run

        captured = self._read()
        names = Names()
        file = next(self.path / "truth" / name for name in ("calls.csv.gz", "calls.csv"))
        true = truth.read(file, names)
        for number, mode in enumerate(modes):
            begun = time.process_time()
            made = run.trace(captured, EvidenceMode[mode.upper()])
            spent = time.process_time() - begun

            begin = int(made.calls["arrive_ns"][0]) if len(made.calls["arrive_ns"]) else 0
            whole_from_ns = begin if self.join_s > 0 else None

            def judged(
                links: Table, begun_from_ns: int | None = whole_from_ns, made: run.Reconstruction = made
            ) -> PathAccuracy:
                tables = (made.calls, captured.connections, captured.addresses, links, names)
                return accuracy.paths(accuracy.from_tables(*tables), true, begun_from_ns=begun_from_ns)

            found = Measured(
                name=self.path.name,
                group=self.group,
                evidence=mode,
                calls=len(made.calls["conn"]),
                in_flight=in_flight(made.calls),
                paths=judged(made.links),
                end_to_end=float("nan"),
                cpu_s=spent,
                expected_edges=float(made.quality()["expected_edge_accuracy"]),
                expected_paths=_expected_paths(made.links, made.traces),
                **_checked(made.calls, _tables(made), captured.evidence, mode),
                warmed_up=judged(made.links, begin + WARM_UP_S * 10**9).completeness,
                **_refusing(made.links, judged),
            )
            if with_baselines and number == len(modes) - 1:
                for name in CHEAP_BASELINES:
                    result = judged(_certain(parents(BASELINES[name], made.calls), made.links))
                    found.baselines[name] = _shares(result, float("nan"))
            yield found


@dataclass
class SpanSet:
    """A span table with its truth, laid over itself `times` times."""

    name: str
    spans: Spans
    truth: SpanTruth
    times: int

    def measure(self, modes: Sequence[str], with_baselines: bool) -> Iterator[Measured]:
        """A span table has no content: timing is the only evidence."""
        dense = superpose.superposed(self.spans, self.truth, self.times)
        given = span_tables.tables(dense)
        ids = [dense.message_id[row] for row in given.row]
        begun = time.process_time()
        made = span_tables.trace(dense, given)
        spent = time.process_time() - begun

        def judged(links: Table) -> span_truth.SpanAccuracy:
            columns = (ids, given.addresses, given.calls, links, given.made["arrive_ns"])
            return span_truth.judge(span_truth.judged_calls(*columns), self.truth)

        result = judged(made.links)
        found = Measured(
            name=f"{self.name} x{self.times}",
            group=f"{self.name} x{self.times}",
            evidence="timing",
            calls=len(ids),
            in_flight=in_flight(given.calls),
            paths=result.paths,
            end_to_end=result.end_to_end,
            cpu_s=spent,
            expected_edges=float(made.quality()["expected_edge_accuracy"]),
            expected_paths=_expected_paths(made.links, made.traces),
            **_checked(
                span_tables.matched_calls(dense, given),
                _tables(made),
                empty("evidence"),
                "timing",
                given.made,
            ),
            **_refusing(made.links, lambda links: judged(links).paths),
        )
        if with_baselines:
            for name, baseline in BASELINES.items():
                result = judged(_certain(parents(baseline, given.calls, given.made), made.links))
                found.baselines[name] = _shares(result.paths, result.end_to_end)
        yield found


@dataclass
class TableSet:
    """Tables of a simulation with the true parent of every call (rows of calls, -1 none)."""

    name: str
    calls: Table
    evidence: Table
    true_parent: NDArray[np.int64]
    node_names: list[str]

    def measure(self, modes: Sequence[str], with_baselines: bool) -> Iterator[Measured]:
        """Match once per kind of evidence."""
        from tapscope.reconstruct.match.links import links
        from tapscope.reconstruct.traces import traces

        ids = [str(row) for row in range(len(self.true_parent))]
        above = self.true_parent.tolist()
        top = span_truth.roots(self.true_parent)
        true = SpanTruth(
            ids,
            ["" if parent < 0 else str(parent) for parent in above],
            [str(root) for root in top.tolist()],
            [parent >= 0 for parent in above],
            {},
        )

        def judged(made: Table) -> span_truth.SpanAccuracy:
            columns = (ids, self.node_names, self.calls, made, self.calls["arrive_ns"])
            return span_truth.judge(span_truth.judged_calls(*columns), true)

        for number, mode in enumerate(modes):
            begun = time.process_time()
            made, _ = links(self.calls, self.evidence, EvidenceMode[mode.upper()])
            spent = time.process_time() - begun
            trees, tree_calls = traces(self.calls, made)
            result = judged(made)
            joined = made["kind"] == LinkKind.LINKED
            found = Measured(
                name=self.name,
                group="simulated",
                evidence=mode,
                calls=len(ids),
                in_flight=in_flight(self.calls),
                paths=result.paths,
                end_to_end=float("nan"),
                cpu_s=spent,
                expected_edges=float(made["probability"][joined].mean()) if joined.any() else 1.0,
                expected_paths=_expected_paths(made, trees),
                **_checked(self.calls, (made, trees, tree_calls), self.evidence, mode),
                **_refusing(made, lambda links: judged(links).paths),
            )
            if with_baselines and number == len(modes) - 1:
                for name in CHEAP_BASELINES:
                    certain = judged(_certain(parents(BASELINES[name], self.calls), made))
                    found.baselines[name] = _shares(certain.paths, float("nan"))
            yield found


def wrong_share(paths: PathAccuracy) -> float:
    """Share of the links that are wrong."""
    wrong = sum(edge.wrong for edge in paths.edges)
    return wrong / max(sum(edge.right for edge in paths.edges) + wrong, 1)


def in_flight(calls: Table) -> float:
    """Mean number of calls at the busiest node that calls others, over the time that it is called in."""
    busiest = 0.0
    for node in np.intersect1d(calls["server_node"], calls["client_node"]):
        here = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
        if here.any():
            begin, end = calls["arrive_ns"][here], calls["depart_ns"][here]
            busiest = max(busiest, float((end - begin).sum() / max(int(end.max() - begin.min()), 1)))
    return busiest


def run_directories(given: Sequence[Path]) -> Iterator[Path]:
    """Run directories with a truth among the given folders and right below them."""
    for path in given:
        for folder in [path, *sorted(each for each in path.iterdir() if each.is_dir())]:
            if (folder / "manifest.json").is_file() and (folder / "truth").is_dir():
                yield folder


def scenario_of(path: Path) -> str:
    """Scenario that a run directory was recorded with."""
    manifest: dict[str, Any] = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    return str(manifest.get("options", {}).get("scenario", "board"))


def _checked(
    calls: Table, made: tuple[Table, Table, Table], evidence: Table, mode: str, callers: Table | None = None
) -> dict[str, Any]:
    """Self-check of links, their traces and calls of traces."""
    begun = time.process_time()
    found = expectation(calls, *made, evidence, EvidenceMode[mode.upper()], callers)
    return {"check": found, "check_cpu_s": time.process_time() - begun}


def _refusing(links: Table, judged: Callable[[Table], PathAccuracy]) -> dict[str, float]:
    """What it takes to have EXPECTED_WRONG, and what comes of it."""
    refused = Refusal(max_wrong_joins=EXPECTED_WRONG).unsure(links)
    left = {name: column.copy() for name, column in links.items()}
    unlink(left, refused)
    made = max((links["kind"] == LinkKind.LINKED).sum(), 1)
    return {"refused": refused.sum() / made, "wrong_of_others": wrong_share(judged(left))}


def _tables(made: Reconstruction) -> tuple[Table, Table, Table]:
    return made.links, made.traces, made.trace_calls


def _expected_paths(links: Table, traces: Table) -> float:
    whole = links["kind"][traces["root"]] == LinkKind.ROOT
    return float(traces["probability"][whole].mean()) if whole.any() else float("nan")


def _certain(parent: NDArray[np.int64], links: Table) -> Table:
    """A baseline's parents as links. Which calls begin a transaction is given to it."""
    root = links["kind"] == LinkKind.ROOT
    kind = np.where(parent >= 0, LinkKind.LINKED, np.where(root, LinkKind.ROOT, LinkKind.UNKNOWN))
    count = len(parent)
    return {
        "child": np.arange(count),
        "parent": parent,
        "kind": kind,
        "probability": np.full(count, np.nan),
    }


def _shares(paths: PathAccuracy, end_to_end: float) -> tuple[float, float]:
    edges = sum(edge.edges for edge in paths.edges)
    right = sum(edge.right for edge in paths.edges)
    return right / max(edges, 1), paths.completeness if np.isnan(end_to_end) else end_to_end
