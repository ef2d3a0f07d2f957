"""What the matcher makes of a capture that lost packets: does the rest keep its accuracy, and is what was
touched marked?

    python benchmarks/loss.py RUN... [--lost 0.001 0.01 0.05] [--evidence all timing] [--seed 1]

RUN is a run directory of the testbed with its truth. Packets are left out of its capture at random, each with
the given probability. A transaction is touched when a call of it is not there any more, or lacks bytes or its
answer; the sure links (probability of 99 % at least) are those of all transactions. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from capture_packets import Packet, read_pcap, write_pcap
from trace_capture import machine

from tapscope import capture
from tapscope.capture import CaptureTables
from tapscope.cli.inputs import find_inputs
from tapscope.reconstruct import run
from tapscope.reconstruct.run import Reconstruction
from tapscope.reconstruct.traces import TOUCHED
from tapscope.store.codes import EvidenceMode
from tapscope.validate import accuracy, truth
from tapscope.validate.edges import roots
from tapscope.validate.event_calls import Names

HEAD = (
    "| run | evidence | packets lost % | calls lost | transactions touched % | edges of the others right % | "
    "exact paths of the others % | sure links wrong % | touched and called complete % | "
    "others not called complete % |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)

SURE = 0.99


@dataclass
class Known:
    """What is true of every row of the truth file, -1 not known: row of its parent, and transaction."""

    true: truth.Truth
    names: Names
    parent: np.ndarray
    transaction: np.ndarray

    @classmethod
    def of(cls, path: Path, tables: CaptureTables, made: Reconstruction) -> Known:
        """Parents are told by the capture that lost nothing."""
        names = Names()
        file = next(path / "truth" / name for name in ("calls.csv.gz", "calls.csv"))
        true = truth.read(file, names)
        linked = accuracy.from_tables(made.calls, tables.connections, tables.addresses, made.links, names)
        row_of = truth.match(linked.keys, true.keys)
        ids = np.where(row_of >= 0, true.request_id[row_of], -1)
        above = accuracy._true_parents(linked, ids, np.where(row_of >= 0, true.part[row_of], 0))
        parent = np.full(len(true.keys), -1, dtype=np.int64)
        transaction = parent.copy()
        whole = (made.calls["flags"] & TOUCHED) == 0
        rows = np.flatnonzero((row_of >= 0) & (ids >= 0))
        parent[row_of[rows]] = np.where(above[rows] >= 0, row_of[above[rows]], -1)
        transaction[row_of[rows]] = ids[rows]
        # What the edges of the capture cut is not judged.
        transaction[np.isin(transaction, ids[rows][~whole[rows]])] = -1
        return cls(true, names, parent, transaction)

    def judge(self, tables: CaptureTables, made: Reconstruction) -> list[float]:
        """The figures of one line: calls lost, and shares in percent."""
        calls, links = made.calls, made.links
        linked = accuracy.from_tables(calls, tables.connections, tables.addresses, links, self.names)
        row_of = truth.match(linked.keys, self.true.keys)
        call_of = np.full(len(self.true.keys) + 1, -1, dtype=np.int64)
        call_of[row_of[row_of >= 0]] = np.flatnonzero(row_of >= 0)
        count = len(self.true.request_ids)
        there = self.transaction >= 0
        lost = there & (call_of[:-1] < 0)

        transaction = np.where(row_of >= 0, self.transaction[row_of], -1)
        judged = transaction >= 0
        touched = np.zeros(count + 1, dtype=bool)
        touched[self.transaction[lost]] = True
        touched[transaction[judged & ((calls["flags"] & TOUCHED) != 0)]] = True

        above = np.where(row_of >= 0, self.parent[row_of], -1)
        edge = judged & (above >= 0)
        right = np.where(edge, links["parent"] == call_of[above], links["parent"] < 0)
        wrong = np.zeros(count + 1, dtype=bool)
        wrong[transaction[judged & ~right]] = True
        top = transaction[roots(links["parent"])]
        extra = judged & (top != transaction)
        wrong[top[extra]] = True

        complete = np.zeros(count + 1, dtype=bool)
        root = made.traces["root"]
        called = made.traces["complete"] & judged[root] & (above[root] < 0)
        complete[transaction[root[called]]] = True

        ids = np.unique(self.transaction[there])
        others = ids[~touched[ids]]
        of_others = edge & ~touched[transaction]
        return [
            float(lost.sum()),
            percent(touched[ids]),
            percent(right[of_others]),
            percent(~wrong[others]),
            percent(~right[judged & (links["parent"] >= 0) & (links["probability"] >= SURE)]),
            percent(complete[ids[touched[ids]]]),
            percent(~complete[others]),
        ]


def percent(where: np.ndarray) -> float:
    """Share that holds."""
    return 100.0 * float(where.mean()) if len(where) else float("nan")


def packets_of(path: Path, folder: Path) -> list[Packet]:
    """The packets of a run directory with one capture file, also a packed one."""
    (file,) = find_inputs([path]).captures
    plain = folder / "plain.pcap"
    if file.suffix == ".gz":
        plain.write_bytes(gzip.decompress(file.read_bytes()))
    elif file.suffix == ".zst":
        subprocess.run(["zstd", "-dqf", file, "-o", plain], check=True)
    else:
        plain = file
    return read_pcap(plain)


def lines(path: Path, options: argparse.Namespace) -> Iterator[str]:
    """The lines of one run."""
    with tempfile.TemporaryDirectory() as name:
        packets = packets_of(path, Path(name))
        file = write_pcap(Path(name) / "a.pcap", packets)
        tables = capture.read_files([file])
        for mode in options.evidence:
            known = None
            for share in (0.0, *options.lost):
                if share:
                    chosen = random.Random(options.seed)
                    kept = [each for each in packets if chosen.random() >= share]
                    tables_now = capture.read_files([write_pcap(file, kept)])
                else:
                    tables_now = tables
                made = run.trace(tables_now, EvidenceMode[mode.upper()])
                known = known or Known.of(path, tables, made)
                figures = known.judge(tables_now, made)
                cells = [f"{figures[0]:.0f}", *(f"{each:.2f}" for each in figures[1:])]
                yield f"| {path.name} | {mode} | {100 * share:g} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--lost", type=float, nargs="+", default=[0.001, 0.01, 0.05])
    parser.add_argument("--evidence", nargs="+", default=["all", "timing"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"machine   {machine()}\n\n{HEAD}")
    for path in options.runs:
        for line in lines(path, options):
            print(line, flush=True)


if __name__ == "__main__":
    main()
