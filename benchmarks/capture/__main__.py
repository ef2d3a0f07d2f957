"""Speed and memory of the capture engine next to other programs, on captures made on the spot.

    python benchmarks/capture [--megabytes 200] [--full] [--repeats 7] [--part speed] [--capture http_small]

Each figure is user + system time of a process of its own; the programs take turns on one capture, and the
start of each (measured on a capture of three packets) is taken off; tapscope's process, which starts an
interpreter, counts from the first packet to the columns itself. The page cache is brought into one state
first, and so are the machine's free pages. tapscope does the whole work: decoding, reassembly, dissection,
pairing, fingerprints, evidence, columns in numpy. tshark and Suricata get the first 20,000 packets of each
capture.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import generated  # noqa: E402
import impairment  # noqa: E402
import memory  # noqa: E402
import one_direction  # noqa: E402
import speed  # noqa: E402
from programs import build, programs  # noqa: E402
from trace_capture import machine  # noqa: E402

PARTS = ("speed", "linearity", "memory", "impairment", "one_direction")
LOSSES = (0.002, 0.02, 0.05)
SEEDS = range(1, 11)
IMPAIRED_BYTES = 12e6  # of each generated capture


def main() -> None:
    """Run the parts that were asked for and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of each capture (default 200)")
    parser.add_argument("--full", action="store_true", help="captures of 600 MB, and memory up to there")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each program (default 7)")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given again")
    parser.add_argument("--capture", action="append", choices=list(speed.CAPTURES), help="only this capture")
    parser.add_argument("--threads", type=int, action="append", help="threads of tapscope (default 1 and 2)")
    chosen = parser.parse_args()
    parts, threads = chosen.part or list(PARTS), chosen.threads or [1, 2]
    megabytes = 600 if chosen.full else chosen.megabytes
    binaries = ROOT / "build" / "bench-capture"
    generator, built = generated.build_generator(binaries), build(binaries)
    everything = programs(built, threads)
    ours = next(program for program in everything if program.name.startswith("tapscope"))
    sizes = [10, 30, 100] if not chosen.full else [10, 30, 100, 300, 600]
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory(dir=binaries) as name:
        folder = Path(name)
        if "speed" in parts:
            results: list[speed.Result] = []
            for capture in chosen.capture or list(speed.CAPTURES):
                kind, options = speed.CAPTURES[capture]
                made = generated.generate(
                    generator, kind, folder / "capture.pcap", bytes=megabytes * 1e6, **options
                )
                results += speed.measure(capture, made, everything, chosen.repeats, folder)
                print(speed.table(results, capture, made), flush=True)
                made.path.unlink()
            print(speed.summary(results), flush=True)
        if "linearity" in parts:
            print(speed.linearity(generator, ours, sizes, chosen.repeats, folder), flush=True)
        if "memory" in parts:
            print(memory.growing(generator, sizes, threads, folder), flush=True)
            print(memory.open_connections(generator, 1_000_000, folder), flush=True)
            print(memory.churn(generator, 60 if chosen.full else 20, folder), flush=True)
        if "impairment" in parts:
            print(impairment.heading(LOSSES, SEEDS))
            for line in impairment.table(generator, folder, LOSSES, IMPAIRED_BYTES, SEEDS):
                print(line, flush=True)
        if "one_direction" in parts:
            for line in one_direction.table(folder):
                print(line)


if __name__ == "__main__":
    main()
