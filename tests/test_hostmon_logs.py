"""Readers of host logs on recorded files (pcaps/hostlogs): figures by hand, files cut at every line,
damaged bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from recorded_host_logs import (
    AMBIGUOUS,
    FILES,
    STARTED,
    S,
    check,
    lines_of,
    read,
    samples,
    table,
    text_of,
)

from tapscope.hostmon.load import read_host_log
from tapscope.hostmon.readers import READERS, SNIFFED_LINES, known_formats
from tapscope.store.errors import TapscopeError


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_read_without_a_bad_line(path: Path) -> None:
    if path.name == AMBIGUOUS:
        with pytest.raises(TapscopeError, match="several sections repeat"):
            read_host_log(path)
        return
    log = read_host_log(path, STARTED)
    check(log)
    assert not [
        name
        for name in log.counters
        if ".bad" in name or ".unmatched" in name or ".cut" in name or ".unread" in name
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_cut_at_any_line_gives_the_samples_before_the_cut(path: Path) -> None:
    if path.name == AMBIGUOUS:
        return
    lines = text_of(path).splitlines(keepends=True)
    whole = samples(read(lines, STARTED))
    before: set[tuple[str, int]] = set()
    read_at_all = 0
    step = max(1, len(lines) // 100)  # every line of all but the largest files
    for cut in [*range(1, len(lines), step), len(lines) - 1]:
        half = [*lines[:cut], lines[cut][: len(lines[cut]) // 2]]
        for kept in (lines[:cut], half):
            try:
                log = read(kept, STARTED)
            except TapscopeError:
                assert not before, "more lines gave fewer samples"
                continue
            check(log)
            found = samples(log)
            # A last sample of which half was cut may end elsewhere, no other.
            assert len(found - whole) <= len(log.tables)
            assert len(before - found) <= len(log.tables)
            read_at_all += 1
            if kept is not half:
                before = found & whole
    assert read_at_all


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_damaged_bytes_never_stop_a_reader(path: Path) -> None:
    if path.name == AMBIGUOUS:
        return
    data = text_of(path).encode()[:60_000]
    whole = len(samples(read(data.decode().splitlines(keepends=True), STARTED)))
    best = 0
    for seed in range(12):
        chance = random.Random(seed)
        damaged = bytearray(data)
        for _ in range(1 + seed):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.randrange(1, 4)] = chance.randbytes(chance.randrange(0, 4))
        try:
            log = read(damaged.decode(errors="replace").splitlines(keepends=True), STARTED)
        except TapscopeError:
            continue  # the first lines no longer say what this is
        check(log)
        best = max(best, len(samples(log)))
    assert best >= whole // 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_reader_takes_its_own_files_and_no_others(path: Path) -> None:
    first = text_of(path).splitlines(keepends=True)[:SNIFFED_LINES]
    takers = [reader.name for reader in (*READERS, *known_formats()) if reader.sniff(first)]
    assert len(takers) == 1


def test_perf_counts_per_interval_become_rates() -> None:
    log = read(lines_of("perf_stat.csv"), STARTED)
    found = table(log, "perf_stat").columns
    assert STARTED.start_ns is not None
    assert found["begin_ns"][0] == STARTED.start_ns
    first = lines_of("perf_stat.csv")[2].split(",")
    assert found["end_ns"][0] == STARTED.start_ns + int(first[0].strip().replace(".", "").lstrip("0"))
    assert found["task_clock"][0] == float(first[1])
    np.testing.assert_allclose(
        found["page_faults_per_s"], found["page_faults"] / ((found["end_ns"] - found["begin_ns"]) / 1e9)
    )
    assert np.all(np.array(found["task_clock_pct"]) < 250)
    assert log.counters["host.perf.not_counted"] == len(found["end_ns"])


def test_perf_per_core_has_a_row_per_core() -> None:
    found = table(read(lines_of("perf_stat_cores.csv")), "perf_stat").columns
    assert set(found["place"]) == {"CPU0", "CPU1"}


def test_pressure_becomes_the_share_of_time_in_which_tasks_waited() -> None:
    lines = []
    for i, total in enumerate((100, 50_100, 150_100)):
        lines += [f"{1795241820 + i / 10:.9f}\n", "==> /proc/pressure/io <==\n"]
        lines += [f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"]
        lines += ["full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"]
    log = read(lines)
    found = table(log, "pressure").columns
    some = [i for i, scope in enumerate(found["scope"]) if scope == "some"]
    np.testing.assert_allclose(found["stall_pct"][some], [np.nan, 50, 100], rtol=1e-5)
    assert found["resource"][0] == "io"


def test_a_number_below_a_file_name_is_no_time() -> None:
    lines = ["1795241820.5\n", "==> /sys/fs/cgroup/web/memory.current <==\n", "1795241821\n",
             "1795241820.6\n",
             "==> /sys/fs/cgroup/web/memory.current <==\n", "1795241999\n"]  # fmt: skip
    found = table(read(lines), "cgroup_memory_current").columns
    assert found["value"].tolist() == [1795241821, 1795241999]
    assert found["group"] == ["/sys/fs/cgroup/web"] * 2
    assert found["end_ns"].tolist() == [1795241820_500_000_000, 1795241820_600_000_000]


def test_waiting_for_locks_is_counted_per_lock() -> None:
    locks = table(read(lines_of("lock_stat.snap")), "lock_stat").columns
    write = [i for i, name in enumerate(locks["lock"]) if name == "&mm->mmap_lock-W"][-1]
    assert locks["contentions_per_s"][write] == 500
    assert locks["wait_pct"][write] == pytest.approx(50)  # 50 ms of waiting in 100 ms
    assert locks["acquisitions"][write] == 90200


def test_frequencies_are_in_mhz() -> None:
    found = table(read(lines_of("cpufreq.snap")), "cpu_frequency").columns
    assert found["mhz"].tolist() == [2600, 800, 1200, 1200]
    assert found["core"].tolist() == [0, 0, 1, 1]


def test_every_object_of_esxtop_is_a_table_with_its_instances() -> None:
    log = read(lines_of("esxtop.csv"))
    assert log.host == "esx1"
    disk = table(log, "esxtop_physical_disk_adapter").units
    assert (disk["mbytes_read_sec"], disk["average_guest_millisec_command"]) == ("MiB/s", "ms")
    ready = table(log, "esxtop_group_cpu")
    assert ready.columns["instance"] == ["1234:web(1)"] * 3
    assert ready.columns["pct_ready"].tolist() == [0.10, 35.40, 0.20]
    assert ready.units["pct_ready"] == "%"
    west = [line.replace("(UTC)(0)", "(Pacific Standard Time)(480)") for line in lines_of("esxtop.csv")]
    shift = (
        table(read(west), "esxtop_memory").columns["end_ns"] - table(log, "esxtop_memory").columns["end_ns"]
    )
    assert set(shift) == {8 * 3600 * S}


def test_every_subsystem_of_collectl_becomes_a_table() -> None:
    log = read(lines_of("raw-vm-20261121-063512.raw.gz"))
    kinds = {t.kind for t in log.tables}
    assert kinds >= {
        f"collectl_{name}"
        for name in (
            "cpu",
            "disk",
            "net",
            "memory",
            "tcp",
            "buddy",
            "interrupt",
            "inode",
            "numa",
            "sock",
            "slab",
            "process",
        )
    }
    interrupts = table(log, "collectl_interrupt").columns
    assert "LOC" in interrupts["interrupt"]
    assert np.nanmax(interrupts["all_per_s"]) > 0
    ends = table(log, "collectl_cpu").columns["end_ns"]
    assert np.median(np.diff(ends)) == pytest.approx(10_000_000, abs=6_000_000)


def test_collectl_records_of_other_machines() -> None:
    lines = [
        "# Collectl:   V4.3.1-1  HiRes: 1  Options: -sflxE\n",
        ">>> 1795241820.000 <<<\n",
        "nfsc-rpc 100 2 0\n",
        "nfsc-proc3 22 0 10 0 5 7 0 300 400 1 0 0 0 0 0 0 0 0 0 0 0 0 12\n",
        "ib0-1:rcvd 4000\n",
        "ib0-1:xmtd 100\n",
        "LLITE:0 read_bytes 10 samples [bytes] 4096 1048576 5000000\n",
        "LLITE:0 open 3 samples [regs]\n",
        "ipmi: Fan 1,3000,RPM,ok\n",
        "procT:77 stat 77 (worker one) S 1 1 1 0 -1 0 5 0 0 0 3 4 0 0 20 0 1 0 100 1000 10\n",
        "Slab dentry objects 55\n",
        ">>> 1795241821.000 <<<\n",
        "nfsc-rpc 150 3 0\n",
        "ib0-1:rcvd 6500\n",
        "LLITE:0 read_bytes 14 samples [bytes] 4096 1048576 9000000\n",
        "ipmi: Fan 1,na,RPM,ns\n",
        "import new 1\n",
    ]
    log = read(lines)
    assert table(log, "collectl_nfs").columns["rpc_calls_per_s"][1] == 50
    assert table(log, "collectl_nfs").columns["proc3_write"][0] == 400
    assert table(log, "collectl_infiniband").columns["rcvd_per_s"][1] == 2500
    assert table(log, "collectl_lustre").columns["read_bytes_sum_per_s"][1] == 4_000_000
    assert np.array_equal(table(log, "collectl_sensor").columns["value"], [3000, np.nan], equal_nan=True)
    assert table(log, "collectl_slab").columns["objects"].tolist() == [55]
    assert log.counters["host.collectl.unread.import"] == 1


def test_a_counter_of_32_bits_that_comes_round_goes_on_and_a_restart_does_not() -> None:
    head = ["# Collectl:   V4.3.1-1  HiRes: 1  Options: -sn\n"]
    rx = [4_294_900_000, 4_294_960_000, 4_294_960_000 + 60_000 - 2**32, 100_000, 10]
    lines = list(head)
    for i, value in enumerate(rx):
        lines += [f">>> {1795241820 + i}.000 <<<\n", f"Net eth0: {value} 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"]
    log = read(lines)
    found = table(log, "collectl_net").columns["rx_bytes_per_s"]
    np.testing.assert_array_equal(found[:4], [np.nan, 60_000, 60_000, 100_000 - 52_704])
    assert np.isnan(found[4])
    assert log.counters == {"host.collectl.counter_reset": 1, "host.collectl.counter_wrap": 1}
