"""A user-space trace of LTTng of servers that note their calls as spans (vApp; vapp/lttng.c), as event
monitor."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from .packages import Paths
from .shell import attempt, call

NEEDS = ("gcc", "lttng", "lttng-sessiond", "babeltrace2", "lttng-ust")
"""Of packages.PROGRAMS and packages.FILES."""

EVENTS = "zipkin:*"


def compiled(paths: Paths, folder: Path) -> Path:
    """The library that makes events of annotations; compiled into `folder` once."""
    made = folder / "libspans.so"
    if not made.exists():
        sources = Path(str(resources.files(__package__).joinpath("vapp")))
        words = ["-O2", "-shared", "-fPIC", f"-I{sources}", "-o", str(made), str(sources / "lttng.c")]
        call([paths.program("gcc"), *words, "-llttng-ust"])
    return made


@contextmanager
def recorded(paths: Paths, name: str, folder: Path, scratch: Path) -> Iterator[None]:
    """Records what is noted meanwhile into a CTF trace in `folder`. The session daemon that runs is used, or
    one is started and ended."""
    lttng, daemon = paths.program("lttng"), None
    if attempt([lttng, "list"]).returncode != 0:
        pid_file = scratch / "lttng.pid"
        call([paths.program("lttng-sessiond"), "--daemonize", f"--pidfile={pid_file}"])
        daemon = int(pid_file.read_text())
    try:
        call([lttng, "create", name, f"--output={folder}"])
        try:
            channel = [f"--session={name}", "--userspace"]
            call([lttng, "enable-channel", *channel, "--num-subbuf=8", "--subbuf-size=1M", "spans"])
            call([lttng, "enable-event", *channel, "--channel=spans", EVENTS])
            call([lttng, "start", name])
            yield
        finally:
            attempt([lttng, "destroy", name])  # waits until everything is written
    finally:
        if daemon is not None:
            os.kill(daemon, signal.SIGTERM)
