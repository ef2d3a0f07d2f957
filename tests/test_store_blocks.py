"""Columns that are stored as arrays beside their rows come back as they were, and never outlive a change."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tapscope.store import tables
from tapscope.store.blocks import LAYOUT, ROWS, decode, encode
from tapscope.store.rows import SQL_NAME
from tapscope.store.runfile import RunFile

COLUMNS = ", ".join(column.name for column in tables.TABLES["calls"])
INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.one_of(st.integers(-2, 300), st.integers(10**9, 10**9 + 70_000), INT64, st.just(-1))


@given(arrays.arrays(np.int64, st.integers(1, 30), elements=NEAR), st.booleans(), st.data())
@settings(max_examples=400)
def test_every_block_comes_back_as_it_was(values, before, data):
    near = None
    if not before and data.draw(st.booleans()):
        near = data.draw(arrays.arrays(np.int64, len(values), elements=NEAR))
    coded = encode(values, near, before=before)
    assert decode(coded, len(values), near, before=before).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([7, 7, 7], 0),
        ([-1, -1], 1),
        ([5, -1, 259], 1),
        ([5, -1, 260], 2),
        ([0, 2**32 - 2], 4),
        ([0, 2**32], 8),
    ],
)
def test_a_value_takes_as_few_bytes_as_its_block_allows(values, width):
    assert encode(np.array(values), None)[2] == width


def table_of(name: str, rows: int, seed: int = 0) -> tables.Table:
    """Any numbers that fit, and times in order."""
    rng = np.random.default_rng(seed)
    table = {c.name: rng.integers(0, 100, rows).astype(c.dtype) for c in tables.TABLES[name]}
    if name == "calls":
        table["arrive_ns"] = np.cumsum(rng.integers(0, 10**6, rows)) + 1_795_000_000_000_000_000
        table["depart_ns"] = np.where(rng.random(rows) < 0.1, -1, table["arrive_ns"] + 5_000_000)
    for column in tables.TABLES[name]:
        if column.dtype == "float64":
            table[column.name] = rng.random(rows) ** rng.integers(0, 2, rows)  # one, or any fraction
    return table


def blocks(run: RunFile, name: str) -> int:
    return int(run.sql("SELECT count(*) FROM column_block WHERE table_name = ?", (SQL_NAME[name],))[0][0])


def row_by_row(path, name: str, columns) -> dict[str, list[int]]:
    query = f"SELECT {', '.join(columns)} FROM {SQL_NAME[name]} ORDER BY id"
    with closing(sqlite3.connect(path)) as connection:
        return dict(zip(columns, map(list, zip(*connection.execute(query), strict=True)), strict=True))


def same(path, name: str, *columns: str) -> None:
    """What is read is what stands in the rows, however it is read."""
    names = columns or tuple(LAYOUT[SQL_NAME[name]])
    with RunFile.open(path) as run:
        found = run.read_table(name, names)
    assert {column: values.tolist() for column, values in found.items()} == row_by_row(path, name, names)
    for column in tables.TABLES[name]:
        assert column.name not in found or found[column.name].dtype == np.dtype(column.dtype)


@pytest.mark.parametrize("name", ["calls", "links", "traces", "trace_calls"])
def test_a_table_that_is_written_piece_by_piece_is_read_whole(tmp_path, name):
    with RunFile.create(tmp_path / "run.db") as run:
        for piece, rows in enumerate((5, ROWS + 3, 1)):
            run.write_table(name, table_of(name, rows, piece), append=True)
        assert blocks(run, name) == 4 * len(LAYOUT[SQL_NAME[name]])
    same(tmp_path / "run.db", name)


def test_some_columns_are_read_without_the_others(tmp_path):
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_table("calls", table_of("calls", 1000))
    same(tmp_path / "run.db", "calls", "depart_ns", "conn")


def test_a_column_that_an_older_file_has_no_blocks_of_is_read_from_its_rows(tmp_path):
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_table("calls", table_of("calls", 1000))
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        connection.execute("DELETE FROM column_block WHERE name = 'tcp_seq'")
        connection.commit()
    same(tmp_path / "run.db", "calls", "tcp_seq", "arrive_ns")
    same(tmp_path / "run.db", "calls")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE call SET depart_ns = 5 WHERE id = 3",
        "DELETE FROM call WHERE id > 990",
        "DELETE FROM call WHERE id = 3",
        f"INSERT INTO call SELECT id + 1000, {COLUMNS} FROM call WHERE id < 5",
    ],
)
def test_rows_that_another_program_changes_are_read_as_they_are_now(tmp_path, change):
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_table("calls", table_of("calls", 1000))
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection:
        connection.execute(change)
        connection.commit()
    same(tmp_path / "run.db", "calls")
    with RunFile.open(tmp_path / "run.db", write=True) as run:
        run.write_table("calls", table_of("calls", 7, 3), append=True)
    same(tmp_path / "run.db", "calls")


def test_a_table_that_is_written_again_has_its_new_blocks(tmp_path):
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_table("calls", table_of("calls", 1000))
        run.write_table("calls", table_of("calls", 10, 1))
        assert blocks(run, "calls") == len(LAYOUT["call"])
        run.write_table("calls", tables.empty("calls"))
        assert blocks(run, "calls") == 0
    with RunFile.open(tmp_path / "run.db") as run:
        assert len(run.read_table("calls", ["conn"])["conn"]) == 0


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.data())
def test_every_call_comes_back_as_it_was(tmp_path, rows, data):
    dtypes = {column.name: np.dtype(column.dtype) for column in tables.TABLES["calls"]}
    table = {name: data.draw(arrays.arrays(dtype, rows), label=name) for name, dtype in dtypes.items()}
    with RunFile.create(tmp_path / "run.db", force=True) as run:
        run.write_table("calls", table)
    same(tmp_path / "run.db", "calls")
