"""CPU of the capture engine per packet, next to reading the file, libpcap's loop and tshark.

    python benchmarks/capture.py [CAPTURE [REPEATS]]

The capture is unpacked once into a temporary file and read once, so that every program finds it in the page
cache in the same way. Each figure is user + system time of a process of its own; the programs take turns.
Shown: median and spread, and the ratio to the plain read. tapscope does the whole work: decoding,
reassembly, dissection, pairing, fingerprints, evidence, columns in numpy; its start (interpreter, imports) is
measured and taken off.
"""

from __future__ import annotations

import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from trace_capture import ROOT, machine

READ = "import sys\nwith open(sys.argv[1], 'rb', buffering=0) as file:\n    while file.read(1 << 18): pass"
START = "from tapscope import capture"
ENGINE = START + "\nimport sys\ncapture.read_files([sys.argv[1]])"


def unpacked(source: Path, target: Path) -> None:
    """Copy of a capture without its compression."""
    if source.suffix == ".gz":
        with gzip.open(source) as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    elif source.suffix == ".zst":
        if shutil.which("zstd") is None:
            sys.exit(f"{source} is packed with zstd, which is not installed; name another capture")
        subprocess.run(["zstd", "-q", "-d", "-f", str(source), "-o", str(target)], check=True)
    else:
        shutil.copy(source, target)


def cpu_seconds(command: list[str]) -> float:
    """User + system seconds of one run; RuntimeError when it fails."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure the named capture, or the busy sample."""
    named = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "pcaps/testbed_busy/capture/tap.pcap.zst"
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "capture.pcap"
        unpacked(named, file)
        count = "from tapscope import capture\nimport sys\n"
        count += "print(sum(s['packets'] for s in capture.read_files([sys.argv[1]]).sources))"
        packets = int(subprocess.check_output([sys.executable, "-c", count, str(file)]))
        print(machine())
        print(f"{named.name}: {file.stat().st_size / 1e6:.1f} MB, {packets} packets, {repeats} runs")
        programs = {
            "start of python": [sys.executable, "-c", "pass", str(file)],
            "start of tapscope": [sys.executable, "-c", START, str(file)],
            "plain read(2)": [sys.executable, "-c", READ, str(file)],
            "tapscope.capture": [sys.executable, "-c", ENGINE, str(file)],
        }
        if shutil.which("tcpdump"):
            programs["libpcap loop (tcpdump -w)"] = ["tcpdump", "-r", str(file), "-w", "/dev/null"]
        if shutil.which("tshark"):
            programs["tshark (2-pass off)"] = ["tshark", "-n", "-r", str(file), "-Y", "http||ajp13||mysql"]
        spent: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(repeats):
            for name, command in programs.items():
                spent[name].append(cpu_seconds(command))
        starts = {"plain read(2)": "start of python", "tapscope.capture": "start of tapscope"}
        floor = None
        print(f"{'':28} {'ns/packet':>10} {'lowest':>8} {'highest':>8} {'/ read':>8}")
        for name in programs:
            if name in starts.values():
                continue
            off = statistics.median(spent[starts[name]]) if name in starts else 0.0
            cost = sorted(max(seconds - off, 1e-6) / packets * 1e9 for seconds in spent[name])
            middle = statistics.median(cost)
            floor = floor or middle
            print(f"{name:28} {middle:10.0f} {cost[0]:8.0f} {cost[-1]:8.0f} {middle / floor:8.1f}")


if __name__ == "__main__":
    main()
