"""Logs that sysstat and perf print in other languages say what the recorded ones say."""

from __future__ import annotations

import re

import numpy as np
import pytest
from recorded_host_logs import LOGS, lines_of, read, text_of

from tapscope.hostmon.clock import Told, zone_of
from tapscope.hostmon.decimals import with_point

UTC = Told(zone_of("UTC"))

NUMBER = re.compile(r"(?<![\w./:-])(-?\d+)\.(\d+)(?![\w.])")


def in_german(text: str) -> str:
    text = NUMBER.sub(r"\1,\2", text)
    text = text.replace("Average:", "Durchschn.:").replace("Summary:", "Zusammenfassung:")
    return re.sub(r"\b(\d\d)/(\d\d)/(\d\d)\b", r"\2.\1.20\3", text)


def in_japanese(text: str) -> str:
    text = text.replace("Average:", "平均値:").replace("11/21/26", "2026年11月21日")
    return re.sub(r"(?m)^(.*?)\b(\d\d):(\d\d):(\d\d)\b", r"\1\2時\3分\4秒", text)


def in_finnish(text: str) -> str:
    text = NUMBER.sub(r"\1,\2", text)
    return re.sub(r"(?m)^(.*?)\b(\d\d):(\d\d):(\d\d)\b", r"\1\2.\3.\4", text)


def perf_in_german(text: str) -> str:
    """perf prints the time with a point and the rest with commas, between the separators told to it."""
    made = []
    for line in text.splitlines():
        time, *fields = line.split(",")
        made.append(";".join([time, *(field.replace(".", ",") for field in fields)]))
    return "\n".join(made)


def json_in_german(text: str) -> str:
    return re.sub(r'(" ?: ?"?-?\d+)\.(\d+)', r"\1,\2", text)


@pytest.mark.parametrize(
    ("name", "translated"),
    [
        ("mpstat.txt", in_german),
        ("mpstat.txt", in_japanese),
        ("mpstat.txt", in_finnish),
        ("sar.txt.gz", in_german),
        ("sar.txt.gz", in_japanese),
        ("pidstat.txt", in_german),
        ("iostat_text.txt", in_german),
        ("iostat_text.txt", in_japanese),
        ("sadf.csv.gz", in_german),
        ("sadf.json.gz", json_in_german),
        ("iostat.json", json_in_german),
        ("mpstat.json", json_in_german),
        ("perf_stat.csv", perf_in_german),
        ("perf_stat.json", json_in_german),
    ],
)
def test_the_language_of_a_log_makes_no_difference(name, translated):
    recorded = text_of(LOGS / name)
    other = translated(recorded)
    assert other != recorded
    one, two = read(recorded.splitlines(keepends=True), UTC), read(other.splitlines(keepends=True), UTC)
    assert two.counters == one.counters
    assert [table.kind for table in two.tables] == [table.kind for table in one.tables]
    for there, here in zip(one.tables, two.tables, strict=True):
        assert here.units == there.units
        for column, values in there.columns.items():
            assert np.asarray(here.columns[column]).dtype == np.asarray(values).dtype, (there.kind, column)
            np.testing.assert_array_equal(here.columns[column], values, f"{there.kind} {column}")


def test_only_whole_words_are_numbers():
    assert with_point("eth0,1 3,25 cpu1,2 -0,5;7,50;a,b 1,2,3") == "eth0,1 3.25 cpu1,2 -0.5;7.50;a,b 1,2,3"


def test_what_iostat_left_out_of_its_first_json_sample_is_one_damaged_line():
    """iostat -y of 11 and 12 leaves the comma behind the sample that it skips."""
    lines = lines_of("iostat.json")
    at = next(i for i, line in enumerate(lines) if '"statistics"' in line)
    log = read([*lines[: at + 1], ",\n", *lines[at + 1 :]], UTC)
    assert log.counters.pop("host.sysstat.bad_line") == 1
    assert log.counters == read(lines, UTC).counters


@pytest.mark.parametrize(("column", "gone"), [("%steal", "steal_pct"), ("%iowait", "wait_pct")])
def test_a_column_that_an_older_version_does_not_print_is_not_missed(column, gone):
    lines = lines_of("mpstat_new_york.txt")
    head = lines[2].split()
    at = head.index(column)

    def without(line: str) -> str:
        words = line.split()
        return " ".join(words[:at] + words[at + 1 :]) + "\n" if len(words) == len(head) else line

    (whole,), (older,) = (read(each, UTC).tables for each in (lines, [without(line) for line in lines]))
    assert set(whole.columns) - set(older.columns) == {gone}
    for kept in set(older.columns) - {"busy_pct"}:
        np.testing.assert_array_equal(older.columns[kept], whole.columns[kept])
