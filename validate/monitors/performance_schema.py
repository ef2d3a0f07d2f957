"""MariaDB's and MySQL's performance_schema: rows of events_statements_history_long, tab-separated.

TIMER_START and TIMER_END are picoseconds of the server's own timer: UA and UD of every command, to the
nanosecond. When that timer was zero is not in the table; the export has it in a column of its own,
TIMER_ZERO_NS (`tapscope monitors export --log performance_schema` prints the statements that
make it). SQL_TEXT, and in it the comment with the request ID, is there for COM_QUERY only: a prepared
statement (statement/com/Execute) has none, and gets its ID from the application's statement log by
the connection, PROCESSLIST_ID. The table is a ring: what was overwritten before the export is not in it.
"""

from __future__ import annotations

import re

import numpy as np

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.columns import Rows, Stays, read_table
from tapscope.validate.monitors.lines import Format, LogFile
from tapscope.validate.monitors.mariadb import PRECISION_NS, STATEMENT, id_codes_of, over_network
from tapscope.validate.parsing import Parsed, completed, digits, of_each, whole
from tapscope.validate.texts import Texts

_TIER = TIERS.index("db")
_PS_PER_NS = 1_000
NEEDED = ("EVENT_NAME", "TIMER_START", "TIMER_END", "SQL_TEXT", "TIMER_ZERO_NS")


def _command(event: str) -> str:
    """What the other logs of the database call it: statement/sql/select and com/Execute are statements."""
    kind, _, name = event.removeprefix("statement/").partition("/")
    return STATEMENT if kind == "sql" or name in ("Execute", "Query") else name


def _nanoseconds(picoseconds: str) -> int:
    """Picoseconds since the server's start may be more than 64 bits hold."""
    return int(picoseconds) // _PS_PER_NS


def _from_picoseconds(texts: Texts) -> Parsed:
    """`_nanoseconds` of every text."""
    fits, values = digits(texts)
    return completed(texts, fits, values[fits] // _PS_PER_NS, _nanoseconds)


def read_statements(file: LogFile, collector: Collector) -> None:
    """Calls of the database tier."""
    host = collector.hosts.code(file.host)

    def take(rows: Rows) -> Stays:
        if "NESTING_EVENT_LEVEL" in rows.cells:
            outer = rows["NESTING_EVENT_LEVEL"].are("0") | rows["NESTING_EVENT_LEVEL"].are("NULL")
            # A statement inside a stored routine is no call of its own.
            collector.count("db.inner_statement", len(rows) - int(np.count_nonzero(outer)))
            rows = rows.where(outer)
        rows = over_network(rows, "PROCESSLIST_HOST", "localhost".__eq__, collector)
        ended = ~rows["TIMER_END"].are("0") & ~rows["TIMER_END"].are("NULL")
        collector.count("db.still_running", len(rows) - int(np.count_nonzero(ended)))
        rows = rows.where(ended)
        rows, (start, end, zero) = rows.parsed(
            ("TIMER_START", _from_picoseconds), ("TIMER_END", _from_picoseconds), ("TIMER_ZERO_NS", whole)
        )
        arrive, depart = start + zero, end + zero
        collector.add_rows(
            rows.line,
            tier=_TIER,
            host=host,
            source=rows.source,
            request_id=id_codes_of(rows["SQL_TEXT"], collector),
            arrive_ns=arrive,
            depart_ns=depart,
            precision_ns=(PRECISION_NS, PRECISION_NS),
            protocol=int(Protocol.MYSQL),
            command=of_each(lambda event: collector.commands.code(_command(event)), rows["EVENT_NAME"]),
            thread=rows.numbers("PROCESSLIST_ID"),
        )
        return rows.line, arrive, depart

    read_table(file, collector, STATEMENTS, NEEDED, take)


STATEMENTS = Format(
    name="performance_schema statements",
    tier="db",
    family=re.compile(r"events_statements(_history(_long)?)?\.tsv$"),
    recognise=lambda head: (
        {"EVENT_NAME", "TIMER_START", "TIMER_END"} <= set(head[0].split("\t")) if head else False
    ),
    read=read_statements,
    expected=f"tab-separated columns {', '.join(NEEDED)}",
)
