"""Apache Avatica: the log of our agent around the server's service, one row per remote call.

rpc.tsv, tab-separated with a header: request_id, ua_us, ud_us, connection, rpc, ds_us, dr_us. UA and UD are
when the HTTP server began and ended to serve the call (without our MonitoredServer: when the service had the
decoded request and gave the response back); ds_us and dr_us begin of the first and end of the last JDBC call
that it made for it (-1: none). connection is Avatica's name of the connection. The statements that it sends
downstream stand in a statements.tsv like the application's, with a column rpc more.
"""

from __future__ import annotations

import re

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.lines import Format, LogFile, Stay, UnreadableError, header, read_lines
from tapscope.validate.monitors.tomcat import read_intervals

_NS_PER_US = 1_000
_TIER = TIERS.index("middle")


def read_calls(file: LogFile, collector: Collector) -> None:
    """Calls of the middleware."""
    host = collector.hosts.code(file.host)
    needed = ("request_id", "ua_us", "ud_us", "rpc")
    columns = header(file, needed, CALLS.expected)
    id_at, begin_at, end_at, rpc_at = (columns[name] for name in needed)

    def parse(source: int, number: int, text: str) -> Stay:
        cells = text.split("\t")
        if len(cells) != len(columns):
            raise UnreadableError
        try:
            begin, end = int(cells[begin_at]) * _NS_PER_US, int(cells[end_at]) * _NS_PER_US
        except ValueError:
            raise UnreadableError from None
        collector.add(
            tier=_TIER,
            host=host,
            source=source,
            line=number,
            request_id=cells[id_at],
            arrive_ns=begin,
            depart_ns=end,
            precision_ns=(_NS_PER_US, _NS_PER_US),
            protocol=Protocol.AVATICA,
            command=cells[rpc_at],
        )
        return begin, end

    read_lines(file, collector, CALLS, parse, skip=1)


def read_statements(file: LogFile, collector: Collector) -> None:
    """When the middleware sent each statement to the database and had its answer."""
    read_intervals(file, collector, STATEMENTS, ("ds_us", "dr_us"), MarkKind.STATEMENT)


CALLS = Format(
    name="Avatica agent log",
    tier="middle",
    family=re.compile(r"rpc\.tsv$"),
    recognise=lambda head: {"ua_us", "ud_us", "rpc"} <= set(head[0].split("\t")) if head else False,
    read=read_calls,
    expected="tab-separated columns request_id, ua_us, ud_us, rpc",
)
STATEMENTS = Format(
    name="Avatica agent statement log",
    tier="middle",
    family=re.compile(r"(?!)"),  # the application's has the same name
    recognise=lambda head: {"ds_us", "dr_us", "rpc"} <= set(head[0].split("\t")) if head else False,
    read=read_statements,
    expected="tab-separated columns request_id, ds_us, dr_us, rpc",
)
