"""Readers of host logs on recorded files (pcaps/hostlogs): figures by hand, files cut at every line,
damaged bytes."""

from __future__ import annotations

import gzip
import random
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tapscope.hostmon.clock import NOTHING_TOLD, Told, zone_of
from tapscope.hostmon.load import read_host_log
from tapscope.hostmon.readers import READERS, SNIFFED_LINES, Reader, known_formats
from tapscope.hostmon.samples import HostLog, HostTable
from tapscope.store.errors import TapscopeError

LOGS = Path(__file__).resolve().parent.parent / "pcaps" / "hostlogs"
FILES = sorted(path for path in LOGS.iterdir() if path.suffix not in (".py", ".md"))
STARTED = Told(start_ns=1_795_241_000_000_000_000)
AMBIGUOUS = "sadf_h.csv"  # more than one section repeats: refused
S = 1_000_000_000


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")


def read(lines: list[str], told: Told = NOTHING_TOLD) -> HostLog:
    """What `read_host_log` does with a file of these lines."""
    first = lines[:SNIFFED_LINES]
    declared = [Reader(known.name, known.sniff, known.read) for known in known_formats()]
    reader = next((known for known in (*READERS, *declared) if known.sniff(first)), None)
    if reader is None:
        raise TapscopeError("no reader knows it")
    return reader.read(iter(lines), "", told)


def lines_of(name: str) -> list[str]:
    return text_of(LOGS / name).splitlines(keepends=True)


def table(log: HostLog, kind: str) -> HostTable:
    return next(t for t in log.tables if t.kind == kind)


def at_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * S


def check(log: HostLog) -> None:
    """What holds for every table of every log."""
    kinds = [t.kind for t in log.tables]
    assert len(kinds) == len(set(kinds))
    for found in log.tables:
        lengths = {len(values) for values in found.columns.values()}
        assert len(lengths) == 1
        assert lengths != {0}
        assert set(found.columns) == set(found.units) == set(found.originals)
        begin, end = found.columns["begin_ns"], found.columns["end_ns"]
        assert begin.dtype == end.dtype == np.int64
        assert np.all((begin == -1) | (begin <= end))
    assert all(value > 0 for value in log.counters.values())


def samples(log: HostLog) -> set[tuple[str, int]]:
    return {(t.kind, int(end)) for t in log.tables for end in t.columns["end_ns"]}


# ---- every file ----


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


# ---- sysstat ----


def test_sadf_json_and_csv_of_one_recording_agree() -> None:
    of_json, of_csv = read(lines_of("sadf.json.gz")), read(lines_of("sadf.csv.gz"))
    assert of_json.host == of_csv.host == "vm"
    for kind in ("sadf_cpu", "sadf_cpu_core", "sadf_paging", "sadf_net_dev", "sadf_disk", "sadf_queue"):
        one, other = table(of_json, kind), table(of_csv, kind)
        np.testing.assert_array_equal(one.columns["begin_ns"], other.columns["begin_ns"])
        np.testing.assert_array_equal(one.columns["end_ns"], other.columns["end_ns"])
    for column in ("user_pct", "sys_pct", "wait_pct", "steal_pct", "idle_pct", "busy_pct"):
        np.testing.assert_array_equal(
            table(of_json, "sadf_cpu").columns[column], table(of_csv, "sadf_cpu").columns[column]
        )
    assert table(of_json, "sadf_net_dev").columns["interface"][:4] == ["lo"] * 4
    assert table(of_json, "sadf_memory").units["memfree"] == "KiB"
    assert table(of_json, "sadf_net_tcp").units["active"] == "1/s"
    assert table(of_csv, "sadf_disk").units["rkb_s"] == "KiB/s"


def test_a_sample_of_sadf_begins_its_interval_before_its_time() -> None:
    cpu = table(read(lines_of("sadf_epoch.csv")), "sadf_cpu").columns
    np.testing.assert_array_equal(cpu["end_ns"] - cpu["begin_ns"], S)


def test_local_times_need_the_zone_that_the_user_tells() -> None:
    lines = lines_of("sadf_kolkata.csv")
    unknown = read(lines)
    assert "no time zone" in unknown.warnings[0]
    known = read(lines, Told(zone_of("Asia/Kolkata")))
    assert known.warnings == []
    shift = table(unknown, "sadf_cpu").columns["end_ns"] - table(known, "sadf_cpu").columns["end_ns"]
    assert set(shift) == {int(5.5 * 3600 * S)}
    recorded = table(read(lines_of("sadf_epoch.csv")), "sadf_cpu").columns["end_ns"]
    np.testing.assert_array_equal(table(known, "sadf_cpu").columns["end_ns"], recorded)


def test_iostat_with_an_offset_needs_no_zone() -> None:
    log = read(lines_of("iostat_iso.json"))
    assert log.warnings == []
    cpu = table(log, "iostat_cpu").columns
    assert cpu["begin_ns"].tolist() == [-1, cpu["end_ns"][0]]  # the first sample is the mean since boot
    assert cpu["end_ns"][1] - cpu["end_ns"][0] == S


def test_iostat_as_text_is_the_same_as_json() -> None:
    iso = read(lines_of("iostat_text_iso.txt"))
    assert iso.warnings == []
    assert table(iso, "iostat_disk").columns["disk"] == ["vda", "vda"]
    assert {"r_await", "util_pct", "rkb_s"} <= set(table(iso, "iostat_disk").columns)
    local = read(lines_of("iostat_text.txt"), Told(zone_of("UTC")))
    cpu = table(local, "iostat_cpu").columns
    assert set(cpu) == set(table(read(lines_of("iostat.json")), "iostat_cpu").columns)
    assert cpu["begin_ns"].tolist() == [-1, cpu["end_ns"][0]]
    without = [line for line in lines_of("iostat_text.txt") if not line.startswith("11/21/26 ")]
    with pytest.raises(TapscopeError, match="its samples have no time"):
        read(without)


def test_a_damaged_sample_of_json_is_one_sample_lost() -> None:
    lines = lines_of("iostat.json")
    at = next(i for i, line in enumerate(lines) if '"avg-cpu"' in line)
    log = read([*lines[:at], '"avg-cpu": {"user": 24\n', *lines[at + 1 :]])
    assert log.counters == {"host.sysstat.bad_sample": 1}
    assert len(table(log, "iostat_cpu").columns["end_ns"]) == 2


def test_json_on_one_line_is_read_too() -> None:
    import json

    whole = read(lines_of("mpstat.json"))
    one_line = read([json.dumps(json.loads(text_of(LOGS / "mpstat.json")))])
    assert samples(one_line) == samples(whole)


def test_mpstat_knows_its_midnight() -> None:
    head = "Linux 6.1.0 (box) \t12/31/26 \t_x86_64_\t(2 CPU)\n"
    names = "     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n"
    values = "     all    1.00    0.00    1.00    0.00    0.00    0.00    0.00    0.00    0.00   98.00\n"
    lines = [head, "\n", f"23:59:58{names}", f"23:59:59{values}", f"00:00:00{values}", f"00:00:01{values}"]
    cpu = table(read(lines), "mpstat_cpu").columns
    assert cpu["end_ns"].tolist() == [
        at_ns("2026-12-31T23:59:59"),
        at_ns("2027-01-01"),
        at_ns("2027-01-01") + S,
    ]
    assert (cpu["end_ns"] - cpu["begin_ns"]).tolist() == [S, S, S]
    assert cpu["busy_pct"].tolist() == [2.0, 2.0, 2.0]
    in_12_hours = [line.replace("23:59", "11:59").replace("00:00", "12:00") for line in lines]
    in_12_hours = [
        f"{line[:8]} {'PM' if line.startswith('11') else 'AM'}{line[8:]}" if line[:2].isdigit() else line
        for line in in_12_hours
    ]
    assert samples(read(in_12_hours)) == samples(read(lines))


def test_sar_goes_through_the_day_once_per_set_of_columns() -> None:
    log = read(lines_of("sar.txt.gz"))
    of_json = read(lines_of("sadf.json.gz"))
    assert log.format == "sar text"
    for one, other in (
        ("sar_cpu", "sadf_cpu"),
        ("sar_pgpgin_s", "sadf_paging"),
        ("sar_tcp6sck", "sadf_net_sock6"),
    ):
        np.testing.assert_array_equal(
            table(log, one).columns["end_ns"], table(of_json, other).columns["end_ns"]
        )


def test_arguments_of_commands_are_not_kept() -> None:
    log = read(lines_of("pidstat.txt"))
    assert set(table(log, "pidstat_minflt_s").columns["command"]) == {"pidstat"}


def test_the_hour_that_comes_twice_is_the_first_until_time_would_go_back() -> None:
    told = Told(zone_of("Europe/Berlin"))
    stamps = ["02:59:58", "02:59:59", "02:00:00", "02:00:01", "03:00:00"]  # 25 October 2026
    head = lines_of("vmstat.txt")[:2]
    row = lines_of("vmstat.txt")[3].partition(" 2026-")[0]
    lines = [head[0], head[1].replace("UTC", "CET"), *(f"{row} 2026-10-25 {stamp}\n" for stamp in stamps)]
    log = read(lines, told)
    ends = table(log, "vmstat").columns["end_ns"]
    assert ends.tolist()[0] == at_ns("2026-10-25T00:59:58")
    assert np.diff(ends).tolist() == [S, S, S, 3599 * S]
    assert log.counters == {"host.time.ambiguous": 2}


def test_a_clock_that_goes_back_starts_a_new_recording() -> None:
    lines = lines_of("vmstat_disk.txt")
    again = [line.replace("2026-11-21 06:35:0", "2026-11-21 06:34:5") for line in lines]
    log = read(lines + again)
    found = table(log, "vmstat_disk").columns
    assert log.counters["host.time.went_back"] == 1
    assert (found["begin_ns"] == -1).sum() == 2 * len(set(found["disk"]))
    assert "went backwards" in log.warnings[0]


def test_lines_without_a_time_are_an_error_that_says_what_to_do() -> None:
    lines = [line.replace(" -----timestamp-----", "") for line in lines_of("vmstat.txt")]
    lines = [line.partition(" 2026-")[0].replace("UTC", "") + "\n" for line in lines]
    with pytest.raises(TapscopeError, match=r"its lines have no time.*vmstat -t 1"):
        read(lines)


# ---- garbage collection ----


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


# ---- the others ----


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
