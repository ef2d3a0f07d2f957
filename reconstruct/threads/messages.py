"""Calls from thread logs alone, without a capture: what goes one way without anything going the other way
in between is one message (vPath 3.3, merging of consecutive sends and receives), and an answer follows a
request.

Several requests that are sent before the first answer come out as one; only what is on the wire could part
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads.log import How, ThreadLogs, Way
from tapscope.reconstruct.threads.sides import Ranges
from tapscope.reconstruct.threads.streams import is_server, nearest

Ints = NDArray[np.int64]


@dataclass
class LoggedCalls:
    """Calls that thread logs hold, in order of time.

    ranges : on their streams; begin_ns, end_ns : first byte of the request and last byte of the answer (-1
        none) by the side that `seen_at` (row of the logs' connections) stands for: the server's where it is
        logged, else the caller's
    doubtful_at, doubtful_ns : of calls that were left out because bytes around them are in no record, the row
        of the logs' connections, and the times (begin, end) in which there may have been any number of calls
    """

    ranges: Ranges
    seen_at: Ints
    begin_ns: Ints
    end_ns: Ints
    doubtful_at: Ints
    doubtful_ns: tuple[Ints, Ints]
    counters: dict[str, int]


def pair_connections(logs: ThreadLogs) -> tuple[Ints, Ints]:
    """(at_client, at_server): one row per TCP connection, -1 for a side that is in no log."""
    table = logs.connections
    serving = is_server(logs)
    ends = list(
        zip(*(table[name].tolist() for name in ("own", "own_port", "peer", "peer_port")), strict=True)
    )
    callers: dict[tuple[int, ...], list[int]] = {}
    for row in np.flatnonzero(~serving).tolist():
        callers.setdefault(ends[row], []).append(row)
    at_client, at_server = [], []
    taken = set()
    for row in np.flatnonzero(serving).tolist():
        own, own_port, peer, peer_port = ends[row]
        candidates = [c for c in callers.get((peer, peer_port, own, own_port), []) if c not in taken]
        end_ns = int(table["end_ns"][row])
        end_ns = end_ns if end_ns >= 0 else np.iinfo(np.int64).max
        caller = nearest(int(table["begin_ns"][row]), end_ns, candidates, logs)
        taken.add(caller)
        at_client.append(caller)
        at_server.append(row)
    alone = [row for row in np.flatnonzero(~serving).tolist() if row not in taken]
    return np.array(at_client + alone, dtype=np.int64), np.array(
        at_server + [-1] * len(alone), dtype=np.int64
    )


@dataclass
class _Runs:
    """Messages: what went one way on a connection without anything going the other way in between.

    pair : which connection; to_server : direction; low, high : first and last byte; begin_ns, end_ns; whole :
        no byte is missing since the message before it in this direction; to_the_end : nor behind it, if it is
        the last one
    """

    pair: Ints
    to_server: NDArray[np.bool_]
    low: Ints
    high: Ints
    begin_ns: Ints
    end_ns: Ints
    whole: NDArray[np.bool_]
    to_the_end: NDArray[np.bool_]


def calls(logs: ThreadLogs) -> LoggedCalls:
    """The calls of all connections of the logs, but for those next to which records are missing."""
    at_client, at_server = pair_connections(logs)
    seen_at = np.where(at_server >= 0, at_server, at_client)
    runs = _runs(logs, seen_at, at_server >= 0)
    count = len(runs.pair)
    asks = np.flatnonzero(runs.to_server)  # what a server says before it is asked is no answer
    following = np.minimum(asks + 1, max(count - 1, 0))
    answered = (asks + 1 < count) & (runs.pair[following] == runs.pair[asks])
    # Where bytes are missing a whole message may be, and its neighbours have run together: a request that is
    # not whole makes the call before it doubtful as well, because that one's answer may hold another's.
    sound = runs.whole[asks] & runs.to_the_end[asks] & (runs.whole[following] | ~answered)
    same = runs.pair[asks[1:]] == runs.pair[asks[:-1]]
    sound[:-1] &= runs.whole[asks[1:]] | ~same
    chosen = asks[sound]
    chosen = chosen[np.argsort(runs.begin_ns[chosen], kind="stable")]
    answer = np.where(answered, following, -1)[np.searchsorted(asks, chosen)]

    def of_answer(values: Ints) -> Ints:
        return np.where(answer >= 0, values[answer], -1)

    which = runs.pair[chosen]
    ranges = Ranges(
        at_client[which],
        at_server[which],
        runs.low[chosen],
        runs.high[chosen],
        of_answer(runs.low),
        of_answer(runs.high),
    )
    both = int(((at_client >= 0) & (at_server >= 0)).sum())
    counters = {
        "threads.connections_logged_at_both_ends": both,
        "threads.connections_logged_at_one_end": len(at_client) - both,
        "threads.calls_next_to_lost_records": int((~sound).sum()),
        "threads.unanswered_requests": int((answer < 0).sum()),
    }
    unsound = asks[~sound]
    return LoggedCalls(
        ranges,
        seen_at[which],
        runs.begin_ns[chosen],
        of_answer(runs.end_ns),
        seen_at[runs.pair[unsound]],
        _around(runs, unsound),
        counters,
    )


def _around(runs: _Runs, asks: Ints) -> tuple[Ints, Ints]:
    """From the message before each of these requests until the one after its answer."""
    last = max(len(runs.pair) - 1, 0)
    before, after = np.maximum(asks - 1, 0), np.minimum(asks + 2, last)
    begin = np.where(runs.pair[before] == runs.pair[asks], runs.end_ns[before], runs.begin_ns[asks])
    answer = np.minimum(asks + 1, last)
    end = np.where(runs.pair[answer] == runs.pair[asks], runs.end_ns[answer], runs.end_ns[asks])
    return begin, np.where(runs.pair[after] == runs.pair[asks], runs.begin_ns[after], end)


def _runs(logs: ThreadLogs, seen_at: Ints, at_its_server: NDArray[np.bool_]) -> _Runs:
    """Messages of the connections, as the side `seen_at` of each logged them."""
    pair_of = np.full(len(logs.connections["own"]), -1, dtype=np.int64)
    pair_of[seen_at] = np.arange(len(seen_at))
    events = logs.events
    rows = np.flatnonzero(pair_of[events["connection"]] >= 0)
    pair = pair_of[events["connection"][rows]]
    received = events["way"][rows] == Way.RECEIVED
    moment = np.where(received, events["end_ns"][rows], events["begin_ns"][rows])
    order = np.lexsort((moment, pair))
    rows, pair, moment = rows[order], pair[order], moment[order]
    to_server = np.where(at_its_server[pair], received[order], ~received[order])
    border = np.ones(len(rows), dtype=bool)
    border[1:] = (pair[1:] != pair[:-1]) | (to_server[1:] != to_server[:-1])
    first = np.flatnonzero(border)
    if not len(first):
        none = np.empty(0, dtype=np.int64)
        return _Runs(none, none.astype(bool), none, none, none, none, none.astype(bool), none.astype(bool))
    last = np.append(first[1:], len(rows)) - 1
    begin, size = events["offset"][rows], events["bytes"][rows]
    low, end = np.minimum.reduceat(begin, first), np.maximum.reduceat(begin + size, first)
    whole = end - low == np.add.reduceat(size, first)
    by_stream = np.argsort(pair[first] * 2 + to_server[first], kind="stable")
    before, after = by_stream[:-1], by_stream[1:]
    same = (pair[first[after]] == pair[first[before]]) & (to_server[first[after]] == to_server[first[before]])
    whole[after] &= ~same | (low[after] == end[before])
    # The first message begins with the first byte, unless the process came to the connection later.
    leads = np.append(True, ~same)
    table, side = logs.connections, seen_at[pair[first]]
    whole[by_stream[leads]] &= ((low == 0) | (table["how"][side] == How.FOUND))[by_stream[leads]]
    # Behind the last message nothing is missing.
    taken = np.where(
        to_server[first] == at_its_server[pair[first]], table["received"][side], table["sent"][side]
    )
    ends = by_stream[np.append(~same, True)]
    to_the_end = np.ones(len(first), dtype=bool)
    to_the_end[ends] = (taken[ends] < 0) | (taken[ends] == end[ends])
    return _Runs(pair[first], to_server[first], low, end - 1, moment[first], moment[last], whole, to_the_end)
