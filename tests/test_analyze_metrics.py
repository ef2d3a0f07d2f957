"""Metrics of hosts: the columns that they name are those that the readers make, whatever program recorded
them; and of several disks, locks or groups no busy one is lost among idle ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded_host_logs import AMBIGUOUS, FILES, HOSTS, STARTED, read, text_of

from tapscope.analyze.evidence import first_of
from tapscope.analyze.metrics import METRICS
from tapscope.hostmon.load import load_host_files
from tapscope.store.dynamic import folded
from tapscope.store.runfile import RunFile

BEGIN_S = 1_795_242_890
WHOLE = ("collectl_plot", "vmstat")
"""Kinds that have one row for all disks."""

EDGES = (BEGIN_S + np.arange(5)) * 1_000_000_000


@pytest.fixture(scope="module")
def recorded() -> dict[str, set[str]]:
    """Columns by kind of table of all recorded logs."""
    found: dict[str, set[str]] = {}
    hosts = [path for path in HOSTS.rglob("*") if path.is_file() and path.suffix != ".md"]
    for path in [*FILES, *hosts]:
        if path.name == AMBIGUOUS:
            continue
        for table in read(text_of(path).splitlines(keepends=True), STARTED).tables:
            found.setdefault(table.kind, set()).update(map(folded, table.columns))
    return found


def test_every_place_of_a_recorded_kind_exists(recorded) -> None:
    places = {(name, place) for name, metric in METRICS.items() for place in metric.places}
    by_kind: dict[str, set[str]] = {}
    for _, place in places:
        if place.kind in recorded:
            by_kind.setdefault(place.kind, set()).add(place.column)
            told = {name for name, _ in place.where}
            if place.kind not in WHOLE:
                told |= set(place.of)
            assert told <= recorded[place.kind], place
    missing = {(kind, name) for kind, names in by_kind.items() for name in names - recorded[kind]}
    # Of another version of the program, or counters that the recording machine does not have.
    assert missing <= {
        ("cgroup_cpu", "dirty_kib"), ("cgroup_cpu", "writeback_kib"), ("cgroup_cpu", "throttled_pct"),
        ("cgroup_cpu", "written_kib_per_s"), ("cgroup_cpu", "cpu_some_pct"), ("cgroup_cpu", "io_some_pct"),
        ("cgroup_cpu", "memory_some_pct"), ("cgroup_cpu_stat", "throttled_pct"),
    }  # fmt: skip
    assert {"sadf_disk", "iostat_disk", "sar_disk_tps", "vmstat", "sar_cpu", "turbostat"} <= set(by_kind)


def _loaded(folder: Path, name: str, text: str) -> RunFile:
    path = folder / "hosts" / "db" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    run = RunFile.create(folder / "run.db")
    load_host_files(run, path)
    return run


def test_one_busy_disk_among_idle_ones_is_a_busy_disk(tmp_path) -> None:
    lines = ["# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;dkB/s;areq-sz;aqu-sz;await;%util"]
    for second in range(1, 5):
        for disk in range(10):
            busy = disk == 3 and second in (2, 3)
            lines.append(f"db;1;{BEGIN_S + second};sd{disk};1;0;{2048};0;1;0;0;{98 if busy else 1}")
    with _loaded(tmp_path, "sadf.csv", "\n".join(lines) + "\n") as run:
        busiest = first_of(run, "db", METRICS["disk_busy"].places, EDGES)
        written = first_of(run, "db", METRICS["machine_written"].places, EDGES)
    assert busiest is not None
    assert busiest.tolist() == [1, 98, 98, 1]
    assert written is not None
    assert written.tolist() == [20] * 4


def test_one_lock_that_is_waited_for_is_not_lost_among_hundreds(tmp_path) -> None:
    """A thread and a half wait for lock 7 in the third second."""
    text = ""
    for second in range(5):
        text += f"{BEGIN_S + second}.000000000\n==> /proc/lock_stat <==\nlock_stat version 0.4\n"
        text += "-" * 20 + "\n" + "class name  con-bounces  contentions  waittime-min  waittime-max"
        text += "  waittime-total  waittime-avg  acq-bounces  acquisitions  holdtime-min  holdtime-max"
        text += "  holdtime-total  holdtime-avg\n" + "-" * 20 + "\n"
        for lock in range(100):
            waited = 1_500_000.0 if lock == 7 and second >= 3 else 0.0
            text += f"lock{lock}: 0 0 0.00 0.00 {waited:.2f} 0.00 0 0 0.00 0.00 0.00 0.00\n"
    with _loaded(tmp_path, "locks.snap", text) as run:
        waiting = first_of(run, "db", METRICS["lock_wait"].places, EDGES)
    assert waiting is not None
    assert waiting.tolist() == [0, 0, 150, 0]
