"""Span tables against their truth, and superposition."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import span_sets
from cli_program import tapscope
from simulator import Simulation, simulate

from tapscope.reconstruct import span_tables, spans
from tapscope.store.codes import LinkKind
from tapscope.store.errors import TapscopeError
from tapscope.validate import span_truth
from tapscope.validate.span_truth import JudgedCalls, SpanAccuracy
from tapscope.validate.superpose import superposed


@pytest.fixture(scope="module")
def world() -> Simulation:
    return simulate(seed=23, users=10, seconds=6.0)


@pytest.fixture(scope="module")
def files(world, tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("spans")
    return (
        span_sets.write(folder / "spans.csv.gz", span_sets.rows(world)),
        span_sets.write(folder / "truth.csv.gz", span_sets.truth(world)),
    )


def _true_calls(files: tuple[Path, Path]) -> tuple[JudgedCalls, span_truth.SpanTruth]:
    """The calls with every link as it truly is, each certain."""
    read = spans.read([files[0]])
    truth = span_truth.read(files[1])
    given = span_tables.tables(read)
    ids = [read.message_id[row] for row in given.row]
    row_of = {own: row for row, own in enumerate(ids)}
    parent_of = dict(zip(truth.message_id, truth.parent, strict=True))
    parent = np.array([row_of.get(parent_of[own], -1) for own in ids])
    links = {
        "parent": parent,
        "kind": np.where(parent < 0, LinkKind.ROOT, LinkKind.LINKED),
        "probability": np.ones(len(ids)),
    }
    judged = span_truth.judged_calls(ids, given.addresses, given.calls, links, given.made["arrive_ns"])
    return judged, truth


def _edges(found: SpanAccuracy) -> tuple[int, int]:
    return sum(edge.edges for edge in found.paths.edges), sum(edge.right for edge in found.paths.edges)


def test_true_links_are_right_everywhere(world, files):
    found = span_truth.judge(*_true_calls(files))
    inner = int((world.true_parent >= 0).sum())
    assert _edges(found) == (inner, inner)
    roots = len(world.true_parent) - inner
    assert (found.paths.paths_correct, found.paths.paths_exist, found.traces) == (roots, roots, roots)
    assert found.end_to_end == 1.0
    assert found.paths.counters == {}
    assert (found.paths.sure_edges, found.paths.sure_wrong) == (inner, 0)


def test_a_wrong_edge_spoils_both_paths_and_one_end_to_end_transaction(files):
    calls, truth = _true_calls(files)
    child = next(row for row in range(len(calls.parent)) if calls.services[calls.callee[row]] == "db")
    own = calls.parent[child]
    other = next(
        row
        for row in range(len(calls.parent))
        if calls.services[calls.callee[row]] == "app"
        and row != own
        and calls.parent[row] != calls.parent[own]
    )
    calls.parent[child] = other
    found = span_truth.judge(calls, truth)
    assert found.paths.paths_correct == found.paths.paths_exist - 2
    assert found.traces_right_in_scope == found.traces - 1
    assert found.paths.sure_wrong == 1
    (edge,) = (edge for edge in found.paths.edges if edge.pair == "app->db")
    assert (edge.wrong, edge.unlinked) == (1, 0)


def test_an_edge_out_of_scope_does_not_count_end_to_end(files):
    calls, truth = _true_calls(files)
    child = next(row for row in range(len(calls.parent)) if calls.services[calls.callee[row]] == "db")
    calls.parent[child], calls.kind[child] = -1, LinkKind.UNKNOWN
    assert span_truth.judge(calls, truth).traces_right_in_scope == len(set(truth.trace)) - 1
    truth.in_scope[truth.message_id.index(calls.message_id[child])] = False
    found = span_truth.judge(calls, truth)
    assert found.traces_right_in_scope == found.traces
    assert found.paths.paths_correct == found.paths.paths_exist - 1


def test_rows_and_truth_that_do_not_meet_are_counted(files):
    calls, truth = _true_calls(files)
    del truth.message_id[0], truth.parent[0], truth.trace[0], truth.in_scope[0]
    truth.message_id.append("nobody")
    truth.parent.append(truth.message_id[0])
    truth.trace.append(truth.trace[0])
    truth.in_scope.append(True)
    found = span_truth.judge(calls, truth)
    assert found.paths.counters["calls_without_truth"] == 1
    assert found.paths.counters["truth_without_call"] == 1
    assert found.traces_right_in_scope < found.traces


def test_superposition_moves_whole_transactions_and_multiplies_what_is_in_flight(files):
    read, truth = spans.read([files[0]]), span_truth.read(files[1])
    dense = superposed(read, truth, 4)
    assert dense.message_id == read.message_id
    trace = dict(zip(truth.message_id, truth.trace, strict=True))
    shifts: dict[str, set[int]] = {}
    for row, own in enumerate(read.message_id):
        for name in ("sent_ns", "received_ns", "responded_ns", "answered_ns"):
            before, after = int(getattr(read, name)[row]), int(getattr(dense, name)[row])
            assert (before < 0) == (after < 0)
            if before >= 0:
                shifts.setdefault(trace[own], set()).add(before - after)
    assert all(len(moved) == 1 for moved in shifts.values())
    assert len(set().union(*shifts.values())) == 4

    def in_flight(table: spans.Spans) -> float:
        web = (table.callee == table.services.index("web")) & (table.responded_ns >= 0)
        begin, end = table.received_ns[web], table.responded_ns[web]
        return float((end - begin).sum() / (end.max() - begin.min()))

    assert in_flight(dense) == pytest.approx(4 * in_flight(read), rel=0.25)
    assert superposed(read, truth, 1).received_ns.tolist() == read.received_ns.tolist()


def test_superposition_without_common_rows_is_an_error(files):
    read, truth = spans.read([files[0]]), span_truth.read(files[1])
    truth.message_id = [f"other {own}" for own in truth.message_id]
    with pytest.raises(TapscopeError, match="knows no row"):
        superposed(read, truth, 2)


def test_the_command_shows_and_stores_what_was_right(files, tmp_path):
    out = tmp_path / "run.db"
    assert tapscope("trace", "--spans", files[0], "-o", out).returncode == 0
    shown = tapscope("validate", out, "--span-truth", files[1], "--json")
    assert shown.returncode == 0, shown.stderr
    record = json.loads(shown.stdout)
    assert record["end_to_end"] > 0.9
    assert {edge["pair"] for edge in record["paths"]["edges"]} == {"web->app", "app->db"}
    text = tapscope("validate", out, "--span-truth", files[1])
    assert "end-to-end accuracy %" in text.stdout
    listed = tapscope("query", out, "SELECT value FROM meta WHERE key = 'span_validation'", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "end_to_end" in listed.stdout


def test_the_report_of_a_span_table_speaks_of_rows_and_shows_what_was_right(files, tmp_path):
    out, page = tmp_path / "run.db", tmp_path / "run.html"
    assert tapscope("trace", "--spans", files[0], "-o", out).returncode == 0
    assert tapscope("validate", out, "--span-truth", files[1]).returncode == 0
    done = tapscope("report", out, "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert "rows of span tables" in text
    assert "Every row of the span table was used." in text
    assert "Links and whole paths against the truth" in text
    assert "web → app" in text
    assert "capture file" not in text
    assert "were open before the capture began" not in text


def _truth(tmp_path: Path, content: str, *, encoding: str = "utf-8") -> span_truth.SpanTruth:
    path = tmp_path / "truth.csv"
    path.write_text(content, encoding=encoding)
    return span_truth.read(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("comma", [",", ", ", " , "])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_truth_may_have_blanks_and_a_byte_order_mark_as_a_span_table_may(tmp_path, encoding, comma, quote):
    rows = ["message_id,true_parent_id,true_trace_id,tw_scope", f"{quote}a{quote},,t,0", "b,a,t,1", "c,a,t,0"]
    truth = _truth(tmp_path, "\n".join(rows).replace(",", comma), encoding=encoding)
    assert (truth.message_id, truth.parent, truth.trace) == (["a", "b", "c"], ["", "a", "a"], ["t"] * 3)
    assert truth.in_scope == [False, True, False]
    assert truth.counters == {}


def test_a_stray_quote_in_a_truth_costs_one_row(tmp_path):
    rows = [f"m{number},,t{number}" for number in range(900)]
    rows[100] = '"' + rows[100]
    truth = _truth(tmp_path, "\n".join(["message_id,true_parent_id,true_trace_id", *rows, ""]))
    assert truth.message_id == [f"m{number}" for number in range(900) if number != 100]
    assert truth.counters == {"span_truth.unclosed_quote": 1}


@pytest.mark.parametrize(("no", "yes"), [("0", "1"), ("0.0", "1.0"), ("False", "True"), ("0", "")])
def test_a_scope_is_read_as_programs_write_it(tmp_path, no, yes):
    rows = ["message_id,true_parent_id,true_trace_id,tw_scope", f"a,,t,{no}", f"b,a,t,{yes}", f"c,a,t,{no}"]
    assert _truth(tmp_path, "\n".join(rows)).in_scope == [False, True, False]


@pytest.mark.parametrize("scope", ["no", "2", "nan"])
def test_a_scope_that_is_neither_0_nor_1_is_an_error_that_names_the_row(tmp_path, scope):
    rows = ["message_id,true_parent_id,true_trace_id,tw_scope", "a,,t,0", f"b,a,t,{scope}"]
    with pytest.raises(TapscopeError, match=f"message_id b: tw_scope is '{scope}'; expected 0 or 1"):
        _truth(tmp_path, "\n".join(rows))


@pytest.mark.parametrize("row", ["", "nobody,,t\n"])
def test_a_truth_that_knows_no_call_of_the_run_is_too_little_to_judge_by(files, tmp_path, row):
    out, truth = tmp_path / "run.db", tmp_path / "truth.csv"
    assert tapscope("trace", "--spans", files[0], "-o", out).returncode == 0
    truth.write_text("message_id,true_parent_id,true_trace_id\n" + row)
    done = tapscope("validate", out, "--span-truth", truth)
    assert done.returncode == 3
    assert "Too little to judge by" in done.stderr


def test_validate_asks_for_exactly_one_kind_of_truth(files, tmp_path):
    out = tmp_path / "run.db"
    assert tapscope("trace", "--spans", files[0], "-o", out).returncode == 0
    assert tapscope("validate", out).returncode == 2
    assert tapscope("validate", out, "--events", tmp_path, "--span-truth", files[1]).returncode == 2
