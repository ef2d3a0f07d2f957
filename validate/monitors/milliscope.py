"""milliScope's modified web servers (thesis 2.4.4, 2.4.5): stock log lines with two or four stamps more.

Apache: microseconds since the epoch, sixteen digits each and outside the quotes: upstream arrival and
departure, and, of a request that mod_jk passed on, downstream sending and receiving (connector_stime and
connector_etime). The thesis does not fix their places in the line. Causality does: arrival <= sending <=
receiving <= departure, so the stamps are taken in order of size.
nginx: `ST(ms)=` and `ET(ms)=` for arrival and departure, `TCST(ms)=` and `TCET(ms)=` for sending and
receiving, milliseconds since the epoch, thirteen digits; one pair per upstream that was asked.
The request ID is the parameter ID that the web server put into the URL: /rubbos/StoriesOfTheDay?ID=XXX.
"""

from __future__ import annotations

import re
from functools import partial

from tapscope.store.codes import Protocol
from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.books import Stay, read_lines
from tapscope.validate.monitors.lines import (
    Format,
    LogFile,
    UnreadableError,
    outside_quotes,
)

_TIER = TIERS.index("web")
_NS_PER_US = 1_000
_NS_PER_MS = 1_000_000

_STAMP = re.compile(r"(?:^| )(\d{16})(?= |$)")
_URL_ID = re.compile(r'"[A-Z]+ [^ "]*[?&]ID=([^ &"#]+)')
_STATUS = re.compile(r'" (\d{3})(?: |$)')
_BEGIN = re.compile(r"\bST\(ms\) ?= ?(\d{13})\b")
_END = re.compile(r"\bET\(ms\) ?= ?(\d{13})\b")
_BELOW = re.compile(r"\bTCST\(ms\) ?= ?(\d+) TCET\(ms\) ?= ?(\d+)\b")


def _request_id(line: str) -> str:
    found = _URL_ID.search(line)
    return "-" if found is None else found[1]


def _apache_stamps(line: str) -> list[int]:
    """Two or four stamps in ascending order; UnreadableError for any other number."""
    stamps = sorted(int(stamp) * _NS_PER_US for stamp in _STAMP.findall(outside_quotes(line)))
    if len(stamps) not in (2, 4):
        raise UnreadableError
    return stamps


def _nginx_stamps(line: str) -> list[int]:
    begin, end = _BEGIN.search(line), _END.search(line)
    if begin is None or end is None:
        raise UnreadableError
    return [int(begin[1]) * _NS_PER_MS, int(end[1]) * _NS_PER_MS]


def _store(
    line: str, stay: Stay, below: list[Stay], precision_ns: int, where: partial[None], collector: Collector
) -> Stay:
    """One call with its downstream intervals."""
    if stay[1] < stay[0]:
        collector.count("departs_before_arrival")
        raise UnreadableError
    name = _request_id(line)
    status = _STATUS.search(line)
    where(
        request_id=name,
        arrive_ns=stay[0],
        depart_ns=stay[1],
        precision_ns=(precision_ns, precision_ns),
        protocol=Protocol.HTTP,
        status=-1 if status is None else int(status[1]),
    )
    place = {key: where.keywords[key] for key in ("tier", "host", "source")}
    for sent, received in below:
        collector.mark(MarkKind.SENDING, request_id=name, at_ns=sent, **place)
        collector.mark(MarkKind.RECEIVING, request_id=name, at_ns=received, **place)
    return stay


def read_apache(file: LogFile, collector: Collector) -> None:
    """Calls of a web tier whose Apache and mod_jk were modified."""
    host = collector.hosts.code(file.host)

    def parse(source: int, number: int, text: str) -> Stay:
        stamps = _apache_stamps(text)
        below = [(stamps[1], stamps[2])] if len(stamps) == 4 else []
        where = partial(collector.add, tier=_TIER, host=host, source=source, line=number)
        return _store(text, (stamps[0], stamps[-1]), below, _NS_PER_US, where, collector)

    read_lines(file, collector, APACHE, parse)


def read_nginx(file: LogFile, collector: Collector) -> None:
    """Calls of a web tier whose nginx was modified."""
    host = collector.hosts.code(file.host)

    def parse(source: int, number: int, text: str) -> Stay:
        arrive, depart = _nginx_stamps(outside_quotes(text))
        below = []
        for sent, received in _BELOW.findall(outside_quotes(text)):
            if len(sent) == len(received) == 13:
                below.append((int(sent) * _NS_PER_MS, int(received) * _NS_PER_MS))
            else:  # the thesis's own format string prints TCST without its milliseconds
                collector.count("milliscope.downstream_unreadable")
        where = partial(collector.add, tier=_TIER, host=host, source=source, line=number)
        return _store(text, (arrive, depart), below, _NS_PER_MS, where, collector)

    read_lines(file, collector, NGINX, parse)


def _is_apache(line: str) -> bool:
    return '"' in line and len(_STAMP.findall(outside_quotes(line))) in (2, 4)


APACHE = Format(
    name="milliScope apache log",
    tier="web",
    family=re.compile(r"(?!)"),  # its files have the names that stock logs have
    recognise=lambda head: any(map(_is_apache, head)),
    read=read_apache,
    expected='a log line with "request" and two or four stamps of 16 digits',
)
NGINX = Format(
    name="milliScope nginx log",
    tier="web",
    family=re.compile(r"(?!)"),
    recognise=lambda head: any(_BEGIN.search(outside_quotes(line)) for line in head),
    read=read_nginx,
    expected="a log line with ST(ms)=<13 digits> and ET(ms)=<13 digits>",
)
