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
    assert hosts.reader("v1", tmp_path)() == (5_000_000, 3_000_000, 2_000_000)


def test_accounting_of_flavour_2_is_turned_into_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 50\nuser_usec 30\nsystem_usec 20\nnr_periods 0\n")
    read = hosts.reader("v2", tmp_path)
    assert read() == (50_000, 30_000, 20_000)
    (tmp_path / "cpu.stat").write_text("usage_usec 70\nuser_usec 40\nsystem_usec 30\nnr_periods 0\n")
    assert read() == (70_000, 40_000, 30_000)


def test_without_a_control_group_file_system_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_mounts", dict)
    groups = Groups.make("tapscope-none", ["web"], {"web": 0.5})
    assert groups.flavour == "none"
    assert "no quota" in groups.note
    assert groups.members("web") == []
    assert groups.accounting("web") is None


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
        folder = groups.accounting("app")
        assert folder is not None
        read = hosts.reader(groups.flavour, folder)
        (before, *_), begin = read(), time.monotonic()
        time.sleep(1.5)
        used, wall = read()[0] - before, time.monotonic() - begin
        spin.kill()
        spin.wait()
        assert 0.02 < used / 1e9 / wall < 0.35
    finally:
        groups.remove()
    assert [p for folders in groups.folders.values() for p in folders if p.exists()] == []
