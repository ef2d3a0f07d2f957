"""nginx: access log (upstream arrival and departure).

One line per request, fields `name=value` in any order (docs/validation.md has the log_format):
id=$http_x_request_id end=$msec D=$request_time s=$status conn=$remote_addr:$remote_port. UD = end, UA = end
- D. nginx stamps with the time at which its event loop last woke up, in whole milliseconds; the line is
written after the last byte was handed to the network layer.
"""

from __future__ import annotations

import re

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.lines import (
    Format,
    LogFile,
    Stay,
    UnreadableError,
    number_or_none,
    outside_quotes,
    read_lines,
)

PRECISION_NS = 1_000_000
"""$msec is cut to whole milliseconds, $request_time is the difference of two such stamps."""

_FIELD = re.compile(r"(?:^| )(id|end|D|s|conn)=(\S*)")
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

    def parse(source: int, number: int, text: str) -> Stay:
        fields = dict(_FIELD.findall(outside_quotes(text)))
        depart = nanoseconds(fields.get("end", ""))
        arrive = depart - nanoseconds(fields.get("D", ""))
        collector.add(
            tier=tier,
            host=host,
            source=source,
            line=number,
            request_id=fields.get("id", "-"),
            arrive_ns=arrive,
            depart_ns=depart,
            precision_ns=(PRECISION_NS, PRECISION_NS),
            protocol=Protocol.HTTP,
            client_port=number_or_none(fields.get("conn", "").rpartition(":")[2]),
            status=number_or_none(fields.get("s", "-")),
        )
        return arrive, depart

    read_lines(file, collector, ACCESS, parse)


ACCESS = Format(
    name="nginx access log",
    tier="web",
    family=re.compile(r"nginx\.log$"),
    recognise=lambda head: any(_ACCESS.search(outside_quotes(line)) for line in head),
    read=read_access,
    expected="an nginx access log line with end=<seconds>.<3 digits> and D=<seconds>.<3 digits>",
)
