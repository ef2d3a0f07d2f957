"""When each call was inside its node.

A stay is half open, [arrive_ns, depart_ns): first byte of the request to last byte of the response at the
tap.

Edge rules, each of them counted by `stays`:
* a call without an answer that was still open when the connection or the capture ended stays until the
  earliest of: the next call on its connection, the end of the connection, the end of the capture
  (`load.open_until_end`);
* a call whose response fell into a gap of the capture left at an unknown time and is not in the load, because
  counting it to the end would raise the queue for good (`load.lost_response_excluded`); it counts as an
  arrival;
* a call that departs before it arrives is not counted at all (`load.negative_stay_excluded`);
* nor is a call that arrives or departs days away from all others (`load.far_stamp_excluded`; `far_stamps`
  says what is far): windows would have to cover that time;
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
from tapscope.analyze.inside import Int
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
        begin, end = self.begin_ns[self.arrived], self.end_ns[self.arrived]
        return int(begin.min()), int(max(begin.max(), end.max()))


def stays(calls: Mapping[str, NDArray[Any]], connection_end_ns: Int | None = None) -> Stays:
    """Apply the edge rules of this module to a calls table.

    `connection_end_ns` (one per row of connections) sharpens the end of unanswered calls; -1 = not closed.
    """
    begin = np.asarray(calls["arrive_ns"], dtype=np.int64)
    end = np.array(calls["depart_ns"], dtype=np.int64)
    flags = calls["flags"]
    departed = end >= 0
    negative = (departed & (end < begin)) | (begin < 0)
    far, last = _far(begin, end, departed & ~negative, negative)
    lost = ~departed & ((flags & CallFlag.LOST_RESPONSE) != 0)
    counted = ~negative & ~far
    still_open = ~departed & ~lost & counted
    if still_open.any():
        rows = np.flatnonzero(still_open)
        close = _next_on_connection(calls["conn"], begin, rows)
        np.minimum(close, last, out=close)
        if connection_end_ns is not None and len(connection_end_ns):
            closed = connection_end_ns[calls["conn"][rows]]
            close = np.where(closed >= begin[rows], np.minimum(close, closed), close)
        end[rows] = close
    counters = [
        ("load.open_until_end", int(still_open.sum()), "calls"),
        ("load.lost_response_excluded", int((lost & counted).sum()), "calls"),
        ("load.negative_stay_excluded", int(negative.sum()), "calls"),
    ]
    if far.any():
        counters.append(("load.far_stamp_excluded", int(far.sum()), "calls"))
    return Stays(begin, end, counted, counted & ~lost, departed & counted, counters)


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


def _next_on_connection(conn: NDArray[Any], begin: Int, rows: Int) -> Int:
    """Arrival of the next call on the same connection, of calls in `rows`; the largest int64 without one.

    Only the calls on their connections are sorted: most calls are answered.
    """
    asked = np.zeros(int(conn.max()) + 1, dtype=np.bool_)
    asked[conn[rows]] = True
    these = np.flatnonzero(asked[conn])
    order = these[np.lexsort((begin[these], conn[these]))]
    following = np.full(len(order), np.iinfo(np.int64).max, dtype=np.int64)
    same = conn[order[1:]] == conn[order[:-1]]
    following[:-1][same] = begin[order[1:][same]]
    return following[np.argsort(order, kind="stable")][np.searchsorted(these, rows)]
