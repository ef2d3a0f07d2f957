"""Paths of one run by three witnesses: the tap, spans that the servers noted (LTTng), what the answers told.

    tapscope testbed run --scenario random --record-spans -o RUN
    python benchmarks/span_paths.py RUN

A path is written as vApp's answers tell it, with tiers for addresses: a server, and in parentheses, in
their order, the calls that it made. The tap's are matched by time alone, and once more by the servers'
threads where the run has logs of these.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np

from tapscope import capture
from tapscope.reconstruct import dapper
from tapscope.reconstruct.run import Reconstruction, trace
from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads.run import trace as trace_by_threads

Key = tuple[int, int]
"""Client port of a request and when it was sent."""


def told(rows: Iterable[tuple[str, str, str, int]]) -> dict[str, str]:
    """Path of each call without a parent. rows: call, parent ("" none), tier, when it was made."""
    below: dict[str, list[tuple[int, str]]] = {}
    names, parents = {}, {}
    for call, parent, tier, made_ns in rows:
        names[call], parents[call] = tier, parent
        below.setdefault(parent, []).append((made_ns, call))

    def text(call: str) -> str:
        return names[call] + "".join(f"({text(each)})" for _, each in sorted(below.get(call, ())))

    return {call: text(call) for call, parent in parents.items() if not parent}


def by_spans(folder: Path) -> dict[str, str]:
    """Request ID -> path, by the parents that the spans name."""
    spans: dict[str, dapper.Span] = {}
    dapper.read(folder, spans, lambda name, value: print(f"trace: {name} {value}"))
    rows = [(each, span.parent_id, span.callee, max(span.times[:2])) for each, span in spans.items()]
    return {spans[root].request_id: path for root, path in told(rows).items()}


def by_tap(made: Reconstruction, tables: capture.CaptureTables, tier: dict[str, str]) -> dict[Key, str]:
    """(client port, arrival) -> path."""
    calls, parent = made.calls, made.links["parent"]
    address = tables.connections["server_addr"][calls["conn"]]
    rows = [
        (str(row), str(up) if up >= 0 else "", tier.get(tables.addresses[at], "?"), int(ns))
        for row, (up, at, ns) in enumerate(zip(parent.tolist(), address, calls["arrive_ns"], strict=True))
    ]
    port = tables.connections["client_port"][calls["conn"]]
    return {(int(port[int(r)]), int(calls["arrive_ns"][int(r)])): path for r, path in told(rows).items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("run", type=Path)
    run = options.parse_args().run
    manifest = json.loads((run / "manifest.json").read_text())
    tier = {address: name for name, addresses in manifest["tiers"].items() for address in addresses}
    with (run / "users" / "requests.csv").open(newline="") as file:
        asked = [row for row in csv.DictReader(file) if row["status"] == "200"]
    witnesses = {"answers": {}, "spans": by_spans(run / "events" / "lttng")}
    for row in asked:
        witnesses["answers"][row["request_id"]] = re.sub(
            r"[\d.]+:\d+", lambda m: tier[m[0].partition(":")[0]], row["answer"]
        )
    tables = capture.read_files([str(run / "capture" / "tap.pcap")])
    taps = {"tap": trace(tables)}
    if (run / "threads").is_dir():
        taps["tap, threads"] = trace_by_threads(tables, log.read([run / "threads"])).made
    for name, made in taps.items():
        found = sorted((port, ns, path) for (port, ns), path in by_tap(made, tables, tier).items())
        keys = np.array([(port, ns) for port, ns, _ in found], dtype=[("port", "i8"), ("ns", "i8")])
        witnesses[name] = {}
        for row in asked:
            at = np.searchsorted(keys, np.array((int(row["local_port"]), int(row["start_ns"])), keys.dtype))
            if (
                at < len(found)
                and found[at][0] == int(row["local_port"])
                and found[at][1] <= int(row["end_ns"])
            ):
                witnesses[name][row["request_id"]] = found[at][2]
    ids = [row["request_id"] for row in asked]
    print(f"{len(ids)} requests, {len(set(witnesses['answers'].values()))} different paths")
    for one, other in combinations(witnesses, 2):
        same = sum(witnesses[one].get(each) == witnesses[other].get(each, "") for each in ids)
        print(f"{one} and {other}: {same} of {len(ids)} paths are the same ({100 * same / len(ids):.2f} %)")


if __name__ == "__main__":
    main()
