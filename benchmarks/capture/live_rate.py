"""How many packets a second a live capture takes without a loss, on a veth pair between two namespaces.

    python benchmarks/capture/live_rate.py [--seconds 3] [--capture KIND] [--buffer-mb 64] [--dpdk QUEUES]

Needs root. A sender (live/send.cpp) repeats a generated capture at growing rates, a few seconds each; a row
is a rate, and says what `tapscope capture` got of it, what the kernel dropped, and its CPU time. What is
"lost" was sent and is neither in what was captured nor among the drops that the kernel counted. For
comparison the same with packets written to a file (-w) and not read; with --dpdk also by DPDK's device on a
kernel interface (net_af_packet) with so many receive queues.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import generated  # noqa: E402
from trace_capture import machine  # noqa: E402

RATES = (25_000, 50_000, 100_000, 150_000, 200_000, 300_000, 400_000, 600_000, 800_000, 0)


@dataclass(frozen=True)
class Row:
    """One rate. Packets, except for `seconds` and `cpu` (s, user + system of the capture)."""

    sent: int
    bytes: int
    seconds: float
    captured: int
    dropped: int
    messages: int
    cpu: float

    @property
    def lost(self) -> int:
        return self.sent - self.captured - self.dropped

    def __str__(self) -> str:
        rate, bits = self.sent / self.seconds, 8 * self.bytes / self.seconds / 1e9
        busy = 100 * self.cpu / self.seconds
        return (
            f"| {rate:,.0f} | {bits:.2f} | {self.captured:,} | {self.dropped:,} | {self.lost:,} | "
            f"{self.messages:,} | {busy:.0f} % | {1e9 * self.cpu / max(self.captured, 1):,.0f} |"
        )


@contextlib.contextmanager
def spaces() -> Iterator[tuple[str, str]]:
    """Names of two namespaces: `tap0` is in the first, `tap1`, its peer, in the second."""
    names = [f"tsb-{side}-{os.getpid()}" for side in "ab"]
    here, there = names

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "tap0", "netns", here, "type", "veth", "peer", "name", "tap1", "netns", there)
        ip("-n", here, "link", "set", "tap0", "arp", "off", "promisc", "on", "up")
        ip("-n", there, "link", "set", "tap1", "arp", "off", "up")
        yield here, there
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def ready(target: Path) -> bool:
    """Has the capture begun to write? A spool is described once its source is open."""
    return (target / "manifest.json").exists() if target.suffix == ".spool" else target.exists()


def measure(
    names: tuple[str, str],
    sender: Path,
    capture: Path,
    rate: int,
    seconds: float,
    words: list[str],
    target: Path,
) -> Row:
    """Send at one rate and capture meanwhile into `target`."""
    here, there = names
    process = subprocess.Popen(
        [
            *("ip", "netns", "exec", here),
            *(sys.executable, "-m", "tapscope", "capture", "--json", *words),
        ],
        stdout=subprocess.PIPE,
    )
    while not ready(target):
        time.sleep(0.1)
    time.sleep(0.5)
    before = cpu_seconds(process.pid)
    sent = subprocess.check_output(
        ["ip", "netns", "exec", there, str(sender), "tap1", str(capture), str(rate), str(seconds)], text=True
    ).split()
    time.sleep(1.0)
    process.terminate()
    assert process.stdout is not None
    record = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Row(
        int(sent[0]),
        int(sent[1]),
        float(sent[2]),
        record["packets"],
        record["dropped_by_kernel"],
        record["messages"] or 0,
        usage.ru_utime + usage.ru_stime - before,
    )


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print one table per kind of output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate (default 3)")
    parser.add_argument("--capture", choices=generated.KINDS, default="http_small")
    parser.add_argument("--buffer-mb", type=int, default=64, help="ring of the kernel (default 64)")
    parser.add_argument("--dpdk", type=int, metavar="QUEUES", help="also by DPDK, by so many queues")
    chosen = parser.parse_args()
    binaries = ROOT / "build" / "bench-capture"
    generator = generated.build_generator(binaries)
    sender = binaries / "send"
    source = Path(__file__).resolve().parent / "live" / "send.cpp"
    subprocess.run([*generated.compiler(), str(source), "-o", str(sender)], check=True)
    print(f"{machine()}; {chosen.capture}, {chosen.seconds:g} s a rate, ring {chosen.buffer_mb} MB\n")
    with tempfile.TemporaryDirectory(dir=binaries) as folder, spaces() as names:
        made = generated.generate(generator, chosen.capture, Path(folder) / "sent.pcap", bytes=50e6)
        kernel = ["-i", "tap0", "--buffer-mb", str(chosen.buffer_mb), "tcp"]
        ways = [("`--spool`", kernel, "--spool", "x.spool"), ("`-w`", kernel, "-w", "x.pcap")]
        if chosen.dpdk:
            device = ["-i", "dpdk:net_af_packet0,iface=tap0", "--queues", str(chosen.dpdk)]
            ways.append((f"`--spool`, DPDK with {chosen.dpdk} queues", device, "--spool", "dpdk.spool"))
        for what, words, option, name in ways:
            print(f"{what}\n")
            print("| packets/s | Gbit/s | captured | dropped by kernel | lost | messages | CPU | ns/packet |")
            print("| --- | --- | --- | --- | --- | --- | --- | --- |")
            for number, rate in enumerate(RATES):
                target = Path(folder) / f"{number}-{name}"
                given = [option, str(target), *words]
                row = measure(names, sender, made.path, rate, chosen.seconds, given, target)
                print(row, flush=True)
                subprocess.run(["rm", "-r", str(target)], check=True)
                if row.captured < row.sent * 0.7:
                    break
            print()


if __name__ == "__main__":
    main()
