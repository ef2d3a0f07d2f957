"""The load generator's own record: when it sent each request and had the whole response.

CSV with a header: request_id, start_ns, end_ns (nanoseconds since the epoch; end_ns -1: no response), others
ignored. It is no server's log, but the caller's side of the entry tier: what the wire shows lies between its
two times.
"""

from __future__ import annotations

import re

import numpy as np

from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.columns import Rows, Stays, read_table
from tapscope.validate.monitors.lines import Format, LogFile

_TIER = TIERS.index("web")


def read_requests(file: LogFile, collector: Collector) -> None:
    """Client's interval of every request that had a response; the others are counted."""
    host = collector.hosts.code(file.host)

    def take(rows: Rows) -> Stays:
        rows, (start, end) = rows.whole("start_ns", "end_ns")
        answered = end >= 0
        collector.count("client.unanswered", len(rows) - int(np.count_nonzero(answered)))
        rows, start, end = rows.where(answered), start[answered], end[answered]
        collector.mark_rows(
            MarkKind.CLIENT,
            tier=_TIER,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(rows["request_id"]),
            at_ns=start,
            until_ns=end,
        )
        return rows.line, start, end

    read_table(file, collector, REQUESTS, ("request_id", "start_ns", "end_ns"), take, separator=",")


REQUESTS = Format(
    name="client request file",
    tier="web",
    family=re.compile(r"(?!)"),  # many things are called requests.csv
    recognise=lambda head: {"request_id", "start_ns", "end_ns"} <= set(head[0].split(",")) if head else False,
    read=read_requests,
    expected="comma-separated columns request_id, start_ns, end_ns",
)
