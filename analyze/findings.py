"""From a symptom to its cause: episodes, where their queue began, how it travelled, and what made it grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from tapscope.analyze.calls import Read, read_calls
from tapscope.analyze.candidates import Candidate, Ranker, Scene, ranked
from tapscope.analyze.evidence import PAUSES, Evidence, Logs, node_evidence
from tapscope.analyze.finding import Finding, one_clock
from tapscope.analyze.held import Separator
from tapscope.analyze.inside import Int
from tapscope.analyze.load import window_edges
from tapscope.analyze.mechanisms import (
    BURST,
    LIMIT,
    LOCK,
    NEIGHBOUR,
    OF_RESOURCES,
    OVERFLOW,
    STOOD_STILL,
    Case,
    Mechanism,
    recognise,
)
from tapscope.analyze.metrics import METRICS, usual
from tapscope.analyze.node_state import NodeState, node_state
from tapscope.analyze.onset import FROM_LOG, Onset, Pace
from tapscope.analyze.pushback import NodeLoad, Rise, Travel, node_loads, rises, travel
from tapscope.analyze.symptoms import SECONDS_NS, Episode, entry_nodes, find_episodes, transactions
from tapscope.analyze.tcp import syns_without_answer
from tapscope.analyze.tcp_events import troubles_between
from tapscope.analyze.track import Track
from tapscope.analyze.windows import WindowState
from tapscope.store.runfile import RunFile

WINDOW_NS = 50_000_000
BEFORE = 4
"""Windows before an episode in which its queue may have begun."""

AFTER = 10
"""Windows after an episode that are not taken for quiet."""

OWN = 1.0
"""Call-windows of own excess from which a node can be where a queue began."""

SAID = 6
"""Metrics of a finding whose lead or lag is worked out."""

BACK_NS, AHEAD_NS = 400_000_000, 200_000_000
"""Before and after users were hurt, within which the begin of the cause is looked for."""

SPLIT_NS = 100_000_000
"""Of an episode that follows right upon another, so long before its begin at most."""

HALF = 0.5
"""Score, and strength, from which what another node did explains the origin's queue."""

LOGGED = ("gc", "safepoint", "throttled")
"""Metrics by which a log says when it happened; a queue that is hardly one is looked at then."""

QUOTA_PERIOD_NS = 100_000_000
"""A quota hurts nobody before it is used up, which takes a period at most: Linux's default, that container
engines use."""

LOG_NS = 1_000_000
"""Pauses are logged to the millisecond."""

DIRECT = ("gc", "safepoint", "throttled", "speed_mhz", "own_dirty", "stalled")
"""Metrics that say themselves that a node served nobody, or less, and are nobody else's."""


def findings(
    run: RunFile,
    *,
    width_ns: int = WINDOW_NS,
    read: Read | None = None,
    states: Mapping[int, NodeState] | None = None,
) -> list[Finding]:
    """All episodes of a run in order of time. A run in which nothing happened gives none, nor does one
    without a common clock. `read` are the run's calls, and `states` of nodes in windows of `width_ns`, where
    they were worked out before."""
    if not one_clock(run):
        return []
    read = read or read_calls(run)
    if not read.stay.arrived.any():
        return []
    found = _Search(run, read, width_ns, states or {}).findings()
    met = troubles_between(run, read, [(one.episode.begin_ns, one.episode.end_ns) for one in found])
    return [replace(one, tcp=troubles) for one, troubles in zip(found, met, strict=True)]


class _Search:
    """Tables and series of one run while its findings are made."""

    def __init__(self, run: RunFile, read: Read, width_ns: int, states: Mapping[int, NodeState]) -> None:
        self.read, self.states = read, states
        self.width_ns = width_ns
        self.edges = window_edges(*read.stay.span_ns, width_ns, nodes=len(read.nodes))
        self.loads: list[NodeLoad] = node_loads(read, self.edges)
        nodes = run.read_table("nodes")
        self.entries = entry_nodes(nodes, read.calls)
        self.depth = nodes["depth"]
        self.logs = Logs(run, self.edges)
        self.classes = run.classes()
        self.dropped = syns_without_answer(read.connections)
        self.known: dict[int, tuple[Evidence, Separator]] = {}
        self.rankers: dict[tuple[int, int], Ranker] = {}
        self.paces: dict[int, Pace] = {}
        self.uses: dict[int, Track | None] = {}
        self.quiet = np.ones(len(self.edges) - 1, dtype=np.bool_)

    def findings(self) -> list[Finding]:
        found = find_episodes(
            transactions(self.read.calls, self.read.connections, self.entries, self.read.stay.arrived),
            self.loads,
            self.edges,
            self.entries,
            self._logged(),
        )
        seen = [_seen(one, before, self.edges) for before, one in zip([None, *found], found, strict=False)]
        for one in seen:
            self.quiet[max(one.first - BEFORE, 0) : one.last + AFTER] = False
        explained = [self._explain(one) for one in seen]
        return [one for one in explained if (one.episode.grave and _hurt(one)) or _shown(one)]

    def _logged(self) -> NDArray[np.bool_]:
        """Windows in, or right behind, which a host's log says that it stopped or was held back."""
        found = np.zeros(len(self.edges) - 1, dtype=np.bool_)
        for one in self.loads:
            known = self.logs.of(one.node)
            for name in LOGGED:
                if name in known:
                    level = METRICS[name].limit(*usual(known[name], self.quiet))
                    found |= METRICS[name].beyond(known[name], level)
        return np.asarray(binary_dilation(found))

    def _explain(self, seen: _Seen) -> Finding:
        first, last = seen.first, seen.last
        path = rises(self.loads, first, last, before=BEFORE)
        origin = path[0].node if path and path[0].own_excess > OWN else -1
        slowed = origin
        verdict = None
        if origin >= 0:
            verdict = self._recognise(seen, origin)
            named = verdict.mechanisms[0].name if verdict.mechanisms else ""
            for node in self._others(origin, named, path, verdict.case.scene):
                # Who took the CPU is judged by the queue of the node that did not get it.
                hurt = origin if named == NEIGHBOUR else node
                other = self._recognise(seen, node, hurt)
                if _explains(named, other.mechanisms):
                    origin, verdict, slowed = node, other, hurt
                    break
        risen = [rise for rise in path if rise.onset >= 0]
        order = sorted(risen, key=lambda rise: (-int(self.depth[rise.node]), rise.onset))
        return Finding(
            episode=seen.episode,
            origin=origin,
            path=order,
            travel=self._travel(origin, order, first, last),
            overflowed=self._overflowed(first, last),
            mechanisms=[] if verdict is None else verdict.mechanisms,
            ruled_out=[] if verdict is None else verdict.ruled_out,
            not_told=[] if verdict is None else verdict.not_told,
            ranking=[] if verdict is None else _ranking(verdict),
            began=None if verdict is None else self._began(seen, slowed, verdict),
        )

    def _pace(self, node: int) -> Pace:
        if node not in self.paces:
            load = next(one for one in self.loads if one.node == node)
            self.paces[node] = Pace(self.read, node, load, self.edges, self.quiet)
        return self.paces[node]

    def _began(self, seen: _Seen, node: int, verdict: _Verdict) -> Onset | None:
        """When the cause began, by the pace of the node whose queue grew."""
        since, until = seen.since_ns, seen.until_ns
        first = verdict.mechanisms[0] if verdict.mechanisms else None
        if first is not None and first.metric in PAUSES:
            pause = self.logs.longest_pause(node, first.metric, since, until)
            if pause is not None:
                return Onset(pause[0], pause[0] - LOG_NS, pause[0] + LOG_NS, FROM_LOG)
        if first is not None and first.metric in LOGGED:
            # Not before the log says so, give or take a window.
            track, scene = verdict.ranker.tracks[first.metric], verdict.case.scene
            risen = np.flatnonzero(track.metric.beyond(track.values[scene.at], scene.limit(track)))
            if len(risen):
                since = max(since, int(self.edges[scene.first + risen[0]]) - self.width_ns)
                until = max(until, since + AHEAD_NS)
        pace = self._pace(node)
        if first is not None and first.name in (BURST, OVERFLOW):
            came = pace.rushed(since, until, connections=first.name == OVERFLOW)
            return came or pace.slowed(since, until)
        slowed = pace.slowed(since, until)
        if slowed is not None and first is not None and first.metric == "throttled":
            return slowed.or_earlier(QUOTA_PERIOD_NS)
        return slowed

    def _recognise(self, span: _Seen, node: int, hurt: int | None = None) -> _Verdict:
        """Mechanisms at a node as the reasons why the queue of `hurt` (None: its own) grew."""
        seen, separator = self._evidence(node)
        hurt = node if hurt is None else hurt
        load = next(one.own for one in self.loads if one.node == hurt)
        if (node, hurt) not in self.rankers:
            elsewhere = {name: self.logs.elsewhere(node, name) for name in seen.series}
            self.rankers[node, hurt] = Ranker(seen.series, load, self.quiet, elsewhere)
        ranker = self.rankers[node, hurt]
        scene = Scene(load, max(span.first - BEFORE, 0), span.last)
        told = {name: ranker.candidate(name, scene) for name in seen.series}
        candidates = {name: one for name, one in told.items() if one is not None}
        # While the queue grew: afterwards whoever waited is served, and all are late. Who came before the
        # node was slowed down waited for nothing.
        peak = scene.first + int(np.argmax(load[scene.at]))
        grown_ns = int(self.edges[max(peak, span.first + 1) + 1])
        begin_ns = span.episode.begin_ns
        began = self._pace(node).slowed(span.since_ns, span.until_ns)
        since_ns = begin_ns if began is None else min(began.at_ns, grown_ns - self.width_ns)
        held = separator.between(since_ns, grown_ns)
        overdue = separator.overdue(begin_ns, grown_ns)
        case = Case(seen, scene, candidates, held, overdue)
        return _Verdict(case, ranker, *recognise(case))

    def _evidence(self, node: int) -> tuple[Evidence, Separator]:
        """Of a node, worked out once for all its episodes."""
        if node not in self.known:
            state = self.states.get(node)
            if state is None:
                state = node_state(self.read.work(node), width_ns=self.width_ns, states_only=True)
            halted = _on(state.edges_ns, state.state == WindowState.STALLED, self.edges)
            slow = state.speeds.of_window == 0
            states = {"stalled": halted}
            if len(state.speeds.throughput) > 1:
                states["slow"] = _on(state.edges_ns, slow, self.edges)
            seen = node_evidence(self.logs, self.read, self.loads, node, states)
            separator = Separator(self.read.at(node), self.classes)
            self.known[node] = seen, separator
        return self.known[node]

    def _others(self, origin: int, named: str, path: list[Rise], scene: Scene) -> list[int]:
        """Nodes that may have done this to the origin: one below whose own queue rose no later, while calls
        to it were at their limit or the origin stood still; one that used the CPU which the origin did not
        get, where they share a machine; one above that handed a burst of calls down."""
        if named in (LIMIT, STOOD_STILL):
            called = set(self.read.made(origin))
            own = {rise.node: rise for rise in path}[origin]
            # What rushes down after a halt comes later than it.
            return [
                rise.node
                for rise in path
                if rise.node in called and rise.own_excess > OWN and 0 <= rise.onset <= own.onset + 1
            ]
        if named == BURST:
            # It came from above.
            higher = [rise.node for rise in path if self.depth[rise.node] < self.depth[origin]]
            return sorted(higher, key=lambda node: int(self.depth[node]))
        if named != NEIGHBOUR:
            return []
        users = []
        for node in (rise.node for rise in path if rise.node != origin):
            use = self._use(node)
            if use is not None:
                users.append((scene.covered(use, use.least) - use.otherwise(use.least), node))
        return [node for share, node in sorted(users, reverse=True) if share > HALF]

    def _use(self, node: int) -> Track | None:
        """A node's own use of a machine that is busy; None where no log tells."""
        if node not in self.uses:
            used = self._evidence(node)[0].series.get("saturated")
            self.uses[node] = None if used is None else Track("saturated", used, self.quiet)
        return self.uses[node]

    def _travel(self, origin: int, path: list[Rise], first: int, last: int) -> list[Travel]:
        if origin < 0:
            return []
        on_path = {rise.node for rise in path}
        return [one for one in travel(self.loads, origin, first, last, self.width_ns) if one.node in on_path]

    def _overflowed(self, first: int, last: int) -> list[tuple[int, int, int]]:
        connections = self.read.connections
        at = np.searchsorted(
            connections["syn_ns"][self.dropped], (self.edges[max(first - 1, 0)], self.edges[last])
        )
        rows = self.dropped[at[0] : at[1]]
        listener = np.stack([connections["server_addr"][rows], connections["server_port"][rows]])
        found, count = np.unique(listener, axis=1, return_counts=True)
        return [(int(a), int(p), int(n)) for a, p, n in zip(*found, count, strict=True)]


@dataclass(frozen=True)
class _Seen:
    """An episode with its windows [first, last), and the time in which its cause may have begun."""

    episode: Episode
    first: int
    last: int
    since_ns: int
    until_ns: int


@dataclass(frozen=True)
class _Verdict:
    """What was recognised at a node, and what it was judged by."""

    case: Case
    ranker: Ranker
    mechanisms: list[Mechanism]
    ruled_out: list[str]
    not_told: list[str]


def _ranking(verdict: _Verdict) -> list[Candidate]:
    order = ranked(list(verdict.case.candidates.values()))
    scene = verdict.case.scene
    return [verdict.ranker.with_lag(one, scene) if i < SAID else one for i, one in enumerate(order)]


def _hurt(one: Finding) -> bool:
    """Whether users were: several waited very long or found no room for their connection, or one waited for
    seconds. A queue that nobody felt is none, and one slow transaction is what every system has."""
    dropped = sum(count for _, _, count in one.overflowed)
    return len(one.episode.roots) + dropped > 1 or one.episode.longest_ns >= SECONDS_NS


def _shown(one: Finding) -> bool:
    """Whether the reason of a short queue is shown directly."""
    return bool(one.mechanisms) and one.mechanisms[0].metric in DIRECT


def _explains(named: str, others: list[Mechanism]) -> bool:
    """Whether what was recognised at another node is behind the mechanism of this name."""
    if named == BURST:
        return any(one.name == BURST and one.strength >= HALF / 2 for one in others)
    reasons = OF_RESOURCES if named != STOOD_STILL else (*OF_RESOURCES, LOCK)
    found = bool(others) and others[0].name in reasons and others[0].strength >= HALF
    return found and others[0].name != named


def _seen(episode: Episode, before: Episode | None, edges: Int) -> _Seen:
    first = max(int(np.searchsorted(edges, episode.begin_ns, side="right")) - 1, 0)
    last = int(np.searchsorted(edges, episode.end_ns, side="left"))
    begin = episode.begin_ns
    since = begin - BACK_NS if before is None else max(begin - BACK_NS, min(before.end_ns, begin - SPLIT_NS))
    return _Seen(
        episode,
        first,
        max(min(last, len(edges) - 1), first + 1),
        max(since, int(edges[0])),
        min(episode.end_ns, begin + AHEAD_NS),
    )


def _on(own_edges: Int, values: NDArray[np.bool_], edges: Int) -> NDArray[np.bool_]:
    """Values of windows of the same width that begin elsewhere, on the windows of `edges`."""
    out = np.zeros(len(edges) - 1, dtype=np.bool_)
    at = np.searchsorted(edges, own_edges[:-1])
    inside = at < len(out)
    out[at[inside]] = values[inside]
    return out
