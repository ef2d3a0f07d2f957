"""Calls by the servers' logs: numbers in the file, texts in the view, and the rows of older files."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from tapscope.store import schema
from tapscope.store.event_calls import COLUMNS, TOGETHER
from tapscope.store.runfile import RunFile

TEXTS = ["web", "", "access.log.1", "7f-3"]


def _calls(count: int) -> dict[str, np.ndarray]:
    calls = {name: np.arange(count, dtype=np.int64) for name in COLUMNS}
    calls |= {name: np.zeros(count, dtype=np.int32) for name in ("tier", "host")}
    calls["request_id"] = np.where(np.arange(count) % 2 == 0, 3, 1)
    calls["class"] = np.full(count, 1)
    calls["file"] = np.full(count, 2)
    return calls


@pytest.mark.parametrize("count", [0, 1, TOGETHER, 3 * TOGETHER + 5])
def test_calls_by_the_logs_are_read_with_their_texts(tmp_path, count):
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_event_calls(_calls(5), ["another", *TEXTS])
        run.write_event_calls(_calls(count), TEXTS)
        found = run.read_columns("event_call")
        assert found["id"] == found["arrive_ns"] == found["status"] == list(range(count))
        assert set(found["tier"]) <= {"web"}
        assert found["request_id"] == [("7f-3", "")[row % 2] for row in range(count)]
        assert found["detail"] == [f"access.log.1:{row}" for row in range(count)]
        assert run.count("event_call") == count
        mine = run.read_columns("event_call", "request_id = ?", ("7f-3",))
        assert mine["id"] == list(range(0, count, 2))


def test_the_calls_of_a_request_are_found_by_an_index(tmp_path):
    with RunFile.create(tmp_path / "run.db") as run:
        run.write_event_calls(_calls(40), TEXTS)
        plan = run.sql("EXPLAIN QUERY PLAN SELECT * FROM event_call WHERE request_id = '7f-3'")
    assert any("event_call_row_request" in row[-1] for row in plan)
    assert not any(row[-1].startswith("SCAN") for row in plan)


def test_rows_of_an_older_file_are_the_same_in_the_view(tmp_path):
    path = tmp_path / "old.db"
    connection = schema.connect(path, write=True)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    for version, _, text in schema.migrations()[:9]:
        connection.executescript(f"BEGIN; {text}; PRAGMA user_version = {version}; COMMIT;")
    names = "tier, host, request_id, class, arrive_ns, downstream_send_ns, depart_ns, status, detail"
    rows = [
        ("web", "apache", "7f-3", "", 10, 11, 20, 200, "access.log.1:12"),
        ("db", "", "", "Statement", 12, -1, -1, -1, "slow_log.tsv:3"),
    ]
    connection.executemany(f"INSERT INTO event_call ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    with RunFile.open(path) as run:
        assert run.sql(f"SELECT {names} FROM event_call ORDER BY id") == rows
        assert run.sql("SELECT id, downstream_receive_ns FROM event_call ORDER BY id") == [(1, -1), (2, -1)]
        with pytest.raises(sqlite3.OperationalError):
            run.sql("SELECT ordinal FROM event_call")
