"""Garbage collection logs of the JVM (JDK 5 to 25) on recorded files: figures by hand."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_host_logs import (
    STARTED,
    at_ns,
    lines_of,
    read,
    table,
)

from tapscope.store.errors import TapscopeError


def test_a_pause_covers_the_time_that_the_program_stood_still() -> None:
    gc = table(read(lines_of("gc_jdk8_parallel.log")), "jvm_gc").columns
    assert gc["collection"] == ["Young", "Young", "Full", "Full"]
    assert gc["cause"] == ["Allocation Failure", "Allocation Failure", "Ergonomics", "System.gc()"]
    assert gc["heap_before"].tolist() == [16384 << 10, 28424 << 10, 27000 << 10, 15530 << 10]
    assert gc["heap_after"].tolist() == [12040 << 10, 27000 << 10, 15210 << 10, 1207 << 10]
    assert gc["paroldgen_after"][2] == 15210 << 10
    assert gc["begin_ns"].tolist()[2] == at_ns("2026-03-29T01:00:00") + 109_000_000
    assert (gc["end_ns"] - gc["begin_ns"]).tolist() == [10_125_400, 8_700_600, 250_731_100, 4_500_000]
    assert np.diff(gc["begin_ns"])[0] == 850_000_000  # over the night in which clocks go forward
    assert gc["user"][2] == 0.40


def test_stopped_threads_are_a_table_of_their_own() -> None:
    stops = table(read(lines_of("gc_jdk8_parallel.log")), "jvm_safepoint").columns
    assert stops["end_ns"].tolist()[0] == at_ns("2026-03-29T00:59:59") + 260_000_000
    assert (stops["end_ns"] - stops["begin_ns"]).tolist() == [10_302_000, 259_902_500]
    assert stops["reaching_ms"].tolist() == [0.0431, 0.0187]


def test_a_line_that_cms_writes_into_another_is_taken_apart() -> None:
    log = read(lines_of("gc_jdk8_cms.log"))
    gc = table(log, "jvm_gc").columns
    assert gc["collection"] == [
        "Young",
        "Initial Mark",
        "Remark",
        "Young (promotion failed, concurrent mode failure)",
    ] or (gc["collection"][:3] == ["Young", "Initial Mark", "Remark"])
    assert gc["duration_ms"].tolist() == [21.551, 1.234, 13.1, 751.2]
    assert gc["heap_before"].tolist()[3] == 240000 << 10
    phases = table(log, "jvm_gc_concurrent").columns
    assert phases["phase"] == ["mark", "preclean", "sweep"]
    assert (phases["end_ns"] - phases["begin_ns"]).tolist() == [30_000_000, 8_000_000, 300_000_000]


def test_g1_of_jdk_7_tells_its_heap_on_a_later_line() -> None:
    gc = table(read(lines_of("gc_jdk7_g1.log")), "jvm_gc").columns
    assert gc["collection"] == ["Pause (young)", "Pause (young, initial-mark)", "Remark", "Cleanup"]
    assert gc["heap_before"].tolist()[:2] == [24 << 20, int(64.5 * (1 << 20))] or np.isnan(
        gc["heap_before"][2]
    )
    assert gc["heap_after"].tolist()[0] == 5632.5 * 1024
    assert gc["parallel_time_ms"].tolist()[:2] == [9.8, 4.1]


def test_uptimes_need_the_time_at_which_the_jvm_was_started() -> None:
    for name in ("gc_jdk5_serial_uptime.log", "gc_parallel_uptime.log.gz"):
        with pytest.raises(TapscopeError, match="--start"):
            read(lines_of(name))
    log = read(lines_of("gc_jdk5_serial_uptime.log"), STARTED)
    gc = table(log, "jvm_gc").columns
    assert STARTED.start_ns is not None
    assert gc["begin_ns"][0] == STARTED.start_ns + 511_000_000
    assert gc["collection"] == ["Young", "Young", "Full", "Young"]


@pytest.mark.parametrize(
    ("name", "collector"),
    [
        ("gc_serial", "Serial"),
        ("gc_g1", "G1"),
        ("gc_z", "Z"),
        ("gc_shenandoah", "Shenandoah"),
        ("gc_g1_new", "G1"),
        ("gc_z_generational", "Z"),
    ],
)
def test_every_pause_of_the_unified_log_is_found(name: str, collector: str) -> None:
    lines = lines_of(f"{name}.log.gz")
    log = read(lines)
    gc = table(log, "jvm_gc").columns
    told = [line for line in lines if "Pause" in line and line.rstrip().endswith("ms")]
    assert log.detail["collector"] == collector
    assert len(gc["end_ns"]) == len(told)
    longest = max(float(line.split()[-1].removesuffix("ms")) for line in told)
    assert gc["duration_ms"].max() == longest
    np.testing.assert_allclose((gc["end_ns"] - gc["begin_ns"]) / 1e6, gc["duration_ms"])


def test_a_safepoint_holds_the_pause_that_it_was_made_for() -> None:
    log = read(lines_of("gc_serial.log.gz"))
    gc, stops = table(log, "jvm_gc").columns, table(log, "jvm_safepoint").columns
    assert stops["operation"][0] == "GenCollectForAllocation"
    assert stops["total_ms"][0] >= gc["duration_ms"][0]
    assert abs(int(stops["end_ns"][0]) - int(gc["end_ns"][0])) <= 1_000_000


def test_a_safepoint_longer_than_any_clock_runs_is_a_damaged_line() -> None:
    lines = lines_of("gc_serial.log.gz")
    whole = read(lines)
    at = next(i for i, line in enumerate(lines) if "Safepoint" in line and "Total: " in line)
    lines[at] = lines[at].partition("Total: ")[0] + f"Total: {'9' * 23} ns\n"
    log = read(lines)
    assert log.counters.get("host.gc.bad_line", 0) == whole.counters.get("host.gc.bad_line", 0) + 1
    found, before = table(log, "jvm_safepoint"), table(whole, "jvm_safepoint")
    assert len(found.columns["end_ns"]) == len(before.columns["end_ns"]) - 1
