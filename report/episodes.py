"""What the page of a finding draws: strips around its episode, the origin's windows, the transactions hit.

Strips of a page are its own: they reach MARGIN_NS or half of the episode beyond it on either side, in windows
fine enough to see which queue rose first. Host metrics and point-in-time response times are in the windows
in which the findings compare them; where an episode is so long that there would be more than MOST_WINDOWS,
windows are wider, and of host metrics the highest of each is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.evidence import Logs, node_evidence
from tapscope.analyze.finding import Finding
from tapscope.analyze.findings import BEFORE, WINDOW_NS
from tapscope.analyze.inside import Int
from tapscope.analyze.load import window_edges
from tapscope.analyze.metrics import METRICS
from tapscope.analyze.pushback import node_loads
from tapscope.analyze.response_time import pit
from tapscope.analyze.service_time import Float
from tapscope.analyze.tcp import RETRY_NS, syns_without_answer
from tapscope.analyze.windows import WindowState
from tapscope.report import encode
from tapscope.report.analysis import LOAD_SCALE, RATE_SCALE, Analysis
from tapscope.report.run import Run, protocol_name

MOST_PAGES = 100
"""Findings with a page of their own, those with the longest responses; the table has all."""

HITS = 8
MARGIN_NS = 1_000_000_000
MOST_WINDOWS = 300
WIDTHS_NS = tuple(ms * 1_000_000 for ms in (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000))
MOST_RESOURCES = 10
MOST_DOTS = 1_500
SCALE = 1_000.0
NOT_A_RESOURCE = frozenset({"stalled", "slow", "arrivals", "refused", "saturated", "crowded"})
"""Metrics that have a strip anyway, or repeat others; drawn as resources only where a cause names them."""


@dataclass(frozen=True)
class Page:
    """A finding with its number (from 1, in order of time), the stretch of time that is shown, and the rows
    of traces that it hit: very long ones first, then those under way in it whose clients waited longest."""

    number: int
    found: Finding
    first_ns: int
    last_ns: int
    hits: Int


def pages(run: Run, known: Analysis, found: list[Finding]) -> list[Page]:
    """Pages of the findings that have one, in order of time."""
    longest = sorted(range(len(found)), key=lambda i: (-found[i].episode.longest_ns, i))[:MOST_PAGES]
    return [_page(run, known, i + 1, found[i]) for i in sorted(longest)]


def _page(run: Run, known: Analysis, number: int, found: Finding) -> Page:
    episode, traces = found.episode, run.traces
    margin = max(MARGIN_NS, (episode.end_ns - episode.begin_ns) // 2)
    root = traces["root"].astype(np.int64)
    begin = traces["begin_ns"] - known.waited[root]
    late = np.isin(root, episode.roots)
    under_way = (begin < episode.end_ns) & (traces["end_ns"] > episode.begin_ns) | late
    rows = np.flatnonzero(under_way & (traces["end_ns"] >= 0))
    took = (traces["end_ns"] - begin)[rows]
    hits = rows[np.lexsort((-took, ~late[rows]))[:HITS]]
    return Page(
        number,
        found,
        max(episode.begin_ns - margin, run.start_ns),
        min(episode.end_ns + margin, max(run.end_ns, episode.end_ns)),
        hits,
    )


def drawn(run: Run, known: Analysis, pages: list[Page]) -> list[dict[str, Any]]:
    """Data of assets/findings.js. A run without pages may have no one clock (span tables), by which windows
    over all of its time could be laid."""
    if not pages:
        return []
    episodes = Episodes(run, known)
    return [episodes.drawn(page) for page in pages]


class Episodes:
    """Draws pages of one run; what several of them need is computed once."""

    def __init__(self, run: Run, known: Analysis) -> None:
        self.run, self.known = run, known
        stay = run.read.stay
        if not stay.arrived.any():
            return
        self.edges = window_edges(*stay.span_ns, WINDOW_NS)
        self.logs = Logs(run.file, self.edges)
        self.loads = node_loads(run.read, self.edges)
        self.dropped = syns_without_answer(run.connections)
        self._metrics: dict[int, dict[str, Float]] = {}

    def drawn(self, page: Page) -> dict[str, Any]:
        """Data of assets/findings.js for one page. Times in s from the start of the run."""
        episode, start = page.found.episode, self.run.start_ns
        first, last, begin, end = (
            (at - start) / 1e9 for at in (page.first_ns, page.last_ns, episode.begin_ns, episode.end_ns)
        )
        roots = self.run.traces["root"][page.hits]
        return {
            "number": page.number,
            "shown": [first, last],
            "band": [begin, end],
            "strips": self._strips(page),
            "node": page.found.origin,
            "windows": self._windows(page),
            "hits": page.hits.tolist(),
            "waited": self.known.waited[roots].tolist(),
            "late": np.isin(roots, episode.roots).tolist(),
        }

    def _strips(self, page: Page) -> list[dict[str, Any]]:
        nodes = dict.fromkeys(tier.node for tier in self.run.tiers)
        made = [self._response(page), *(self._queue(page, node) for node in nodes)]
        if page.found.origin >= 0:
            made += self._node(page, page.found.origin) + self._resources(page, page.found.origin)
        return made

    def _edges(self, page: Page, least_ns: int) -> Int:
        """Windows of the page, as fine as asked for and no more than there may be."""
        span = page.last_ns - page.first_ns
        width = next((w for w in WIDTHS_NS if w >= least_ns and span <= w * MOST_WINDOWS), WIDTHS_NS[-1])
        return window_edges(page.first_ns, page.last_ns, width)

    def _strip(
        self, name: str, group: str, unit: str, drawn: list[dict[str, Any]], node: int, note: str = ""
    ) -> dict[str, Any]:
        """A strip of a node, named after it."""
        tier = self.run.tier_of_node(node)
        return {
            "id": name,
            "group": group,
            "title": self.run.node_names[node],
            "note": note,
            "unit": unit,
            "colour": tier.colour if tier else 0,
            "protocol": protocol_name(tier.protocol) if tier else "",
            "series": drawn,
        }

    def _series(self, label: str, role: str, at: Int, values: NDArray[Any], node: int = -1) -> dict[str, Any]:
        tier = self.run.tier_of_node(node)
        return {
            "label": label,
            "role": role,
            "colour": tier.colour if tier else 0,
            "x": encode.axis(at, self.run.start_ns),
            "y": encode.column(values, SCALE),
        }

    def _response(self, page: Page) -> dict[str, Any]:
        """The symptom: response times at the entry, in windows and one by one, and SYNs without an answer."""
        node = page.found.episode.entry
        at = self.run.read.at(node)
        ended = at.by_end[slice(*np.searchsorted(at.inside.end_ns, (page.first_ns, page.last_ns)).tolist())]
        ended = np.sort(ended[at.departed[ended]])
        rows, begin, end = at.rows[ended], at.begin_ns[ended], at.end_ns[ended]
        edges = self._edges(page, WINDOW_NS)
        windows = pit(begin, end, edges)
        longest = np.where(windows.max_ns >= 0, windows.max_ns / 1e6, np.nan)
        slowest = np.sort(np.argsort(begin - end, kind="stable")[:MOST_DOTS])
        slowest = slowest[np.argsort(end[slowest], kind="stable")]
        drawn = [
            self._series("max", "max", edges[:-1], longest, node),
            self._series("mean", "mean", edges[:-1], windows.mean_ns / 1e6, node),
            self._series("calls", "call", end[slowest], (end - begin)[slowest] / 1e6, node),
        ]
        waited = self.known.waited[rows]
        late = np.flatnonzero(waited > RETRY_NS)
        late = late[np.argsort(end[late], kind="stable")][:MOST_DOTS]
        if len(late):
            took = (end - begin + waited)[late] / 1e6
            drawn.append(self._series("with the wait for its SYN", "mark", end[late], took))
        syn = self.run.connections["syn_ns"][self.dropped]
        syn = np.sort(syn[(syn >= page.first_ns) & (syn < page.last_ns)])[:MOST_DOTS]
        if len(syn):
            drawn.append(self._series("SYN without answer", "syn", syn, np.zeros(len(syn))))
        note = f"the slowest {len(slowest)} calls one by one" if len(rows) > len(slowest) else "every call"
        return self._strip(f"response-{node}", "response", "ms", drawn, node, note)

    def _queue(self, page: Page, node: int) -> dict[str, Any]:
        """All calls inside a node, and those that it works on itself."""
        read, edges = self.run.read, self._edges(page, WIDTHS_NS[0])
        load, highest = read.at(node).inside.mean(edges), read.at(node).inside.highest(edges)
        waiting = np.zeros(len(load))
        for made in read.made(node).values():
            waiting += made.mean(edges)
        drawn = [
            self._series("max", "max", edges[:-1], highest, node),
            self._series("mean", "mean", edges[:-1], load, node),
        ]
        if waiting.any():
            own = np.maximum(load - waiting, 0.0)
            drawn.append(self._series("its own", "event", edges[:-1], own, node))
        width = int(edges[1] - edges[0])
        note = f"windows of {width / 1e6:g} ms; its own: without calls that wait for the nodes below"
        return self._strip(f"queue-{node}", "queue", "calls", drawn, node, note)

    def _node(self, page: Page, node: int) -> list[dict[str, Any]]:
        """What came to the origin and what it got done."""
        edges = self._edges(page, WINDOW_NS)
        inside, per_s = self.run.read.at(node).inside, 1e9 / np.diff(edges)
        arrivals, done = (
            np.diff(np.searchsorted(at, edges)) * per_s for at in (inside.begin_ns, inside.end_ns)
        )
        drawn = [
            self._series("completed", "rate", edges[:-1], done, node),
            self._series("arrived", "event", edges[:-1], arrivals),
        ]
        return [self._strip(f"throughput-{node}", "node", "calls/s", drawn, node)]

    def _resources(self, page: Page, node: int) -> list[dict[str, Any]]:
        """Metrics of the origin's host, those that a cause names first, and the same of other hosts."""
        metrics = self._of(node)
        named = list(dict.fromkeys(one.metric for one in page.found.mechanisms if one.metric in metrics))
        ranked = [one.metric for one in page.found.ranking]
        others = [name for name in dict.fromkeys([*ranked, *metrics]) if name in metrics]
        others = [name for name in others if name not in NOT_A_RESOURCE and name not in named]
        first, last = np.searchsorted(self.edges, (page.first_ns, page.last_ns))
        at = slice(max(int(first) - 1, 0), int(last) + 1)
        moving = [name for name in others if _moves(metrics[name][at])]
        made = []
        for group, names in (("named", named), ("other", moving[: MOST_RESOURCES - len(named)])):
            for name in names:
                metric = METRICS[name]
                drawn = [
                    self._metric(host, "elsewhere", values, at)
                    for host, values in self.logs.elsewhere(node, name).items()
                ]
                drawn.append(self._metric(self.run.node_names[node], "origin", metrics[name], at, node))
                strip = self._strip(f"metric-{name}", group, metric.unit, drawn, node)
                made.append(strip | {"title": metric.words, "protocol": ""})
        return made

    def _metric(self, label: str, role: str, values: Float, at: slice, node: int = -1) -> dict[str, Any]:
        begins, part = self.edges[:-1][at], values[at]
        together = -(-len(part) // (2 * MOST_WINDOWS))
        if together > 1:
            starts = np.arange(0, len(part), together)
            begins, part = begins[starts], np.fmax.reduceat(part, starts)
        return self._series(label, role, begins, part, node)

    def _of(self, node: int) -> dict[str, Float]:
        """Every metric that is known of a node, in the windows of the findings."""
        if node not in self._metrics:
            state = self.known.states[node]
            stalled = np.zeros(len(self.edges) - 1, dtype=np.bool_)
            stalled[np.searchsorted(self.edges, state.edges_ns[:-1])] = state.state == WindowState.STALLED
            seen = node_evidence(self.logs, self.run.read, self.loads, node, {"stalled": stalled})
            self._metrics[node] = seen.series
        return self._metrics[node]

    def _windows(self, page: Page) -> dict[str, Any] | None:
        """Load and throughput of the origin in the windows of the episode, in order of time."""
        if page.found.origin < 0:
            return None
        state, episode = self.known.states[page.found.origin], page.found.episode
        begin = episode.begin_ns - BEFORE * WINDOW_NS
        rows = np.flatnonzero((state.edges_ns[1:] > begin) & (state.edges_ns[:-1] < episode.end_ns))
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_WINDOWS)).astype(np.int64))]
        return {
            "at": encode.axis(state.edges_ns[:-1][rows], self.run.start_ns),
            "x": encode.column(state.load[rows], LOAD_SCALE),
            "y": encode.column(state.throughput[rows], RATE_SCALE),
            "kind": state.state[rows].tolist(),
        }


def _moves(values: Float) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 1 and float(known.max()) > float(known.min())
