"""Large tables of integers are read in blocks, in parallel: the same values as one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tapscope.store import tables
from tapscope.store.packed import BLOCK, LEAST_ROWS, packable, read_packed
from tapscope.store.runfile import RunFile

CALLS = {column.name: np.dtype(column.dtype) for column in tables.TABLES["calls"]}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("packed") / "run.db"


def same(found, expected):
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], column)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.data())
def test_every_integer_comes_back_as_it_was(path, rows, data):
    table = {name: data.draw(arrays.arrays(dtype, rows), label=name) for name, dtype in CALLS.items()}
    with RunFile.create(path, force=True) as run:
        run.write_table("calls", table)
    same(read_packed(path, "call", CALLS, 0, rows - 1), table)


def test_unsigned_64_bits_and_truth_values_come_back_as_they_were(path):
    dtypes = {column.name: np.dtype(column.dtype) for column in tables.TABLES["connections"]}
    table = {name: np.array([0, 1, 1], dtype) for name, dtype in dtypes.items()}
    table["bytes_to_server"] = np.array([0, 2**63, 2**64 - 1], np.uint64)
    with RunFile.create(path, force=True) as run:
        run.write_table("connections", table)
    same(read_packed(path, "connection", dtypes, 0, 2), table)


def test_columns_of_fractions_are_not_packed():
    assert packable(CALLS)
    assert not packable({column.name: np.dtype(column.dtype) for column in tables.TABLES["loads"]})


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A run file with more calls than are read one by one."""
    rows = LEAST_ROWS + BLOCK // 2
    rng = np.random.default_rng(3)
    table = {name: rng.integers(0, 100, rows).astype(dtype) for name, dtype in CALLS.items()}
    table["arrive_ns"] = rng.integers(-1, 2**62, rows)
    path = tmp_path_factory.mktemp("large") / "run.db"
    with RunFile.create(path) as run:
        run.write_table("calls", table)
    return path, table


def test_a_large_table_is_read_whole_and_in_order(large):
    path, table = large
    with RunFile.open(path) as run:
        same(run.read_table("calls"), table)
        same(
            run.read_table("calls", ["depart_ns", "conn"]),
            {name: table[name] for name in ("depart_ns", "conn")},
        )
        (ids,) = run.read_table("calls", ["id"]).values()
    np.testing.assert_array_equal(ids, np.arange(len(ids)))


def test_rows_that_are_missing_in_between_are_left_out(large, tmp_path):
    path, table = large
    copy = tmp_path / "holes.db"
    copy.write_bytes(path.read_bytes())
    with RunFile.open(copy, write=True) as run, run.transaction() as connection:
        connection.execute(
            "DELETE FROM call WHERE id % 7 = 3 OR id BETWEEN ? AND ?", (2 * BLOCK - 5, 3 * BLOCK + 5)
        )
    row = np.arange(len(table["conn"]))
    kept = (row % 7 != 3) & ~((row >= 2 * BLOCK - 5) & (row <= 3 * BLOCK + 5))
    with RunFile.open(copy) as run:
        same(
            run.read_table("calls", ["conn", "arrive_ns"]), {n: table[n][kept] for n in ("conn", "arrive_ns")}
        )
