"""A truth file by thread logs: for a run, which transaction every call belongs to, as `validate --truth`
reads it. It knows nothing of request ids, and the testbed's truth knows nothing of threads: two witnesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tapscope.reconstruct.threads import parents, wire
from tapscope.reconstruct.threads.log import ThreadLogs
from tapscope.reconstruct.threads.parents import Parents, Why
from tapscope.reconstruct.threads.sides import sides
from tapscope.store.codes import Protocol
from tapscope.store.runfile import RunFile
from tapscope.store.tables import Table
from tapscope.validate.edges import roots
from tapscope.validate.testbed import truth as truth_file
from tapscope.validate.testbed.truth import Call, Truth


@dataclass
class ThreadTruth:
    """What was written: calls, those of them that belong to a known transaction, transactions; and what the
    logs could not tell."""

    calls: int
    placed: int
    transactions: int
    refused: list[str]
    counters: dict[str, int]


def write(run_path: Path, logs: ThreadLogs, out: Path) -> ThreadTruth:
    """Write the truth file of a run. Calls whose transaction the logs do not know have no request id."""
    with RunFile.open(run_path) as run:
        calls = run.read_table("calls")
        connections = run.read_table("connections")
        addresses = run.addresses()
        ranges, counters = wire.ranges(calls, connections, run.read_table("messages"), addresses, logs)
    told = parents.find(sides(ranges, logs), logs)
    top = roots(told.parent)
    placed = _begins_a_transaction(calls, told)[top]
    truth_file.write(Truth(_rows(calls, connections, addresses, top, placed), {}), out)
    return ThreadTruth(
        calls=len(top),
        placed=int(placed.sum()),
        transactions=len(np.unique(top[placed])),
        refused=told.refused,
        counters={**logs.counters, **counters, **told.counters},
    )


def _begins_a_transaction(calls: Table, told: Parents) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Calls of clients that serve nobody; what a server does on its own belongs to no transaction."""
    entry = ~np.isin(calls["client_node"], calls["server_node"])
    return np.asarray((told.why == Why.NOT_LOGGED) & entry, dtype=bool)


def _rows(
    calls: Table,
    connections: Table,
    addresses: list[str],
    top: np.ndarray[tuple[int], np.dtype[np.int64]],
    placed: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> list[Call]:
    conn = calls["conn"]
    columns = (
        calls["arrive_ns"],
        connections["client_addr"][conn],
        connections["client_port"][conn],
        connections["server_addr"][conn],
        connections["server_port"][conn],
        calls["tcp_seq"],
        calls["protocol"],
        top,
        placed,
    )
    found = [
        Call(
            at_ns,
            addresses[src],
            sport,
            addresses[dst],
            dport,
            seq,
            Protocol(protocol).name.lower(),
            f"thread-{root}" if known else "",
            "threads" if known else "none",
            "",
        )
        for at_ns, src, sport, dst, dport, seq, protocol, root, known in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
    return sorted(found)
