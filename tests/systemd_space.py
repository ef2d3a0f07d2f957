"""A systemd in namespaces that it was started with: it sees no unit but those that it is given."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

SYSTEMD, UNITS = Path("/lib/systemd/systemd"), "/usr/lib/systemd/system"
# Homes are hidden from services: neither the interpreter nor the program may be in one.
PYTHON = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
PROGRAM = f"""#!{PYTHON}
import sys
sys.path.insert(0, "/opt/modules")
from tapscope.cli.main import main
sys.exit(main())
"""
# Everything is mounted anew, in a mount namespace of its own, and gone with it. What is a target of the
# system's, with all that it would start, is an empty one here.
BOOT = r"""
mount --make-rprivate /
mount -t proc proc /proc
umount -R /sys/fs/cgroup
if grep -q name=systemd /proc/self/cgroup; then
  mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
else
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system /run/lock /run/none /run/units /run/dev
mkdir -p /run/opt/modules /run/opt/tapscope/.venv/bin
for t in sysinit basic shutdown network multi-user sockets timers paths slices umount final; do
  printf '[Unit]\nDefaultDependencies=no\n' > /run/units/$t.target
done
printf '[Unit]\nDefaultDependencies=no\n' > /run/units/waits.target
cp "$UNIT" /run/units/
mount --bind /run/units /usr/lib/systemd/system
for d in /etc/systemd/system /usr/lib/systemd/system-generators \
    /usr/lib/systemd/system-environment-generators; do
  if [ -d $d ]; then mount --bind /run/none $d; fi
done
# Without what it counts it needs no controllers, which are everybody's.
printf '[Manager]\nDefaultTasksAccounting=no\nDefaultMemoryAccounting=no\n' > /run/system.conf
mount --bind /run/system.conf /etc/systemd/system.conf
cp /etc/passwd /etc/group /run/
echo 'tapscope:x:987:987::/nonexistent:/usr/sbin/nologin' >> /run/passwd
echo 'tapscope:x:987:' >> /run/group
mount --bind /run/passwd /etc/passwd
mount --bind /run/group /etc/group
mount --bind "$MODULES" /run/opt/modules
printf '%s' "$PROGRAM" > /run/opt/tapscope/.venv/bin/tapscope
chmod 755 /run/opt/tapscope/.venv/bin/tapscope
mount --rbind /run/opt /opt
mount --bind "$STATE" /var/lib
mount -t tmpfs -o mode=755 tmpfs /run/dev
for node in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 /run/dev/${node%:*} c 1 ${node#*:}
done
mknod -m 666 /run/dev/tty c 5 0
mkdir /run/dev/pts /run/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts /run/dev/pts
ln -s pts/ptmx /run/dev/ptmx
mount --rbind /run/dev /dev
exec /lib/systemd/systemd --system --unit=waits.target
"""


class Systemd:
    """A running one: `ctl` is systemctl, `run` any program, both beside its services."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def run(self, *words: str) -> str:
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-i", "-u", "-n", *words]
        return subprocess.run(inside, check=True, capture_output=True, text=True, timeout=60).stdout

    def ctl(self, *words: str) -> str:
        return self.run("systemctl", "--no-pager", *words)

    def shows(self, unit: str, name: str) -> str:
        return self.ctl("show", "--value", "-p", name, unit).strip()


def why_not() -> str:
    """What keeps a systemd from being started here, or nothing."""
    if os.geteuid() != 0:
        return "needs root"
    for path in (SYSTEMD, PYTHON):
        if not path.exists():
            return f"needs {path}"
    return "" if shutil.which("nsenter") else "needs nsenter"


@contextlib.contextmanager
def systemd(network: str, unit: Path, state: Path) -> Iterator[Systemd]:
    """In this network namespace, with one unit; `state` is its /var/lib."""
    # What it makes of control groups it makes below these: of version 1 by name, or all in one hierarchy.
    root = Path("/sys/fs/cgroup")
    roots = [each for name in ("systemd", "pids", "unified") for each in root.glob(name)] or [root]
    groups = [each / f"tapscope-{os.getpid()}" for each in roots]
    for group in groups:
        group.mkdir()
    join = " && ".join(f"echo 0 > {group}/cgroup.procs" for group in groups)
    words = ["nsenter", f"--net=/run/netns/{network}"]
    words += ["unshare", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    process = subprocess.Popen(
        ["sh", "-c", f'{join} && exec "$@"', "sh", *words, "sh", "-ec", BOOT],
        env=os.environ | {
            "container": "tests", "UNIT": str(unit), "STATE": str(state), "PROGRAM": PROGRAM,
            "MODULES": sysconfig.get_paths()["purelib"],
        },
    )  # fmt: skip
    try:
        yield Systemd(_first_process(process))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        for group in groups:
            _remove(group)


def _remove(group: Path) -> None:
    """A control group and those below it, when the last of their processes have gone."""
    end = time.monotonic() + 60
    while group.exists():
        try:
            for path in sorted(group.rglob("*"), reverse=True):
                if path.is_dir():
                    path.rmdir()
            group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _first_process(process: subprocess.Popen[bytes]) -> int:
    """The first process of the namespace, when it answers."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.2)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if not children:
            continue
        with contextlib.suppress(subprocess.CalledProcessError):
            Systemd(int(children[0])).ctl("is-active", "waits.target")
            return int(children[0])
    raise RuntimeError("systemd did not start")
