"""The capture in the tap namespace, by tcpdump, with every counter that could show a loss."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from .net import Network
from .packages import Paths
from .processes import Launcher, Process, wait_until

_BUFFER_KIB = 262144
_COUNT = re.compile(
    r"^(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)


@dataclass
class Tap:
    """A running capture. Frame counts are those since it began."""

    network: Network
    process: Process
    file: Path
    into_bridge: int
    at_tap: int

    @classmethod
    def start(cls, paths: Paths, file: Path, launcher: Launcher) -> Tap:
        """Starts tcpdump and waits until it listens."""
        network = launcher.network
        into_bridge, at_tap = network.frames_into_bridge(), network.received("tap", "tap0")
        argv = [
            paths.program("tcpdump"),
            "-i",
            "tap0",
            "-n",
            "-s",
            "0",
            "-B",
            str(_BUFFER_KIB),
            "--time-stamp-precision=nano",
            "-Z",
            "root",
            "-w",
            str(file),
        ]
        process = launcher.start("tap", "tcpdump", argv)
        wait_until(lambda: b"listening on" in process.log.read_bytes(), process, 10, "tcpdump")
        time.sleep(0.2)
        return cls(network, process, file, into_bridge, at_tap)

    def stop(self) -> dict[str, int]:
        """Ends the capture and returns its counters.

        frames_into_bridge: what entered the bridge (must be mirrored once each); frames_at_tap: what the
        tap's interface received; captured, received by filter, dropped by kernel: tcpdump's own words.
        """
        time.sleep(0.3)
        counters = {
            "frames_into_bridge": self.network.frames_into_bridge() - self.into_bridge,
            "frames_at_tap": self.network.received("tap", "tap0") - self.at_tap,
        }
        # tcpdump empties its ring once per second.
        time.sleep(1.2)
        self.process.stop(signal.SIGINT, 30)
        for number, what in _COUNT.findall(self.process.log.read_text(errors="replace")):
            counters[what.replace(" ", "_")] = int(number)
        return counters
