"""Tomcat: access log (arrival to the millisecond, stay to the microsecond) and the application's own event
files.

AccessLogValve, one line per request, fields `name=value` in any order (docs/validating.md has the pattern):
id=%{X-Request-ID}i beg=%{begin:msec}t end=%{end:msec}t D=%D s=%s thr=%I a=%a:%{remote}p
UA lies in [beg, beg + 1 ms), UD = UA + D (Tomcat 10.1 writes D in microseconds).
The application's files stamp in microseconds, inside the server: they narrow the arrival down, and give DS
and DR:
* one line per request `id=.. ua=.. ds=.. dr=.. ud=..`, or
* requests.tsv (request_id, ua_us, ud_us, ...) and statements.tsv (request_id, ordinal, ds_us, dr_us,
  thread_id).
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.books import Stay, read_lines
from tapscope.validate.monitors.columns import NOTHING, Rows, Stays, read_fields, read_table
from tapscope.validate.monitors.lines import Format, LogFile, UnreadableError, outside_quotes
from tapscope.validate.parsing import of_each

_NS_PER_US = 1_000
_NS_PER_MS = 1_000_000
CLOCK_STEP_NS = 20_000_000
"""beg + D may miss `end` by a millisecond of rounding; more means that the wall clock was set in between."""

_ACCESS = re.compile(r"(?:^| )beg=\d{13}(?: |$)")
_EVENT = re.compile(r"id=(\S+) ua=(\d+) ds=(\d+) dr=(\d+) ud=(\d+)$")
_TIER = TIERS.index("app")


def _protocol(thread: str) -> Protocol:
    """Tomcat names its threads after the connector: ajp-nio-ADDRESS-PORT-exec-N."""
    kind = thread.partition("-")[0]
    return {"ajp": Protocol.AJP, "http": Protocol.HTTP, "https": Protocol.HTTP}.get(kind, Protocol.UNKNOWN)


def read_access(file: LogFile, collector: Collector) -> None:
    """Calls of the application tier."""
    host = collector.hosts.code(file.host)

    def take(rows: Rows) -> Stays:
        rows.cells["left"] = rows["end"].instead(rows["end"].are(NOTHING), rows["beg"])
        rows, (beg, lasted, left) = rows.whole("beg", "D", "left")
        begin, stay = beg * _NS_PER_MS, lasted * _NS_PER_US
        by_stay = rows["end"].are(NOTHING)
        missed = np.where(by_stay, 0, left * _NS_PER_MS - begin - stay)
        collector.count("clock_step", int(np.count_nonzero(np.abs(missed) > CLOCK_STEP_NS)))
        arrive = begin + _NS_PER_MS // 2
        collector.add_rows(
            rows.line,
            tier=_TIER,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(rows["id"]),
            alias=collector.id_codes(rows["uid"]),
            arrive_ns=arrive,
            depart_ns=arrive + stay,
            precision_ns=(_NS_PER_MS // 2, _NS_PER_MS // 2),
            protocol=of_each(_protocol, rows["thr"]),
            client_port=rows.ports("a"),
            status=rows.numbers("s"),
        )
        return rows.line, arrive, arrive + stay

    read_fields(file, collector, ACCESS, ("id", "uid", "beg", "end", "D", "s", "thr", "a"), take)


def read_events(file: LogFile, collector: Collector) -> None:
    """The application's one-line-per-request event file."""
    host = collector.hosts.code(file.host)

    def parse(source: int, number: int, text: str) -> Stay:
        match = _EVENT.match(text)
        if match is None:
            raise UnreadableError
        arrive, send, receive, depart = (int(stamp) * _NS_PER_US for stamp in match.groups()[1:])
        mark = partial(collector.mark, tier=_TIER, host=host, source=source, request_id=match[1])
        mark(MarkKind.INSIDE, at_ns=arrive, until_ns=depart)
        mark(MarkKind.STATEMENT, at_ns=send, until_ns=receive, ordinal=0)
        return arrive, depart

    read_lines(file, collector, EVENTS, parse)


def read_requests(file: LogFile, collector: Collector) -> None:
    """requests.tsv: when a filter in front of the application saw the request come and go."""
    read_intervals(file, collector, REQUESTS, ("ua_us", "ud_us"), MarkKind.INSIDE)


def read_statements(file: LogFile, collector: Collector) -> None:
    """statements.tsv: when the application sent each statement and had its answer."""
    read_intervals(file, collector, STATEMENTS, ("ds_us", "dr_us"), MarkKind.STATEMENT)


def read_intervals(
    file: LogFile, collector: Collector, form: Format, stamps: tuple[str, str], kind: MarkKind
) -> None:
    """A tab-separated event file with a header line and one interval per row, of any tier."""
    host, tier = collector.hosts.code(file.host), TIERS.index(form.tier)

    def take(rows: Rows) -> Stays:
        rows, (begin, end) = rows.whole(*stamps)
        at, until = begin * _NS_PER_US, end * _NS_PER_US
        collector.mark_rows(
            kind,
            tier=tier,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(rows["request_id"]),
            at_ns=at,
            until_ns=until,
            ordinal=rows.numbers("ordinal"),
            thread=rows.numbers("thread_id"),
            command=collector.command_codes(rows["form"]) if "form" in rows.cells else -1,
        )
        return rows.line, at, until

    read_table(file, collector, form, ("request_id", *stamps), take)


ACCESS = Format(
    name="tomcat access log",
    tier="app",
    family=re.compile(r"(localhost_)?access([._-]log)?(\.log|\.txt)?$"),
    recognise=lambda head: any(_ACCESS.search(outside_quotes(line)) for line in head),
    read=read_access,
    expected="a Tomcat access log line with beg=<13 digits> and D=",
)
EVENTS = Format(
    name="application event file",
    tier="app",
    family=re.compile(r"app_events\.log$"),
    recognise=lambda head: any(_EVENT.match(line) for line in head),
    read=read_events,
    expected="a line id=.. ua=.. ds=.. dr=.. ud=.. with microseconds",
)
REQUESTS = Format(
    name="application request file",
    tier="app",
    family=re.compile(r"requests\.tsv$"),
    recognise=lambda head: {"request_id", "ua_us", "ud_us"} <= set(head[0].split("\t")) if head else False,
    read=read_requests,
    expected="tab-separated columns request_id, ua_us, ud_us",
)
STATEMENTS = Format(
    name="application statement file",
    tier="app",
    family=re.compile(r"statements\.tsv$"),
    recognise=lambda head: {"request_id", "ds_us", "dr_us"} <= set(head[0].split("\t")) if head else False,
    read=read_statements,
    expected="tab-separated columns request_id, ds_us, dr_us",
)
