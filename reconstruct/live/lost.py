"""Calls that the tap lost whole, as they become known, and the rows that stand for them (assumed.py).

What `unseen.missing` asks of the messages before is kept per connection: they have left. A lost call is told
of when its message leaves, or before, where what it began with would otherwise be decided by then."""

from __future__ import annotations

from dataclasses import replace
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct import unseen
from tapscope.reconstruct.assumed import LONGEST_NS, Stays, rows_of
from tapscope.reconstruct.unseen import Unseen
from tapscope.store.codes import Direction, MessageFlag, MessageKind
from tapscope.store.tables import TABLES, Table, empty

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER_NS = -int(np.iinfo(np.int64).max)
KEPT_BYTES = 1 << 24
"""What was found of lost calls is kept in memory up to here, then in a file."""

_STATE = ("begin_ns", "end_ns", "asked_ns", "cut", "orphan_ns", "told")


def began(lost: Unseen) -> Ids:
    """When each of these may have begun, so far as it is asked."""
    return np.where(lost.answer_ns < 0, lost.after_ns, lost.answer_ns - LONGEST_NS)


class LostCalls:
    """The calls that are missing, each told of once."""

    def __init__(self) -> None:
        self._conns: Ids = np.zeros(0, dtype=np.int64)
        self._state = {name: np.zeros(0, dtype=np.int64) for name in _STATE}
        """By connection, of the messages that have left: begin and end of the last one; begin of the last
        request, and whether it was cut; begin of the last response without a request; and if one told of a
        loss. (They need not leave in their order.)"""
        self._told: Ids = np.zeros(0, dtype=np.int64)

    def find(
        self,
        connections: Table,
        conns: Ids,
        messages: Table,
        numbers: Ids,
        leaving: Flags,
        frontier_ns: int,
        *,
        finished: bool,
    ) -> Unseen:
        """What is due, with rows of the whole capture. `conns`, `numbers`: those of the rows of `connections`
        and `messages`, of which some are `leaving`. `finished`: nothing more will come."""
        lossy = (connections["missing_to_server"] > 0) | (connections["missing_to_client"] > 0)
        out = Unseen.none()
        if lossy.any():
            earlier = self._earlier(conns, lossy)
            first = len(earlier["conn"])
            both = {name: np.concatenate([values, messages[name]]) for name, values in earlier.items()}
            lost = unseen.missing(connections, both)
            silent = lost.message < 0
            at = np.maximum(lost.message - first, 0)
            number = numbers[at] if len(numbers) else at
            due = began(lost) < frontier_ns
            due |= leaving[at] if len(leaving) else silent
            due &= (lost.message >= first) & ~np.isin(number, self._told)
            self._told = np.concatenate([self._told, number[due]])
            number = np.where(silent, -1, number)
            if finished:  # no message will tell of these any more
                due |= silent & ~np.isin(conns[lost.conn], self._conns[self._state["told"] > 0])
            out = replace(lost, conn=conns[lost.conn], message=number).only(due)
        self._told = self._told[~np.isin(self._told, numbers[leaving])]
        self._remember(conns, {name: values[leaving] for name, values in messages.items()})
        return out

    def forget_connections(self, kept: Ids) -> None:
        """Connections that are not among these will have no messages any more."""
        stay = np.isin(self._conns, kept)
        self._conns = self._conns[stay]
        self._state = {name: values[stay] for name, values in self._state.items()}

    def _earlier(self, conns: Ids, lossy: Flags) -> Table:
        """Stands for the messages that have left of the connections that lost something (conn: rows of
        `connections`)."""
        place = np.searchsorted(conns, self._conns)
        place[place == len(conns)] = 0
        here = np.flatnonzero((conns[place] == self._conns) & lossy[place])
        state = {name: values[here] for name, values in self._state.items()}
        nobody = [state[name] == NEVER_NS for name in ("asked_ns", "orphan_ns", "begin_ns")]
        begin = np.concatenate([state[name] for name in ("asked_ns", "orphan_ns", "begin_ns")])
        kept = np.flatnonzero(~np.concatenate(nobody))
        which = kept // max(len(here), 1)  # the last request, the last such response, the last message
        of = kept % max(len(here), 1)
        out = {name: np.zeros(len(kept), dtype=values.dtype) for name, values in empty("messages").items()}
        out["conn"][:] = place[here][of]
        out["begin_ns"][:] = begin[kept]
        out["end_ns"][:] = np.where(which == 2, state["end_ns"][of], begin[kept])
        out["request"][:] = -1
        kinds = (MessageKind.REQUEST, MessageKind.RESPONSE, MessageKind.ONE_WAY)
        out["kind"][:] = np.array(kinds)[which]
        out["direction"][:] = np.where(which == 0, Direction.TO_SERVER, Direction.TO_CLIENT)
        cut = (which == 0) & (state["cut"][of] > 0)
        out["flags"][:] = np.where(cut, np.uint32(MessageFlag.TRUNCATED), np.uint32(0))
        return out

    def _remember(self, conns: Ids, left: Table) -> None:
        """What the messages that have left say of those that come."""
        conn = conns[left["conn"]] if len(conns) else left["conn"].astype(np.int64)
        order = np.lexsort((left["begin_ns"], conn))
        conn = conn[order]
        begin, end, flags = (left[name][order] for name in ("begin_ns", "end_ns", "flags"))
        asked = left["direction"][order] == Direction.TO_SERVER
        orphan = (left["kind"][order] == MessageKind.RESPONSE) & (left["request"][order] < 0)
        known, place = np.unique(np.concatenate([self._conns, conn]), return_inverse=True)
        state = {name: np.full(len(known), NEVER_NS, dtype=np.int64) for name in _STATE}
        state["told"][:] = state["cut"][:] = 0
        for name in _STATE:
            state[name][place[: len(self._conns)]] = self._state[name]
        of = place[len(self._conns) :]

        def latest(name: str, where: Flags) -> Ids:
            """The last of these of each connection, unless a later one has left before."""
            rows = np.flatnonzero(where)
            rows = rows[np.append(conn[rows[1:]] != conn[rows[:-1]], True)[: len(rows)]]
            rows = rows[begin[rows] >= state[name][of[rows]]]
            state[name][of[rows]] = begin[rows]
            return rows

        rows = latest("begin_ns", np.ones(len(conn), dtype=np.bool_))
        state["end_ns"][of[rows]] = end[rows]
        rows = latest("asked_ns", asked)
        state["cut"][of[rows]] = (flags[rows] & MessageFlag.TRUNCATED) != 0
        latest("orphan_ns", orphan)
        state["told"][of[orphan | ((flags & unseen.BEHIND_LOSS) != 0)]] = 1
        self._conns, self._state = known, state


class Answers:
    """What was found of lost calls, kept in files that go with the process when it is much."""

    _KEY = np.dtype([("conn", np.int64), ("answer_ns", np.int64)])
    _LINK = np.dtype([(c.name, c.dtype) for c in TABLES["links"] if c.name != "kind"])

    def __init__(self) -> None:
        self._keys, self._links = (SpooledTemporaryFile(KEPT_BYTES) for _ in range(2))  # noqa: SIM115
        self._count = 0

    def number(self, lost: Unseen) -> Ids:
        """Numbers of these calls, from 0 on."""
        _write(self._keys, self._KEY, {"conn": lost.conn, "answer_ns": lost.answer_ns})
        self._count += len(lost)
        return np.arange(self._count - len(lost), self._count)

    def add(self, links: Table) -> None:
        """Links of lost calls; `child` is their number. Other rows that were not seen are UNSEEN."""
        _write(self._links, self._LINK, links)

    def of(self, lost: Unseen) -> tuple[Ids, Table]:
        """Which of the `lost` ones have a link, and the links of those."""
        keys, links = _read(self._keys, self._KEY), _read(self._links, self._LINK)
        made = keys[links["child"]]
        place = {key: row for row, key in enumerate(made.tolist())}
        wanted = zip(lost.conn.tolist(), lost.answer_ns.tolist(), strict=True)
        row = np.array([place.get(key, -1) for key in wanted], dtype=np.int64)
        return np.flatnonzero(row >= 0), {
            name: links[name][row[row >= 0]] for name in links.dtype.names or ()
        }


def _write(file: IO[bytes], dtype: np.dtype[np.void], columns: Table) -> None:
    records = np.zeros(len(next(iter(columns.values()))), dtype=dtype)
    for name in dtype.names or ():
        records[name] = columns[name]
    file.write(records.tobytes())


def _read(file: IO[bytes], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    file.seek(0)
    return np.frombuffer(file.read(), dtype=dtype)


class Waiting:
    """Rows for lost calls, until their time has come."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._lost = Unseen.none()
        self._rows = self._rows_of(self._lost, {})
        self._frontier_ns = NEVER_NS

    def take(self, lost: Unseen, stays: dict[int, Stays], frontier_ns: int) -> tuple[Table, Flags, Flags]:
        """More `lost` calls. Returns rows of calls, with their number and when they were over at the latest
        (over_ns; -1 not known), and which of them are parents, and which children, that began before the
        frontier and not before the last one."""
        lost = Unseen.joined([self._lost, lost])
        # By then it is known how long calls stayed before.
        begun = began(lost) < frontier_ns
        self._lost = lost.only(~begun)
        more = self._rows_of(lost.only(begun), stays)
        rows = {name: np.concatenate([values, more[name]]) for name, values in self._rows.items()}
        early, late = rows["arrive_ns"], rows["request_end_ns"]
        parents = (early >= self._frontier_ns) & (early < frontier_ns)
        children = (late >= self._frontier_ns) & (late < frontier_ns) & (rows["client_node"] >= 0)
        self._rows = {name: values[late >= frontier_ns] for name, values in rows.items()}
        self._frontier_ns = frontier_ns
        now = parents | children
        return {name: values[now] for name, values in rows.items()}, parents[now], children[now]

    def _rows_of(self, lost: Unseen, stays: dict[int, Stays]) -> Table:
        over = np.where(lost.answer_ns < 0, lost.before_ns, -1)
        rows = rows_of(lost, stays)
        early = np.maximum(rows["arrive_ns"], began(lost))  # what lies before that is decided
        return rows | {"arrive_ns": early, "number": self._answers.number(lost), "over_ns": over}


UNSEEN = 2**62
"""Stands for a row of a call that was not seen."""
