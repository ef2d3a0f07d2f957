"""MariaDB: rows of mysql.slow_log (arrival and departure) or of mysql.general_log (arrival only),
tab-separated.

Export with a header line, as `mariadb --batch -e "SELECT * FROM mysql.slow_log"` does. With long_query_time=0
the slow log holds every COM_QUERY and COM_STMT_EXECUTE: UA = start_time, UD = start_time + query_time, both
in microseconds. Other commands (Prepare, Ping, Quit ...) are not in it, or only as "administrator command:
NAME". thread_id is the connection id of the handshake. The request ID stands in a comment /*ID=...*/ or is a
bound string. Rows of connections without an address came over the server's local socket, which no tap sees:
counted, left out. start_time and event_time are in the session's time zone, which the log does not name.
"""

from __future__ import annotations

import re

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.lines import (
    LOCAL,
    Format,
    LogFile,
    Stay,
    UnreadableError,
    header,
    local_ns,
    number_or_none,
    read_lines,
)

PRECISION_NS = 1_000
STATEMENT = "Statement"
"""Command of a slow-log row: COM_QUERY or COM_STMT_EXECUTE, which the slow log does not tell apart."""

_COMMENT = re.compile(r"/\*\s*ID=([^*\s]+)\s*\*/")
_QUOTED = re.compile(r"'([^'\\]{1,128})'")
ADMINISTRATOR = re.compile(r"#? ?administrator command: (\w+)")
_DURATION = re.compile(r"(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?$")
NO_ADDRESS = re.compile(r"\[\s*\]\s*$")
_TIER = TIERS.index("db")


def duration_ns(text: str) -> int:
    """Nanoseconds of 'hh:mm:ss.ffffff'; UnreadableError if it is not that."""
    match = _DURATION.match(text)
    if match is None:
        raise UnreadableError
    hours, minutes, seconds = (int(part) for part in match.groups()[:3])
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + int(
        (match[4] or "0").ljust(6, "0")
    ) * 1_000


def request_id_of(statement: str, collector: Collector) -> str:
    """ID in a comment, else the bound string that is a request ID of another tier's log; '' if none."""
    comment = _COMMENT.search(statement)
    if comment is not None:
        return comment[1]
    if "'" in statement:
        for value in _QUOTED.findall(statement):
            if collector.request_ids.knows(value):
                return str(value)
    return ""


def read_slow(file: LogFile, collector: Collector) -> None:
    """Calls of the database tier from mysql.slow_log."""
    host = collector.hosts.code(file.host)
    columns = header(file, ("start_time", "query_time", "sql_text"), SLOW.expected)
    start_at, time_at, text_at = (columns[name] for name in ("start_time", "query_time", "sql_text"))
    thread_at, user_at = columns.get("thread_id"), columns.get("user_host")

    def parse(source: int, number: int, text: str) -> Stay | None:
        cells = text.split("\t")
        if len(cells) != len(columns):
            raise UnreadableError
        if user_at is not None and NO_ADDRESS.search(cells[user_at]):
            collector.count("db.local_connection")
            return None
        arrive = local_ns(cells[start_at])
        depart = arrive + duration_ns(cells[time_at])
        administrator = ADMINISTRATOR.match(cells[text_at])
        collector.add(
            tier=_TIER,
            host=host,
            source=source,
            line=number,
            request_id=request_id_of(cells[text_at], collector),
            arrive_ns=arrive,
            depart_ns=depart,
            precision_ns=(PRECISION_NS, 2 * PRECISION_NS),
            protocol=Protocol.MYSQL,
            command=administrator[1] if administrator else STATEMENT,
            thread=-1 if thread_at is None else number_or_none(cells[thread_at]),
        )
        return arrive, depart

    read_lines(file, collector, SLOW, parse, zone=LOCAL, skip=1)


def read_general(file: LogFile, collector: Collector) -> None:
    """Arrivals of the database tier from mysql.general_log; it does not know departures."""
    host = collector.hosts.code(file.host)
    columns = header(file, ("event_time", "command_type", "argument"), GENERAL.expected)
    time_at, command_at, text_at = (columns[name] for name in ("event_time", "command_type", "argument"))
    thread_at, user_at = columns.get("thread_id"), columns.get("user_host")

    def parse(source: int, number: int, text: str) -> Stay | None:
        cells = text.split("\t")
        if len(cells) != len(columns):
            raise UnreadableError
        if user_at is not None and NO_ADDRESS.search(cells[user_at]):
            collector.count("db.local_connection")
            return None
        arrive = local_ns(cells[time_at])
        collector.add(
            tier=_TIER,
            host=host,
            source=source,
            line=number,
            request_id=request_id_of(cells[text_at], collector),
            arrive_ns=arrive,
            depart_ns=-1,
            precision_ns=(PRECISION_NS, -1),
            protocol=Protocol.MYSQL,
            command=cells[command_at],
            thread=-1 if thread_at is None else number_or_none(cells[thread_at]),
        )
        return arrive, -1

    read_lines(file, collector, GENERAL, parse, zone=LOCAL, skip=1)


SLOW = Format(
    name="mariadb slow log table",
    tier="db",
    family=re.compile(r"slow_?log\.tsv$"),
    recognise=lambda head: {"start_time", "query_time"} <= set(head[0].split("\t")) if head else False,
    read=read_slow,
    expected="tab-separated columns start_time, query_time, sql_text of mysql.slow_log",
)
GENERAL = Format(
    name="mariadb general log table",
    tier="db",
    family=re.compile(r"general_?log\.tsv$"),
    recognise=lambda head: {"event_time", "command_type"} <= set(head[0].split("\t")) if head else False,
    read=read_general,
    expected="tab-separated columns event_time, command_type, argument of mysql.general_log",
)
