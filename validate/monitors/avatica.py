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
from tapscope.validate.monitors.columns import Rows, Stays, read_table
from tapscope.validate.monitors.lines import Format, LogFile
from tapscope.validate.monitors.tomcat import read_intervals

_NS_PER_US = 1_000
_TIER = TIERS.index("middle")


def read_calls(file: LogFile, collector: Collector) -> None:
    """Calls of the middleware."""
    host = collector.hosts.code(file.host)

    def take(rows: Rows) -> Stays:
        rows, (begin, end) = rows.whole("ua_us", "ud_us")
        arrive, depart = begin * _NS_PER_US, end * _NS_PER_US
        collector.add_rows(
            rows.line,
            tier=_TIER,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(rows["request_id"]),
            arrive_ns=arrive,
            depart_ns=depart,
            precision_ns=(_NS_PER_US, _NS_PER_US),
            protocol=int(Protocol.AVATICA),
            command=collector.command_codes(rows["rpc"]),
        )
        return rows.line, arrive, depart

    read_table(file, collector, CALLS, ("request_id", "ua_us", "ud_us", "rpc"), take)


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
