"""From a symptom to its cause: episodes, where their queue began, how it travelled, and what made it grow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.evidence import Logs, node_evidence
from tapscope.analyze.load import Int, stays, window_edges
from tapscope.analyze.mechanisms import Mechanism, recognise
from tapscope.analyze.node_state import NodeState, node_state
from tapscope.analyze.pushback import Rise, node_loads, rises
from tapscope.analyze.symptoms import Episode, entry_nodes, find_episodes, transactions
from tapscope.analyze.windows import WindowState
from tapscope.store.runfile import RunFile

WINDOW_NS = 50_000_000
BEFORE = 4
"""Windows before an episode in which its queue may have begun."""

OWN = 1.0
"""Call-windows of own excess from which a node can be where a queue began."""


@dataclass(frozen=True)
class Finding:
    """One episode explained. `origin` is a row of nodes, -1: no node's own queue rose.

    `path` are the nodes whose queues rose, lowest tier first; `mechanisms` those recognised at the origin,
    strongest first (none: unknown); `ruled_out` those that were looked for in vain.
    """

    episode: Episode
    origin: int
    path: list[Rise]
    mechanisms: list[Mechanism]
    ruled_out: list[str]

    @property
    def cause(self) -> str:
        """Name of the strongest mechanism; "unknown" without one."""
        return self.mechanisms[0].name if self.mechanisms else "unknown"


def findings(run: RunFile, *, width_ns: int = WINDOW_NS) -> list[Finding]:
    """All episodes of a run in order of time. A run in which nothing happened gives none."""
    calls, nodes, connections = (run.read_table(name) for name in ("calls", "nodes", "connections"))
    if not len(calls["conn"]):
        return []
    delay = np.full(len(calls["conn"]), -1, dtype=np.int64)
    made = run.read_table("trace_calls")
    delay[made["call"]] = made["intra_node_ns"]
    stay = stays(calls, connections["closed_ns"])
    edges = window_edges(int(stay.begin_ns.min()), int(stay.end_ns.max()), width_ns)
    loads = node_loads(calls, stay, edges)
    entries = entry_nodes(nodes, calls)
    episodes = find_episodes(transactions(calls, connections, entries), loads, edges, entries)
    logs = Logs(run, edges)
    states: dict[int, NodeState] = {}
    found = []
    for episode in episodes:
        first, last = _windows(episode, edges)
        path = rises(loads, first, last, before=BEFORE)
        origin = path[0].node if path and path[0].own_excess > OWN else -1
        mechanisms: list[Mechanism] = []
        ruled_out: list[str] = []
        if origin >= 0:
            if origin not in states:
                states[origin] = node_state(calls, stay, delay, origin, width_ns=width_ns)
            halted = _on(states[origin].edges_ns, states[origin].state == WindowState.STALLED, edges)
            seen = node_evidence(logs, calls, stay, connections, loads, origin, halted)
            begin = max(first - BEFORE, 0)
            mechanisms, ruled_out = recognise(seen, begin, last)
        risen = [rise for rise in path if rise.onset >= 0]
        order = sorted(risen, key=lambda rise: (-int(nodes["depth"][rise.node]), rise.onset))
        found.append(Finding(episode, origin, order, mechanisms, ruled_out))
    return found


def _windows(episode: Episode, edges: Int) -> tuple[int, int]:
    first = max(int(np.searchsorted(edges, episode.begin_ns, side="right")) - 1, 0)
    last = int(np.searchsorted(edges, episode.end_ns, side="left"))
    return first, max(min(last, len(edges) - 1), first + 1)


def _on(own_edges: Int, values: NDArray[np.bool_], edges: Int) -> NDArray[np.bool_]:
    """Values of windows of the same width that begin elsewhere, on the windows of `edges`."""
    out = np.zeros(len(edges) - 1, dtype=np.bool_)
    at = np.searchsorted(edges, own_edges[:-1])
    inside = at < len(out)
    out[at[inside]] = values[inside]
    return out
