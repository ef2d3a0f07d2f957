"""Apache httpd: access log (upstream arrival and departure) and error log (downstream sending and receiving).

Access log, one line per request, fields `name=value` in any order (docs/validating.md has the LogFormat):
id=%{X-Request-ID}i beg=%{begin:usec}t end=%{end:usec}t D=%D s=%>s conn=%a:%{remote}p
jk=%{JK_REQUEST_DURATION}n UA = beg, UD = end (the line is written after the last byte went to the network
layer), DR = DS + jk. Error log: `LogMessage "DS id=..." hook=insert_filter` stamps the moment before the
request goes downstream; with mod_proxy_ajp the trace line END_RESPONSE stamps its return. Stamps of the error
log are local time without a zone.
"""

from __future__ import annotations

import re

import numpy as np

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.columns import (
    LINE,
    NOTHING,
    Rows,
    Stays,
    local_stamps,
    read_fields,
    read_whole,
)
from tapscope.validate.monitors.lines import (
    LOCAL,
    Format,
    LogFile,
    UnreadableError,
    local_ns,
    outside_quotes,
)
from tapscope.validate.parsing import Parsed, completed, of_form, whole
from tapscope.validate.texts import Bools, Ints, Texts, next_of

PRECISION_NS = 1_000
"""%{begin:usec}t and its like are cut to whole microseconds."""

_ACCESS = re.compile(r"(?:^| )beg=\d{16}(?: |$)")
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})\]")
_STOCK_STAMP = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d\d) (\d\d:\d\d:\d\d\.\d{6}) (\d{4})\]")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SENT = re.compile(r"\bDS id=(\S+)")
_LOG_ID = re.compile(r"\[rid ([^\]\s]+)\]")
_NS_PER_US = 1000


def microseconds(text: str) -> int:
    """mod_jk writes its duration as seconds with six digits ("0.005276"), older builds as whole
    microseconds."""
    return round(float(text) * 1e6) if "." in text else int(text)


def _handled_ns(text: str) -> int:
    return -1 if text in (NOTHING, "") else microseconds(text) * _NS_PER_US


def _handled(texts: Texts) -> Parsed:
    """`_handled_ns` of every text."""
    fits, (seconds, micro) = of_form("0.000000", texts)
    return completed(texts, fits, (seconds * 1_000_000 + micro) * _NS_PER_US, _handled_ns)


def read_access(file: LogFile, collector: Collector) -> None:
    """Calls of the web tier, with the time that mod_jk spent on them downstream."""
    host = collector.hosts.code(file.host)
    tier = TIERS.index("web")

    def take(rows: Rows) -> Stays:
        rows.cells["left"] = rows["end"].instead(rows["end"].are(NOTHING), rows["D"])
        rows, (begin, left, handled_ns) = rows.parsed(("beg", whole), ("left", whole), ("jk", _handled))
        by_stay = rows["end"].are(NOTHING)
        arrive = begin * _NS_PER_US
        depart = left * _NS_PER_US + np.where(by_stay, arrive, 0)
        forward = depart >= arrive
        collector.count("departs_before_arrival", len(rows) - int(np.count_nonzero(forward)))
        rows, arrive, depart = rows.readable(forward), arrive[forward], depart[forward]
        collector.add_rows(
            rows.line,
            tier=tier,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(rows["id"]),
            alias=collector.id_codes(rows["uid"]),
            arrive_ns=arrive,
            depart_ns=depart,
            precision_ns=(PRECISION_NS, PRECISION_NS),
            protocol=int(Protocol.HTTP),
            client_port=rows.ports("conn"),
            status=rows.numbers("s"),
            handled_ns=handled_ns[forward],
        )
        return rows.line, arrive, depart

    read_fields(file, collector, ACCESS, ("id", "uid", "beg", "end", "D", "s", "conn", "jk"), take)


def _stamp(line: str) -> str | None:
    """'YYYY-MM-DD hh:mm:ss.uuuuuu' of a line in the format [%{cu}t], or in httpd's own ([%{u}t])."""
    compact = _STAMP.match(line)
    if compact is not None:
        return compact[1]
    stock = _STOCK_STAMP.match(line)
    if stock is None or stock[1] not in _MONTHS:
        return None
    return f"{stock[4]}-{_MONTHS.index(stock[1]) + 1:02d}-{stock[2]} {stock[3]}"


def read_error(file: LogFile, collector: Collector) -> None:
    """Stamps of downstream sending and receiving. Everything else that an error log says is skipped."""
    host = collector.hosts.code(file.host)
    tier = TIERS.index("web")

    def take(rows: Rows) -> Stays:
        lines = rows[LINE]
        told = lines.first(_TOLD)
        sent, ids, at_ns = _sendings(lines, told)
        collector.mark_rows(
            MarkKind.SENDING,
            tier=tier,
            host=host,
            source=rows.source,
            request_id=collector.id_codes(ids),
            at_ns=at_ns,
            until_ns=-1,
        )
        found = dict(zip(rows.line[sent].tolist(), at_ns.tolist(), strict=True))
        bad = []
        rest = ~sent & ((told >= 0) | (lines.first(_RECEIVED) >= 0))
        for place in np.flatnonzero(rest).tolist():
            number = int(rows.line[place])
            try:
                mark = _mark(lines[place], collector)
            except UnreadableError:
                bad.append(number)
                continue
            if mark is not None:
                kind, request_id, at = mark
                found[number] = at
                where = {"tier": tier, "host": host, "source": rows.source}
                collector.mark(kind, request_id=request_id, at_ns=at, **where)
        rows.unreadable.append(np.array(bad, dtype=np.int64))
        line, stamps = np.array(sorted(found.items()), dtype=np.int64).reshape(-1, 2).T
        return line, stamps, stamps

    read_whole(file, collector, ERROR, take, zone=LOCAL)


_TOLD = "DS id="
_RECEIVED = "ajp_ilink_received END_RESPONSE"


def _sendings(lines: Texts, told: Ints) -> tuple[Bools, Texts, Ints]:
    """Lines that begin with a compact stamp and hold `DS id=ID` behind a blank; these IDs and stamps. told :
    where _TOLD stands in each line, -1 nowhere"""
    data, begin = lines.data, told + len(_TOLD)
    end = np.minimum(next_of(np.flatnonzero(data <= ord(" ")), begin, len(data)), lines.end)
    stamp = Texts(data, lines.begin + 1, np.minimum(lines.begin + 1 + STAMP_LENGTH, lines.end))
    sent = (told > lines.begin) & (data[told - 1] == ord(" ")) & (end > begin)
    sent &= (data[lines.begin] == ord("[")) & (data[stamp.end] == ord("]"))
    at = local_stamps(stamp.where(sent))
    sent[sent] = at.good
    return sent, Texts(data, begin[sent], end[sent]), at.values[at.good]


STAMP_LENGTH = len("YYYY-MM-DD hh:mm:ss.uuuuuu")


def _mark(line: str, collector: Collector) -> tuple[MarkKind, str, int] | None:
    """What one line tells: kind, request ID, stamp; UnreadableError where it should have a stamp."""
    found = _SENT.search(line)
    kind = MarkKind.SENDING
    if found is None:
        if _RECEIVED not in line:
            return None
        kind = MarkKind.RECEIVING
        found = _LOG_ID.search(line)
        if found is None:
            collector.count("apache.receiving_without_id")
            return None
    stamp = _stamp(line)
    if stamp is None:
        raise UnreadableError
    return kind, found[1], local_ns(stamp)


ACCESS = Format(
    name="apache access log",
    tier="web",
    family=re.compile(r"(other_vhosts_)?access([._-]log)?$"),
    recognise=lambda head: any(_ACCESS.search(outside_quotes(line)) for line in head),
    read=read_access,
    expected="an Apache access log line with beg=<16 digits> and end= or D=",
)
ERROR = Format(
    name="apache error log",
    tier="web",
    family=re.compile(r"(?!)"),  # an error log of another format tells nothing about calls, and harms nobody
    recognise=lambda head: any(_stamp(line) and "] [" in line for line in head),
    read=read_error,
    expected="an Apache error log line that begins with httpd's own stamp or [YYYY-MM-DD hh:mm:ss.uuuuuu]",
)
