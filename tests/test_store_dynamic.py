"""Tables made from a log's own header."""

from __future__ import annotations

import numpy as np
import pytest

from tapscope.store.dynamic import DynamicColumn, folded
from tapscope.store.runfile import RunFile

SOURCE = {"path": "hosts/web/x.raw.gz", "host": "web", "kind_of_record": "cpu", "format": "collectl raw"}


@pytest.fixture
def run(tmp_path):
    with RunFile.create(tmp_path / "run.db") as opened:
        yield opened


def test_types_are_inferred_and_units_and_original_names_kept(run):
    columns = {
        "end_ns": np.array([1, 2], np.int64),
        "[CPU]User%": ["1", "2"],
        "load": ["0.5", ""],
        "Name": ["vda", "a b"],
        "busy": np.array([0.5, np.nan]),
    }
    table = run.write_dynamic("cpu_web", columns, {"[CPU]User%": "%", "end_ns": "ns"}, SOURCE)
    ((name, host, kind, path, described),) = run.dynamic_tables()
    assert (name, host, kind, path) == (table, "web", "cpu", "hosts/web/x.raw.gz")
    assert described == [
        DynamicColumn("end_ns", "ns", "INTEGER", "end_ns"),
        DynamicColumn("cpu_user_pct", "%", "INTEGER", "[CPU]User%"),
        DynamicColumn("load", "", "REAL", "load"),
        DynamicColumn("name", "", "TEXT", "Name"),
        DynamicColumn("busy", "", "REAL", "busy"),
    ]
    found = run.read_dynamic(table)
    assert found["cpu_user_pct"].tolist() == [1, 2]
    np.testing.assert_array_equal(found["load"], [0.5, np.nan])
    assert found["name"].tolist() == ["vda", "a b"]
    np.testing.assert_array_equal(found["busy"], [0.5, np.nan])


def test_names_that_fold_to_one_stay_apart(run):
    table = run.write_dynamic("x", {"A b": [1], "a-b": [2], "id": [3], "9": [4], "%": [5]}, {}, SOURCE)
    assert {k: v.tolist() for k, v in run.read_dynamic(table).items()} == {
        "a_b": [1], "a_b_2": [2], "id_": [3], "c_9": [4], "pct": [5],
    }  # fmt: skip


def test_hostile_names_make_harmless_tables(run):
    table = run.write_dynamic('x"; DROP TABLE meta; --', {'a"; DROP TABLE meta; --': [1]}, {}, SOURCE)
    assert table == "host_x_drop_table_meta"
    assert run.meta("complete") is False


def test_the_same_file_loaded_again_replaces_its_table(run):
    first = run.write_dynamic("cpu_web", {"a": [1, 2]}, {}, SOURCE)
    second = run.write_dynamic("cpu_web", {"a": [3]}, {}, SOURCE)
    assert first == second
    assert run.read_dynamic(second)["a"].tolist() == [3]
    assert len(run.dynamic_tables()) == 1


def test_two_files_of_one_kind_have_a_table_each(run):
    first = run.write_dynamic("cpu_web", {"a": [1]}, {}, SOURCE)
    second = run.write_dynamic("cpu_web", {"a": [2]}, {}, SOURCE | {"path": "other.raw.gz"})
    assert first != second
    assert [t.path for t in run.dynamic_tables()] == ["hosts/web/x.raw.gz", "other.raw.gz"]


def test_no_dynamic_table_can_take_the_place_of_a_static_one(run):
    assert run.write_dynamic("table", {"a": [1]}, {}, SOURCE) == "host_table_2"
    assert len(run.dynamic_tables()) == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("[CPU:0]User%", "cpu_0_user_pct"),
        ("VmRSS", "vmrss"),
        ("%%", "pct_pct"),
        ("", "column"),
        ("1min", "c_1min"),
    ],
)
def test_folded_names(given, expected):
    assert folded(given) == expected
