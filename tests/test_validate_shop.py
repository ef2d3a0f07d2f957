"""A real run on PostgreSQL, Redis and memcached: how right the matcher is there, as a regression floor."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tapscope import capture
from tapscope.cli import pipeline
from tapscope.cli.inputs import find_inputs
from tapscope.cli.pipeline import TraceOptions
from tapscope.reconstruct import run
from tapscope.store.codes import EvidenceMode
from tapscope.validate import accuracy, truth
from tapscope.validate.accuracy import PathAccuracy
from tapscope.validate.event_calls import Names
from tapscope.validate.validation import validate

SHOP = Path(__file__).resolve().parent.parent / "pcaps" / "testbed_shop"
FLOORS = {"all": (99.70, 98.5), "noids": (99.6, 96.8), "timing": (99.3, 96.0)}
"""Percent of edges and of exact paths: a third more errors than measured. A regression floor, no aim."""


@pytest.fixture(scope="module")
def measured() -> dict[str, PathAccuracy]:
    captured = capture.read_files([str(path) for path in find_inputs([SHOP]).captures])
    names = Names()
    true = truth.read(SHOP / "truth" / "calls.csv.gz", names)
    found = {}
    for evidence in FLOORS:
        made = run.trace(captured, EvidenceMode[evidence.upper()])
        tables = (made.calls, captured.connections, captured.addresses, made.links, names)
        found[evidence] = accuracy.paths(accuracy.from_tables(*tables), true)
    return found


@pytest.mark.parametrize("evidence", FLOORS)
def test_accuracy_does_not_fall_below_the_floor(measured: dict[str, PathAccuracy], evidence: str) -> None:
    found, (least_edges, least_paths) = measured[evidence], FLOORS[evidence]
    edges = sum(edge.edges for edge in found.edges)
    assert edges > 8000
    assert 100 * sum(edge.right for edge in found.edges) / edges >= least_edges
    assert 100 * found.completeness >= least_paths


def test_what_the_matcher_claims_with_certainty_is_right(measured: dict[str, PathAccuracy]) -> None:
    for found in measured.values():
        assert found.sure_edges > 0.9 * sum(edge.edges for edge in found.edges)
        assert found.sure_wrong <= 0.002 * found.sure_edges


def test_the_truth_of_all_stores_is_joined_completely(tmp_path: Path) -> None:
    traced = pipeline.trace([SHOP], tmp_path / "run.db", TraceOptions(self_check=False))
    found = validate(traced, SHOP)
    assert found.paths.counters.get("truth_without_call", 0) == 0
    assert found.paths.counters.get("parent_not_captured", 0) == 0
    edges = Counter({edge.pair: edge.edges for edge in found.paths.edges})
    assert edges.keys() == {"HTTP->HTTP", "HTTP->POSTGRES", "HTTP->REDIS", "HTTP->MEMCACHED"}
    assert min(edges.values()) > 500
