"""Figures per tier: queue length from the load series, response times and links from the calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapscope.report.run import Run, Tier
from tapscope.store.codes import LinkKind


@dataclass(frozen=True)
class TierFigures:
    """One line of the tier table. Times in ns (NaN: no call ended), queue lengths in calls, shares 0..1."""

    tier: Tier
    throughput_per_s: float
    queue_mean: float
    queue_max: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float
    root: float
    linked: float
    unknown: float


def figures(run: Run) -> list[TierFigures]:
    """Figures of every tier, in order from the entry down."""
    queues = _queues(run)
    seconds = max((run.end_ns - run.start_ns) / 1e9, 1e-9)
    calls = run.calls
    found = []
    for tier in run.tiers:
        mine = (calls["server_node"] == tier.node) & (calls["protocol"] == tier.protocol)
        ended = mine & (calls["depart_ns"] >= 0)
        stay = (calls["depart_ns"] - calls["arrive_ns"])[ended]
        kind = run.links["kind"][mine]
        p50, p95, p99 = np.percentile(stay, (50, 95, 99)) if len(stay) else (np.nan, np.nan, np.nan)
        mean, highest = queues.get(tier.node, (float("nan"), 0))
        found.append(
            TierFigures(
                tier=tier,
                throughput_per_s=len(stay) / seconds,
                queue_mean=mean,
                queue_max=highest,
                mean_ns=float(stay.mean()) if len(stay) else float("nan"),
                p50_ns=float(p50),
                p95_ns=float(p95),
                p99_ns=float(p99),
                max_ns=float(stay.max()) if len(stay) else float("nan"),
                root=float(np.mean(kind == LinkKind.ROOT)) if len(kind) else 0.0,
                linked=float(np.mean(kind == LinkKind.LINKED)) if len(kind) else 0.0,
                unknown=float(np.mean(kind == LinkKind.UNKNOWN)) if len(kind) else 0.0,
            )
        )
    return found


def _queues(run: Run) -> dict[int, tuple[float, int]]:
    """Time-weighted mean and highest queue length of each node over all of its windows."""
    rows = run.file.sql("SELECT node, sum(load * width_ns) / sum(width_ns), max(max) FROM load GROUP BY node")
    return {int(node): (float(mean), int(highest)) for node, mean, highest in rows}
