"""A C-JDBC controller as a middle tier: a write goes to two databases, and one of them may be late."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from capture_packets import CLIENT, SERVER, Dialogue, Packet, write_pcap
from cjdbc_messages import speak

from tapscope import capture
from tapscope.reconstruct import run
from tapscope.store.codes import EvidenceMode, LinkKind, Protocol

MS = 1_000_000
DRIVERS, WRITES = 4, 25


def query(sql: str) -> bytes:
    return struct.pack("<I", len(sql) + 1)[:3] + b"\0\x03" + sql.encode()


MYSQL_OK = b"\x07\0\0\x01\0\x01\0\x02\0\0\0"


def cluster(application: str, controller: str, databases: tuple[str, str]) -> tuple[list[Packet], int]:
    """Packets of drivers that write through a controller; how many writes it answered before a database."""
    rng = random.Random(7)
    packets: list[Packet] = []
    early = 0
    for driver in range(DRIVERS):
        front = Dialogue(
            client=application, server=controller, client_port=41000 + driver, server_port=25322, step_ns=1000
        ).open()
        backs = [
            Dialogue(
                client=controller, server=host, client_port=42000 + driver, server_port=3306 + i, step_ns=1000
            )
            for i, host in enumerate(databases)
        ]
        for back in backs:
            back.open()
        at = front.now_ns + rng.randrange(20 * MS)
        for write in range(WRITES):
            sql = f"UPDATE story SET votes = {rng.randrange(5)} WHERE id = {driver * 1000 + write}"
            front.now_ns = at
            front.send(CLIENT, speak.write(sql))
            ends = []
            for back in backs:
                back.now_ns = at + rng.randrange(200_000, 400_000)
                back.send(CLIENT, query(sql))
                back.now_ns += rng.randrange(1 * MS, 6 * MS)
                back.send(SERVER, MYSQL_OK)
                ends.append(back.now_ns)
            front.now_ns = min(ends) + 100_000
            early += front.now_ns < max(ends)
            front.send(SERVER, speak.OK + speak.integer(1))
            at = max(*ends, front.now_ns) + rng.randrange(1 * MS, 20 * MS)
        for dialogue in (front, *backs):
            packets += dialogue.packets
    return sorted(packets, key=lambda packet: packet[0]), early


@pytest.mark.parametrize(
    ("application", "controller", "databases"),
    [
        ("10.0.0.1", "10.0.0.2", ("10.0.0.3", "10.0.0.4")),
        ("127.0.0.1", "127.0.0.1", ("127.0.0.1", "127.0.0.1")),
    ],
    ids=["hosts", "loopback"],
)
def test_both_databases_of_a_write_are_its_children_even_when_one_answers_late(
    tmp_path: Path, application: str, controller: str, databases: tuple[str, str]
) -> None:
    packets, early = cluster(application, controller, databases)
    assert early > DRIVERS * WRITES // 2
    tables = capture.read_files([write_pcap(tmp_path / "a.pcap", packets)], salt=bytes(16))
    rebuilt = run.trace(tables, EvidenceMode.ALL)
    calls, links = rebuilt.calls, rebuilt.links
    cjdbc, mysql = calls["protocol"] == Protocol.CJDBC, calls["protocol"] == Protocol.MYSQL
    assert int(cjdbc.sum()) == DRIVERS * WRITES
    assert int(mysql.sum()) == 2 * DRIVERS * WRITES
    port = tables.connections["client_port"][calls["conn"]]
    parent = links["parent"][np.flatnonzero(mysql)]
    assert (links["kind"][mysql] == LinkKind.LINKED).all()
    # A driver's writes are one after the other, and have database connections of their own here.
    order = {
        row: i for p in np.unique(port[cjdbc]) for i, row in enumerate(np.flatnonzero(cjdbc & (port == p)))
    }
    server = tables.connections["server_port"][calls["conn"]]
    for child, its_parent in zip(np.flatnonzero(mysql), parent, strict=True):
        mine = np.flatnonzero(mysql & (port == port[child]) & (server == server[child]))
        assert port[its_parent] == port[child] - 1000
        assert order[int(its_parent)] == list(mine).index(child)
    names = {rebuilt.node_names[int(node)] for node in np.unique(calls["client_node"][mysql])}
    assert len(names) == 1
    assert names == {rebuilt.node_names[int(node)] for node in np.unique(calls["server_node"][cjdbc])}
