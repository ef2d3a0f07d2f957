"""One control group per host: limits and accounting, with cgroup v1 or v2, or none (with a note).

Of cgroup v1, every controller that accounts for something joins in (cpu, cpuacct, memory, blkio) as far as it
is mounted, and the unified hierarchy beside them, which then has no controllers, but counts pressure.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

_PERIOD_US = 100_000
# Times the weight of an ordinary process. A group competes as one process with all outside the testbed;
# without this a tier of sixty threads would starve beside a compiler.
_WEIGHT = 10
_V1 = ("cpuacct", "cpu", "memory", "blkio")
_V2 = ("cpu", "memory", "io")
NEIGHBOUR = "neighbour"
"""A group beside the hosts', without a host: what runs in it takes the processors from them."""


def _mounts() -> dict[str, Path]:
    """Controller name -> mount point ("unified" for cgroup v2); the first one counts."""
    found: dict[str, Path] = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, target, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.setdefault("unified", Path(target))
        elif kind == "cgroup":
            for name in _V1:
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
    _cpu: Path | None = None

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
        places = [mounts[name] for name in (*_V1, "unified") if name in mounts]
        self._make_folders(places, hosts)
        if "blkio" in mounts:
            for host in hosts:
                _count_disks(mounts["blkio"] / f"{self.name}-{host}")
        if "cpu" in mounts:
            self._limit(mounts["cpu"], hosts, quotas)

    def _make_v2(self, root: Path, hosts: list[str], quotas: dict[str, float]) -> None:
        self.flavour = "v2"
        for name in _V2:
            with contextlib.suppress(OSError):
                (root / "cgroup.subtree_control").write_text(f"+{name}")
        self._make_folders([root], hosts)
        if all((folder / "cpu.max").exists() for [folder] in self.folders.values()):
            self._limit(root, hosts, quotas)
        elif quotas:
            self.note = "the cpu controller is not available: accounting per host, but no quota"

    def _make_folders(self, places: list[Path], hosts: list[str]) -> None:
        for host in hosts:
            # Several controllers are one mount on some systems.
            self.folders[host] = [place / f"{self.name}-{host}" for place in dict.fromkeys(places)]
            for folder in self.folders[host]:
                folder.mkdir()

    def _limit(self, place: Path, hosts: list[str], quotas: dict[str, float]) -> None:
        self._cpu = place
        for host in hosts:
            self.set_weight(host, 1.0)
        for host, cpus in quotas.items():
            self.set_quota(host, cpus)

    def limits_cpu(self) -> bool:
        """Whether quotas and weights can be set."""
        return self._cpu is not None

    def set_weight(self, host: str, times: float) -> None:
        """Weight of a host against others; 1: as all have at first. Does nothing where none can be set."""
        if self._cpu is None:
            return
        folder = self._cpu / f"{self.name}-{host}"
        if self.flavour == "v1":
            (folder / "cpu.shares").write_text(str(max(2, int(_WEIGHT * 1024 * times))))
        else:
            (folder / "cpu.weight").write_text(str(max(1, int(_WEIGHT * 100 * times))))

    def set_quota(self, host: str, cpus: float | None, period_us: int = _PERIOD_US) -> None:
        """CPUs that a host may use (None: all), enforced in periods. Does nothing where none can be set."""
        if self._cpu is None:
            return
        folder = self._cpu / f"{self.name}-{host}"
        if self.flavour == "v2":
            most = "max" if cpus is None else str(int(cpus * period_us))
            (folder / "cpu.max").write_text(f"{most} {period_us}")
            return
        # Without a quota first: the old one need not fit the new period.
        (folder / "cpu.cfs_quota_us").write_text("-1")
        (folder / "cpu.cfs_period_us").write_text(str(period_us))
        if cpus is not None:
            (folder / "cpu.cfs_quota_us").write_text(str(int(cpus * period_us)))

    def members(self, host: str) -> list[Path]:
        """Files into which a process writes its id to become a member."""
        return [folder / "cgroup.procs" for folder in self.folders.get(host, [])]

    def accounting(self, host: str) -> list[Path]:
        """Folders with the accounting of a host: one per controller, or one for all of them."""
        return self.folders.get(host, [])

    def machine(self) -> list[Path]:
        """Folders with the accounting of all that runs on this machine."""
        return [folder.parent for folder in next(iter(self.folders.values()), [])]

    def remove(self) -> None:
        for folders in self.folders.values():
            for folder in folders:
                _remove(folder)


def _count_disks(folder: Path) -> None:
    """Makes the kernel count a group's reads and writes: it does so for groups with a limit, however high."""
    for disk in Path("/sys/class/block").iterdir():
        if not (disk / "partition").exists() and (disk / "device").exists():
            with contextlib.suppress(OSError):
                number = (disk / "dev").read_text().strip()
                (folder / "blkio.throttle.write_bps_device").write_text(f"{number} {1 << 40}")


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
