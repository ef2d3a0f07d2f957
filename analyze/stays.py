"""When each call was inside its node.

A stay is half open, [arrive_ns, depart_ns): first byte of the request to last byte of the response at the
tap.

Edge rules, each of them counted by `stays`:
* a call without an answer that was still open when the connection or the capture ended stays until the
  earliest of: its client gives it up, the next call on its connection, the end of the connection, the end of
  the capture (`load.open_until_end`). The next call tells nothing where calls go side by side on the
  connection, and nothing in span tables, whose connections are made up (one for each pair of services);
* a call whose response fell into a gap of the capture left at an unknown time and is not in the load, because
  counting it to the end would raise the queue for good (`load.lost_response_excluded`); it counts as an
  arrival;
* a call that departs before it arrives is not counted at all (`load.negative_stay_excluded`);
* nor is a call that arrives or departs days away from all others (`load.far_stamp_excluded`; `far_stamps`
  says what is far): windows would have to cover that time;
* the nodes of span tables have a clock each (`one_clock`): there the others, and the end of the capture, are
  those of the same node;
* calls that arrived before the capture began are unknown to the tap: in the first moments, up to the longest
  response time, the load is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.far_stamps import HOUR_NS, PAUSE_HOURS, near
from tapscope.analyze.inside import Int, distinct
from tapscope.reconstruct.unseen import side_by_side
from tapscope.store.codes import CallFlag


@dataclass(frozen=True)
class Stays:
    """When each call was inside its node. Arrays have the length of `calls`; times int64 ns."""

    begin_ns: Int
    end_ns: Int
    arrived: NDArray[np.bool_]  # counts as an arrival
    inside: NDArray[np.bool_]  # counts in the load
    departed: NDArray[np.bool_]  # its departure was seen
    counters: list[tuple[str, int, str]]

    @property
    def span_ns(self) -> tuple[int, int]:
        """From the first arrival to the last event of the calls that count; there must be one."""
        return self.span_of(self.arrived)

    def span_of(self, chosen: NDArray[np.bool_]) -> tuple[int, int]:
        """The same of these calls alone."""
        begin, end = self.begin_ns[chosen], self.end_ns[chosen]
        return int(begin.min()), int(max(begin.max(), end.max()))


def stays(calls: Mapping[str, NDArray[Any]], connections: Mapping[str, NDArray[Any]] | None = None) -> Stays:
    """Apply the edge rules of this module to a calls table.

    Of `connections`, closed_ns (-1 = not closed), protocol and server_port tell when unanswered calls were
    over, and whose clock tells the times.
    """
    begin = np.asarray(calls["arrive_ns"], dtype=np.int64)
    end = np.array(calls["depart_ns"], dtype=np.int64)
    flags = calls["flags"]
    departed = end >= 0
    negative = (departed & (end < begin)) | (begin < 0)
    far, last = _far_by_clock(calls, connections, begin, end, negative)
    lost = ~departed & ((flags & CallFlag.LOST_RESPONSE) != 0)
    counted = ~negative & ~far
    still_open = ~departed & ~lost & counted
    if still_open.any():
        rows = np.flatnonzero(still_open)
        known = _known(connections, int(calls["conn"].max()) + 1)
        close = _next_on_connection(calls, known, rows)
        np.minimum(close, last[rows], out=close)
        for over in (known["closed_ns"][calls["conn"][rows]], calls["gone_ns"][rows]):
            close = np.where(over >= begin[rows], np.minimum(close, over), close)
        end[rows] = close
    counters = [
        ("load.open_until_end", int(still_open.sum()), "calls"),
        ("load.lost_response_excluded", int((lost & counted).sum()), "calls"),
        ("load.negative_stay_excluded", int(negative.sum()), "calls"),
    ]
    if far.any():
        counters.append(("load.far_stamp_excluded", int(far.sum()), "calls"))
    return Stays(begin, end, counted, counted & ~lost, departed & counted, counters)


def _far_by_clock(
    calls: Mapping[str, NDArray[Any]],
    connections: Mapping[str, NDArray[Any]] | None,
    begin: Int,
    end: Int,
    negative: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], Int]:
    """`_far` of the calls of each clock; the last event is told for every call."""
    departed = (end >= 0) & ~negative
    if one_clock(connections):
        far, latest = _far(begin, end, departed, negative)
        return far, np.broadcast_to(np.int64(latest), len(begin))
    far, last = np.zeros(len(begin), dtype=np.bool_), np.zeros(len(begin), dtype=np.int64)
    for node in distinct(calls["server_node"]).tolist():
        rows = np.flatnonzero(calls["server_node"] == node)
        far[rows], last[rows] = _far(begin[rows], end[rows], departed[rows], negative[rows])
    return far, last


def _far(
    begin: Int, end: Int, departed: NDArray[np.bool_], negative: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], int]:
    """Which calls lie far away from the others, and when the last event of those that do not was."""
    none, last = np.zeros(len(begin), dtype=np.bool_), int(max(begin.max(initial=-1), end.max(initial=-1)))
    if negative.all() or last - int(begin.min()) <= PAUSE_HOURS * HOUR_NS:
        return none, last
    first, nearest = near(np.concatenate([begin[~negative], end[departed]]))
    far = (~negative & ((begin < first) | (begin > nearest))) | (departed & (end > nearest))
    return (far, nearest) if far.any() else (none, last)


def made_up(connections: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Connections that stand for a pair of services in a span table: they have no port."""
    made: NDArray[np.bool_] = connections["server_port"] == 0
    return made


def one_clock(connections: Mapping[str, NDArray[Any]] | None) -> bool:
    """Whether all times are one clock's: a tap's are; in span tables each node has its own."""
    return connections is None or not len(connections["closed_ns"]) or not bool(made_up(connections).all())


def _known(connections: Mapping[str, NDArray[Any]] | None, count: int) -> Mapping[str, NDArray[Any]]:
    """What `stays` asks of connections; where nothing is known, all are open and have one call at a time."""
    if connections is not None and len(connections["closed_ns"]):
        return connections
    nothing = np.zeros(count, dtype=np.int64)
    return {"closed_ns": nothing - 1, "protocol": nothing, "server_port": nothing + 1}


def _next_on_connection(
    calls: Mapping[str, NDArray[Any]], connections: Mapping[str, NDArray[Any]], rows: Int
) -> Int:
    """Arrival of the next call on the same connection, of calls in `rows`; the largest int64 without one, and
    where it does not tell that the one before is over.

    Only the calls on their connections are sorted: most calls are answered.
    """
    conn, begin = calls["conn"], calls["arrive_ns"]
    asked = np.zeros(len(connections["closed_ns"]), dtype=np.bool_)
    asked[conn[rows]] = True
    asked &= ~made_up(connections)
    these = np.flatnonzero(asked[conn])
    on_these = {name: calls[name][these] for name in ("conn", "arrive_ns", "depart_ns")}
    one_by_one = ~side_by_side(on_these, dict(connections))
    order = these[np.lexsort((begin[these], conn[these]))]
    following = np.full(len(conn), np.iinfo(np.int64).max, dtype=np.int64)
    same = (conn[order[1:]] == conn[order[:-1]]) & one_by_one[conn[order[:-1]]]
    following[order[:-1][same]] = begin[order[1:][same]]
    return following[rows]
