"""Calls that the tap lost whole, as rows for the matcher.

Of a call whose request was lost, the answer is mostly there: who made it is then as good a question as of any
other call, and so is what was made for it. Without such a row, what was made for it goes to somebody who
happens to be there, and the next step of its maker seems to come late. So the rows are matched with the
others. No link to one of them is made afterwards: the parent of what was made for it is unknown.

An assumed call is known by its request, which is none (-1). When it began is not known: not before
`arrive_ns`, not behind `request_end_ns`. Where it is a parent the kernel is told the former, so that all it
made lies inside; where it is a child the latter, so that it overlaps nothing that it came behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.unseen import Unseen
from tapscope.store.codes import LinkKind
from tapscope.store.tables import TABLES, Table

LONGEST_NS = 2_000_000_000
"""So long before its answer a lost call began at most, where nothing else is known, and while a capture is
followed: what is decided then lies further back. How long calls stay is told by those before that."""

LATEST, EVERY, FEW = 1000, 100, 100
"""So many calls of a node tell how long they stay, from every so many on again; no fewer tell it."""

SHORTEST = 0.1
"""Quantile of their stays: a lost call stayed at least so long, and at most as long as the longest."""

CLASS = -2
"""That of all assumed calls: no row of classes."""

DOUBT = 0.01
"""Probability that a call was made by somebody else, up to which it is not asked who that may be."""

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Stays:
    """How long the answered calls of a node stayed, in order of arrival."""

    def __init__(self) -> None:
        self._first = 0
        self._arrive: Ints = np.zeros(0, dtype=np.int64)
        self._stay: Ints = np.zeros(0, dtype=np.int64)

    def add(self, calls: Table, rows: Ints) -> None:
        """More of them, in order of arrival."""
        rows = rows[calls["response_begin_ns"][rows] >= 0]
        arrive = calls["arrive_ns"][rows]
        self._arrive = np.concatenate([self._arrive, arrive])
        self._stay = np.concatenate([self._stay, calls["response_begin_ns"][rows] - arrive])

    def forget(self, before_ns: int) -> None:
        """Nobody will ask what was known before an earlier time."""
        at = int(np.searchsorted(self._arrive, before_ns)) - LATEST - EVERY
        if at > LATEST:
            self._first += at
            self._arrive, self._stay = self._arrive[at:], self._stay[at:]

    def known(self, at_ns: Ints) -> tuple[Ints, Ints]:
        """How long a call stays at least and at most, by those that had arrived at each of these times."""
        count = (self._first + np.searchsorted(self._arrive, at_ns)) // EVERY * EVERY
        shortest, longest = np.zeros(len(at_ns), dtype=np.int64), np.full(len(at_ns), LONGEST_NS)
        for upto in np.unique(count[count >= FEW]).tolist():
            stay = self._stay[max(upto - LATEST - self._first, 0) : upto - self._first]
            shortest[count == upto] = int(np.quantile(stay, SHORTEST))
            longest[count == upto] = int(stay.max())
        return shortest, longest


def rows_of(lost: Unseen, stays: dict[int, Stays]) -> Table:
    """Rows of `calls` for lost ones whose nodes are known. `stays`: by node.

    The response is left out, too: while the capture is followed its contents are forgotten before."""
    answered = lost.answer_ns >= 0
    shortest, longest = np.zeros((2, len(lost)), dtype=np.int64)
    for node in np.unique(lost.server_node[answered]).tolist():
        here = answered & (lost.server_node == node)
        known = stays.get(node, Stays())
        shortest[here], longest[here] = known.known(lost.answer_ns[here] - LONGEST_NS)
    early = np.maximum(np.where(answered, lost.answer_ns - longest, lost.after_ns), lost.after_ns)
    late = np.maximum(np.where(answered, lost.answer_ns - shortest, lost.after_ns), lost.after_ns)
    nothing = np.full(len(lost), -1)
    columns = {
        "conn": lost.conn,
        "request": nothing,
        "response": nothing,
        # Nothing tells when one was made of which the answer was lost, too.
        "client_node": np.where(answered, lost.client_node, -1),
        "server_node": lost.server_node,
        "protocol": lost.protocol,
        "class_id": np.full(len(lost), CLASS),
        "arrive_ns": early,
        "request_end_ns": late,
        "response_begin_ns": lost.answer_ns,
        "depart_ns": np.where(answered, lost.before_ns, -1),
        "status": nothing,
        "flags": np.zeros(len(lost)),
        "tcp_seq": np.zeros(len(lost)),
        "response_bytes": lost.answer_bytes,
        "gone_ns": nothing,
    }
    return {each.name: columns[each.name].astype(each.dtype) for each in TABLES["calls"]}


@dataclass(frozen=True)
class Assumed:
    """What `links` takes, with rows of lost calls behind those of the calls that were seen.

    lost : all that are missing; which : those of them that have a row; calls, gone_ns : see `links`;
    seen : how many were seen."""

    lost: Unseen
    which: Ints
    calls: Table
    gone_ns: Ints
    seen: int

    @classmethod
    def behind(cls, calls: Table, gone_ns: Ints, lost: Unseen) -> Assumed:
        """Rows for the `lost` ones behind `calls` (in order of arrival), of which each was over at `gone_ns`
        at the latest (unseen.gone_by)."""
        known = (lost.client_node >= 0) & np.isin(lost.server_node, calls["server_node"])
        which = np.flatnonzero(known)
        mine = lost.only(which)
        stays: dict[int, Stays] = {}
        for node in np.unique(mine.server_node).tolist():
            stays[node] = Stays()
            stays[node].add(calls, np.flatnonzero(calls["server_node"] == node))
        more = rows_of(mine, stays)
        both = {name: np.concatenate([values, more[name]]) for name, values in calls.items()}
        over = np.where(mine.answer_ns < 0, mine.before_ns, -1)
        return cls(lost, which, both, np.concatenate([gone_ns, over]), len(gone_ns))

    def makers(self, links: Table) -> tuple[Flags, Flags]:
        """See `makers`, of the `links` with all rows."""
        mine = {name: values[self.seen :] for name, values in links.items()}
        return makers(len(self.lost), self.which, mine, self.seen)

    def without(self, links: Table) -> Table:
        """Links of the calls that were seen, without the others: whose parent was lost has an unknown one."""
        out = {name: values[: self.seen].copy() for name, values in links.items()}
        forget(out, self.seen)
        return out


def makers(lost: int, which: Ints, links: Table, seen: int) -> tuple[Flags, Flags]:
    """Of the calls that were seen, those that made a lost one as far as can be told, and whether that is all
    there is to say of each of the `lost` ones: hardly anybody else made it. `links`: those of `which` of the
    lost ones; rows from `seen` on were not seen, either."""
    made_one = np.zeros(seen, dtype=np.bool_)
    told = np.zeros(lost, dtype=np.bool_)
    linked = links["parent"] >= 0
    sure = links["probability"]
    doubted = linked & (sure < 1.0 - DOUBT)
    for rows in (links["parent"][linked], links["runner_up"][doubted]):
        made_one[rows[(rows >= 0) & (rows < seen)]] = True
    second = np.where(links["runner_up"] >= 0, links["runner_up_probability"], 0.0)
    told[which] = linked & (sure + second >= 1.0 - DOUBT)
    return made_one, told


def forget(links: Table, seen: int) -> None:
    """Take links to rows from `seen` on back."""
    no = links["parent"] >= seen
    links["parent"][no] = -1
    links["kind"][no] = LinkKind.UNKNOWN
    no = links["runner_up"] >= seen
    links["runner_up"][no] = -1
    links["runner_up_probability"][no] = 0.0
