"""Calls as byte ranges of two streams, to who sent and received them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.reconstruct.threads.log import ThreadLogs, Way
from tapscope.reconstruct.threads.parents import Sides
from tapscope.reconstruct.threads.streams import Streams

Ints = NDArray[np.int64]


@dataclass
class Ranges:
    """Calls on their streams; one row per call, all int64, -1 not known.

    at_client, at_server : rows of the logs' connections, one for each side
    request, answer : offset of the first byte; request_last, answer_last : of the last byte
    """

    at_client: Ints
    at_server: Ints
    request: Ints
    request_last: Ints
    answer: Ints
    answer_last: Ints


def sides(ranges: Ranges, logs: ThreadLogs) -> Sides:
    """Threads and times of both sides of every call. Receives count from their end: before, the bytes were
    not there (vPath 3.3 takes the thread's next call for it; the recorder notes the end itself)."""
    streams = Streams(logs)
    events = logs.events

    def value(rows: Ints, name: str) -> Ints:
        if not len(events[name]):
            return np.full(len(rows), -1, dtype=np.int64)
        return np.where(rows >= 0, events[name][rows], -1)

    def either(first: Ints, second: Ints) -> Ints:
        return np.where(first >= 0, first, second)

    asked = streams.event(ranges.at_client, Way.SENT, ranges.request)
    answered = streams.event(ranges.at_client, Way.RECEIVED, ranges.answer)
    got = streams.event(ranges.at_server, Way.RECEIVED, ranges.request)
    got_last = streams.event(ranges.at_server, Way.RECEIVED, ranges.request_last)
    replied = streams.event(ranges.at_server, Way.SENT, ranges.answer)
    replied_last = streams.event(ranges.at_server, Way.SENT, ranges.answer_last)
    return Sides(
        sent_thread=value(asked, "thread"),
        sent_ns=value(asked, "begin_ns"),
        answered_ns=value(answered, "end_ns"),
        connection=ranges.at_server,
        receive_thread=value(either(got_last, got), "thread"),
        got_first_ns=value(either(got, got_last), "end_ns"),
        got_last_ns=value(either(got_last, got), "end_ns"),
        reply_thread=value(replied, "thread"),
        replied_ns=value(either(replied_last, replied), "end_ns"),
    )
