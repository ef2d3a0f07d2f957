"""The rule of the same thread (vPath 2.2, 2.3): a call was made for the request that its thread answers next.

Given are calls with both of their sides: who sent the request on the node that called, and on the node that
was called who received the request and who sent the answer. A thread that answers a request does all that
belongs to it, and nothing for another one meanwhile. Another thread may have received the request
(dispatcher and worker): then it begins, for the thread that answers it, when the one before was answered.

The rule says nothing about servers that are driven by events, where one thread goes back and forth between
requests. They give themselves away: two requests that a thread has received itself are open at the same time,
or it sends something else while it waits for an answer. Such calls get no parent, and a process that does it
more than now and then is refused altogether.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads.log import ThreadLogs, Way

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

REFUSED_SHARE = 0.01
"""A process is refused when so many of its calls could belong to several requests."""

STRANGERS_SHARE = 0.2
"""... or when so many were sent by threads that answer nobody while the process had requests to answer."""


class Why(IntEnum):
    """What is known about the parent of a call."""

    LINKED = 0
    NOT_LOGGED = 1  # the call's sender is in no log
    OWN = 2  # made by a process that had no request then, or by a thread that answers nobody
    BETWEEN = 3  # its thread answers requests, but had none then
    AMBIGUOUS = 4  # its thread had several requests at once
    REFUSED = 5  # its process was refused


@dataclass
class Sides:
    """Calls as both of their sides logged them; one row per call, all int64, -1 not known.

    sent_thread, sent_ns, answered_ns : the caller's thread, begin of its send, and end of the receive that
        brought the first byte of the answer
    connection : row of the logs' connections at the server's side
    receive_thread, got_first_ns, got_last_ns : who received the request; end of the receive that brought its
        first and its last byte
    reply_thread, replied_ns : who sent the first byte of the answer; end of the send with the last byte
    """

    sent_thread: Ints
    sent_ns: Ints
    answered_ns: Ints
    connection: Ints
    receive_thread: Ints
    got_first_ns: Ints
    got_last_ns: Ints
    reply_thread: Ints
    replied_ns: Ints

    def __len__(self) -> int:
        return len(self.sent_thread)


@dataclass
class Parents:
    """Row of the parent of every call (-1 none) and why (Why); refused: what is to be said about processes
    whose calls got none."""

    parent: Ints
    why: Ints
    refused: list[str]
    counters: dict[str, int]


def find(sides: Sides, logs: ThreadLogs) -> Parents:
    """Parent of every call by the rule of the same thread."""
    count = len(sides)
    parent = np.full(count, -1, dtype=np.int64)
    why = np.full(count, int(Why.NOT_LOGGED), dtype=np.int64)
    made = np.flatnonzero(sides.sent_thread >= 0)
    served = np.flatnonzero((sides.reply_thread >= 0) & (sides.replied_ns >= 0) & (sides.got_last_ns >= 0))
    begin_ns = _turns(sides, served)
    child_thread, child_ns = sides.sent_thread[made], sides.sent_ns[made]
    away = _interleaving(sides, made, logs)

    line = _Line([sides.reply_thread[served], child_thread], [begin_ns, sides.replied_ns[served], child_ns])

    # The request that the thread answers next.
    by_reply = np.argsort(line.place(sides.reply_thread[served], sides.replied_ns[served]), kind="stable")
    place = line.place(sides.reply_thread[served], sides.replied_ns[served])[by_reply]
    at = np.searchsorted(place, line.place(child_thread, child_ns), side="left")
    candidate = np.full(len(made), -1, dtype=np.int64)
    inside = at < len(place)
    candidate[inside] = served[by_reply[at[inside]]]
    good = candidate >= 0
    good[good] = sides.reply_thread[candidate[good]] == child_thread[good]
    good[good] &= sides.got_first_ns[candidate[good]] <= child_ns[good]

    # How many requests that it holds for sure does the thread have at this moment?
    mixed = np.isin(sides.reply_thread[served], np.unique(child_thread[away]))
    own = (sides.receive_thread[served] == sides.reply_thread[served]) | mixed
    opened = np.sort(line.place(sides.reply_thread[served[own]], begin_ns[own]))
    closed = np.sort(line.place(sides.reply_thread[served[own]], sides.replied_ns[served[own]]))
    now = line.place(child_thread, child_ns)
    held = np.searchsorted(opened, now, side="right") - np.searchsorted(closed, now, side="left")

    why[made] = np.where(good, int(Why.LINKED), int(Why.BETWEEN))
    why[made[good & (held > 1)]] = int(Why.AMBIGUOUS)
    answers = np.isin(child_thread, sides.reply_thread[served])
    busy = _busy(sides, served, made)
    why[made[~good & (~answers | ~busy)]] = int(Why.OWN)
    stranger = ~answers & busy
    refused = _refuse(sides, made, why, stranger, away, logs)
    linked = made[why[made] == Why.LINKED]
    chosen = np.full(count, -1, dtype=np.int64)
    chosen[made] = candidate
    parent[linked] = chosen[linked]
    names = {
        Why.NOT_LOGGED: "calls_without_log",
        Why.OWN: "own_calls",
        Why.BETWEEN: "calls_between_requests",
        Why.AMBIGUOUS: "ambiguous_calls",
        Why.REFUSED: "refused_calls",
    }
    counters = {f"threads.{name}": int((why == reason).sum()) for reason, name in names.items()}
    counters["threads.interleaved_calls"] = int(away.sum())
    return Parents(parent, why, refused, counters)


class _Line:
    """(thread, time) as one number, so that a binary search finds both together.

    Threads are numbered, and times count from the first. Where that does not fit into one int64 (a million
    threads in a day), times are numbered as well.
    """

    def __init__(self, threads: list[Ints], times: list[Ints]) -> None:
        self._threads = np.unique(np.concatenate(threads))
        every = np.concatenate(times)
        self._first = int(every.min()) if len(every) else 0
        self._span = int(every.max()) - self._first + 1 if len(every) else 1
        self._times = None
        if len(self._threads) * self._span > np.iinfo(np.int64).max // 2:
            self._times = np.unique(every)
            self._span = len(self._times)

    def place(self, thread: Ints, at_ns: Ints) -> Ints:
        """Numbers in the order of thread and time; all of them must be among those given before."""
        at = at_ns - self._first if self._times is None else np.searchsorted(self._times, at_ns)
        return np.searchsorted(self._threads, thread) * np.int64(self._span) + at


def _turns(sides: Sides, served: Ints) -> Ints:
    """When each request can begin: it was received, and the one before it on its connection was answered (of
    two that came in one piece, the second waits)."""
    order = np.lexsort((sides.replied_ns[served], sides.connection[served]))
    rows = served[order]
    begin = sides.got_last_ns[rows].copy()
    same = sides.connection[rows[1:]] == sides.connection[rows[:-1]]
    begin[1:][same] = np.maximum(begin[1:][same], sides.replied_ns[rows[:-1]][same])
    out = np.empty(len(served), dtype=np.int64)
    out[order] = begin
    return out


def _interleaving(sides: Sides, made: Ints, logs: ThreadLogs) -> Bools:
    """Per call made: did its thread send over another connection before the first byte of the answer came?"""
    events = logs.events
    sends = np.flatnonzero(events["way"] == Way.SENT)
    sends = sends[np.lexsort((events["begin_ns"][sends], events["thread"][sends]))]
    thread, conn = events["thread"][sends], events["connection"][sends]
    at_ns = events["begin_ns"][sends]
    if not len(sends) or not len(made):
        return np.zeros(len(made), dtype=bool)
    # By send: the next one of the same thread over another connection.
    border = np.flatnonzero((thread[1:] != thread[:-1]) | (conn[1:] != conn[:-1])) + 1
    following = np.searchsorted(border, np.arange(len(sends)), side="right")
    next_row = np.append(border, len(sends))[following]
    known = next_row < len(sends)
    next_row = np.minimum(next_row, len(sends) - 1)
    next_ns = np.where(known & (thread[next_row] == thread), at_ns[next_row], np.iinfo(np.int64).max)
    times = sides.sent_ns[made]
    line = _Line([thread, sides.sent_thread[made]], [at_ns, times])
    own = np.isin(sides.sent_thread[made], thread)
    at = (
        np.searchsorted(line.place(thread, at_ns), line.place(sides.sent_thread[made], times), side="right")
        - 1
    )
    return np.asarray(own & (next_ns[np.maximum(at, 0)] < sides.answered_ns[made]))


def _busy(sides: Sides, served: Ints, made: Ints) -> Bools:
    """Per call made: had its process a request to answer?"""
    process = sides.reply_thread[served] >> 32
    line = _Line(
        [process, sides.sent_thread[made] >> 32],
        [sides.got_first_ns[served], sides.replied_ns[served], sides.sent_ns[made]],
    )
    opened = np.sort(line.place(process, sides.got_first_ns[served]))
    closed = np.sort(line.place(process, sides.replied_ns[served]))
    now = line.place(sides.sent_thread[made] >> 32, sides.sent_ns[made])
    inside = np.searchsorted(opened, now, side="right") - np.searchsorted(closed, now, side="left")
    return np.asarray(inside > 0)


def _refuse(sides: Sides, made: Ints, why: Ints, stranger: Bools, away: Bools, logs: ThreadLogs) -> list[str]:
    """Marks the calls of processes that break the rule too often; one sentence for each."""
    process = sides.sent_thread[made] >> 32
    size = len(logs.processes)
    calls = np.bincount(process, minlength=size)
    unclear = np.bincount(process[why[made] == Why.AMBIGUOUS], minlength=size)
    strange = np.bincount(process[stranger], minlength=size)
    crossed = np.bincount(process[away], minlength=size)
    said = []
    for number in np.flatnonzero(calls).tolist():
        told = f"{logs.processes[number].title()}: of {calls[number]} calls that it made, "
        if unclear[number] > REFUSED_SHARE * calls[number]:
            told += (
                f"{unclear[number]} were made by a thread that had several requests at once "
                f"({crossed[number]} while it waited for another answer): it is driven by events, and "
                "threads do not tell which request a call was for"
            )
        elif strange[number] > STRANGERS_SHARE * calls[number]:
            told += (
                f"{strange[number]} were sent by threads that answer nobody while it had requests: one "
                "thread begins what another one ends, and threads do not tell which request a call was for"
            )
        else:
            continue
        why[made[process == number]] = int(Why.REFUSED)
        said.append(told)
    return said
