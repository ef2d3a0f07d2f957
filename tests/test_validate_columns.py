"""Logs and truth files read column by column say what reading them line by line says."""

from __future__ import annotations

import csv
import gzip
import re
import tracemalloc
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapscope.store.codes import Protocol
from tapscope.store.errors import TapscopeError
from tapscope.validate import blocks, csv_files
from tapscope.validate.event_calls import LOG_GAP, RAW_CALL, Collector, Growing, without_duplicates
from tapscope.validate.monitors import apache, columns, lines, mariadb
from tapscope.validate.monitors.lines import UnreadableError
from tapscope.validate.parsing import Parsed
from tapscope.validate.texts import Texts

TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2261, 12, 31))
NEARLY_STAMPS = st.one_of(
    TIMES.map(lambda at: at.isoformat(" ", "microseconds")),
    TIMES.map(str),
    st.from_regex(r"(1[7-9]|20)\d{2}-[01]\d-[0-3]\d [0-2]\d:[0-6]\d:[0-6]\d\.\d{6}", fullmatch=True),
    st.text(st.characters(exclude_characters="\n"), max_size=26),
)
NEARLY_DURATIONS = st.one_of(
    st.from_regex(r"[0-9]{1,3}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?", fullmatch=True),
    st.text(alphabet="0123456789:.-٣", min_size=13, max_size=16),
)


def _one_by_one(parse, texts: list[str]) -> list[int | None]:
    found: list[int | None] = []
    for text in texts:
        try:
            found.append(parse(text))
        except UnreadableError:
            found.append(None)
    return found


def _together(read: Parsed) -> list[int | None]:
    return [v if good else None for v, good in zip(read.values.tolist(), read.good.tolist(), strict=True)]


@given(st.lists(NEARLY_STAMPS, max_size=20))
def test_stamps_of_a_column_are_those_of_its_texts(texts):
    assert _together(columns.local_stamps(Texts.of(texts))) == _one_by_one(lines.local_ns, texts)


@given(st.lists(NEARLY_DURATIONS, max_size=20))
def test_durations_of_a_column_are_those_of_its_texts(texts):
    assert _together(mariadb.durations(Texts.of(texts))) == _one_by_one(mariadb.duration_ns, texts)


FIELDS = st.lists(
    st.tuples(st.sampled_from(["id", "beg", "D", "other"]), st.text(alphabet='ab1=-" ', max_size=4)).map(
        "=".join
    ),
    max_size=5,
).map(" ".join)


@given(st.lists(st.one_of(FIELDS, st.just('id=a beg=1 "GET /?id=x y" D=2')), min_size=1, max_size=6))
def test_fields_of_many_lines_are_those_of_each(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("log") / "access.log"
    path.write_text("".join(f"{text}\n" for text in texts))
    one = re.compile(r"(?:^| )(id|beg|D)=(\S*)")
    wanted = [dict(one.findall(lines.outside_quotes(text))) for text in texts if text]
    found: list[dict[str, str]] = []

    def take(rows: columns.Rows) -> columns.Stays:
        found.extend({name: rows[name][i] for name in ("id", "beg", "D")} for i in range(len(rows)))
        return rows.line, rows.line, rows.line

    columns.read_fields(lines.LogFile(path, ""), Collector(), apache.ACCESS, ("id", "beg", "D"), take)
    assert found == [{name: each.get(name, "-") for name in ("id", "beg", "D")} for each in wanted]


COMPACT = "[2026-11-20 22:54:28.000700]"
ERROR_LINE = st.lists(
    st.sampled_from(
        [
            COMPACT,
            "[Fri Nov 20 22:54:28.000700 2026]",
            "[2026-11-20 25:54:28.000700]",
            "DS id=R0",
            "]DS id=R1",
            "xDS id=R2",
            "DS id=",
            "DS",
            "id=R3",
            "ajp_ilink_received END_RESPONSE",
            "[rid R4]",
            "é",
        ]
    ),
    min_size=1,
    max_size=4,
).map(" ".join)


@given(st.lists(ERROR_LINE, min_size=1, max_size=6))
def test_marks_of_an_error_log_are_those_of_each_line(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("log") / "error.log"
    texts = [*texts, *[f"{COMPACT} [log_debug:info] DS id=R9"] * len(texts)]  # more good lines than bad ones
    path.write_text("".join(f"{text}\n" for text in texts))
    wanted, bad, alone = [], 0, Collector()
    for text in texts:
        try:
            mark = apache._mark(text, alone)
        except UnreadableError:
            bad += 1
        else:
            wanted += [mark] if mark is not None else []
    collector = Collector()
    apache.read_error(lines.LogFile(path, ""), collector)
    marks, ids = collector.marks.table(), collector.request_ids.texts
    found = zip(marks["kind"].tolist(), marks["request_id"].tolist(), marks["at_ns"].tolist(), strict=True)
    assert sorted((kind, ids[code], at) for kind, code, at in found) == sorted(wanted)
    assert collector.counts == alone.counts | ({"unreadable_line": bad} if bad else {})
    assert collector.sources[0]["calls"] == len(wanted)


CELLS = st.lists(st.text(alphabet='a1," ', max_size=3), min_size=1, max_size=4)


@given(st.lists(CELLS, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_a_csv_file_is_what_the_csv_module_makes_of_it(tmp_path_factory, rows, end):
    path = tmp_path_factory.mktemp("csv") / "some.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator=end).writerows([["a", "b", "c"], *rows])
    with path.open(newline="") as file:
        body = [row for row in csv.reader(file) if row][1:]
    wanted = [dict(zip("abc", [*row, "", ""][:3], strict=True)) for row in body if len(row) >= 2]
    counters: dict[str, int] = {}
    assert list(csv_files.csv_rows(path, ("a", "b"), counters, "csv")) == wanted
    assert counters.get("csv.short_row", 0) == len(body) - len(wanted)


@pytest.mark.parametrize("size", [16, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_quote_that_is_not_closed_costs_its_own_line_only(tmp_path, monkeypatch, size, end):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
    path = tmp_path / "some.csv"
    good = [f'{number},"x, {number}"' for number in range(50)]
    path.write_bytes(end.join(["a,b", *good[:20], '"20,x', "", *good[20:], '50,"']).encode())
    counters: dict[str, int] = {}
    rows = list(csv_files.csv_rows(path, ("a", "b"), counters, "csv"))
    assert rows == [{"a": str(number), "b": f"x, {number}"} for number in range(50)]
    assert counters == {"csv.unclosed_quote": 2}


def test_a_quoted_cell_that_is_too_long_costs_its_own_line_only(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text(f'a,b\n1,x\n2,"{"y" * 200_000}"\n3,"z"\n')
    counters: dict[str, int] = {}
    assert [row["a"] for row in csv_files.csv_rows(path, ("a", "b"), counters, "csv")] == ["1", "3"]
    assert counters == {"csv.unreadable_row": 1}


def test_blocks_end_where_lines_end_and_lose_nothing(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16)
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(b"%d\n" % (7**n) for n in range(30)) + b"cut")
    parts = list(blocks.blocks(path))
    assert b"".join(parts) == path.read_bytes()
    assert len(parts) > 5
    assert all(part.endswith(b"\n") for part in parts[:-1])


@pytest.mark.parametrize("length", [40, 100, 400])
def test_a_line_that_is_too_long_is_dropped_and_the_others_keep_their_numbers(tmp_path, monkeypatch, length):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16)
    monkeypatch.setattr(blocks, "LONGEST_LINE", 64)
    path = tmp_path / "x.log"
    path.write_text(f"first\n{'x' * length}\nthird\n{'y' * length}\n\n{'z' * length}\nlast\n")
    dropped = blocks.OVERLONG.decode().strip()
    long = [letter * length if length < 64 else dropped for letter in "xyz"]
    collector = Collector()
    found = [text for _, texts in lines.line_blocks(path, collector) for text in texts]
    assert found == ["first", long[0], "third", long[1], "", long[2], "last"]
    assert collector.counts == ({} if length < 64 else {"overlong_line": 3})
    assert [number for number, _ in lines.lines(path)] == [1, 2, 3, 4, 5, 6, 7]


def test_a_packed_file_that_is_one_endless_line_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LONGEST_LINE", 4 << 20)
    path = tmp_path / "calls.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    found = b"".join(blocks.blocks(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == blocks.OVERLONG
    assert peak < 16 << 20
    assert lines.head(path) == []
    counters: dict[str, int] = {}
    with pytest.raises(TapscopeError, match="line 1: column a is missing"):
        list(csv_files.csv_rows(path, ("a",), counters, "truth"))
    assert counters == {"truth.overlong_line": 1}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_rows_are_repeated_when_all_that_tells_them_apart_is_equal(rows):
    calls = Growing(RAW_CALL)
    for arrive, thread, request in rows:
        calls.row(
            (0, 0, int(Protocol.HTTP), request, arrive, arrive + 5, 1, 1, -1, thread, -1, -1, 0, 1, -1, -1)
        )
    kept, repeated = without_duplicates(calls.table())
    names = ("arrive_ns", "request_id", "thread")
    left = list(zip(*(kept[name].tolist() for name in names), strict=True))
    assert left == sorted(
        {(arrive, request, thread) for arrive, thread, request in rows}, key=lambda row: row
    )
    assert repeated == len(rows) - len(left)


@pytest.mark.parametrize("block", [True, False])
def test_a_table_grows_by_rows_and_by_blocks(block):
    calls = Growing(LOG_GAP)
    calls.row((1, 10, 20, 0))
    if block:
        calls.block(2, {"tier": 1, "begin_ns": np.array([30, 50]), "end_ns": [40, 60], "source": 0})
    else:
        calls.row((1, 30, 40, 0))
        calls.row((1, 50, 60, 0))
    found = calls.table()
    assert [found[name].tolist() for name in ("tier", "begin_ns", "end_ns")] == [
        [1] * 3,
        [10, 30, 50],
        [20, 40, 60],
    ]
