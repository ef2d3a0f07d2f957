"""The programs that are compared, and how each is called."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from generated import compiler
from measure import normalise_memory, run

SOURCES = Path(__file__).resolve().parent / "compare"
LIBRARIES = {"floor": [], "framer": [], "pcap_loop": ["-lpcap"], "tins_follower": ["-ltins"]}
SLOW_PACKETS = 20_000

# The interpreter and numpy take longer to start, and less evenly, than the engine takes for a capture. So
# this process tells what its work cost, from the first packet to the columns. BLAS has no part in it, but its
# threads would spin meanwhile.
ENGINE = """
import os, resource, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from tapscope import capture
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before, begin = cpu(), time.perf_counter()
tables = capture.read_files([sys.argv[1]], threads=int(sys.argv[2]))
print(cpu() - before, time.perf_counter() - begin)
"""

FLOOR = "floor: parse, one look-up"
FRAMER = "naive in-order framer"


@dataclass(frozen=True)
class Program:
    """A way to read a capture."""

    name: str
    command: tuple[str, ...]
    """The file is put in place of FILE."""
    slow: bool = False
    """Gets the first SLOW_PACKETS packets of a capture only."""
    only: tuple[str, ...] = ()
    """Kinds of captures that it can read; empty: all."""
    tells: bool = False
    """Prints its own CPU and wall seconds, without its start."""

    def on(self, path: Path) -> list[str]:
        """Its command line for a file."""
        return [str(path) if word == "FILE" else word for word in self.command]

    def cost(self, path: Path) -> tuple[float, float]:
        """CPU (user + system) and wall seconds of one run on a file, with its start unless it tells."""
        normalise_memory()
        cost = run(self.on(path))
        if self.tells:
            cpu, wall = cost.output.split()
            return float(cpu), float(wall)
        return cost.cpu_s, cost.wall_s


def build(folder: Path) -> dict[str, Path]:
    """Compile what is ours in compare/; what lacks its library is left out, with a word to the user."""
    out: dict[str, Path] = {}
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(file.stat().st_mtime for file in SOURCES.iterdir())
    for name, libraries in LIBRARIES.items():
        program = folder / name
        if not program.exists() or program.stat().st_mtime < newest:
            source = str(SOURCES / f"{name}.cpp")
            done = subprocess.run(
                [*compiler(), source, *libraries, "-o", str(program)], capture_output=True, text=True
            )
            if done.returncode != 0:
                print(f"{name} is left out, it does not compile here:\n{done.stderr[:500]}", file=sys.stderr)
                continue
        out[name] = program
    return out


def programs(built: dict[str, Path], threads: Sequence[int]) -> list[Program]:
    """What can be run here, cheapest first."""
    names = {
        "floor": FLOOR,
        "framer": FRAMER,
        "pcap_loop": "libpcap's loop",
        "tins_follower": "libtins stream follower",
    }
    out = [Program(names[name], (str(path), "FILE")) for name, path in built.items()]
    for count in threads:
        name = f"tapscope, {count} thread{'s' if count > 1 else ''}"
        out.append(Program(name, (sys.executable, "-c", ENGINE, "FILE", str(count)), tells=True))
    if tshark := shutil.which("tshark"):
        words = ("-n", "-r", "FILE", "-Y", "http || ajp13 || mysql", "-T", "fields", "-e", "frame.number")
        out.append(Program("tshark, display filter", (tshark, *words), slow=True))
    if suricata := shutil.which("suricata"):
        words = ("-r", "FILE", "-k", "none", "-l", "/tmp", "--set", "outputs=[]", "--runmode", "single")
        kinds = ("http_small", "http_chunked", "http_large")
        out.append(Program("Suricata", (suricata, *words), slow=True, only=kinds))
    return out


def prefix(source: Path, target: Path, packets: int) -> int:
    """Copy the first packets of a generated capture; returns how many there were."""
    done = 0
    with source.open("rb") as file, target.open("wb") as out:
        out.write(file.read(24))
        while done < packets and len(head := file.read(16)) == 16:
            out.write(head + file.read(struct.unpack_from("<I", head, 8)[0]))
            done += 1
    return done
