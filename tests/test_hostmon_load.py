"""Host logs into a run: whose they are, joined with the load series on time."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapscope.hostmon.cgroup import read_cgroup
from tapscope.hostmon.clock import told
from tapscope.hostmon.fit import misfits
from tapscope.hostmon.fuse import (
    by_window,
    cpu_by_window,
    host_of_node,
    node_cpu,
    resample,
    stop_share,
    stops,
)
from tapscope.hostmon.load import host_files, load_host_files, read_host_log
from tapscope.hostmon.samples import HostTable
from tapscope.store import tables
from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile

HOSTS = Path(__file__).resolve().parent.parent / "pcaps" / "hosts"
MS = 1_000_000


@pytest.fixture
def run(tmp_path):
    with RunFile.create(tmp_path / "run.db") as opened:
        yield opened


def cgroup_file(folder: Path, usage: list[int], step_ns: int = 50 * MS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cgroup_cpu.csv"
    lines = ["time_ns_begin,time_ns_end,usage_ns,user_ns,system_ns"]
    lines += [
        f"{i * step_ns + 990},{i * step_ns + 1010},{u},{u // 2},{u - u // 2}" for i, u in enumerate(usage)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


# ---- resample ----

samples = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(0, 120), st.one_of(st.just(np.nan), st.integers(-50, 50).map(float))
    ),
    max_size=25,
)
edge_lists = st.lists(st.integers(-50, 450), min_size=2, max_size=12, unique=True).map(sorted)


@given(samples, edge_lists)
@settings(max_examples=300)
def test_resample_equals_an_exact_overlap_weighted_mean(rows, edges):
    begin = np.array([r[0] for r in rows], np.int64)
    end = begin + np.array([r[1] for r in rows], np.int64)
    value = np.array([r[2] for r in rows], np.float64)
    found = resample(begin, end, value, np.array(edges, np.int64))
    for i, (low, high) in enumerate(pairwise(edges)):
        weight = total = Fraction(0)
        for b, e, v in zip(begin.tolist(), end.tolist(), value.tolist(), strict=True):
            overlap = max(0, min(e, high) - max(b, low))
            if overlap and not np.isnan(v):
                weight += overlap
                total += overlap * Fraction(v)
        if weight:
            assert found[i] == pytest.approx(float(total / weight), abs=1e-12)
        else:
            assert np.isnan(found[i])


def test_samples_without_a_begin_weigh_nothing():
    found = resample(np.array([-1, 10]), np.array([10, 20]), np.array([1000.0, 4.0]), np.array([0, 20]))
    assert found.tolist() == [4.0]


# ---- whose log ----


def test_the_host_is_the_folder_below_hosts(run):
    loaded = load_host_files(run, HOSTS)
    assert {record["host"] for record in loaded} == {"web", "app"}
    assert {t.host for t in run.dynamic_tables()} == {"web", "app"}
    assert ("host.unknown_file", 1, "files") in run.counters()  # README.md
    assert all(s["kind"] == "host" and s["first_ns"] > 0 for s in run.sources())


def test_outside_of_hosts_the_log_says_whose_it_is(run, tmp_path):
    source = next((HOSTS / "web").glob("*.raw.gz"))
    copied = tmp_path / source.name
    copied.write_bytes(source.read_bytes())
    (record,) = load_host_files(run, copied)
    assert record["host"] == "vm"


def test_the_user_can_say_whose_it_is(run):
    (record,) = load_host_files(run, HOSTS / "app" / "cgroup_cpu.csv", host="tomcat")
    assert record["host"] == "tomcat"


def test_loading_again_replaces(run):
    load_host_files(run, HOSTS)
    before = {t.table: run.count(t.table) for t in run.dynamic_tables()}
    load_host_files(run, HOSTS)
    assert {t.table: run.count(t.table) for t in run.dynamic_tables()} == before


def test_loading_again_counts_once(run, tmp_path):
    path = cgroup_file(tmp_path / "hosts" / "web", [0, 1, 2])
    whole = path.read_text()
    path.write_text(whole + "damaged\n")
    (path.parent / "notes").write_text("of no reader\n")
    other = cgroup_file(tmp_path / "hosts" / "app", [0, 1])
    other.write_text(other.read_text() + "damaged\n")

    def counted():
        load_host_files(run, tmp_path)
        return {name: value for name, value, _ in run.counters() if name.startswith("host.")}

    assert counted() == counted() == {"host.cgroup.bad_line": 2, "host.unknown_file": 1}
    path.write_text(whole)
    assert counted()["host.cgroup.bad_line"] == 1


def test_of_a_run_directory_only_its_hosts_are_read(tmp_path):
    cgroup_file(tmp_path / "hosts" / "web", [0, 1])
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "access.log").write_text("x\n")
    assert [(p.name, named) for p, named in host_files([tmp_path])] == [("cgroup_cpu.csv", False)]


def test_a_named_file_that_is_no_host_log_is_an_error(run, tmp_path):
    path = tmp_path / "access.log"
    path.write_text("127.0.0.1 - -\n")
    with pytest.raises(TapscopeError, match=r"access.log \(byte 0\): no host-monitor reader"):
        load_host_files(run, path)
    with pytest.raises(TapscopeError, match="no such file"):
        load_host_files(run, tmp_path / "missing")


def test_a_number_that_was_cut_is_no_number(tmp_path):
    path = cgroup_file(tmp_path / "web", [0, 248_000_000, 500_000_000])
    whole = path.read_bytes()
    for data in (whole[:-5], gzip.compress(whole[:-5]), whole[:-1]):
        path.write_bytes(data)
        log = read_host_log(path)
        assert log.tables[0].columns["usage_ns"].tolist() == [0, 248_000_000]
        assert log.counters == {"host.cut_line": 1}
    path.write_bytes(whole)
    assert read_host_log(path).counters == {}


def test_what_is_written_like_a_number_and_is_none_is_counted():
    table = HostTable("any")
    table.add_log_column("x", ["1.5", "nan", "", None, "1e999", "-inf"])
    np.testing.assert_array_equal(table.columns["x"], [1.5, *[np.nan] * 5])
    assert table.bad_values == 3


def test_a_frequency_that_was_cut_is_none(tmp_path):
    file = "==> /sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq <==\n1200000\n"
    path = tmp_path / "cpufreq.snap"
    path.write_text(f"1795241865.0\n{file}1795241866.0\n{file}"[:-4])
    log = read_host_log(path)
    assert log.tables[0].columns["mhz"].tolist() == [1200.0]
    assert log.counters == {"host.cut_line": 1}


def test_the_mark_before_utf_8_is_no_part_of_a_log(tmp_path):
    path = cgroup_file(tmp_path / "web", [0, 1])
    marked = b"\xef\xbb\xbf" + path.read_bytes()
    for data in (marked, gzip.compress(marked)):
        path.write_bytes(data)
        assert read_host_log(path).tables[0].columns["usage_ns"].tolist() == [0, 1]


def test_json_says_where_it_ends_without_a_line_end(tmp_path):
    text = (HOSTS.parent / "hostlogs" / "mpstat.json").read_text()
    path = tmp_path / "mpstat.json"
    for whole in (text, text.rstrip(), json.dumps(json.loads(text))):
        path.write_text(whole)
        log = read_host_log(path)
        assert "host.cut_line" not in log.counters
        assert len(log.tables[0].columns["end_ns"]) == len(
            read_host_log(HOSTS.parent / "hostlogs" / "mpstat.json").tables[0].columns["end_ns"]
        )


def test_columns_beyond_what_a_table_holds_are_counted(run, tmp_path):
    lines = ["# Collectl:   V4.3.1-1  HiRes: 1  Options: -sj\n"]
    for second in range(2):
        counts = " ".join(str(second + cpu) for cpu in range(1200))
        lines += [f">>> {1795241820 + second}.000 <<<\n", f"int 24: {counts} IO-APIC eth0\n"]
    (tmp_path / "many.raw").write_text("".join(lines))
    load_host_files(run, tmp_path / "many.raw", host="big")
    counted = {name: (value, unit) for name, value, unit in run.counters()}
    assert counted["host.column_left_out"][0] > 500
    assert counted["host.column_left_out"][1] == "columns"
    assert run.count("host_collectl_interrupt_big") == 2


# ---- cgroup ----


def test_cgroup_time_becomes_percent_of_a_core(run, tmp_path):
    load_host_files(run, cgroup_file(tmp_path / "hosts" / "app", [0, 25 * MS, 125 * MS]))
    found = run.read_dynamic("host_cgroup_cpu_app")
    np.testing.assert_array_equal(found["busy_pct"], [np.nan, 50.0, 200.0])
    assert found["end_ns"].tolist() == [1000, 50 * MS + 1000, 100 * MS + 1000]
    assert found["begin_ns"].tolist() == [-1, 1000, 50 * MS + 1000]
    assert found["usage_ns"].tolist() == [0, 25 * MS, 125 * MS]


def test_damaged_cgroup_lines_are_counted():
    log = read_cgroup(["time_ns_begin,time_ns_end,usage_ns\n", "1,3,5\n", "1,3\n", "x,y,z\n", "101,103,5"])
    assert log.counters == {"host.cgroup.bad_line": 2}
    assert log.tables[0].columns["end_ns"].tolist() == [2, 102]


# ---- joined with nodes ----


@pytest.fixture
def joined(run, tmp_path):
    run.write_addresses(["10.0.0.1", "10.0.0.2"])
    nodes = {c.name: np.zeros(2, dtype=c.dtype) for c in tables.TABLES["nodes"]}
    nodes["addr"][:] = [0, 1]
    run.write_table("nodes", nodes)
    run.write_node_names(["10.0.0.1", "10.0.0.2"])
    cgroup_file(tmp_path / "hosts" / "web", [0, 50 * MS, 50 * MS])
    cgroup_file(tmp_path / "hosts" / "10.0.0.2", [0, 10 * MS, 20 * MS])
    load_host_files(run, tmp_path)
    return run


def test_hosts_are_nodes_by_the_manifest_or_by_their_own_name(joined):
    assert host_of_node(joined) == {1: "10.0.0.2"}
    joined.set_meta("manifest", {"hosts": {"web": "10.0.0.1/24"}})
    assert host_of_node(joined) == {0: "web", 1: "10.0.0.2"}
    joined.set_meta("manifest", json.loads('{"hosts": {"web": {"address": "10.0.0.1"}}}'))
    assert host_of_node(joined) == {0: "web", 1: "10.0.0.2"}


def test_cpu_per_window_is_the_overlap_weighted_mean(joined):
    edges = np.array([1000, 50 * MS + 1000, 75 * MS + 1000, 100 * MS + 1000, 200 * MS])
    cpu = cpu_by_window(joined, "web", edges)
    assert (cpu.kind, cpu.unit) == ("cgroup_cpu", "% of one core")
    np.testing.assert_array_equal(cpu.busy, [100.0, 0.0, 0.0, np.nan])
    assert cpu.wait is None
    joined.set_meta("manifest", {"hosts": {"web": "10.0.0.1"}})
    assert set(node_cpu(joined, edges)) == {0, 1}


def test_a_host_without_cpu_has_none(joined):
    assert cpu_by_window(joined, "nobody", np.array([0, 1])) is None
    assert by_window(joined, "web", "cgroup_cpu", "no_such_column", np.array([0, 1])) is None


def test_recorded_collectl_gives_the_cpu_of_its_host(run):
    load_host_files(run, HOSTS)
    stamps = run.read_dynamic("host_collectl_cpu_web", ["end_ns", "busy_pct"])
    edges = stamps["end_ns"]
    cpu = cpu_by_window(run, "web", edges)
    assert cpu.kind == "collectl_cpu"
    np.testing.assert_allclose(cpu.busy, stamps["busy_pct"][1:])


def test_the_share_of_collections_is_the_overlap_of_their_pauses(run, tmp_path):
    folder = tmp_path / "hosts" / "app"
    folder.mkdir(parents=True)
    (folder / "gc.log").write_text(
        "[2026-11-21T06:00:00.100+0000][gc] GC(0) Pause Young (Allocation Failure) 12M->2M(46M) 20.000ms\n"
        "[2026-11-21T06:00:00.160+0000][info][gc] GC(1) Pause Full (System.gc()) 12M->2M(46M) 30.000ms\n"
    )
    load_host_files(run, tmp_path)
    start = 1795240800 * 1000 * MS
    edges = start + np.array([0, 50, 100, 150, 200]) * MS
    np.testing.assert_allclose(stop_share(run, "app", "jvm_gc", edges), [0, 0.4, 0.4, 0.2])
    assert stop_share(run, "db", "jvm_gc", edges) is None
    np.testing.assert_array_equal(stop_share(run, "app", "jvm_gc", edges + 200 * MS), 0)  # still within
    assert stop_share(run, "app", "jvm_gc", edges + 3600_000 * MS) is None, "a log of another time"
    assert stop_share(run, "app", "jvm_gc", edges - 3600_000 * MS) is None
    begin, end = stops(run, "app", "jvm_gc")
    assert ((begin - start) // MS).tolist() == [80, 130]
    assert ((end - start) // MS).tolist() == [100, 160]


@pytest.mark.parametrize("name", ["sadf.json.gz", "mpstat.txt", "iostat.json", "vmstat.txt", "sar.txt.gz"])
def test_cpu_is_found_in_whatever_log_has_it(run, name):
    load_host_files(run, HOSTS.parent / "hostlogs" / name, host="box")
    kind = next(t.kind for t in run.dynamic_tables() if t.kind.endswith("_cpu") or t.kind == "vmstat")
    stamps = run.read_dynamic(f"host_{kind}_box", ["end_ns", "busy_pct"])
    cpu = cpu_by_window(run, "box", stamps["end_ns"])
    assert cpu is not None
    np.testing.assert_allclose(cpu.busy, stamps["busy_pct"][1:])


def test_a_log_that_names_no_host_is_of_its_folder(run, tmp_path):
    (tmp_path / "db7").mkdir()
    log = (HOSTS.parent / "hostlogs" / "vmstat.txt").read_bytes()
    (tmp_path / "db7" / "vmstat.txt").write_bytes(log)
    (record,) = load_host_files(run, tmp_path)
    assert record["host"] == "db7"


def test_a_time_that_the_clock_skipped_is_counted(run, tmp_path):
    text = (HOSTS.parent / "hostlogs" / "vmstat.txt").read_text().replace("UTC", "CET")
    row = text.splitlines()[2].partition(" 2026-")[0]
    stamps = ("01:59:59", "02:30:00", "03:00:01")  # 29 March 2026: there is no 02:30
    lines = [*text.splitlines()[:2], *(f"{row} 2026-03-29 {stamp}" for stamp in stamps)]
    (tmp_path / "vmstat.txt").write_text("\n".join(lines) + "\n")
    (record,) = load_host_files(run, tmp_path / "vmstat.txt", "box", told("Europe/Berlin", None))
    assert record["last_ns"] - record["first_ns"] == 1801 * 1000 * MS  # as if the clock had not gone forward
    assert ("host.time.skipped_hour", 1, "lines") in run.counters()


# ---- do the logs fit the run? ----


def _ran(run: RunFile, begin_ns: int, end_ns: int) -> None:
    run.write_sources(
        [{"path": "a.pcap", "kind": "capture", "format": "pcap", "bytes": 1}
         | {"first_ns": begin_ns, "last_ns": end_ns}]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("away_s", "what", "remedy"),
    [
        (0, None, ""),
        (3 * 86_400, "samples end 2 d 23 h before the run begins", "They say nothing"),
        (-3600, "samples begin 59 min 58 s after the run ends", "With times -1 h"),
        (5.5 * 3600, "samples end 5 h 29 min before the run begins", "With times +5.5 h"),
    ],
)
def test_a_log_of_another_time_is_named_with_the_zone_that_would_explain_it(run, away_s, what, remedy):
    (log,) = load_host_files(run, HOSTS / "app" / "cgroup_cpu.csv")
    moved = round(away_s * 1e9)
    _ran(run, log["first_ns"] + moved, log["last_ns"] + moved)
    found = [one for one in misfits(run) if "samples" in one.what]
    assert [one.what for one in found] == ([what] if what else [])
    assert all(one.of == ("app/cgroup_cpu.csv",) and one.remedy.startswith(remedy) for one in found)


def test_a_host_that_is_no_node_is_named(joined, tmp_path):
    (found,) = misfits(joined)
    assert found.of == ("web",)
    assert found.remedy.endswith("a name of these: 10.0.0.1, 10.0.0.2.")
    load_host_files(joined, tmp_path / "hosts" / "web" / "cgroup_cpu.csv", host="10.0.0.1")
    assert misfits(joined) == [], "a file that is loaded again is loaded once"
    assert {table.host for table in joined.dynamic_tables()} == {"10.0.0.1", "10.0.0.2"}
