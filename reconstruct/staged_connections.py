"""Connections of transactions that were moved in time: given out anew, held as long as they were.

Connections of one worker process stay with it: a server that forks has a pool in each process, and giving
its connections to all makes the matcher's task another one, as it tells processes apart by them.
"""

from __future__ import annotations

import heapq
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tapscope.store.tables import Table

APART = 0.2
"""Connections that go together less often than this share of what chance has are of two processes."""
ENOUGH = 5.0
"""How often two must go together by chance to tell anything by themselves."""

Ints = NDArray[np.int64]


class GivenBack(IntEnum):
    """When the connection of a call was free for another parent's calls."""

    NEVER = 0
    AT_ITS_END = 1
    AT_THE_ANSWER = 2


def given_back(calls: Table, parent: Ints) -> NDArray[np.uint8]:
    """By call: its connection was not used again, or only when its parent had answered, or before."""
    order = np.lexsort((calls["arrive_ns"], calls["conn"], calls["server_node"], calls["client_node"]))
    row, after = order[:-1], order[1:]
    here = np.ones(len(row), dtype=bool)
    for name in ("conn", "server_node", "client_node"):
        here &= calls[name][row] == calls[name][after]
    answer = np.where(parent >= 0, calls["depart_ns"][parent], -1)
    held = (parent[row] != parent[after]) & (calls["arrive_ns"][after] >= answer[row])
    out = np.full(len(parent), GivenBack.NEVER, dtype=np.uint8)
    out[row[here]] = np.where(held, GivenBack.AT_THE_ANSWER, GivenBack.AT_ITS_END)[here]
    return out


def processes(calls: Table, parent: Ints, sure: NDArray[np.bool_]) -> Ints:
    """By call, int64: the worker processes at both ends of its connection, one number for each two of them.

    A connection that requests came on and one that their calls went out on are of one process of the server
    between them. `sure`, by call: its link tells; single wrong ones do not. Connections of few calls go with
    those that they go together with most.
    """
    client, server = calls["client_node"].astype(np.int64), calls["server_node"].astype(np.int64)
    nodes = int(max(client.max(initial=0), server.max(initial=0))) + 2  # -1: none
    key = (calls["conn"].astype(np.int64) * nodes + client) * nodes + server
    conn = np.unique(key, return_inverse=True)[1]
    count = int(conn.max()) + 1 if len(conn) else 0
    child = np.flatnonzero(sure & (parent >= 0))
    ahead, behind, node = conn[parent[child]], conn[child], client[child]
    pair, met = np.unique(ahead * count + behind, return_counts=True)
    ahead_of, behind_of = pair // count, pair % count
    node_of = np.zeros(count, dtype=np.int64)
    node_of[behind] = node
    links, of_ahead, of_behind = (np.bincount(x, minlength=count) for x in (node, ahead, behind))
    chance = of_ahead[ahead_of] * of_behind[behind_of] / links[node_of[behind_of]]
    # A connection has two ends: its server's, where it is ahead, and its client's, where it is behind.
    behind_of = count + behind_of
    tells = (chance >= ENOUGH) & (met >= APART * chance)
    label = np.full(2 * count, -1, dtype=np.int64)
    if tells.any():
        from scipy.sparse import coo_array  # small runs, which have nothing to tell, need not wait for it
        from scipy.sparse.csgraph import connected_components

        graph = coo_array((met[tells], (ahead_of[tells], behind_of[tells])), shape=(2 * count, 2 * count))
        told = np.unique(np.concatenate([ahead_of[tells], behind_of[tells]]))
        label[told] = connected_components(graph, directed=False)[1][told]
    voted = label.copy()
    for end, other in ((ahead_of, behind_of), (behind_of, ahead_of)):
        here = (label[end] < 0) & (label[other] >= 0)
        ballot, of_ballot = np.unique(np.stack([end[here], label[other[here]]]), axis=1, return_inverse=True)
        votes = np.bincount(of_ballot.reshape(-1), weights=met[here], minlength=ballot.shape[1])
        order = np.lexsort((votes, ballot[0]))  # of one end, most votes come last, and stay
        voted[ballot[0][order]] = ballot[1][order]
    return np.unique(voted[count:] * (2 * count) + voted[:count], return_inverse=True)[1][conn]


def connections(calls: Table, parent: Ints, play: Ints, back: NDArray[np.uint8], process: Ints) -> Ints:
    """Connections for calls that were moved: calls that followed each other for one parent on one connection
    still do, no connection has two calls at once, each is held as long as it was (`back`, of given_back) and
    stays with its `process`. One that is free is used before a new one is opened, the one that was given back
    first before others."""
    count = len(parent)
    end = np.where(calls["depart_ns"] < 0, calls["request_end_ns"], calls["depart_ns"])
    client, server = calls["client_node"].astype(np.int64), calls["server_node"].astype(np.int64)
    # Held: consecutive calls (by beginning) of one parent, to one node, on one connection.
    order = np.lexsort((calls["arrive_ns"], server, parent, play))
    follows = np.zeros(count, dtype=bool)
    for name in (parent, play, server, client, calls["conn"]):
        same = name[order[1:]] == name[order[:-1]]
        follows[1:] = same if name is parent else follows[1:] & same
    hold = np.cumsum(~follows) - 1
    holds = int(hold[-1]) + 1 if count else 0
    first = np.flatnonzero(~follows)
    begin = calls["arrive_ns"][order[first]]
    last = np.append(first[1:], count)[:holds] - 1
    until = np.maximum.reduceat(end[order], first) if holds else end[:0]
    above, kept = parent[order[last]], back[order[last]]
    answer = np.where(above >= 0, calls["depart_ns"][above], -1)
    until = np.where(kept == GivenBack.AT_THE_ANSWER, np.maximum(until, answer), until)
    at_first = order[first]
    ends = np.stack([client, server, process])[:, at_first]
    pool = np.unique(ends, axis=1, return_inverse=True)[1].reshape(-1)
    found = np.zeros(holds, dtype=np.int64)
    free: dict[int, list[tuple[int, int]]] = {}
    opened = 0
    for each in np.argsort(begin, kind="stable").tolist():
        waiting = free.setdefault(int(pool[each]), [])
        if waiting and waiting[0][0] < begin[each]:
            conn = heapq.heappop(waiting)[1]
        else:
            conn, opened = opened, opened + 1
        if kept[each] != GivenBack.NEVER:
            heapq.heappush(waiting, (int(until[each]), conn))
        found[each] = conn
    out = np.zeros(count, dtype=np.int64)
    out[order] = found[hold]
    return out
