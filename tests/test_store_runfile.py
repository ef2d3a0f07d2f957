"""The run file: round trips, errors in words, and what survives an interruption."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tapscope.store import schema, tables
from tapscope.store.errors import TapscopeError
from tapscope.store.rows import SQL_NAME
from tapscope.store.runfile import RunFile


def table_of(name: str, count: int, seed: int = 0) -> tables.Table:
    """A contract table of extreme and ordinary values."""
    rng = np.random.default_rng(seed)
    table: tables.Table = {}
    for column in tables.TABLES[name]:
        dtype = np.dtype(column.dtype)
        if dtype == np.bool_:
            table[column.name] = rng.random(count) < 0.5
        elif dtype.kind == "f":
            table[column.name] = rng.random(count)
        else:
            limits = np.iinfo(dtype)
            table[column.name] = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    return table


def same(first: tables.Table, second: tables.Table) -> None:
    assert list(first) == list(second)
    for column in first:
        assert first[column].dtype == second[column].dtype, column
        np.testing.assert_array_equal(first[column], second[column], err_msg=column)


@pytest.fixture
def run(tmp_path):
    with RunFile.create(tmp_path / "run.db") as opened:
        yield opened


@pytest.mark.parametrize("name", tables.TABLES)
def test_a_table_comes_back_with_the_values_and_dtypes_it_went_in_with(run, name):
    table = table_of(name, 1000)
    assert run.write_table(name, table) == 1000
    same(run.read_table(name), table)


@given(
    hnp.arrays(np.uint64, st.integers(0, 30), elements=st.integers(0, 2**64 - 1)),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_64_bit_hash_survives(run, hashes):
    table = tables.empty("evidence") | {
        "message": np.arange(len(hashes), dtype=np.int64),
        "slot": np.zeros(len(hashes), np.uint32),
        "kind": np.zeros(len(hashes), np.uint8),
        "hash": hashes,
    }
    run.write_table("evidence", table)
    np.testing.assert_array_equal(run.read_table("evidence")["hash"], hashes)


def test_a_run_file_has_its_name_only_when_it_has_its_tables(tmp_path, monkeypatch):
    path, named, migrate = tmp_path / "run.db", [], schema.migrate

    def watched(connection):
        named.append(path.exists())
        migrate(connection)
        named.append(path.exists())

    monkeypatch.setattr(schema, "migrate", watched)
    with RunFile.create(path):
        assert named == [False, False]
        with RunFile.open(path) as reader:
            assert reader.count("calls") == 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_mean_is_null_in_sql_and_nan_in_numpy(run):
    table = table_of("loads", 2)
    table["pit_mean_ns"][:] = [np.nan, 5.0]
    run.write_table("loads", table)
    assert run.sql("SELECT pit_mean_ns FROM load ORDER BY id") == [(None,), (5.0,)]
    np.testing.assert_array_equal(run.read_table("loads")["pit_mean_ns"], [np.nan, 5.0])


def test_writing_replaces_and_append_continues(run):
    first, second = table_of("links", 5, 1), table_of("links", 7, 2)
    run.write_table("links", first)
    run.write_table("links", second)
    same(run.read_table("links"), second)
    run.write_table("links", first, append=True)
    assert run.sql("SELECT min(id), max(id), count(*) FROM link") == [(0, 11, 12)]


def test_some_columns_under_a_condition_with_their_ids(run):
    table = table_of("links", 50)
    run.write_table("links", table)
    found = run.read_table("links", ["id", "child"], "probability > ?", (0.5,))
    chosen = table["probability"] > 0.5
    np.testing.assert_array_equal(found["id"], np.flatnonzero(chosen))
    np.testing.assert_array_equal(found["child"], table["child"][chosen])


def test_a_table_with_a_wrong_dtype_is_refused_at_the_door(run):
    table = table_of("links", 3) | {"child": np.zeros(3, np.int32)}
    with pytest.raises(ValueError, match="column child is int32, expected int64"):
        run.write_table("links", table)


def test_a_failed_write_leaves_the_table_as_it_was(run):
    good = table_of("links", 3)
    run.write_table("links", good)
    bad = table_of("links", 3) | {"probability": np.array([0.1, np.nan, 0.3])}  # NOT NULL
    with pytest.raises(sqlite3.IntegrityError):
        run.write_table("links", bad)
    same(run.read_table("links"), good)


def test_small_tables_round_trip(run):
    run.write_addresses(["10.0.0.1", "fe80::1"])
    run.write_classes([(1, "GET /{n}"), (3, "SELECT ?")])
    run.write_classes([(1, "GET /{n}"), (3, "SELECT ?")], ["GET /7", "SELECT 5"])
    assert run.sql("SELECT example FROM class") == [("GET /7",), ("SELECT 5",)]
    run.write_counters([("http.bad_chunk_size", 2, "messages"), ("decode.not_ip", 9, "packets")])
    run.write_counters([("http.bad_chunk_size", 3, "messages")])
    run.set_meta("options", {"window_ns": 50_000_000})
    source = {"path": "a.pcap", "kind": "capture", "format": "pcap", "bytes": 5, "first_ns": 1, "last_ns": 2}
    run.write_sources([source | {"packets": 7}])
    run.write_sources([source | {"packets": 8}])
    assert run.addresses() == ["10.0.0.1", "fe80::1"]
    assert run.classes() == [(1, "GET /{n}"), (3, "SELECT ?")]
    assert run.counters() == [("decode.not_ip", 9, "packets"), ("http.bad_chunk_size", 3, "messages")]
    assert run.meta("options") == {"window_ns": 50_000_000}
    assert run.meta("nothing", "default") == "default"
    assert run.sources() == [source | {"packets": 8}]


def test_text_tables_round_trip_and_fill_defaults(run):
    columns = {"message_id": ["a", "b"], "time_ns": np.array([1, 2]), "host": ["x", "y"]}
    columns |= {"service": ["web", "app"], "address": ["", ""], "port": [80, -1], "name": ["sr", "ss"]}
    assert run.write_columns("annotation", columns) == 2
    found = run.read_columns("annotation")
    assert found["service"] == ["web", "app"]
    assert found["value"] == [None, None]
    assert run.read_columns("annotation", "service = ?", ("app",))["time_ns"] == [2]


def test_the_names_of_all_codes_stand_in_the_file(run):
    names = dict(run.sql("SELECT value, name FROM code WHERE kind = 'call_flag'"))
    assert names == {1: "unanswered", 2: "lost_response", 4: "incomplete", 8: "error", 16: "inferred",
                     32: "retransmitted", 64: "clipped", 128: "setup"}  # fmt: skip


def test_the_schema_has_the_columns_of_the_contracts(run):
    for name, columns in tables.TABLES.items():
        found = {row[1]: row[2] for row in run.sql(f"PRAGMA table_info({SQL_NAME[name]})")}
        for column in columns:
            expected = "REAL" if column.dtype.startswith("float") else "INTEGER"
            assert found.get(column.name) == expected, f"{name}.{column.name}"


def test_every_table_is_strict(run):
    loose = run.sql(
        "SELECT name FROM pragma_table_list WHERE type = 'table' AND strict = 0 AND name NOT LIKE 'sqlite_%'"
    )
    assert loose == []


def test_every_view_can_be_read_when_nothing_is_stored(run):
    views = [name for (name,) in run.sql("SELECT name FROM sqlite_schema WHERE type = 'view'")]
    assert "v_link" in views
    assert {name: run.sql(f"SELECT * FROM {name}") for name in views} == {name: [] for name in views}


def test_migrations_applied_twice_are_applied_once(tmp_path):
    path = tmp_path / "run.db"
    RunFile.create(path).close()
    connection = schema.connect(path, write=True)
    before = connection.execute("SELECT sql FROM sqlite_schema ORDER BY rowid").fetchall()
    schema.migrate(connection)
    assert connection.execute("SELECT sql FROM sqlite_schema ORDER BY rowid").fetchall() == before
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.latest_version(),)


def test_a_migration_that_fails_leaves_the_version_before_it(tmp_path, monkeypatch):
    good = schema.migrations()
    broken = [
        *good,
        (len(good) + 1, "broken", "CREATE TABLE half (a INTEGER) STRICT; SELECT * FROM nowhere;"),
    ]
    path = tmp_path / "run.db"
    RunFile.create(path).close()
    monkeypatch.setattr(schema, "migrations", lambda: broken)
    connection = schema.connect(path, write=True)
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        schema.migrate(connection)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(good),)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)


@pytest.fixture
def old(tmp_path):
    """A run file of the first version, with an address in it."""
    path = tmp_path / "old.db"
    connection = schema.connect(path, write=True)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.executescript(f"BEGIN; {schema.migrations()[0][2]} PRAGMA user_version = 1; COMMIT;")
    connection.execute("INSERT INTO address (id, text) VALUES (0, '10.0.0.1')")
    connection.close()
    return path


def test_a_file_of_an_older_version_is_read_as_of_the_latest_and_stays_as_it_is(old, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = old.read_bytes()
    with RunFile.open(old) as run:
        assert run.sql("PRAGMA user_version") == [(schema.latest_version(),)]
        assert run.read_columns("event_load")["left_out"] == []
        assert (run.addresses(), run.path) == (["10.0.0.1"], old)
        assert len(list(temporary.iterdir())) == 1
    assert (list(temporary.iterdir()), old.read_bytes()) == ([], before)


def test_a_file_of_an_older_version_is_migrated_when_it_is_opened_to_write(old):
    with RunFile.open(old, write=True) as run:
        run.set_meta("seen", True)
    with schema.connect(old, write=False) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.latest_version(),)
    with RunFile.open(old) as run:
        assert (run.addresses(), run.meta("seen")) == (["10.0.0.1"], True)


def test_an_older_file_is_copied_where_there_is_room(old, tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(small))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda folder: usage._replace(free=0 if folder == small else usage.free)
    )
    with RunFile.open(old):
        assert (list(small.iterdir()), len(list(tmp_path.glob("tapscope-*")))) == ([], 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage._replace(free=0))
    with pytest.raises(TapscopeError, match="no room for a copy"):
        RunFile.open(old)


def test_a_file_of_a_later_version_is_refused(tmp_path):
    path = tmp_path / "run.db"
    RunFile.create(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(TapscopeError, match=r"version 999.*Use the tapscope that wrote it"):
        RunFile.open(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"hello, this is text\n" * 100, "not a tapscope run file"), (b"", "not a tapscope run file")],
)
def test_a_file_that_is_no_run_file_is_refused(tmp_path, content, words):
    path = tmp_path / "some.txt"
    path.write_bytes(content)
    with pytest.raises(TapscopeError, match=words):
        RunFile.open(path)


def test_a_database_of_somebody_else_is_refused_and_never_replaced(tmp_path):
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE treasure (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(TapscopeError, match="not a tapscope run file"):
        RunFile.open(path)
    with pytest.raises(TapscopeError, match="not a tapscope run file"):
        RunFile.create(path, force=True)
    assert path.read_bytes() == before


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(TapscopeError, match=r"nothing.db: no such file"):
        RunFile.open(tmp_path / "nothing.db")
    with pytest.raises(TapscopeError, match="folder"):
        RunFile.open(tmp_path)
    with pytest.raises(TapscopeError, match="folder"):
        RunFile.create(tmp_path)
    with pytest.raises(TapscopeError, match="its folder does not exist"):
        RunFile.create(tmp_path / "no" / "run.db")


def test_an_existing_run_file_is_replaced_only_when_forced(tmp_path):
    path = tmp_path / "run.db"
    with RunFile.create(path) as run:
        run.set_meta("mark", 1)
    with pytest.raises(TapscopeError, match="--force"):
        RunFile.create(path)
    with RunFile.create(path, force=True) as run:
        assert run.meta("mark") is None


def test_what_is_left_beside_a_run_that_was_removed_is_not_in_the_next(tmp_path):
    """Of a writer that was killed its log stays. SQLite wrote it into the new file, with the other tables."""
    path = tmp_path / "run.db"
    with RunFile.create(path) as run:
        run.set_meta("mark", 1)
        left = Path(f"{path}-wal").read_bytes()
    assert left, "nothing is left that could be mixed in"
    path.unlink()
    Path(f"{path}-wal").write_bytes(left)
    with RunFile.create(path) as run:
        assert run.meta("mark") is None


def test_a_cut_run_file_is_not_called_another_thing(tmp_path):
    path = tmp_path / "run.db"
    with RunFile.create(path) as run:
        run.set_meta("mark", 1)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(TapscopeError, match="damaged, or cut"):
        RunFile.open(path).meta("mark")


def test_a_second_writer_is_told_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    path = tmp_path / "run.db"
    with (
        RunFile.create(path) as first,
        RunFile.open(path, write=True) as second,
        first.transaction(),
        pytest.raises(TapscopeError, match="another process is writing"),
    ):
        second.set_meta("a", 1)


def test_a_query_cannot_change_the_run(run):
    with pytest.raises(TapscopeError, match="cannot change"):
        run.user_query("DELETE FROM meta")
    run.set_meta("after", True)
    assert run.meta("after") is True


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.root
def test_a_full_disk_is_said_and_what_was_stored_stays_readable(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        stored = table_of("links", 500)
        with RunFile.create(small / "run.db") as run:
            run.write_table("links", stored)
            with pytest.raises(TapscopeError, match="the disk is full") as failure:
                run.write_table("calls", table_of("calls", 200_000))
            assert "Free some space" in str(failure.value)
        with RunFile.open(small / "run.db") as run:
            same(run.read_table("links"), stored)
            assert run.count("calls") == 0
            assert run.meta("complete") is False
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_killed_writer_leaves_the_tables_that_it_finished(tmp_path):
    path = tmp_path / "run.db"
    program = (
        "import os, sys, numpy as np\n"
        "from tapscope.store import tables\n"
        "from tapscope.store.runfile import RunFile\n"
        "run = RunFile.create(sys.argv[1])\n"
        "row = {c.name: np.ones(1000, c.dtype) for c in tables.TABLES['links']}\n"
        "run.write_table('links', row)\n"
        "with run.transaction() as connection:\n"
        "    connection.execute('DELETE FROM link')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env=dict(os.environ, PYTHONPATH=":".join(sys.path)),
        check=False,
    )
    assert done.returncode == -9
    with RunFile.open(path) as run:
        assert run.count("links") == 1000
        assert run.meta("complete") is False


def test_a_closed_run_is_one_file(tmp_path):
    with RunFile.create(tmp_path / "run.db") as run:
        run.set_meta("a", 1)
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]
