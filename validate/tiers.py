"""Which calls of the tap and of the logs are the same thing: tiers to nodes, and like compared with like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.load import window_edges
from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, EventCalls
from tapscope.validate.monitors.mariadb import STATEMENT
from tapscope.validate.statistics import pearson, rmse
from tapscope.validate.tap import Tap

Ints = NDArray[np.int64]

PROTOCOLS: dict[str, tuple[Protocol, ...]] = {
    "web": (Protocol.HTTP,),
    "app": (Protocol.AJP, Protocol.HTTP, Protocol.FASTCGI),
    "middle": (Protocol.CJDBC, Protocol.AVATICA, Protocol.HTTP, Protocol.MYSQL),
    "db": (Protocol.MYSQL,),
}
"""Protocols in which a tier may be called."""

LOGGED_STATEMENTS = (STATEMENT, "Query", "Execute")
"""Commands of the database's logs that run a statement; the rest is not in every log and is left out on both
sides."""

_MATCH_WIDTH_NS = 50_000_000


@dataclass(frozen=True)
class Compared:
    """The calls of one tier, as the tap and as the logs have them, like with like.

    nodes : rows of nodes; what : in words what is compared; tap_rows, log_rows, caller_rows : rows of the
        tables of calls and callers
    arrive and depart : ns, -1 for a departure that is not known; tap_open : the tap saw no answer
    caller : the same calls as the tier before logged them (sent, answer received); empty where it logged none
    log_owner, caller_owner : whose clock stamped them (EventCalls.owner)
    log_key, caller_key : what a call and its caller's record have in common: the connection at the database,
        the request ID elsewhere; -1 not known
    log_coarse_ns : half width of the log's coarsest arrival
    left_out : what one side has and the other cannot, by name
    """

    tier: str
    nodes: list[int]
    what: str
    tap_rows: Ints
    log_rows: Ints
    tap_arrive: Ints
    tap_depart: Ints
    tap_open: NDArray[np.bool_]
    log_arrive: Ints
    log_depart: Ints
    caller_arrive: Ints
    caller_depart: Ints
    caller_rows: Ints
    log_owner: Ints
    caller_owner: Ints
    log_key: Ints
    caller_key: Ints
    log_coarse_ns: int
    left_out: dict[str, int]


def nodes_of_tiers(tap: Tap, events: EventCalls, manifest: Mapping[str, Any]) -> dict[str, list[int]]:
    """Nodes that each tier of the logs is compared with.

    From the manifest (`tiers`: tier -> addresses; `hosts`: tier -> address, `ports`: tier -> port) where it
    names a tier; else, host by host of the logs, the node of a protocol the tier may have whose queue length
    goes most alike. A node serves one tier.
    """
    found: dict[str, list[int]] = {}
    for tier in events.tiers():
        address, port = (manifest.get(part, {}).get(tier) for part in ("hosts", "ports"))
        wanted = {address, f"{address}:{port}", *manifest.get("tiers", {}).get(tier, ())} - {None}
        nodes = [i for i, name in enumerate(tap.node_names) if name in wanted]
        if nodes:
            found[tier] = nodes
    taken = {node for nodes in found.values() for node in nodes}
    rest = [tier for tier in events.tiers() if tier not in found]
    offers = sorted(
        (offer for tier in rest for offer in _likeness(tap, events, tier, taken)), key=lambda offer: -offer[0]
    )
    served: set[tuple[str, int]] = set()
    for _, tier, host, node in offers:
        if node in taken or (tier, host) in served:
            continue
        taken.add(node)
        served.add((tier, host))
        found.setdefault(tier, []).append(node)
    for tier in rest:
        if tier in found:
            _add_listeners(tap, events, tier, found[tier], taken)
    return found


def _add_listeners(tap: Tap, events: EventCalls, tier: str, nodes: list[int], taken: set[int]) -> None:
    """A server that listens on several ports keeps one log: add the nodes of the same address and protocols
    whose calls bring the arrivals per window nearer to the log's; in place."""
    edges = window_edges(*tap.capture_ns, _MATCH_WIDTH_NS)
    allowed = np.isin(tap.calls["protocol"], [int(p) for p in PROTOCOLS[tier]])
    logged = _arrivals(events.calls["arrive_ns"][events.of_tier(tier)], edges)
    address = {tap.node_names[node].rpartition(":")[0] for node in nodes} - {""}
    for node in np.unique(tap.calls["server_node"][allowed]).tolist():
        if node in taken or tap.node_names[node].rpartition(":")[0] not in address:
            continue
        now, more = (
            rmse(_arrivals(tap.begin_ns[allowed & np.isin(tap.calls["server_node"], each)], edges), logged)
            for each in (nodes, [*nodes, node])
        )
        if more < now:
            nodes.append(node)
            taken.add(node)


def _arrivals(arrive_ns: Ints, edges_ns: Ints) -> NDArray[np.float64]:
    return np.diff(np.searchsorted(np.sort(arrive_ns), edges_ns)).astype(np.float64)


def _likeness(tap: Tap, events: EventCalls, tier: str, taken: set[int]) -> list[tuple[float, str, int, int]]:
    """(correlation of arrivals per window, tier, host, node) for every host of the tier and node it could
    be."""
    allowed = np.isin(tap.calls["protocol"], [int(p) for p in PROTOCOLS[tier]])
    rows = events.of_tier(tier)
    edges = window_edges(*tap.capture_ns, _MATCH_WIDTH_NS)
    lost = events.gaps["tier"] == TIERS.index(tier)  # a log that ends early is most like any other that does
    whole = ~touched(edges, *(events.gaps[name][lost] for name in ("begin_ns", "end_ns")))
    offers = []
    for host in np.unique(events.calls["host"][rows]).tolist():
        logged = _arrivals(events.calls["arrive_ns"][rows[events.calls["host"][rows] == host]], edges)
        for node in np.unique(tap.calls["server_node"][allowed]).tolist():
            if node in taken:
                continue
            seen = tap.begin_ns[allowed & (tap.calls["server_node"] == node)]
            likeness = pearson(_arrivals(seen, edges)[whole], logged[whole])
            # Not alike at all is still the best offer where there is no other: the comparison will say so.
            offers.append((-1.0 if np.isnan(likeness) else likeness, tier, host, node))
    return offers


def touched(edges: Ints, begin_ns: Ints, end_ns: Ints) -> NDArray[np.bool_]:
    """Per window: does one of these times (ends included) reach into it?"""
    windows = len(edges) - 1
    low = np.clip(np.searchsorted(edges, begin_ns, side="right") - 1, 0, windows)
    high = np.clip(np.searchsorted(edges, end_ns, side="right"), 0, windows)
    change = np.zeros(windows + 1, dtype=np.int64)
    np.add.at(change, low, 1)
    np.add.at(change, np.maximum(high, low), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0, dtype=bool)


def compared(tap: Tap, events: EventCalls, tier: str, nodes: list[int]) -> Compared:
    """Choose the calls of one tier that both sides can have.

    A database log that names commands holds statements only (Query, Execute): LOGIN, PING, PREPARE and their
    like are left out and counted. A log that names the protocol of its calls is compared with calls of that
    protocol.
    """
    rows = events.of_tier(tier)
    here = np.isin(tap.calls["server_node"], nodes) & (tap.begin_ns >= 0)
    left_out: dict[str, int] = {}
    statements = tier == "db" and bool(np.any(events.calls["command"][rows] >= 0))
    statements &= bool(np.any(tap.calls["protocol"][here] == Protocol.MYSQL))
    if statements:
        statement = tap.statement()
        left_out["tap_calls_without_statement"] = int(np.count_nonzero(here & ~statement))
        here &= statement
        codes = [code for code, text in enumerate(events.commands) if text in LOGGED_STATEMENTS]
        logged = np.isin(events.calls["command"][rows], codes)
        left_out["log_rows_without_statement"] = int(np.count_nonzero(~logged))
        rows = rows[logged]
    served = {int(p) for p in np.unique(tap.calls["protocol"][here]).tolist()}
    spoken = events.calls["protocol"][rows]
    alike = np.isin(spoken, [*served, int(Protocol.UNKNOWN)])
    left_out["log_calls_of_another_protocol"] = int(np.count_nonzero(~alike))
    rows = rows[alike]
    called = events.callers["tier"] == TIERS.index(tier)
    prepare = [code for code, text in enumerate(events.commands) if text == "prepare"]
    called &= ~np.isin(events.callers["command"], prepare)
    callers = {name: values[called] for name, values in events.callers.items()}
    calls = {name: values[rows] for name, values in events.calls.items()}
    key = "thread" if np.any(callers["thread"] >= 0) and np.any(calls["thread"] >= 0) else "request_id"
    chosen = np.flatnonzero(here)
    names = ", ".join(tap.node_names[node] for node in nodes)
    unit = "SQL statements" if statements else "calls"
    protocols = "/".join(Protocol(p).name for p in sorted(served)) or "no"
    return Compared(
        tier=tier,
        nodes=nodes,
        what=f"{protocols} {unit} at {names}",
        tap_rows=chosen,
        log_rows=rows,
        tap_arrive=tap.begin_ns[chosen],
        tap_depart=tap.end_ns[chosen],
        tap_open=tap.still_open[chosen],
        log_arrive=calls["arrive_ns"],
        log_depart=calls["depart_ns"],
        caller_arrive=callers["send_ns"],
        caller_depart=callers["receive_ns"],
        caller_rows=np.flatnonzero(called),
        log_owner=events.owner(calls["tier"], calls["host"]),
        caller_owner=events.owner(callers["by"], callers["host"]),
        log_key=calls[key].astype(np.int64),
        caller_key=callers[key].astype(np.int64),
        log_coarse_ns=int(calls["arrive_precision_ns"].max(initial=0)),
        left_out={name: value for name, value in left_out.items() if value},
    )
