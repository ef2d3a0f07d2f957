"""Memory of `tapscope trace --follow` over a long capture: a short one again and again, each time later and
from other client ports, through a pipe.

    python benchmarks/following.py pcaps/testbed_light/capture/tap.pcap.zst --times 40 120

Prints, about every tenth of each run, the length of the capture so far, calls and transactions in the run
file, how far it is behind, and the resident memory of the process; then its peak while the capture came, and
over all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from tapscope.store.errors import TapscopeError
from tapscope.store.runfile import RunFile

PORTS = 28_000
STEP = 1_997
"""Client ports (32768 and above) move on by so many each time, so that every connection is a new one."""


class Loop:
    """A pcap file of TCP over IPv4 and Ethernet, in memory."""

    def __init__(self, path: Path) -> None:
        packed = path.suffix == ".zst"
        raw = (
            subprocess.run(["zstd", "-qdc", path], capture_output=True, check=True).stdout if packed else b""
        )
        self._bytes = np.frombuffer(raw or path.read_bytes(), dtype=np.uint8).copy()
        nanoseconds = self._number(np.array([0]))[0] == 0xA1B23C4D
        self._unit = 10**9 if nanoseconds else 10**6
        at, records = 24, []
        while at + 16 <= len(self._bytes):
            records.append(at)
            at += 16 + int(self._number(np.array([at + 8]))[0])
        self._records = np.array(records)
        self._time = self._number(self._records) * self._unit + self._number(self._records + 4)
        self.seconds = float(np.ptp(self._time) / self._unit + 0.1)
        ip = self._records + 16 + 14
        tcp = (self._bytes[ip] >> 4 == 4) & (self._bytes[ip + 9] == 6)
        start = (ip + (self._bytes[ip] & 15).astype(np.int64) * 4)[tcp]
        self._ports = [(side, self._port(side)) for side in (start, start + 2)]

    def _number(self, at: np.ndarray) -> np.ndarray:
        return sum(self._bytes[at + i].astype(np.int64) << 8 * i for i in range(4))

    def _port(self, at: np.ndarray) -> np.ndarray:
        return self._bytes[at].astype(np.int64) << 8 | self._bytes[at + 1]

    def turn(self, number: int) -> bytes:
        """The capture as it comes the nth time (from 0), without the file header."""
        now = self._time + int(number * self.seconds * self._unit)
        for i in range(4):
            self._bytes[self._records + i] = now // self._unit >> 8 * i & 255
            self._bytes[self._records + 4 + i] = now % self._unit >> 8 * i & 255
        for at, port in self._ports:
            moved = np.where(port >= 32768, 32768 + (port - 32768 + STEP * number) % PORTS, port)
            self._bytes[at], self._bytes[at + 1] = moved >> 8, moved & 255
        return self._bytes[24:].tobytes()

    def header(self) -> bytes:
        return self._bytes[:24].tobytes()


def resident_mb(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def state(run: Path) -> tuple[int, int, float] | None:
    """Calls, transactions, and seconds behind; None at the end of the capture, or before its beginning."""
    try:
        with RunFile.open(run) as opened:
            now = opened.meta("following")
            behind = float("nan") if now is None else (now["seen_ns"] - now["until_ns"]) / 1e9
            return None if now is None else (opened.count("calls"), opened.count("traces"), behind)
    except TapscopeError:
        return None


def measure(loop: Loop, times: int, folder: Path) -> None:
    run = folder / "run.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "tapscope", "trace", "--follow", "-", "-o", str(run), "--force", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    given = 0

    def give() -> None:
        nonlocal given
        assert process.stdin is not None
        process.stdin.write(loop.header())
        for number in range(times):
            process.stdin.write(loop.turn(number))
            given = number + 1
        process.stdin.close()

    giver = threading.Thread(target=give)
    giver.start()
    told, peak = 0, 0.0
    print("capture s | calls | transactions | behind s | resident MB")
    while process.poll() is None:
        memory, now = resident_mb(process.pid), state(run)
        peak = max(peak, memory) if giver.is_alive() else peak
        if now is not None and given >= told + max(times // 10, 1):
            told = given
            print(
                f"{given * loop.seconds:.0f} | {now[0]} | {now[1]} | {now[2]:.0f} | {memory:.0f}", flush=True
            )
        time.sleep(0.2)
    giver.join()
    process.stdin = None  # closed
    out = json.loads(process.communicate()[0])
    usage = resident_peak_mb()
    print(f"{times} times: {out['calls']} calls, peak {peak:.0f} MB while it came, {usage:.0f} MB over all")


def resident_peak_mb() -> float:
    """Of the largest child that has ended."""
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", type=Path)
    parser.add_argument("--times", type=int, nargs="+", default=[10, 40])
    given = parser.parse_args()
    loop = Loop(given.capture)
    for times in given.times:
        with tempfile.TemporaryDirectory() as folder:
            measure(loop, times, Path(folder))


if __name__ == "__main__":
    main()
