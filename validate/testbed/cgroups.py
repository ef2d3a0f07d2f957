"""One control group per host: CPU quota and CPU accounting, with cgroup v1 or v2, or none (with a note)."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

_PERIOD_US = 100_000
# Times the weight of an ordinary process. A group competes as one process with all outside the testbed;
# without this a tier of sixty threads would starve beside a compiler.
_WEIGHT = 10


def _mounts() -> dict[str, Path]:
    """Controller name -> mount point ("unified" for cgroup v2); the first one counts."""
    found: dict[str, Path] = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, target, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.setdefault("unified", Path(target))
        elif kind == "cgroup":
            for name in ("cpu", "cpuacct"):
                if name in options.split(","):
                    found.setdefault(name, Path(target))
    return found


@dataclass
class Groups:
    """The control groups of one testbed's hosts; `flavour` is v1, v2 or none."""

    name: str
    flavour: str = "none"
    note: str = ""
    folders: dict[str, list[Path]] = field(default_factory=dict)

    @classmethod
    def make(cls, name: str, hosts: list[str], quotas: dict[str, float]) -> Groups:
        """Groups for the hosts. quotas: host -> number of CPUs it may use (0.5 = half a CPU)."""
        groups = cls(name)
        mounts = _mounts()
        try:
            if "cpuacct" in mounts:
                groups._make_v1(mounts, hosts, quotas)
            elif "unified" in mounts:
                groups._make_v2(mounts["unified"], hosts, quotas)
            else:
                groups.note = "no cgroup file system is mounted: no CPU accounting and no quota per host"
        except OSError as error:
            groups.remove()
            groups.flavour = "none"
            groups.folders = {}
            groups.note = f"control groups cannot be made ({error}): no CPU accounting and no quota per host"
        return groups

    def _make_v1(self, mounts: dict[str, Path], hosts: list[str], quotas: dict[str, float]) -> None:
        self.flavour = "v1"
        for host in hosts:
            controllers = [c for c in ("cpuacct", "cpu") if c in mounts]
            # cpu and cpuacct are one mount on some systems and two on others
            self.folders[host] = list(dict.fromkeys(mounts[c] / f"{self.name}-{host}" for c in controllers))
            for folder in self.folders[host]:
                folder.mkdir()
            if "cpu" not in mounts:
                continue
            cpu = mounts["cpu"] / f"{self.name}-{host}"
            (cpu / "cpu.shares").write_text(str(_WEIGHT * 1024))
            if host in quotas:
                (cpu / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (cpu / "cpu.cfs_quota_us").write_text(str(int(quotas[host] * _PERIOD_US)))

    def _make_v2(self, root: Path, hosts: list[str], quotas: dict[str, float]) -> None:
        self.flavour = "v2"
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+cpu")
        for host in hosts:
            folder = root / f"{self.name}-{host}"
            self.folders[host] = [folder]
            folder.mkdir()
            if (folder / "cpu.weight").exists():
                (folder / "cpu.weight").write_text(str(_WEIGHT * 100))
            if host in quotas:
                limit = folder / "cpu.max"
                if limit.exists():
                    limit.write_text(f"{int(quotas[host] * _PERIOD_US)} {_PERIOD_US}")
                else:
                    self.note = "the cpu controller is not available: accounting per host, but no quota"

    def members(self, host: str) -> list[Path]:
        """Files into which a process writes its id to become a member."""
        return [folder / "cgroup.procs" for folder in self.folders.get(host, [])]

    def accounting(self, host: str) -> Path | None:
        """Folder with the CPU accounting of a host, or None."""
        folders = self.folders.get(host)
        return folders[0] if folders else None

    def remove(self) -> None:
        for folders in self.folders.values():
            for folder in folders:
                _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(50):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            # Members that were just killed leave a moment later.
            time.sleep(0.02)


def remove_leftovers(name: str) -> int:
    """Deletes the control groups whose name begins with a testbed's name. Returns how many."""
    count = 0
    for mount in set(_mounts().values()):
        for folder in mount.glob(f"{name}-*"):
            if folder.is_dir():
                _remove(folder)
                count += 1
    return count
