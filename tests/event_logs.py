"""Run file, event-monitor logs and truth file of a simulated run, in the formats that the real servers
write."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from simulator import APP, DB, HOP_NS, NODE_NAMES, WEB, Simulation

from tapscope.store.codes import LinkKind, Protocol
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table

KEY = ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq")
HOSTS = {"web": NODE_NAMES[WEB], "app": NODE_NAMES[APP], "db": NODE_NAMES[DB]}


def request_ids(world: Simulation) -> list[str]:
    """The ID of every call's transaction."""
    root = np.where(world.true_parent >= 0, world.true_parent, np.arange(len(world.true_parent)))
    for _ in range(5):
        root = root[root]
    return [f"{number:08x}-0000-4000-8000-000000000000" for number in root.tolist()]


def true_links(world: Simulation) -> Table:
    """A links table that is right everywhere."""
    count = len(world.true_parent)
    parent = world.true_parent.astype(np.int64)
    return {
        "child": np.arange(count, dtype=np.int64),
        "parent": parent,
        "kind": np.where(parent < 0, LinkKind.ROOT, LinkKind.LINKED).astype(np.uint8),
        "probability": np.ones(count),
        "runner_up": np.full(count, -1, dtype=np.int64),
        "runner_up_probability": np.zeros(count),
    }


def write_run(world: Simulation, path: Path, links: Table | None = None) -> Path:
    """A run file as `trace` would leave it."""
    with RunFile.create(path) as run:
        run.write_addresses(world.addresses)
        run.write_classes(world.classes)
        for name in ("connections", "messages", "calls", "nodes"):
            run.write_table(name, world.tables[name])
        run.write_node_names(NODE_NAMES)
        run.write_table("links", true_links(world) if links is None else links)
        source = {"path": "tap.pcap", "kind": "capture", "bytes": 1}
        run.write_sources([source | {"first_ns": world.begin_ns, "last_ns": world.end_ns}])
    return path


def write_logs(world: Simulation, folder: Path, offset_ns: int = 0, db_zone_hours: int = 0) -> Path:
    """Logs of Apache, Tomcat and MariaDB. offset_ns : clock error of every log host."""
    calls = world.tables["calls"]
    ids = request_ids(world)
    ports = world.tables["connections"]["client_port"][calls["conn"]]
    arrive = calls["arrive_ns"] + HOP_NS + offset_ns
    depart = calls["depart_ns"] - HOP_NS + offset_ns
    lines: dict[int, list[tuple[int, str]]] = {WEB: [], APP: [], DB: []}
    for row in np.flatnonzero(calls["depart_ns"] >= 0).tolist():
        node, begin, end = int(calls["server_node"][row]), int(arrive[row]) // 1000, int(depart[row]) // 1000
        common = f"D={end - begin} s=200"
        where = f"{NODE_NAMES[0]}:{ports[row]}"
        if node == WEB:
            text = f'id={ids[row]} beg={begin} end={end} {common} conn={where} "GET / HTTP/1.1" jk=-'
        elif node == APP:
            text = f'id={ids[row]} beg={begin // 1000} end={end // 1000} {common} "GET / HTTP/1.1" '
            text += f"thr=ajp-nio-x-8009-exec-1 a={where}"
        else:
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=begin, hours=db_zone_hours)
            stay = timedelta(microseconds=end - begin)
            text = f"{at:%Y-%m-%d %H:%M:%S.%f}\tu[u] @  [10.77.0.12]\t0{stay}"
            text += "" if "." in str(stay) else ".000000"
            text += f"\t{calls['conn'][row]}\tSELECT 1 /*ID={ids[row]}*/"
        lines[node].append((end, text))
    files = {WEB: "apache/access.log", APP: "tomcat/access.log", DB: "mariadb/slow_log.tsv"}
    for node, name in files.items():
        head = "start_time\tuser_host\tquery_time\tthread_id\tsql_text\n" if node == DB else ""
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + "".join(f"{text}\n" for _, text in sorted(lines[node])))
    return folder


def write_truth(world: Simulation, path: Path) -> Path:
    """truth/calls.csv.gz."""
    calls = world.tables["calls"]
    ids = request_ids(world)
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") as file:
        out = csv.writer(file)
        out.writerow((*KEY, "protocol", "request_id", "how", "kind"))
        for row in range(len(ids)):
            out.writerow(
                (*key(world, row), Protocol(calls["protocol"][row]).name.lower(), ids[row], "content", "")
            )
    return path


def key(world: Simulation, row: int) -> tuple[int, str, int, str, int, int]:
    """ts_ns, src, sport, dst, dport, tcp_seq of a call."""
    calls, connections = world.tables["calls"], world.tables["connections"]
    conn = calls["conn"][row]
    ends = [
        (world.addresses[connections[f"{side}_addr"][conn]], int(connections[f"{side}_port"][conn]))
        for side in ("client", "server")
    ]
    return (int(calls["arrive_ns"][row]), *ends[0], *ends[1], int(calls["tcp_seq"][row]))
