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

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.lines import (
    Format,
    LogFile,
    Stay,
    UnreadableError,
    header,
    number_or_none,
    read_lines,
)
from tapscope.validate.monitors.mariadb import PRECISION_NS, STATEMENT, request_id_of

_TIER = TIERS.index("db")
_PS_PER_NS = 1_000
NEEDED = ("EVENT_NAME", "TIMER_START", "TIMER_END", "SQL_TEXT", "TIMER_ZERO_NS")


def _command(event: str) -> str:
    """What the other logs of the database call it: statement/sql/select and com/Execute are statements."""
    kind, _, name = event.removeprefix("statement/").partition("/")
    return STATEMENT if kind == "sql" or name in ("Execute", "Query") else name


def read_statements(file: LogFile, collector: Collector) -> None:
    """Calls of the database tier."""
    host = collector.hosts.code(file.host)
    columns = header(file, NEEDED, STATEMENTS.expected)
    name_at, start_at, end_at, text_at, zero_at = (columns[name] for name in NEEDED)
    thread_at, level_at, from_at = (
        columns.get(name) for name in ("PROCESSLIST_ID", "NESTING_EVENT_LEVEL", "PROCESSLIST_HOST")
    )

    def parse(source: int, number: int, text: str) -> Stay | None:
        cells = text.split("\t")
        if len(cells) != len(columns):
            raise UnreadableError
        if level_at is not None and cells[level_at] not in ("0", "NULL"):
            collector.count("db.inner_statement")  # of a stored routine: no call of its own
            return None
        if from_at is not None and cells[from_at] == "localhost":
            collector.count("db.local_connection")
            return None
        if cells[end_at] in ("0", "NULL"):
            collector.count("db.still_running")
            return None
        try:
            start, end = (int(cells[at]) // _PS_PER_NS + int(cells[zero_at]) for at in (start_at, end_at))
        except ValueError:
            raise UnreadableError from None
        collector.add(
            tier=_TIER,
            host=host,
            source=source,
            line=number,
            request_id=request_id_of(cells[text_at], collector),
            arrive_ns=start,
            depart_ns=end,
            precision_ns=(PRECISION_NS, PRECISION_NS),
            protocol=Protocol.MYSQL,
            command=_command(cells[name_at]),
            thread=-1 if thread_at is None else number_or_none(cells[thread_at]),
        )
        return start, end

    read_lines(file, collector, STATEMENTS, parse, skip=1)


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
