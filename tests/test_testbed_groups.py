"""Control groups and their CPU accounting, in both flavours that kernels offer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tapscope.validate.testbed import cgroups, hosts
from tapscope.validate.testbed.cgroups import Groups


def test_accounting_of_flavour_1_is_in_nanoseconds(tmp_path: Path) -> None:
    for name, value in (("usage", 5_000_000), ("usage_user", 3_000_000), ("usage_sys", 2_000_000)):
        (tmp_path / f"cpuacct.{name}").write_text(f"{value}\n")
    columns, read = hosts.reader("v1", [tmp_path])
    assert columns == ["usage_ns", "user_ns", "system_ns"]
    assert read() == [5_000_000, 3_000_000, 2_000_000]


def test_accounting_of_flavour_2_is_turned_into_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 50\nuser_usec 30\nsystem_usec 20\nnr_periods 0\n")
    columns, read = hosts.reader("v2", [tmp_path])
    assert columns == ["usage_ns", "user_ns", "system_ns", "nr_periods"]
    assert read() == [50_000, 30_000, 20_000, 0]
    (tmp_path / "cpu.stat").write_text("usage_usec 70\nuser_usec 40\nsystem_usec 30\nnr_periods 1\n")
    assert read() == [70_000, 40_000, 30_000, 1]


V1 = {
    "cpuacct/cpuacct.usage": "9\n",
    "cpu/cpu.stat": "nr_periods 4\nnr_throttled 2\nthrottled_time 800\n",
    "memory/memory.stat": "cache 8192\ndirty 4096\nwriteback 0\ntotal_dirty 9999\n",
    "blkio/blkio.throttle.io_service_bytes": "8:0 Read 512\n8:0 Write 70\n8:16 Write 30\nTotal 612\n",
    # Beside version 1 the unified hierarchy has no controllers; its cpu.stat is another file.
    "unified/cpu.stat": "usage_usec 1\n",
    "unified/io.pressure": "some avg10=1.00 avg60=0.50 avg300=0.10 total=7\nfull avg10=0.00 total=3\n",
}
V2 = {
    "one/cpu.stat": "usage_usec 9\nnr_periods 4\nnr_throttled 2\nthrottled_usec 8\n",
    "one/memory.stat": "file 8192\nfile_dirty 4096\nfile_writeback 0\n",
    "one/io.stat": "8:0 rbytes=512 wbytes=70 rios=1 wios=2 dbytes=0\n8:16 rbytes=0 wbytes=30 rios=0 wios=1\n",
    "one/io.pressure": V1["unified/io.pressure"],
}


@pytest.mark.parametrize(("flavour", "files", "times"), [("v1", V1, 1), ("v2", V2, 1000)])
def test_both_flavours_give_the_same_columns(
    tmp_path: Path, flavour: str, files: dict[str, str], times: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    folders = [tmp_path / name for name in dict.fromkeys(name.split("/")[0] for name in files)]
    columns, read = hosts.reader(flavour, folders)
    found = dict(zip(columns, read(), strict=True))
    expected = {"usage_ns": 9 * times, "nr_throttled": 2, "throttled_ns": 800 * times if times == 1 else 8000}
    expected |= {"read_bytes": 512, "written_bytes": 100, "dirty_bytes": 4096, "writeback_bytes": 0}
    expected |= {"io_some_ns": 7000, "io_full_ns": 3000}
    assert {name: found.get(name) for name in expected} == expected


def test_without_a_control_group_file_system_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_mounts", dict)
    groups = Groups.make("tapscope-none", ["web"], {"web": 0.5})
    assert groups.flavour == "none"
    assert "no quota" in groups.note
    assert groups.members("web") == []
    assert groups.accounting("web") == []


def test_a_read_only_control_group_file_system_gives_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = tmp_path / "not" / "there"
    monkeypatch.setattr(cgroups, "_mounts", lambda: {"cpuacct": nowhere, "cpu": nowhere})
    groups = Groups.make("tapscope-none", ["web"], {})
    assert groups.flavour == "none"
    assert "cannot be made" in groups.note


def test_flavour_2_limits_by_cpu_max(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a folder that looks like cgroup v2: the kernel would make the files, here the test does."""
    original = Path.mkdir

    def mkdir_with_files(self: Path, *args: object, **kwargs: object) -> None:
        original(self)
        (self / "cpu.max").write_text("max 100000\n")
        (self / "cpu.weight").write_text("100\n")

    monkeypatch.setattr(Path, "mkdir", mkdir_with_files)
    monkeypatch.setattr(cgroups, "_mounts", lambda: {"unified": tmp_path})
    groups = Groups.make("tapscope-x", ["web", "db"], {"db": 0.25})
    assert (groups.flavour, groups.note) == ("v2", "")
    assert (tmp_path / "tapscope-x-db" / "cpu.max").read_text() == "25000 100000"
    assert (tmp_path / "tapscope-x-web" / "cpu.max").read_text() == "max 100000\n"
    assert int((tmp_path / "tapscope-x-web" / "cpu.weight").read_text()) > 100
    assert groups.members("db") == [tmp_path / "tapscope-x-db" / "cgroup.procs"]
    usual = int((tmp_path / "tapscope-x-web" / "cpu.weight").read_text())
    groups.set_weight("web", 0.01)
    groups.set_quota("db", 0.1, 10_000)
    assert int((tmp_path / "tapscope-x-web" / "cpu.weight").read_text()) == usual // 100
    assert (tmp_path / "tapscope-x-db" / "cpu.max").read_text() == "1000 10000"
    groups.set_quota("db", None)
    assert (tmp_path / "tapscope-x-db" / "cpu.max").read_text() == "max 100000"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_a_busy_member_is_accounted_and_limited() -> None:
    groups = Groups.make(f"tapscope-test-{uuid.uuid4().hex[:6]}", ["app"], {"app": 0.2})
    if groups.flavour == "none" or groups.note:
        pytest.skip(f"no writable control groups with a quota here: {groups.note}")
    try:
        spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for member in groups.members("app"):
            member.write_text(str(spin.pid))
        _, read = hosts.reader(groups.flavour, groups.accounting("app"))
        (before, *_), begin = read(), time.monotonic()
        time.sleep(1.5)
        used, wall = read()[0] - before, time.monotonic() - begin
        assert 0.02 < used / 1e9 / wall < 0.35
        # A quota in short periods, as the fault `clock` sets it, and none again.
        groups.set_quota("app", 0.1, 10_000)
        (before, *_), begin = read(), time.monotonic()
        time.sleep(0.5)
        assert (read()[0] - before) / 1e9 / (time.monotonic() - begin) < 0.2
        groups.set_quota("app", None)
        spin.kill()
        spin.wait()
    finally:
        groups.remove()
    assert [p for folders in groups.folders.values() for p in folders if p.exists()] == []
