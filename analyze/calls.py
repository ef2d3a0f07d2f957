"""The columns that analyses of a run have in common, read once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapscope.analyze.load import Int
from tapscope.store import tables
from tapscope.store.runfile import RunFile

CALL_COLUMNS = (
    "conn",
    "client_node",
    "server_node",
    "class_id",
    "arrive_ns",
    "depart_ns",
    "flags",
)
"""Of calls; reading the others would take longer than most analyses."""


@dataclass(frozen=True)
class Read:
    """Columns of calls, and of connections; `intra_node_ns` is that of trace_calls in the order of calls (-1:
    in no trace)."""

    calls: tables.Table
    connections: tables.Table
    intra_node_ns: Int


def read_calls(run: RunFile) -> Read:
    """Read what `node_state`, `findings` and their like need of a run."""
    calls = run.read_table("calls", CALL_COLUMNS)
    delay = np.full(len(calls["conn"]), -1, dtype=np.int64)
    made = run.read_table("trace_calls", ["call", "intra_node_ns"])
    delay[made["call"]] = made["intra_node_ns"]
    return Read(calls, run.read_table("connections"), delay)
