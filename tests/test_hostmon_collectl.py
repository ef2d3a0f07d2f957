"""Collectl raw and plot files: recorded ones (pcaps/hosts), damaged ones, and arithmetic by hand."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tapscope.hostmon.collectl_plot import read_plot
from tapscope.hostmon.collectl_raw import read_raw
from tapscope.hostmon.load import read_host_log
from tapscope.hostmon.samples import HostLog, HostTable, stamp_ns
from tapscope.store.errors import TapscopeError

HOSTS = Path(__file__).resolve().parent.parent / "pcaps" / "hosts"
RAW = next((HOSTS / "web").glob("*.raw.gz"))
HEAD = [
    "# Collectl:   V4.3.1-1  HiRes: 1  Options: -i 0.05 -scd\n",
    "# Host:       box  DaemonOpts: \n",
    "# Date:       20260101-000000  Secs: 1767225600 TZ: +0000\n",
    "# SubSys:     cd Options: Tm Interval: 0.05 NumCPUs: 2  NumBud: 0 Flags: i\n",
    "# HZ:         100  Arch: x86_64 PageSize: 4096\n",
]


def table(log: HostLog, kind: str) -> HostTable:
    return next(t for t in log.tables if t.kind == kind)


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def raw_of(*samples: tuple[str, list[str]]) -> HostLog:
    lines = list(HEAD)
    for stamp, records in samples:
        lines += [f">>> {stamp} <<<\n", *(f"{record}\n" for record in records)]
    return read_raw(lines)


def test_cpu_shares_are_the_parts_of_the_increase():
    log = raw_of(
        ("1767225600.001", ["cpu  100 10 50 1000 5 0 1 2 7 0", "cpu0 60 5 30 500 5 0 1 2 7 0"]),
        ("1767225600.051", ["cpu  104 10 52 1003 6 0 1 2 7 0", "cpu0 62 5 31 502 5 0 1 2 7 0"]),
    )
    cpu = table(log, "collectl_cpu").columns
    assert cpu["begin_ns"].tolist() == [-1, 1767225600001000000]
    assert cpu["end_ns"].tolist() == [1767225600001000000, 1767225600051000000]
    assert [cpu[f"{n}_pct"][1] for n in ("user", "sys", "wait", "idle", "busy")] == [40, 20, 10, 30, 60]
    assert np.isnan(cpu["user_pct"][0])
    assert cpu["user_jiffies"].tolist() == [100, 104]
    core = table(log, "collectl_cpu_core").columns
    assert core["core"].tolist() == [0, 0]
    assert core["user_pct"][1] == 40


def test_a_share_of_nothing_is_unknown_not_zero():
    log = raw_of(("10.0", ["cpu 1 1 1 1 1 1 1 1"]), ("10.05", ["cpu 1 1 1 1 1 1 1 1"]))
    assert np.isnan(table(log, "collectl_cpu").columns["busy_pct"]).all()


def test_disk_counters_become_rates_per_disk():
    first = "disk  254       0 vda 100 0 2000 10 50 0 4000 20 0 100 30 0 0 0 0 0 0"
    second = "disk  254       0 vda 110 0 2200 30 70 0 4400 60 0 140 130 0 0 0 0 0 0"
    other = "disk  8       0 sda 5 0 10 0 0 0 0 0 0 0 0"
    log = raw_of(("10.000", [first, other]), ("10.100", [second, other]))
    disk = table(log, "collectl_disk").columns
    assert disk["disk"] == ["sda", "sda", "vda", "vda"]
    row = {name: values[3] for name, values in disk.items()}
    assert row["reads_per_s"] == pytest.approx(100)
    assert row["read_kib_per_s"] == pytest.approx(1000)
    assert row["written_kib_per_s"] == pytest.approx(2000)
    assert row["busy_pct"] == pytest.approx(40)
    assert row["queue_mean"] == pytest.approx(1.0)
    assert row["wait_ms"] == pytest.approx(60 / 30)
    assert row["sectors_read"] == 2200


def test_network_memory_and_tcp_records_become_columns():
    net = "Net   eth0: {} 10 0 0 0 0 0 0 500 20 0 0 0 0 0 0"
    names, values = "tcp-Tcp: RtoAlgorithm CurrEstab InSegs RetransSegs", "tcp-Tcp: 1 9 {} {}"
    log = raw_of(
        (
            "10.0",
            [net.format(1000), names, values.format(100, 3), "Dirty:    250 kB", "pgpgout 70", "nr_dirty 9"],
        ),
        (
            "10.5",
            [net.format(3000), names, values.format(200, 4), "Dirty:    999 kB", "pgpgout 80", "nr_dirty 7"],
        ),
    )
    assert table(log, "collectl_net").columns["rx_bytes_per_s"][1] == pytest.approx(4000)
    tcp = table(log, "collectl_tcp")
    assert tcp.columns["Tcp_RetransSegs_per_s"][1] == pytest.approx(2)
    assert "Tcp_CurrEstab_per_s" not in tcp.columns
    assert table(log, "collectl_memory").columns["Dirty"].tolist() == [250, 999]
    assert table(log, "collectl_memory").units["Dirty"] == "KiB"
    vmstat = table(log, "collectl_vmstat").columns
    assert vmstat["pgpgout_per_s"][1] == pytest.approx(20)
    assert "nr_dirty_per_s" not in vmstat


def test_a_counter_that_goes_down_gives_no_rate_and_is_counted():
    net = "Net   eth0: {} 10 0 0 0 0 0 0 500 20 0 0 0 0 0 0"
    log = raw_of(("10.0", [net.format(1000)]), ("10.5", [net.format(10)]), ("11.0", [net.format(510)]))
    rate = table(log, "collectl_net").columns["rx_bytes_per_s"]
    assert np.isnan(rate[:2]).all()
    assert rate[2] == pytest.approx(1000)
    assert log.counters == {"host.collectl.counter_reset": 1}


def test_idle_and_waiting_time_may_go_back_as_the_kernel_documents():
    log = raw_of(("10.0", ["cpu 100 0 0 1000 50 0 0 0"]), ("10.1", ["cpu 110 0 0 1010 49 0 0 0"]))
    cpu = table(log, "collectl_cpu").columns
    assert (cpu["user_pct"][1], cpu["wait_pct"][1], cpu["idle_pct"][1]) == (50, 0, 50)
    assert log.counters == {}


def test_a_process_series_has_no_command_line():
    stat = "proc:7 stat 7 (my (x) app) R 1 1 1 0 -1 0 5 0 0 0 {} 3 0 0 20 0 4 0 99 4096 10"
    stat += " 0" * 13 + " 17 1 0 0"
    log = raw_of(
        ("10.0", [stat.format(50), "proc:7 cmd /bin/my --password=secret", "proc:7 io read_bytes: 0"]),
        ("10.5", ["cpu 1 1 1 1"]),
        ("11.0", [stat.format(75), "proc:7 cmd /bin/my --password=secret", "proc:7 io read_bytes: 4096"]),
    )
    process = table(log, "collectl_process")
    assert process.columns["command"] == ["my (x) app", "my (x) app"]
    assert process.columns["begin_ns"].tolist() == [-1, 10_000_000_000]
    assert process.columns["user_pct"][1] == pytest.approx(25)
    assert process.columns["read_bytes_per_s"][1] == pytest.approx(4096)
    assert process.columns["rss_bytes"].tolist() == [40960, 40960]
    assert "secret" not in repr(process)


def test_records_that_nobody_knows_are_counted_by_name():
    log = raw_of(("10.0", ["cpu 1 2 3 4", "nfs3-c 1 2 3", "nfs3-c 1 2 3", "cpu x y"]))
    assert log.counters == {"host.collectl.unread.nfs": 2, "host.collectl.bad_line": 1}


def test_a_process_number_that_no_kernel_gives_is_a_damaged_line():
    log = raw_of(("10.0", ["cpu 1 2 3 4", f"proc:{'9' * 23} io cancelled_write_bytes: 0"]))
    assert log.counters == {"host.collectl.bad_line": 1}


def test_the_recorded_raw_file_is_read_whole():
    log = read_host_log(RAW)
    assert log.counters == {}
    assert (log.format, log.host, log.detail["interval"]) == ("collectl raw", "vm", "0.05:0.25")
    assert {t.kind for t in log.tables} == {
        f"collectl_{kind}"
        for kind in ("cpu", "cpu_core", "disk", "net", "stat", "memory", "vmstat", "tcp", "process")
    }
    cpu = table(log, "collectl_cpu").columns
    assert len(cpu["end_ns"]) == 25
    spans = (cpu["end_ns"] - cpu["begin_ns"])[1:]
    assert 45_000_000 < np.median(spans) < 55_000_000
    assert np.nanmean(cpu["busy_pct"]) > 40, "md5sum kept a core busy"
    total = sum(cpu[f"{n}_pct"] for n in ("user", "nice", "sys", "wait", "irq", "soft", "steal", "idle"))
    np.testing.assert_allclose(total[1:], 100)
    process = table(log, "collectl_process").columns
    assert set(process["command"]) == {"md5sum"}
    assert np.nanmean(process["user_pct"]) > 20


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_cut_gzip_file_is_read_up_to_the_cut(tmp_path, keep):
    whole = RAW.read_bytes()
    cut = tmp_path / "cut.raw.gz"
    cut.write_bytes(whole[: int(len(whole) * keep)])
    log = read_host_log(cut)
    assert log.counters["host.truncated_file"] == 1
    found = table(log, "collectl_cpu").columns
    expected = table(read_host_log(RAW), "collectl_cpu").columns
    count = len(found["end_ns"])
    assert 0 < count < len(expected["end_ns"])
    np.testing.assert_array_equal(found["busy_pct"], expected["busy_pct"][:count])


def test_a_raw_file_cut_anywhere_never_fails_and_never_invents():
    lines = text_of(RAW)
    expected = table(read_raw(lines.splitlines(keepends=True)), "collectl_cpu").columns["user_jiffies"]
    first = lines.index("\ncpu ", lines.index(">>>")) + 40
    for end in range(first, first + 20_000, 611):
        found = table(read_raw(lines[:end].splitlines(keepends=True)), "collectl_cpu").columns["user_jiffies"]
        np.testing.assert_array_equal(found, expected[: len(found)])


def test_the_recorded_plot_file_says_what_its_lines_say():
    log = read_host_log(next((HOSTS / "web").glob("plot-*")))
    (plot,) = log.tables
    assert (plot.kind, log.host, log.counters) == ("collectl_plot", "vm", {})
    text = text_of(next((HOSTS / "web").glob("plot-*"))).splitlines()
    rows = [line.split() for line in text if not line.startswith("#")]
    assert plot.columns["cpu_user_pct"].tolist() == [int(row[2]) for row in rows]
    assert plot.units["cpu_user_pct"] == "%"
    assert plot.units["net_rxkbtot"] == "KiB/s"
    assert plot.units["cpu_ctx_sec"] == "1/s"
    assert plot.originals["cpu_user_pct"] == "[CPU]User%"
    hours, minutes, seconds = rows[0][1].split(":")
    at = stamp_ns(seconds) + (int(hours) * 3600 + int(minutes) * 60) * 10**9
    assert plot.columns["end_ns"][0] % (86_400 * 10**9) == at
    assert plot.columns["begin_ns"][0] == plot.columns["end_ns"][0] - 50_000_000
    np.testing.assert_array_equal(plot.columns["begin_ns"][1:], plot.columns["end_ns"][:-1])


def test_the_plot_file_and_the_raw_file_of_one_machine_agree_on_what_busy_means():
    for name, mean in (("plot-*", "cpu_totl_pct"),):
        (plot,) = read_host_log(next((HOSTS / "web").glob(name))).tables
        assert np.mean(plot.columns[mean]) == pytest.approx(
            100 - np.mean(plot.columns["cpu_idle_pct"]), abs=2
        )


def test_utc_plot_files_need_no_zone():
    log = read_host_log(HOSTS / "app" / "utc.tab")
    (plot,) = log.tables
    first = (HOSTS / "app" / "utc.tab").read_text().splitlines()[1].split()[0]
    assert plot.columns["end_ns"][0] == stamp_ns(first)
    assert log.warnings == []


@pytest.mark.parametrize(
    ("kind", "column"),
    [("cpu", "cpu_0_user_pct"), ("dsk", "dsk_vda_rkbytes"), ("net", "net_lo_rxpkt")],
)
def test_detail_plot_files_have_a_column_per_instance(kind, column):
    log = read_host_log(next((HOSTS / "app").glob(f"detail-*.{kind}.gz")))
    assert column in log.tables[0].columns


def plot_of(zone: str, options: str, *lines: str) -> HostLog:
    head = [
        f"# Date:       20260101-000000  Secs: 1767225600 TZ: {zone}\n",
        f"# SubSys:     c Options: {options} Interval: 0.1 NumCPUs: 2\n",
    ]
    return read_plot([*head, *(f"{line}\n" for line in lines)])


def test_local_time_is_taken_back_to_utc_by_the_zone_of_the_header():
    log = plot_of("-0530", "Tm", "#Date Time [CPU]User%", "20260101 23:00:00.250 7")
    assert log.tables[0].columns["end_ns"].tolist() == [
        1767225600_250_000_000 + 28 * 3600 * 10**9 + 1800 * 10**9
    ]


def test_values_that_were_not_divided_by_time_say_so():
    log = plot_of("+0000", "Tmn", "#Date Time [NET]RxKBTot", "20260101 00:00:01.000 7")
    assert log.tables[0].units["net_rxkbtot"] == "KiB/sample"


def test_several_recordings_in_one_plot_file_do_not_run_into_each_other():
    one = ["#Date Time [CPU]User%", "20260101 00:00:01.000 7", "20260101 00:00:01.100 8"]
    two = ["#Date Time [CPU]User%", "20260101 00:01:00.000 9"]
    log = plot_of("+0000", "Tm", *one, "# SubSys:     c Options: Tm Interval: 0.2 NumCPUs: 2", *two)
    (plot,) = log.tables
    assert (plot.columns["end_ns"] - plot.columns["begin_ns"]).tolist() == [
        100_000_000,
        100_000_000,
        200_000_000,
    ]


def test_process_plot_files_keep_the_name_of_the_program_only():
    log = plot_of(
        "+0000", "Tm", "#Date Time PID User PCT Command",
        "20260101 00:00:01.000 5 root 1 /usr/bin/java -Dsecret=1",
        "20260101 00:00:01.000 6 root 2 kworker/0:1-events",
    )  # fmt: skip
    (plot,) = log.tables
    assert plot.kind == "collectl_plot_process"
    assert plot.columns["command"] == ["java", "0:1-events"]
    assert plot.columns["pid"].tolist() == [5, 6]
    assert plot.columns["begin_ns"].tolist() == [1767225600_900_000_000] * 2


def test_damaged_plot_lines_are_counted_and_left_out():
    log = plot_of(
        "+0000", "Tm", "#Date Time [CPU]User%", "20260101 00:00:01.000 7", "20260101 00:00", "99 99:99 7"
    )
    assert log.tables[0].columns["cpu_user_pct"].tolist() == [7]
    assert log.counters == {"host.collectl.bad_line": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"127.0.0.1 - - GET /\n" * 5, "no host-monitor reader knows this file"),
        ("".join(HEAD).encode() + b"#Date Time [CPU]User%\n", "no sample"),
        (b"\x1f\x8b\x08\x00garbage", "empty"),
        (bytes(range(256)) * 40, "no host-monitor reader"),
    ],
)
def test_a_file_in_the_wrong_format_is_one_clear_error(tmp_path, content, words):
    path = tmp_path / "some.log"
    path.write_bytes(content)
    with pytest.raises(TapscopeError, match=words) as failure:
        read_host_log(path)
    assert failure.value.path == str(path)
    assert failure.value.remedy
