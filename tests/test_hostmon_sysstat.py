"""Logs of sysstat's programs (sadf, sar, iostat, mpstat, pidstat) on recorded files: figures by hand."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_host_logs import (
    LOGS,
    S,
    at_ns,
    lines_of,
    read,
    samples,
    table,
    text_of,
)

from tapscope.hostmon.clock import LogClock, Told, day_of, of_day_ns, zone_of
from tapscope.store.errors import TapscopeError


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


@pytest.mark.parametrize("headed", ["12/31/26", "01/01/27"])  # begun before and after midnight
def test_a_clock_set_back_over_midnight_loses_no_day(headed: str) -> None:
    clock, day = LogClock(zone_of("UTC")), day_of(headed)[0]
    stamps = ["23:59:59", "00:00:00", "23:59:59", "00:00:00", "00:00:01"][headed < "12" :]
    found = [clock.time_of_day(day, of_day_ns(stamp)) - at_ns("2027-01-01") for stamp in stamps]
    assert found == [-S, 0, -S, 0, S][headed < "12" :]
    assert clock.counters["host.time.went_back"] == 1


def test_a_host_that_stood_for_most_of_its_day_goes_on_in_it() -> None:
    clock = LogClock(zone_of("UTC"))
    first, second = (
        clock.time_of_day((2026, 12, 31), of_day_ns(stamp)) for stamp in ("01:00:00", "22:00:00")
    )
    assert second - first == 21 * 3600 * S


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


def test_the_mean_since_boot_of_an_appended_vmstat_does_not_reach_back() -> None:
    head, row = lines_of("vmstat.txt")[:2], lines_of("vmstat.txt")[3].partition(" 2026-")[0]

    def part(*stamps: str) -> list[str]:
        return [*head, *(f"{row} 2026-11-21 {stamp}\n" for stamp in stamps)]

    # The second title is that of another screenful, one sample late.
    lines = (
        part("10:00:00", "10:00:01", "10:00:02") + part("10:00:04", "10:00:05") + part("10:30:00", "10:30:01")
    )
    found = table(read(lines), "vmstat").columns
    lengths = np.where(found["begin_ns"] < 0, -1, (found["end_ns"] - found["begin_ns"]) // S)
    assert lengths.tolist() == [-1, 1, 1, 2, 1, -1, 1]
    once = part("10:00:00") + part("10:01:00") + part("10:02:00")  # vmstat -t 1 1, again and again
    assert table(read(once), "vmstat").columns["begin_ns"].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("name", ["iostat_text_iso.txt", "iostat_iso.json"])
def test_the_mean_since_boot_of_an_appended_iostat_does_not_reach_back(name: str) -> None:
    lines = lines_of(name)
    later = [line.replace("2026-11-21T0", "2026-11-21T1") for line in lines]
    assert later != lines
    one, both = read(lines), read(lines + later)
    for kind in ("iostat_cpu", "iostat_disk"):
        begin = [table(log, kind).columns["begin_ns"] for log in (one, both)]
        assert (begin[1] == -1).sum() == 2 * (begin[0] == -1).sum() > 0


def test_lines_without_a_time_are_an_error_that_says_what_to_do() -> None:
    lines = [line.replace(" -----timestamp-----", "") for line in lines_of("vmstat.txt")]
    lines = [line.partition(" 2026-")[0].replace("UTC", "") + "\n" for line in lines]
    with pytest.raises(TapscopeError, match=r"its lines have no time.*vmstat -t 1"):
        read(lines)
