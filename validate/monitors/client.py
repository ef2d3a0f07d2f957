"""The load generator's own record: when it sent each request and had the whole response.

CSV with a header: request_id, start_ns, end_ns (nanoseconds since the epoch; end_ns -1: no response), others
ignored. It is no server's log, but the caller's side of the entry tier: what the wire shows lies between its
two times.
"""

from __future__ import annotations

import csv
import re

from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.lines import Format, LogFile, Stay, UnreadableError, header, read_lines

_TIER = TIERS.index("web")


def read_requests(file: LogFile, collector: Collector) -> None:
    """Client's interval of every request that had a response; the others are counted."""
    host = collector.hosts.code(file.host)
    columns = header(file, ("request_id", "start_ns", "end_ns"), REQUESTS.expected, separator=",")
    id_at, start_at, end_at = (columns[name] for name in ("request_id", "start_ns", "end_ns"))

    def parse(source: int, number: int, text: str) -> Stay | None:
        cells = next(csv.reader([text]))
        if len(cells) != len(columns):
            raise UnreadableError
        try:
            start, end = int(cells[start_at]), int(cells[end_at])
        except ValueError:
            raise UnreadableError from None
        if end < 0:
            collector.count("client.unanswered")
            return None
        collector.mark(
            MarkKind.CLIENT,
            tier=_TIER,
            host=host,
            source=source,
            request_id=cells[id_at],
            at_ns=start,
            until_ns=end,
        )
        return start, end

    read_lines(file, collector, REQUESTS, parse, skip=1)


REQUESTS = Format(
    name="client request file",
    tier="web",
    family=re.compile(r"(?!)"),  # many things are called requests.csv
    recognise=lambda head: {"request_id", "start_ns", "end_ns"} <= set(head[0].split(",")) if head else False,
    read=read_requests,
    expected="comma-separated columns request_id, start_ns, end_ns",
)
