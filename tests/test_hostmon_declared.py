"""Declared formats: stages, times and columns by hand; damaged logs; what `tapscope hosts guess` proposes."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from cli_program import tapscope

from tapscope.hostmon.clock import NOTHING_TOLD, Told, told, zone_of
from tapscope.hostmon.declared import load_format, parse_format
from tapscope.hostmon.guess import guess_format
from tapscope.hostmon.load import load_host_files, read_host_log
from tapscope.hostmon.samples import HostLog
from tapscope.hostmon.time_form import TimeForm
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile

S = 1_000_000_000
POOL = r"""
name = "pool"
recognise = '^pool log of (?P<host>\S+)'

[time]
column = ["date", "time"]
form = "%Y-%m-%d %H:%M:%S.%f"
zone = "Europe/Berlin"

[[stage]]
join = '^\s+at '
[[stage]]
replace = ',(?=\d{3} )'
with = '.'
[[stage]]
drop = '^#'
[[stage]]
context = '^pool log of (?P<host>\S+) on (?P<date>\S+)'
[[stage]]
row = '^(?P<time>\S+) pool (?P<pool>\w+): (?P<active>\d+) active, waited (?P<wait>\S+) ms, (?P<served>\d+)'
[[stage]]
row = '^(?P<time>\S+) (?P<level>WARN|ERROR) (?P<text>.*)'
kind = "events"

[column.pool]
key = true
[column.wait]
name = "wait_s"
unit = "s"
factor = 0.001
[column.served]
counter = true
[column.text]
keep = false
"""
POOL_LOG = """pool log of app1 on 2026-07-01
# written by hand
12:00:00,000 pool orders: 3 active, waited 1.5 ms, 100 served
12:00:00,000 pool users: 1 active, waited 0.5 ms, 10 served
12:00:00,050 pool orders: 5 active, waited 20 ms, 110 served
12:00:00,060 WARN no connection for alice
    at Pool.java:1
    at Main.java:2
12:00:00,100 pool users: 1 active, waited 0.5 ms, 30 served
12:00:00,100 pool orders: 2 active, waited 2 ms, 112 served
something else
"""


def read(toml: str, log: str, said: Told = NOTHING_TOLD) -> HostLog:
    return parse_format(toml).read(log.splitlines(keepends=True), "", said)


def at_ns(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000) * 1_000_000


# ---- stages ----


def test_stages_make_rows_of_a_log() -> None:
    log = read(POOL, POOL_LOG)
    assert log.host == "app1"
    assert log.warnings == []
    assert log.counters == {"host.declared.unmatched_line": 1}
    assert [table.kind for table in log.tables] == ["pool", "pool_events"]
    pool = log.tables[0]
    assert pool.columns["pool"] == ["orders"] * 3 + ["users"] * 2
    start = at_ns("2026-07-01T10:00:00")  # Berlin in summer
    assert (pool.columns["end_ns"] - start).tolist() == [0, 50_000_000, 100_000_000, 0, 100_000_000]
    assert pool.columns["begin_ns"].tolist() == [-1, start, start + 50_000_000, -1, start]
    np.testing.assert_allclose(pool.columns["wait_s"], [0.0015, 0.02, 0.002, 0.0005, 0.0005])
    np.testing.assert_allclose(pool.columns["served_per_s"], [np.nan, 200, 40, np.nan, 200])
    assert (pool.units["wait_s"], pool.originals["wait_s"]) == ("s", "wait")
    events = log.tables[1]
    assert events.columns["level"] == ["WARN"]
    assert "text" not in events.columns  # keep = false


def test_a_table_is_read_by_its_own_header() -> None:
    toml = """
name = "queue"
[time]
column = "ms"
form = "epoch_ms"
[[stage]]
table = '^ms;'
separator = ";"
"""
    log = read(
        toml, "ms;depth;disk a\n1795241865123;5;1.5\n1795241865173;7;x\nms;depth\n1795241865223;9\nbad\n"
    )
    (table,) = log.tables
    assert table.columns["depth"].tolist() == [5, 7, 9]
    assert table.columns["disk_a"] == ["1.5", "x", None]
    assert log.counters == {"host.declared.unmatched_line": 1}


def test_an_event_may_be_marked_by_its_begin_and_last() -> None:
    toml = """
name = "flush"
[time]
column = "at"
form = "epoch_s"
marks = "begin"
length = "took"
length_unit = "ms"
[[stage]]
row = '^(?P<at>\\S+) flush of (?P<pages>\\d+) pages took (?P<took>\\S+) ms'
"""
    table = read(toml, "1795241865.25 flush of 90 pages took 12.5 ms\n").tables[0].columns
    assert table["begin_ns"].tolist() == [1795241865_250_000_000]
    assert table["end_ns"].tolist() == [1795241865_262_500_000]


def test_damaged_lines_and_cuts_are_counted() -> None:
    lines = POOL_LOG.splitlines(keepends=True)
    whole = {int(end) for table in read(POOL, POOL_LOG).tables for end in table.columns["end_ns"]}
    for cut in range(3, len(lines)):
        log = parse_format(POOL).read(lines[:cut], "", NOTHING_TOLD)
        assert {int(end) for table in log.tables for end in table.columns["end_ns"]} <= whole
    for seed in range(30):
        chance = random.Random(seed)
        data = bytearray(POOL_LOG.encode())
        for _ in range(4):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            log = read(POOL, data.decode(errors="replace"))
        except TapscopeError:
            continue
        assert all(len(set(map(len, table.columns.values()))) == 1 for table in log.tables)


def test_lines_and_records_without_an_end_are_bounded() -> None:
    long = "12:00:00,000 pool x" + "y" * 200_000 + "\n"
    log = read(POOL, POOL_LOG + long + "    at x\n" * 5000)
    assert log.counters["host.declared.long_line"] == 1 + 5000 - 999


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("name = ", "nome = "), "nome"),
        (('column = ["date", "time"]', ""), "'column' is missing"),
        (("%Y-%m", "%Q-%m"), "%Q is no part of a time"),
        (("(?P<time>", "(?P<time"), "pattern|name|group"),
        (("drop = '^#'", "drops = '^#'"), "stage 3 needs exactly one of"),
        (("factor = 0.001", 'factor = "x"'), "float"),
        (("counter = true", "count = true"), "count"),
        (('zone = "', 'zone = "Nowhere/'), "no time zone is called"),
        (("[time]", "[time"), "format"),
    ],
)
def test_a_wrong_format_says_what_is_wrong(change: tuple[str, str], what: str) -> None:
    with pytest.raises(TapscopeError, match=what):
        read(POOL.replace(*change), POOL_LOG)


# ---- times ----


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("iso", "2026-11-21T06:17:45.123456789+01:00", "2026-11-21T05:17:45"),
        ("%d/%b/%Y:%H:%M:%S %z", "21/Nov/2026:06:17:45 -0500", "2026-11-21T11:17:45"),
        ("%a %b %d %H:%M:%S %Y", "Sat Nov  1 06:17:45 2026", "2026-11-01T06:17:45"),
        ("%m/%d/%y %I:%M:%S %p", "11/21/26 12:17:45 AM", "2026-11-21T00:17:45"),
        ("%b %d %H:%M:%S", "Nov 21 06:17:45", "2026-11-21T06:17:45"),
        ("epoch_s", "1795241865.5", "2026-11-21T06:17:45.500"),
        ("epoch_us", "1795241865500000", "2026-11-21T06:17:45.500"),
    ],
)
def test_times_of_many_forms(form: str, text: str, expected: str) -> None:
    found = TimeForm(form, NOTHING_TOLD, year=2026).ns(text)
    assert found // 1_000_000 * 1_000_000 == at_ns(expected) + (123_000_000 if "123456789" in text else 0)


def test_fractions_are_exact_to_the_nanosecond() -> None:
    assert TimeForm("iso", NOTHING_TOLD).ns("2026-11-21T06:17:45.123456789Z") % S == 123_456_789
    assert TimeForm("epoch_s", NOTHING_TOLD).ns("1795241865.123456789") % S == 123_456_789
    assert TimeForm("%H:%M:%S.%f %d.%m.%Y", NOTHING_TOLD).ns("06:17:45.000000001 21.11.2026") % S == 1


def test_a_log_without_years_goes_on_over_new_year() -> None:
    form = TimeForm("%b %d %H:%M:%S", Told(zone_of("UTC")), year=2026)
    before, after = form.ns("Dec 31 23:59:59"), form.ns("Jan  1 00:00:00")
    assert after - before == S


def test_a_late_line_of_the_old_year_is_of_the_old_year() -> None:
    form = TimeForm("%b %d %H:%M:%S", Told(zone_of("UTC")), year=2026)
    stamps = ["Dec 31 23:59:59", "Jan  1 00:00:00", "Dec 31 23:59:59", "Jan  1 00:00:01"]
    assert [form.ns(stamp) - at_ns("2027-01-01T00:00:00") for stamp in stamps] == [-S, 0, -S, S]
    assert form.clock.counters["host.time.went_back"] == 1


def test_the_user_tells_start_and_zone() -> None:
    assert told("+0200", "2026-11-21T08:00:00").start_ns == at_ns("2026-11-21T06:00:00")
    assert told(None, "1795241865.5").start_ns == 1795241865_500_000_000
    with pytest.raises(TapscopeError, match="is no time"):
        told(None, "yesterday")
    with pytest.raises(TapscopeError, match="no time zone is called"):
        told("Mars/Olympus", None)
    with pytest.raises(TapscopeError, match="no time zone is called"):
        told("+9900", None)


# ---- proposals ----

APP = "".join(
    f"2026-11-21 06:17:{i // 20:02},{i % 20 * 50:03} {'WARN' if i % 7 == 0 else 'INFO'} pool={'ab'[i % 2]} "
    f"active={i} wait={i * 1.5}ms\n"
    for i in range(60)
) + "".join(
    f"2026-11-21 06:18:{i:02},000 INFO checkpoint: wrote {i * 3} buffers in 0.{i:02} s\n" for i in range(30)
)
ACCESS = "".join(
    f'10.0.0.{i % 9} - [21/Nov/2026:06:17:{i % 60:02} +0000] "GET /a?k={i} HTTP/1.1" 200 {i * 7} 0.{i:03}\n'
    for i in range(60)
)
CSV = "# recorded by x\nwhen,cpu %,latency_ms,disk\n" + "".join(
    f"2026-11-21T06:17:{i:02}Z,{i}.5,{i * 2},{'sda' if i % 2 else 'sdb'}\n" for i in range(30)
)
BLANKS = "".join(f"{1795241820 + i * 0.05:.3f}   {i}  {i * 2}   {i}.25\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "kinds", "columns"),
    [
        (
            APP,
            {"x_pool_active": 60, "x_info_checkpoint": 30},
            {"level", "pool", "active", "wait", "wrote", "in_"},
        ),
        (ACCESS, {"x": 60}, {"value_1", "value_7", "value_8", "value_9"}),
        (CSV, {"x": 30}, {"cpu_pct", "latency_ms", "disk"}),
        (BLANKS, {"x": 30}, {"column_2", "column_3", "column_4"}),
    ],
    ids=["text", "access log", "csv", "blanks"],
)
def test_a_proposal_reads_every_line_of_its_sample(
    text: str, kinds: dict[str, int], columns: set[str]
) -> None:
    proposed = guess_format(text.splitlines(keepends=True), "x", 2026)
    assert proposed.unmatched == 0
    assert proposed.kinds == kinds
    log = read(proposed.toml, text)
    assert {t.kind: len(t.columns["end_ns"]) for t in log.tables} == kinds
    found = {name.replace("in", "in_") if name == "in" else name for t in log.tables for name in t.columns}
    assert columns <= found
    assert "value_6" not in found  # a quoted text may hold secrets


def test_a_proposal_tells_units() -> None:
    log = read(guess_format(APP.splitlines(), "x", 2026).toml, APP)
    assert log.tables[0].units["wait"] == "ms"
    of_csv = read(guess_format(CSV.splitlines(), "x", 2026).toml, CSV).tables[0]
    assert (of_csv.units["latency_ms"], of_csv.units["cpu_pct"]) == ("ms", "%")
    assert (of_csv.columns["begin_ns"] == -1).sum() == 2  # one series per disk


JSON_LINES = "".join(
    f'{{"ts":"2026-11-21T06:17:{i:02}Z","pool":"p{i % 3}","active":{i % 7}, "p99":{i}e-3,'
    f'"wait_ms":{i * 1.5}}}\n'
    for i in range(40)
)
GERMAN = "Zeit;CPU;Auslastung;Platte\n" + "".join(
    f"21.11.2026 06:17:{i:02};{i % 2};{i},5;0,25\n" for i in range(40)
)
UNITS_BEHIND = "timestamp, name, utilization.gpu [%], power.draw\n" + "".join(
    f"2026/11/21 06:17:{i:02}.250, T4, {i} %, {i * 1.5} W\n" for i in range(40)
)
TWO_HEADINGS = '"system","total cpu usage",""\n"time","usr","sys"\n' + "".join(
    f'"21-11 06:17:{i:02}",{i},{i / 2}\n' for i in range(40)
)
DAY_FIRST = "when;load\n" + "".join(f"21/11/2026 06:17:{i:02};{i}.5\n" for i in range(40))


@pytest.mark.parametrize(
    ("text", "column", "values", "unit"),
    [
        (JSON_LINES, "active", [i % 7 for i in range(40)], ""),
        (JSON_LINES, "p99", [i / 1000 for i in range(40)], ""),
        (JSON_LINES, "wait_ms", [i * 1.5 for i in range(40)], "ms"),
        (JSON_LINES, "pool", [f"p{i % 3}" for i in range(40)], ""),
        (GERMAN, "auslastung", [i + 0.5 for i in range(40)], ""),
        (UNITS_BEHIND, "utilization_gpu_pct", list(range(40)), "%"),
        (UNITS_BEHIND, "power_draw", [i * 1.5 for i in range(40)], "W"),
        (TWO_HEADINGS, "sys", [i / 2 for i in range(40)], ""),
        (DAY_FIRST, "load", [i + 0.5 for i in range(40)], ""),
    ],
)
def test_a_proposal_reads_the_values_that_are_there(text: str, column: str, values: list, unit: str) -> None:
    (table,) = read(guess_format(text.splitlines(keepends=True), "x", 2026).toml, text).tables
    order = np.argsort(table.columns["end_ns"], kind="stable")
    assert (table.columns["end_ns"][order] // S).tolist() == [
        at_ns("2026-11-21T06:17:00") // S + i for i in range(40)
    ]
    found = [table.columns[column][i] for i in order]
    assert found == (values if column == "pool" else pytest.approx(values))
    assert table.units[column] == unit


def test_a_proposal_is_quick_on_long_and_hostile_samples() -> None:
    hostile = [f"2026-11-21 06:17:45 {'a=' * 300}{i} {'(' * 200}\n" for i in range(500)]
    began = time.process_time()
    guess_format(hostile, "x", 2026)
    assert time.process_time() - began < 20


def test_no_time_no_proposal() -> None:
    with pytest.raises(TapscopeError, match="no line of this file"):
        guess_format(["one\n", "two\n"] * 10, "x", 2026)


def test_a_file_without_times_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.log").write_text("one\ntwo\n" * 10)
    done = tapscope("hosts", "guess", str(tmp_path / "odd.log"))
    assert done.returncode == ExitCode.ERROR
    assert f"{tmp_path}/odd.log: no line of this file" in done.stderr


def test_a_proposal_of_the_command_loads(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(APP)
    done = tapscope("hosts", "guess", str(tmp_path / "app.log"))
    assert done.returncode == 0
    assert "90 lines gave 90 rows" in done.stderr
    (tmp_path / "app.toml").write_text(done.stdout)
    shown = tapscope(
        "hosts", "try", str(tmp_path / "app.log"), "--format", str(tmp_path / "app.toml"), "--json"
    )
    assert '"app_pool_active"' in shown.stdout
    with RunFile.create(tmp_path / "run.db") as run:
        formats = [load_format(tmp_path / "app.toml")]
        (loaded,) = load_host_files(run, tmp_path / "app.log", "box", Told(zone_of("UTC")), formats)
        assert loaded["rows"] == 90
        assert loaded["warnings"] == []
        assert run.read_dynamic("host_app_pool_active_box", ["active"])["active"].tolist() == list(range(60))


def test_turbostat_comes_as_a_declared_format() -> None:
    log = read_host_log(Path(__file__).resolve().parent.parent / "pcaps" / "hostlogs" / "turbostat.txt")
    table = log.tables[0]
    assert table.kind == "turbostat"
    assert table.columns["cpu"] == ["-", "-", "0", "1"]
    assert table.columns["busy_pct"].tolist() == [5.1, 9.1, 5.0, 5.2]
    assert table.units["bzy_mhz"] == "MHz"
