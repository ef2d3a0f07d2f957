"""Many runs in one warehouse: added once, replaced when changed, asked over all of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli_program import CAPTURE, COMMAND, broken_off, environment

from tapscope.cli.main import run as main
from tapscope.cli.pipeline import TraceOptions, trace
from tapscope.report.warehouse.add import add_runs, run_files
from tapscope.report.warehouse.file import Warehouse
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
MS = 1_000_000


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A real run without host logs."""
    return trace([CAPTURE], tmp_path_factory.mktemp("traced") / "run.db", TraceOptions(self_check=False))


@pytest.fixture
def runs(traced, tmp_path):
    """Three runs whose host logs have other columns, types and units from run to run."""
    pool = {"begin_ns": np.array([0, 5]), "end_ns": np.array([5, 10])}
    paths = []
    for number, (columns, units) in enumerate(
        [
            ({"active": np.array([1, 2]), "wait": np.array([0.5, np.nan])}, {"wait": "ms"}),
            ({"active": np.array([1.5, 2.5]), "idle": np.array([7, 8])}, {}),
            ({"wait": np.array([3.0, 4.0]), "state": ["up", None]}, {"wait": "s"}),
        ],
        start=1,
    ):
        path = tmp_path / f"day{number}" / "run.db"
        path.parent.mkdir()
        shutil.copy(traced, path)
        with RunFile.open(path, write=True) as run:
            source = {"path": f"pool{number}.log", "host": "app", "kind_of_record": "pool"}
            run.write_dynamic("pool_app", pool | columns, units, source)
            run.set_meta("ordinal", number)
        paths.append(path)
    return paths


@pytest.fixture
def file(tmp_path):
    return tmp_path / "all.duckdb"


def added(file: Path, paths: list[Path], **options) -> list[tuple[str, str]]:
    with Warehouse.open(file, write=True) as warehouse:
        return [(one.name, one.what) for one in add_runs(warehouse, run_files(paths), **options)]


def asked(file: Path, query: str) -> list[tuple]:
    with Warehouse.open(file) as warehouse:
        return warehouse.user_query(query)[1]


def test_every_table_of_a_run_is_there_with_the_runs_own_values(traced, runs, file):
    added(file, runs)
    with RunFile.open(traced) as run:
        for view, query in {
            "load": "SELECT node, window_start_ns, load, max, pit_mean_ns FROM v_load",
            "node": "SELECT name, addr, port, protocol, depth FROM v_node",
            "trace": "SELECT begin_ns, response_time_ns, calls, class, entry FROM v_trace",
            "connection": "SELECT client_addr, client_port, first_ns, syn_retransmits FROM v_connection",
            "counter": "SELECT name, value, unit FROM counter",
        }.items():
            columns = query.partition(" FROM ")[0].removeprefix("SELECT ")
            stored = asked(file, f"SELECT {columns} FROM {view} WHERE experiment = 'day2'")
            expected = run.sql(query)
            assert expected
            assert sorted(map(repr, stored)) == sorted(map(repr, expected)), view
        calls = run.count("calls")
    assert asked(file, "SELECT sum(calls) FROM call_class WHERE experiment = 'day1'") == [(calls,)]
    assert asked(file, "SELECT name, calls FROM experiment") == [(f"day{i}", calls) for i in (1, 2, 3)]


def test_columns_that_differ_from_run_to_run_make_one_table(runs, file):
    added(file, runs)
    rows = asked(
        file, "SELECT experiment, active, wait, idle, wait_in_s, state FROM samples.pool ORDER BY 1, end_ns"
    )
    assert rows == [
        ("day1", 1.0, 0.5, None, None, None),
        ("day1", 2.0, None, None, None, None),  # what was NaN is NULL
        ("day2", 1.5, None, 7, None, None),  # integers of the first run were widened
        ("day2", 2.5, None, 8, None, None),
        ("day3", None, None, None, 3.0, "up"),  # another unit is another column
        ("day3", None, None, None, 4.0, None),
    ]
    described = asked(
        file, "SELECT experiment, name, stored_as, unit FROM host_column WHERE name = 'wait' ORDER BY 1"
    )
    assert described == [("day1", "wait", "wait", "ms"), ("day3", "wait", "wait_in_s", "s")]


def test_adding_again_changes_nothing_and_a_changed_run_is_replaced(runs, file):
    assert added(file, runs) == [("day1", "added"), ("day2", "added"), ("day3", "added")]
    tables = (
        "SELECT (SELECT count(*) FROM load), (SELECT count(*) FROM samples.pool), sum(id) FROM experiment"
    )
    before = asked(file, tables)
    assert {what for _, what in added(file, [runs[0].parent.parent])} == {"unchanged"}
    os.utime(runs[1])  # touched, not changed
    assert added(file, runs)[1] == ("day2", "unchanged")
    assert asked(file, tables) == before
    with RunFile.open(runs[1], write=True) as run, run.transaction() as connection:
        connection.execute("UPDATE host_pool_app SET idle = 99")
    assert added(file, runs) == [("day1", "unchanged"), ("day2", "replaced"), ("day3", "unchanged")]
    assert asked(file, tables) == before
    assert asked(file, "SELECT DISTINCT idle FROM samples.pool WHERE experiment = 'day2'") == [(99,)]


def test_the_same_run_under_another_name_is_not_inside_twice_and_a_moved_one_is_known(runs, file, tmp_path):
    added(file, runs[:1])
    copy = tmp_path / "copy.db"
    shutil.copy(runs[0], copy)
    assert added(file, [copy]) == [("day1", "unchanged")]
    assert asked(file, "SELECT path FROM experiment") == [(str(runs[0]),)]
    runs[0].unlink()
    assert added(file, [copy]) == [("day1", "unchanged")]
    assert asked(file, "SELECT path FROM experiment") == [(str(copy),)]


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_added(runs, file, tmp_path, capsys):
    broken = tmp_path / "day2" / "broken.db"
    broken.write_bytes(b"no database at all" * 100)
    sqlite3.connect(tmp_path / "day3" / "other.db").execute("CREATE TABLE t (a)").connection.close()
    status = main(["warehouse", "add", "-w", str(file), str(tmp_path)])
    shown = capsys.readouterr()
    assert status == ExitCode.ERROR
    assert "3 added, 0 replaced, 0 unchanged, 2 failed" in shown.out
    assert f"{broken}: this is not a tapscope run file" in shown.err
    assert len(asked(file, "FROM experiment")) == 3


def test_removing_a_run_leaves_nothing_of_it_and_all_of_the_others(runs, file, capsys):
    added(file, runs)
    rest = asked(
        file, "SELECT experiment, count(*) FROM load WHERE experiment != 'day2' GROUP BY 1 ORDER BY 1"
    )
    assert main(["warehouse", "remove", "-w", str(file), "day2"]) == ExitCode.DONE
    with Warehouse.open(file) as warehouse:
        tables = warehouse.sql(
            "SELECT table_schema || '.' || table_name FROM information_schema.columns "
            "WHERE column_name = 'experiment' AND table_schema LIKE 'stored%'"
        )
        assert all(not warehouse.sql(f"FROM {table} WHERE experiment = 2") for (table,) in tables)
    assert asked(file, "SELECT experiment, count(*) FROM load GROUP BY 1 ORDER BY 1") == rest
    assert main(["warehouse", "remove", "-w", str(file), "day2"]) == ExitCode.USAGE
    assert "no run is named 'day2'" in capsys.readouterr().err


def test_host_samples_have_the_time_of_the_taps_clock_beside_the_logged_one(traced, file, tmp_path):
    path = tmp_path / "skewed.db"
    shutil.copy(traced, path)
    with RunFile.open(path, write=True) as run:
        at = np.array([1_000, 2_000]) * MS
        run.write_dynamic("p_app", {"begin_ns": at - MS, "end_ns": at}, {}, {"path": "p", "host": "app"})
        clock = {"host": ["app"], "from_ns": [0], "to_ns": [10**10], "offset_ns": [70 * MS]}
        run.write_columns("host_clock", clock | {"points": [9], "applied": [1]})
    added(file, [path])
    assert asked(file, "SELECT end_ns - tap_ns FROM samples.p_app") == [(70 * MS,), (70 * MS,)]


def test_calls_and_findings_are_copied_when_asked_for(traced, file, capsys):
    status = main(
        ["warehouse", "add", "-w", str(file), "--calls", "--findings", "--name", "one", str(traced)]
    )
    assert status == ExitCode.DONE
    with RunFile.open(traced) as run:
        calls = run.read_table("calls", ["arrive_ns", "depart_ns"])
    stored = asked(file, "SELECT experiment, arrive_ns, depart_ns FROM call ORDER BY id")
    assert stored == [
        ("one", *row) for row in zip(calls["arrive_ns"].tolist(), calls["depart_ns"].tolist(), strict=True)
    ]
    capsys.readouterr()
    main(["findings", "--json", str(traced)])
    found = json.loads(capsys.readouterr().out)
    assert asked(file, "SELECT begin_ns, cause, origin FROM finding ORDER BY number") == [
        (one["begin_ns"], one["cause"], one["origin"]) for one in found
    ]


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE stored.node",
        "SELECT nothing_like_it",
        "FROM read_csv('/etc/passwd')",
        "COPY load TO 'x.csv'",
    ],
)
def test_a_query_can_only_read_the_warehouse(runs, file, query):
    added(file, runs[:1])
    with pytest.raises(TapscopeError) as raised:
        asked(file, query)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_query_is_one_statement_of_any_type(runs, file, capsys):
    """DuckDB knows types that JSON does not; of two statements only the second one was shown."""
    added(file, runs[:1])
    query = "SELECT 1.5 AS share, DATE '2026-11-30' AS day, [1, 2] AS places"
    assert main(["warehouse", "query", query, "-w", str(file), "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == [{"share": 1.5, "day": "2026-11-30", "places": [1, 2]}]
    for none_or_two in ("", "SELECT 1; SELECT 2"):
        assert main(["warehouse", "query", none_or_two, "-w", str(file)]) == ExitCode.USAGE
        assert "one statement" in capsys.readouterr().err


def test_ctrl_c_ends_a_query_that_works(runs, file):
    added(file, runs)
    endless = "SELECT max(range) FROM range(1000000000000)"
    status, said = broken_off(file, "warehouse", "query", "-w", file, endless)
    assert status == ExitCode.INTERRUPTED
    assert said == "tapscope: interrupted; what was stored before stays readable"


def test_files_that_are_no_warehouse_say_so(runs, file, tmp_path, capsys):
    assert main(["warehouse", "list", "-w", str(file)]) == ExitCode.ERROR
    assert "no such warehouse" in capsys.readouterr().err
    assert main(["warehouse", "list", "-w", str(runs[0])]) == ExitCode.ERROR
    assert "this is not a warehouse" in capsys.readouterr().err
    text = tmp_path / "text.duckdb"
    text.write_text("hello" * 1000)
    for other in (text, runs[1]):
        assert main(["warehouse", "add", "-w", str(other), str(runs[0])]) == ExitCode.ERROR
        assert f"{other}: this is not a warehouse" in capsys.readouterr().err
    assert main(["warehouse", "add", "-w", "/dev/null", str(runs[0])]) == ExitCode.ERROR
    assert "/dev/null: this is no regular file" in capsys.readouterr().err
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.duckdb")
    with pytest.raises(TapscopeError, match="path is UTF-8 only"):
        Warehouse.open(odd, write=True)
    assert text.read_text() == "hello" * 1000


def test_a_warehouse_that_was_cut_is_no_bug(runs, file, capsys):
    added(file, runs[:1])
    os.truncate(file, 20_000)
    assert main(["warehouse", "list", "-w", str(file)]) == ExitCode.ERROR
    errors = capsys.readouterr().err
    assert f"{file}: DuckDB cannot read or write this file" in errors
    assert "bug" not in errors


def test_ctrl_c_leaves_whole_runs_and_the_same_command_goes_on(runs, file, tmp_path):
    for number in range(12):
        path = tmp_path / "many" / f"run{number}.db"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(runs[0], path)
        with RunFile.open(path, write=True) as run:
            run.set_meta("ordinal", 100 + number)
    command = [*COMMAND, "warehouse", "add", "-w", str(file), str(tmp_path / "many")]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    try:
        inside = asked(
            file,
            "SELECT e.name, count(l.node) FROM experiment e LEFT JOIN load l ON l.experiment = e.name "
            "GROUP BY 1",
        )
    except TapscopeError as error:  # it was interrupted before it had made its tables
        if "is empty" not in str(error):
            raise
        inside = []
    if len(inside) == 12:  # too late: everything was done, and the interpreter was about to end
        assert process.returncode in (ExitCode.DONE, ExitCode.INTERRUPTED, -signal.SIGINT), said
    else:
        assert process.returncode == ExitCode.INTERRUPTED, said
    assert len({windows for _, windows in inside}) <= 1  # every run that is there is whole
    what = dict(added(file, [tmp_path / "many"]))
    assert len(what) == 12
    assert sum(state == "unchanged" for state in what.values()) == len(inside)
    assert sum(state == "added" for state in what.values()) == 12 - len(inside)


def test_a_warehouse_that_another_process_writes_to_is_left_alone(runs, file):
    added(file, runs[:1])
    code = (
        f"import duckdb, sys; c = duckdb.connect({str(file)!r}); print('open', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(TapscopeError, match="another process has this warehouse open"):
            Warehouse.open(file, write=True)
    finally:
        holder.communicate("")


def test_without_duckdb_the_extra_is_named(runs, file):
    code = "import sys; sys.modules['duckdb'] = None; from tapscope.cli.main import run; "
    code += "sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "warehouse", "add", "-w", str(file), str(runs[0])]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.ERROR
    assert "pip install 'tapscope[warehouse]'" in done.stderr
