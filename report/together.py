"""What else was inside a node during the slowest call that a finding hit there, and what each of it asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapscope.analyze.response_time import concurrent
from tapscope.report.episodes import Page
from tapscope.report.run import Run

OTHERS = 12
STATEMENTS = 4


@dataclass(frozen=True)
class Other:
    """A concurrent call: its row, response time (ns; -1 without an answer), how many calls it made, and the
    longest of them as (class, response time in ns)."""

    row: int
    took_ns: int
    made: int
    statements: list[tuple[int, int]]


@dataclass(frozen=True)
class Together:
    """The slow call, its response time, how many others were inside with it, and those longest with it."""

    row: int
    took_ns: int
    total: int
    others: list[Other]


def together(run: Run, page: Page) -> Together | None:
    """Concurrent calls of the slowest one of the page's transactions at the node where the queue began (else
    at the entry); None when they have none there."""
    calls = run.calls
    node = page.found.origin if page.found.origin >= 0 else page.found.episode.entry
    members = run.calls_of(page.hits)
    members = members[(calls["server_node"][members] == node) & (calls["depart_ns"][members] >= 0)]
    if not len(members):
        return None
    took = calls["depart_ns"][members] - calls["arrive_ns"][members]
    row, longest = int(members[np.argmax(took)]), int(took.max())
    rows = concurrent(calls, row)
    begin, end = calls["arrive_ns"][rows], calls["depart_ns"][rows]
    end = np.where(end < 0, np.iinfo(np.int64).max, end)
    both = np.minimum(end, calls["depart_ns"][row]) - np.maximum(begin, calls["arrive_ns"][row])
    chosen = np.sort(np.argsort(-both, kind="stable")[:OTHERS])
    return Together(row, longest, len(rows), [_other(run, int(other)) for other in rows[chosen]])


def _other(run: Run, row: int) -> Other:
    calls = run.calls
    made = run.children(row)
    took = np.where(calls["depart_ns"][made] >= 0, calls["depart_ns"][made] - calls["arrive_ns"][made], -1)
    longest = np.argsort(-took, kind="stable")[:STATEMENTS]
    depart = int(calls["depart_ns"][row])
    return Other(
        row,
        depart - int(calls["arrive_ns"][row]) if depart >= 0 else -1,
        len(made),
        [(int(calls["class_id"][made[i]]), int(took[i])) for i in longest],
    )
