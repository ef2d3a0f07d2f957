"""What `listeners` lists: what TCP says of each listener, and whom an unanswered SYN kept waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapscope.analyze.tcp import RETRY_NS, listeners, set_up_ns, syns_sent_again
from tapscope.analyze.tcp_events import TOUCHED_COLUMNS, WORDS, kept, side, touched, trace_of_calls
from tapscope.cli.output import utc
from tapscope.cli.show import records as show_records
from tapscope.store.codes import TcpEventKind
from tapscope.store.runfile import RunFile

COUNTS = (
    "connections",
    "handshakes",
    "syn_retransmits",
    "waited",
    "unanswered_syns",
    "refused",
    "resets",
    "zero_windows_to_client",
    "zero_windows_to_server",
    "retransmits_to_client",
    "retransmits_to_server",
)


def of_spans(run: RunFile) -> bool:
    """Whether a run was made of span tables, whose connections no tap saw."""
    return any(source["kind"] == "spans" for source in run.sources())


def records(run: RunFile) -> list[dict[str, Any]]:
    """One record per listener, most trouble first. `hit` counts the transactions in which a call waited for
    its connection because a SYN was sent again."""
    if of_spans(run):
        return []
    connections, addresses = run.read_table("connections"), run.addresses()
    trace_of_conn = _trace_of_first_call(run, set_up_ns_at_least=RETRY_NS)
    here = connections["server_addr"].astype(np.int64) << 16 | connections["server_port"]
    listed = []
    for one in listeners(connections):
        mine = np.flatnonzero(here == (one.server_addr << 16 | one.server_port))
        hit = trace_of_conn[mine]
        listed.append(
            {"listener": f"{addresses[one.server_addr]}:{one.server_port}"}
            | {name: getattr(one, name) for name in COUNTS}
            | {"hit": len(np.unique(hit[hit >= 0]))}
            | {
                f"setup_{name}_ms": at / 1e6 if at >= 0 else None
                for name, at in (
                    ("p50", one.setup_p50_ns),
                    ("p90", one.setup_p90_ns),
                    ("p99", one.setup_p99_ns),
                    ("max", one.setup_max_ns),
                )
            }
        )
    return listed


def waits(run: RunFile) -> list[dict[str, Any]]:
    """One record per connection whose SYN was sent again, in order of time, with the transaction that its
    first call belongs to (None: no call came)."""
    connections, addresses = run.read_table("connections"), run.addresses()
    trace_of_conn = _trace_of_first_call(run)
    listed = []
    for row in syns_sent_again(connections).tolist():
        syn, established = int(connections["syn_ns"][row]), int(connections["established_ns"][row])
        server, client = (
            f"{addresses[connections[f'{side}_addr'][row]]}:{connections[f'{side}_port'][row]}"
            for side in ("server", "client")
        )
        listed.append(
            {
                "syn_ns": syn,
                "listener": server,
                "client": client,
                "sent_again": int(connections["syn_retransmits"][row]),
                "setup_ms": (established - syn) / 1e6 if established >= 0 else None,
                "trace": int(trace_of_conn[row]) if trace_of_conn[row] >= 0 else None,
            }
        )
    return listed


def events(run: RunFile) -> list[dict[str, Any]]:
    """One record per event of TCP, in order of time, with the transactions whose calls it touched."""
    connections, addresses = run.read_table("connections"), run.addresses()
    table, calls = run.read_table("tcp_events"), run.read_table("calls", TOUCHED_COLUMNS)
    trace_of_call = trace_of_calls(run, len(calls["conn"]))
    found = touched(table, calls, connections)
    low, high = (
        np.searchsorted(found.event, np.arange(len(table["conn"])), side=s) for s in ("left", "right")
    )
    listed = []
    for row in np.argsort(table["begin_ns"], kind="stable").tolist():
        conn, begin, end = (int(table[name][row]) for name in ("conn", "begin_ns", "end_ns"))
        hit = found.call[low[row] : high[row]]
        server, client = (
            f"{addresses[connections[f'{end}_addr'][conn]]}:{connections[f'{end}_port'][conn]}"
            for end in ("server", "client")
        )
        listed.append(
            {
                "begin_ns": begin,
                "end_ns": end,
                "waited_ms": (end - begin) / 1e6,
                "kind": TcpEventKind(table["kind"][row]).name.lower(),
                "side": side(int(table["direction"][row])),
                "listener": server,
                "client": client,
                "packets": int(table["packets"][row]),
                "bytes": int(table["bytes"][row]),
                "calls": hit.tolist(),
                "traces": [int(trace) for trace in np.unique(trace_of_call[hit]) if trace >= 0],
            }
        )
    return listed


def has_events(run: RunFile) -> bool:
    """Whether the run keeps events; an older tapscope counted them only."""
    return kept(run.read_table("tcp_events"), run.read_table("connections"))


def _trace_of_first_call(run: RunFile, set_up_ns_at_least: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Trace of the first call on each connection; -1 without one, or when setting up took less."""
    calls, connections = run.read_table("calls", ["conn", "arrive_ns"]), run.read_table("connections")
    trace = trace_of_calls(run, len(calls["conn"]))
    if set_up_ns_at_least:
        trace[set_up_ns(calls, connections) < set_up_ns_at_least] = -1
    latest_first = np.argsort(-calls["arrive_ns"], kind="stable")
    found = np.full(len(connections["syn_ns"]), -1, dtype=np.int64)
    found[calls["conn"][latest_first]] = trace[latest_first]  # the earliest is written last, and stays
    return found


def show(listed: Sequence[dict[str, Any]]) -> None:
    """One line per listener."""
    columns = {
        "listener": "listener",
        "connections": "connections",
        "handshakes": "handshakes",
        "syn_retransmits": "SYNs again",
        "waited": "set up late",
        "hit": "transactions hit",
        "unanswered_syns": "never answered",
        "refused": "refused",
        "resets": "RST",
        "zero_windows_to_server": "zero windows of clients",
        "zero_windows_to_client": "of the listener",
        "retransmits_to_client": "sent again to clients",
        "retransmits_to_server": "to the listener",
        "setup_p50_ms": "set-up p50 ms",
        "setup_p90_ms": "p90",
        "setup_p99_ms": "p99",
        "setup_max_ms": "max",
    }
    show_records("Listeners", listed, columns)


def show_waits(listed: Sequence[dict[str, Any]]) -> None:
    """One line per connection."""
    columns = {
        "at": "first SYN (UTC)",
        "listener": "listener",
        "client": "client",
        "sent_again": "SYNs again",
        "setup_ms": "set up after ms",
        "trace": "transaction",
    }
    show_records("SYNs sent again", [one | {"at": utc(one["syn_ns"])} for one in listed], columns)


def show_events(listed: Sequence[dict[str, Any]]) -> None:
    """One line per event."""
    columns = {
        "at": "since (UTC)",
        "waited_ms": "for ms",
        "side": "who",
        "what": "did what",
        "listener": "listener",
        "client": "client",
        "packets": "packets",
        "bytes": "bytes",
        "hit": "transactions",
    }
    rows = [
        one
        | {
            "at": utc(one["begin_ns"]),
            "what": WORDS[TcpEventKind[one["kind"].upper()]],
            "hit": ", ".join(map(str, one["traces"])) or None,
        }
        for one in listed
    ]
    show_records("What TCP did", rows, columns)
