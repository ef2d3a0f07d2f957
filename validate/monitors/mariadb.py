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
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.columns import Rows, Stays, local_stamps, read_table
from tapscope.validate.monitors.lines import LOCAL, Format, LogFile, UnreadableError
from tapscope.validate.parsing import Parsed, completed, of_each, of_form
from tapscope.validate.texts import Texts, next_of

PRECISION_NS = 1_000
STATEMENT = "Statement"
"""Command of a slow-log row: COM_QUERY or COM_STMT_EXECUTE, which the slow log does not tell apart."""

_COMMENT = re.compile(r"/\*\s*ID=([^*\s]+)\s*\*/", re.ASCII)
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


def durations(texts: Texts) -> Parsed:
    """`duration_ns` of every text."""
    fits, (hours, minutes, seconds, micro) = of_form("00:00:00.000000", texts)
    values = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + micro * 1_000
    return completed(texts, fits, values, duration_ns)


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


def id_codes_of(statements: Texts, collector: Collector) -> NDArray[np.int64]:
    """The codes of `request_id_of`. IDs in comments first, as the monitors write them: an ID may be
    bound that another statement has in its comment."""
    named, ids = _commented(statements)
    codes = np.full(len(statements), -1, dtype=np.int64)
    codes[named] = collector.id_codes(ids)
    rest = ~named & ((statements.first("ID=") >= 0) | statements.hold("'"))
    for place in np.flatnonzero(rest).tolist():
        codes[place] = collector.id_code(request_id_of(statements[place], collector))
    return codes


def _commented(statements: Texts) -> tuple[NDArray[np.bool_], Texts]:
    """Which statements have a comment /*ID=...*/ without blanks as the first that looks like one, and these
    IDs."""
    data, opening = statements.data, statements.first("/*ID=")
    begin = opening + len("/*ID=")
    end = next_of(np.flatnonzero(data == ord("*")), begin, len(data) - 1)
    blank = next_of(np.flatnonzero(data <= ord(" ")), begin, len(data))
    named = (opening >= 0) & (end > begin) & (end < blank) & (end + 1 < statements.end)
    named &= data[np.minimum(end + 1, len(data) - 1)] == ord("/")
    # One with blanks may stand in front of it.
    named &= opening + len("/*") == statements.first("ID=")
    return named, Texts(data, begin[named], end[named])


def over_network(rows: Rows, column: str, local: Callable[[str], bool], collector: Collector) -> Rows:
    """Rows without those of connections that no tap sees, which are counted; the column may be missing."""
    if column not in rows.cells:
        return rows
    seen = ~np.array(of_each(local, rows[column]), dtype=bool)
    collector.count("db.local_connection", len(rows) - int(np.count_nonzero(seen)))
    return rows.where(seen)


def _without_address(user_host: str) -> bool:
    return NO_ADDRESS.search(user_host) is not None


def _command(statement: str) -> str:
    administrator = ADMINISTRATOR.match(statement)
    return administrator[1] if administrator else STATEMENT


def _commands(statements: Texts, collector: Collector) -> NDArray[np.int64]:
    """Codes of `_command`."""
    codes = np.full(len(statements), collector.commands.code(STATEMENT), dtype=np.int64)
    for place in np.flatnonzero(statements.first("administrator") >= 0).tolist():
        codes[place] = collector.commands.code(_command(statements[place]))
    return codes


def read_slow(file: LogFile, collector: Collector) -> None:
    """Calls of the database tier from mysql.slow_log."""
    host = collector.hosts.code(file.host)

    def take(rows: Rows) -> Stays:
        rows = over_network(rows, "user_host", _without_address, collector)
        rows, (arrive, lasted) = rows.parsed(("start_time", local_stamps), ("query_time", durations))
        texts = rows["sql_text"]
        collector.add_rows(
            rows.line,
            tier=_TIER,
            host=host,
            source=rows.source,
            request_id=id_codes_of(texts, collector),
            arrive_ns=arrive,
            depart_ns=arrive + lasted,
            precision_ns=(PRECISION_NS, 2 * PRECISION_NS),
            protocol=int(Protocol.MYSQL),
            command=_commands(texts, collector),
            thread=rows.numbers("thread_id"),
        )
        return rows.line, arrive, arrive + lasted

    read_table(file, collector, SLOW, ("start_time", "query_time", "sql_text"), take, zone=LOCAL)


def read_general(file: LogFile, collector: Collector) -> None:
    """Arrivals of the database tier from mysql.general_log; it does not know departures."""
    host = collector.hosts.code(file.host)

    def take(rows: Rows) -> Stays:
        rows = over_network(rows, "user_host", _without_address, collector)
        rows, (arrive,) = rows.parsed(("event_time", local_stamps))
        collector.add_rows(
            rows.line,
            tier=_TIER,
            host=host,
            source=rows.source,
            request_id=id_codes_of(rows["argument"], collector),
            arrive_ns=arrive,
            depart_ns=-1,
            precision_ns=(PRECISION_NS, -1),
            protocol=int(Protocol.MYSQL),
            command=collector.command_codes(rows["command_type"]),
            thread=rows.numbers("thread_id"),
        )
        return rows.line, arrive, np.full(len(rows), -1, dtype=np.int64)

    read_table(file, collector, GENERAL, ("event_time", "command_type", "argument"), take, zone=LOCAL)


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
