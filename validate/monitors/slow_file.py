"""MariaDB's and MySQL's slow log as a file: records of several lines.

MariaDB writes `SET timestamp=` in whole seconds, the second in which the statement began, and Query_time in
microseconds: the arrival lies in [timestamp, timestamp + 1 s), too coarse for windows of 50 ms; it serves to
tell which statements ran, and for how long. MySQL 5.7 and later have `# Time:` with microseconds and a zone,
the moment the record was made: that is the departure, and the arrival is Query_time before it.
`# administrator command: NAME` are commands without a statement. Records without an address came over the
server's local socket: counted, left out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector
from tapscope.validate.monitors.books import Stay, read_lines, records
from tapscope.validate.monitors.lines import Format, LogFile, UnreadableError
from tapscope.validate.monitors.mariadb import (
    ADMINISTRATOR,
    NO_ADDRESS,
    PRECISION_NS,
    STATEMENT,
    request_id_of,
)

_HALF_SECOND_NS = 500_000_000
_TIER = TIERS.index("db")

_TIME = re.compile(r"^# Time: (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d))$", re.MULTILINE)
_USER = re.compile(r"^# User@Host: (.*?)(?:\s+Id:\s*(\d+))?$", re.MULTILINE)
_THREAD = re.compile(r"^# Thread_id: (\d+)", re.MULTILINE)
_QUERY = re.compile(r"^# Query_time: (\d+)\.(\d{6})", re.MULTILINE)
_SECOND = re.compile(r"^SET timestamp=(\d+)(?:\.\d+)?;$", re.MULTILINE)
_START_UP = re.compile(r"\S.*, Version: .*started with:|Tcp port: |Time +Id Command +Argument")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _starts(before: str, text: str) -> bool:
    """Does this line begin a record? `# Time:` may be missing, or stand in front of `# User@Host:`."""
    if text.startswith("# Time: ") or _START_UP.match(text):
        return True
    return text.startswith("# User@Host: ") and not before.startswith("# Time: ")


def _stay(text: str) -> tuple[Stay, tuple[int, int]]:
    """(arrival, departure) and their half widths, ns; UnreadableError where the record has no times."""
    query, time, second = _QUERY.search(text), _TIME.search(text), _SECOND.search(text)
    if query is None or (time is None and second is None):
        raise UnreadableError
    lasted = int(query[1] + query[2]) * 1_000
    if time is not None:
        depart = (datetime.fromisoformat(time[1]) - _EPOCH) // timedelta(microseconds=1) * 1_000
        return (depart - lasted, depart), (2 * PRECISION_NS, PRECISION_NS)
    assert second is not None
    arrive = int(second[1]) * 1_000_000_000 + _HALF_SECOND_NS
    return (arrive, arrive + lasted), (_HALF_SECOND_NS, _HALF_SECOND_NS)


def read_slow(file: LogFile, collector: Collector) -> None:
    """Calls of the database tier."""
    host = collector.hosts.code(file.host)

    def parse(source: int, number: int, text: str) -> Stay | None:
        user = _USER.search(text)
        if user is None:
            if _START_UP.match(text):  # written at every start and every flush of the log
                return None
            raise UnreadableError
        if NO_ADDRESS.search(user[1]):
            collector.count("db.local_connection")
            return None
        stay, precision = _stay(text)
        statement = "\n".join(
            line for line in text.splitlines() if not _SECOND.match(line) and line[:2] != "# "
        )
        administrator = ADMINISTRATOR.search(text)
        thread = _THREAD.search(text)
        number_text = thread[1] if thread else user[2]
        collector.add(
            tier=_TIER,
            host=host,
            source=source,
            line=number,
            request_id=request_id_of(statement, collector),
            arrive_ns=stay[0],
            depart_ns=stay[1],
            precision_ns=precision,
            protocol=Protocol.MYSQL,
            command=administrator[1] if administrator else STATEMENT,
            thread=-1 if number_text is None else int(number_text),
        )
        return stay

    read_lines(file, collector, SLOW, parse, fold=records(_starts))


SLOW = Format(
    name="slow log file",
    tier="db",
    family=re.compile(r".*slow(_query|-query)?\.log$"),
    recognise=lambda head: any(map(_USER.match, head)) and any(map(_QUERY.match, head)),
    read=read_slow,
    expected="a slow log record # User@Host:, # Query_time:, SET timestamp=",
)
