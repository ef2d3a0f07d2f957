"""Three tiers with known truth: closed-loop users -> web (HTTP) -> app (AJP) -> db (MySQL).

A small discrete-event simulation (`simulated_world`), the tables that a tap would make of it
(`simulated_tables`), and what hosts and the servers' own logs would say. Nothing of the product is used
except the column contracts and the run file, so that it can judge the product.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from processes import Pool
from simulated_tables import open_area, tables
from simulated_world import APP, DB, HOP_NS, START_NS, WEB, World

from tapscope.store.runfile import RunFile
from tapscope.store.tables import TABLES, Table

ADDRESSES = ["10.77.0.1", "10.77.0.11", "10.77.0.12", "10.77.0.13"]
NODE_NAMES = ["10.77.0.1", "10.77.0.11", "10.77.0.12", "10.77.0.13"]
TIER_NAMES = {WEB: "web", APP: "app", DB: "db"}
EVENT_LOAD = ("tier", "window_ns", "width_ns", "load", "max", "arrivals", "completions")


@dataclass
class Simulation:
    """Tables as the stages make them, the truth about every call, and what hosts and logs would say."""

    tables: dict[str, Table]
    classes: list[tuple[int, str]]
    addresses: list[str]
    counters: list[tuple[str, int, str]]
    sources: list[dict]
    true_parent: NDArray[np.int64]
    busy: dict[int, list[tuple[int, int]]] = field(repr=False)
    processors: dict[int, int] = field(default_factory=dict)
    begin_ns: int = START_NS
    end_ns: int = START_NS

    def cpu_percent(self, node: int, width_ns: int = 50_000_000) -> tuple[NDArray, NDArray]:
        """Start (int64 ns) and processor utilisation (percent of all processors) of each window of a node."""
        edges = np.arange(self.begin_ns, self.end_ns + width_ns, width_ns)
        spans = np.array(self.busy[node], dtype=np.int64).reshape(-1, 2)
        area = np.diff(open_area(spans[:, 0], spans[:, 1], edges))
        return edges[:-1], 100.0 * area / width_ns / self.processors[node]

    def save(self, path: Path) -> None:
        """Write a run file with everything that a tap gives."""
        with RunFile.create(path) as run:
            run.write_addresses(self.addresses)
            run.write_classes(self.classes)
            run.write_sources(self.sources)
            run.write_counters(self.counters)
            for name in TABLES:
                run.write_table(name, self.tables[name])
            run.write_node_names(NODE_NAMES)
            run.set_meta("complete", True)

    def write_host_logs(self, directory: Path) -> None:
        """Write `hosts/<tier>/cgroup_cpu.csv` of each host: growing CPU time, sampled every 50 ms."""
        for node, name in TIER_NAMES.items():
            at, percent = self.cpu_percent(node)
            used = np.cumsum(percent / 100.0 * self.processors[node] * 50_000_000).astype(np.int64)
            folder = directory / "hosts" / name
            folder.mkdir(parents=True)
            rows = ["time_ns_begin,time_ns_end,usage_ns"]
            ends = (at + 50_000_000).tolist()
            rows += [
                f"{end - 5_000},{end + 5_000},{use}" for end, use in zip(ends, used.tolist(), strict=True)
            ]
            (folder / "cgroup_cpu.csv").write_text("\n".join(rows) + "\n")

    def event_loads(self, width_ns: int = 50_000_000) -> dict[str, list[Any]]:
        """Columns of event_load: queue length by each tier's own log, in the windows of `loads`."""
        windows = np.arange(self.begin_ns, self.end_ns, width_ns)
        edges = np.append(windows, windows[-1] + width_ns)
        columns: dict[str, list[Any]] = {name: [] for name in EVENT_LOAD}
        for node, name in TIER_NAMES.items():
            arrive, depart = self.event_calls(node)
            mine = self.tables["loads"]["node"] == node
            values = (
                [name] * len(windows),
                windows.tolist(),
                [width_ns] * len(windows),
                (np.diff(open_area(arrive, depart, edges)) / width_ns).tolist(),
                self.tables["loads"]["max"][mine].tolist(),
                np.histogram(arrive, edges)[0].tolist(),
                np.histogram(depart, edges)[0].tolist(),
            )
            for column, more in zip(EVENT_LOAD, values, strict=True):
                columns[column] += more
        return columns

    def event_calls(self, node: int, offset_ns: int = 0) -> tuple[NDArray, NDArray]:
        """Arrival and departure (int64 ns) of the calls of a node as its own log gives them."""
        calls = self.tables["calls"]
        mine = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
        micro = 1000
        arrive = (calls["arrive_ns"][mine] + HOP_NS + offset_ns) // micro * micro
        return arrive, (calls["depart_ns"][mine] - HOP_NS + offset_ns) // micro * micro


def simulate(
    seed: int = 1,
    users: int = 60,
    seconds: float = 10.0,
    think_ms: float = 400.0,
    stall_at_s: float | None = None,
    stall_ms: float = 400.0,
    lose: int = 0,
) -> Simulation:
    """Run the model. `lose` responses (the seed chooses) fall into a gap; same seed, same result."""
    end = START_NS + int(seconds * 1e9)
    world = World(seed, end)
    world.workers = Pool(list(range(users)))
    processors = {WEB: 2, APP: 2, DB: 2}
    world.cpu = {node: Pool(list(range(count))) for node, count in processors.items()}
    first_app, first_db = users, users + 40
    world.pool = {
        APP: Pool(list(range(first_app, first_db))),
        DB: Pool(list(range(first_db, first_db + 12))),
    }
    for conn in range(users):
        world.start(world.user(conn, think_ms * 1e6), START_NS)
    if stall_at_s is not None:
        world.start(world.stall(int(stall_ms * 1e6)), START_NS + int(stall_at_s * 1e9))
    world.run(end)
    lost = set(random.Random(seed + 1).sample(range(len(world.calls)), lose))
    made, classes = tables(world, users, lost)
    hole = int(made["connections"]["missing_to_client"].sum())
    source = {
        "path": "simulated.pcapng",
        "kind": "capture",
        "format": "pcapng",
        "packets": 4 * len(world.calls),
        "bytes": int(made["messages"]["wire_bytes"].sum()),
        "first_ns": START_NS,
        "last_ns": end,
        "truncated_packets": 0,
    }
    return Simulation(
        tables=made,
        classes=classes,
        addresses=list(ADDRESSES),
        counters=[("stream.missing_bytes", hole, "bytes"), ("pair.lost_response", lose, "calls")],
        sources=[source],
        true_parent=made["links"]["parent"].astype(np.int64),
        busy=world.busy,
        processors=processors,
        end_ns=end,
    )
