"""The short accuracy suite as a regression floor, and the table that it prints."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest
from accuracy import table
from accuracy.scenarios import FLOORS, MODES, RECORDINGS, Bar, Floor
from accuracy.sets import Measured

MAIN = Path(__file__).resolve().parent.parent / "benchmarks" / "accuracy" / "__main__.py"
suite = runpy.run_path(str(MAIN), run_name="suite")


@pytest.fixture(scope="module")
def measured() -> dict[tuple[int, str], Measured]:
    found = {}
    for users in sorted({floor.users for floor in FLOORS}):
        for row in suite["simulated"](users, 4.0).measure(MODES, False):
            found[users, row.evidence] = row
    return found


@pytest.mark.parametrize("floor", FLOORS, ids=lambda floor: f"{floor.users}-{floor.evidence}")
def test_accuracy_does_not_fall_below_the_floor(measured, floor: Floor):
    row = measured[floor.users, floor.evidence]
    assert 100 * row.right / row.edges >= floor.edges
    assert 100 * row.paths.completeness >= floor.paths


@pytest.mark.parametrize(("times", "least"), [(1, 0.95), (4, 0.88)])
def test_span_tables_are_matched_end_to_end(times, least):
    (row,) = suite["simulated_spans"](10, 20.0, times).measure(MODES, False)
    assert row.evidence == "timing"
    assert row.end_to_end >= least


def test_what_the_matcher_claims_with_certainty_is_right(measured):
    for row in measured.values():
        assert row.paths.sure_edges > 0.5 * row.edges
        assert row.paths.sure_wrong <= 0.01 * row.paths.sure_edges


def test_the_page_has_a_row_for_every_set_and_the_calibration_of_all(measured):
    rows = list(measured.values())
    page = suite["page"](rows)
    for row in rows:
        assert f"| {row.name} | {row.evidence} | " in page
    edges = sum(row["edges"] for each in rows for row in each.paths.calibration)
    assert f"{edges} edges, expected calibration error 0.0" in page


def test_a_bar_that_is_missed_is_said_so(measured):
    row = measured[20, "all"]
    row = Measured(**{**vars(row), "group": "board"})
    assert table.bar(row) == "paths >= 99.9: met"
    slow = Measured(**{**vars(measured[120, "timing"]), "group": "board"})
    assert table.bar(slow) == "paths >= 95: **missed**"
    assert table.percent(math.nan) == "-"


def test_a_bar_is_a_least_a_most_or_something_to_be_above():
    assert Bar("paths", 99.0).met(99.0)
    assert not Bar("end to end", 99.2, above=True).met(99.2)
    assert Bar("wrong joins", 0.5).met(0.5)
    assert not Bar("wrong joins", 0.5).met(0.6)


def test_every_recording_is_a_run_that_the_testbed_takes():
    from tapscope.cli.main import cli

    context = cli.make_context("tapscope", ["testbed"], resilient_parsing=True)
    group = cli.get_command(context, "testbed")
    command = group.get_command(context, "run")
    for recording in RECORDINGS:
        given = command.make_context("run", [*recording.options.split(), "-o", "x"])
        assert given.params["users"] >= 1
    assert len({recording.name for recording in RECORDINGS}) == len(RECORDINGS)
