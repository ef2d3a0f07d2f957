"""C-JDBC's controller: the request log of its virtual database, arrivals to the millisecond.

log4j.properties sets `org.objectweb.cjdbc.controller.virtualdatabase.request` to INFO with an appender of its
own; its shipped layout `%d{ABSOLUTE} %c{1} %m%n` has the time of day only: `22:54:28,934 rubbos S 0 SELECT
...`; `%d %-5p %c{3} %m%n` has the date and a level. The letter is the command: S select, W write, C stored
procedure, U unknown; B, C and R without a statement begin, commit and roll back a transaction. Numbers before
the SQL text are the controller's request and transaction numbers. The controller logs a request when a worker
takes it up, and no departure. The request ID is the comment at the end of the statement (in front it would
make a SELECT a write).

A day without a date is that of the file's last change; stamps that jump back by half a day and more are past
midnight. The zone is settled as for every log without one (zones.settle_zones), by whole days too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.books import Stay, read_lines, records
from tapscope.validate.monitors.lines import (
    LOCAL,
    Format,
    LogFile,
    UnreadableError,
    local_ns,
)
from tapscope.validate.monitors.mariadb import request_id_of

_TIER = TIERS.index("middle")
_HALF_MS = 500_000
_DAY_NS = 86_400 * 1_000_000_000
COMMANDS = {
    "S": "Select",
    "W": "Write",
    "C": "Call",
    "U": "Unknown",
    "B": "Begin",
    "R": "Rollback",
}
"""First letter of a message -> command; C without a statement is Commit."""

_LINE = re.compile(
    r"(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d),(\d{3}) (?:[A-Z]+ +)?(?:\S+ )?([SWCUBR])((?: \d+)+)(?: (.*))?$",
    re.DOTALL,
)
_STAMPED = re.compile(r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d,\d{3} ")


def read_requests(file: LogFile, collector: Collector) -> None:
    """Arrivals of the cluster middleware."""
    host = collector.hosts.code(file.host)
    changed = datetime.fromtimestamp(file.path.stat().st_mtime, UTC).date().isoformat()
    days, last = 0, -1

    def parse(source: int, number: int, text: str) -> Stay | None:
        nonlocal days, last
        found = _LINE.match(text)
        if found is None:
            raise UnreadableError
        date, time, fraction, letter, _, statement = found.groups()
        at = local_ns(f"{date or changed} {time}.{fraction}")
        if date is None:
            days += last - at > _DAY_NS // 2
            last = at
            at += days * _DAY_NS
        arrive = at + _HALF_MS
        commits = letter == "C" and not statement
        collector.add(
            tier=_TIER,
            host=host,
            source=source,
            line=number,
            request_id=request_id_of(statement or "", collector),
            arrive_ns=arrive,
            depart_ns=-1,
            precision_ns=(_HALF_MS, -1),
            protocol=Protocol.CJDBC,
            command="Commit" if commits else COMMANDS[letter],
        )
        return arrive, -1

    read_lines(
        file,
        collector,
        REQUESTS,
        parse,
        zone=LOCAL,
        fold=records(lambda _, text: _STAMPED.match(text) is not None),
    )
    collector.count("cjdbc.past_midnight", days)


REQUESTS = Format(
    name="C-JDBC request log",
    tier="middle",
    family=re.compile(r"request\.log$"),
    recognise=lambda head: any(map(_LINE.match, head)),
    read=read_requests,
    expected='a C-JDBC request "hh:mm:ss,mmm DATABASE S 0 SELECT ..."',
)
