"""nginx: access log (upstream arrival and departure).

One line per request, fields `name=value` in any order (docs/validating.md has the log_format):
id=$http_x_request_id end=$msec D=$request_time s=$status conn=$remote_addr:$remote_port. UD = end, UA = end
- D. nginx stamps with the time at which its event loop last woke up, in whole milliseconds; the line is
written after the last byte was handed to the network layer.
"""

from __future__ import annotations

import re
from functools import partial

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.columns import Rows, Stays, read_fields
from tapscope.validate.monitors.lines import Format, LogFile, UnreadableError, outside_quotes
from tapscope.validate.parsing import parsed

PRECISION_NS = 1_000_000
"""$msec is cut to whole milliseconds, $request_time is the difference of two such stamps."""

_ACCESS = re.compile(r"(?:^| )end=\d{10}\.\d{3}(?: |$)")
_SECONDS = re.compile(r"\d{1,10}\.\d{3}")
_NS_PER_MS = 1_000_000


def nanoseconds(text: str) -> int:
    """Seconds with three decimals, as nginx writes them; UnreadableError for anything else."""
    if _SECONDS.fullmatch(text) is None:
        raise UnreadableError
    return int(text.replace(".", "")) * _NS_PER_MS


def read_access(file: LogFile, collector: Collector) -> None:
    """Calls of the web tier."""
    host = collector.hosts.code(file.host)
    tier = TIERS.index("web")

    def take(rows: Rows) -> Stays:
        read = partial(parsed, parse=nanoseconds)
        rows, (depart, stay) = rows.parsed(("end", read), ("D", read))
        collector.add_rows(
            rows.line,
            tier=tier,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(rows["id"]),
            arrive_ns=depart - stay,
            depart_ns=depart,
            precision_ns=(PRECISION_NS, PRECISION_NS),
            protocol=int(Protocol.HTTP),
            client_port=rows.ports("conn"),
            status=rows.numbers("s"),
        )
        return rows.line, depart - stay, depart

    read_fields(file, collector, ACCESS, ("id", "end", "D", "s", "conn"), take)


ACCESS = Format(
    name="nginx access log",
    tier="web",
    family=re.compile(r"nginx\.log$"),
    recognise=lambda head: any(_ACCESS.search(outside_quotes(line)) for line in head),
    read=read_access,
    expected="an nginx access log line with end=<seconds>.<3 digits> and D=<seconds>.<3 digits>",
)
