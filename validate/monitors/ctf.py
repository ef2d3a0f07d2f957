"""CTF traces (LTTng) of programs that annotate their calls as BlkKin's library does (docs/spans.md).

Server receive and send of a span are upstream arrival and departure of the service that noted them; client
send and receive are that service's downstream sending and receiving, or the client's own record where a span
has no parent and the service is none of ours. The trace id is the request ID, unless a span of the trace has
noted another one under the key request_id. Stamps are in ns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tapscope.reconstruct import dapper
from tapscope.validate.event_calls import TIERS, Collector, MarkKind
from tapscope.validate.monitors.lines import Format, LogFile
from tapscope.validate.monitors.mariadb import STATEMENT

SERVICES = {
    **{name: name for name in TIERS},
    **dict.fromkeys(("apache", "httpd", "nginx"), "web"),
    **dict.fromkeys(("tomcat", "php", "php-fpm"), "app"),
    **dict.fromkeys(("avatica", "c-jdbc", "cjdbc"), "middle"),
    **dict.fromkeys(("mariadb", "mysql"), "db"),
}
"""Tier of a service by its name, in lower case."""

PRECISION_NS = 1
_WEB, _DB = TIERS.index("web"), TIERS.index("db")


@dataclass
class _Part:
    """What one tier noted on one host: a source of its own, since each has its own clock."""

    source: int
    calls: int = 0
    stamps: list[int] = field(default_factory=list)


def read_spans(file: LogFile, collector: Collector) -> None:
    """Calls of every tier that noted them, and what they sent downstream. Spans of services that are no
    tier's, and those whose server noted no arrival, are counted."""
    spans: dict[str, dapper.Span] = {}
    losses: list[tuple[int, int]] = []
    dapper.read(
        file.path.parent,
        spans,
        lambda name, value: collector.count(f"ctf.{name}", value),
        lost=lambda begin, end: losses.append((begin, end)),
    )
    parts: dict[tuple[int, str], _Part] = {}
    known_as = {span.trace_id: span.request_id for span in spans.values() if span.request_id}

    def part(tier: int, host: str) -> _Part:
        return parts.setdefault((tier, host), _Part(len(collector.sources) + len(parts)))

    for number, span in enumerate(spans.values(), 1):
        sent, received, responded, answered = span.times
        request_id = known_as.get(span.trace_id, span.trace_id)
        if max(span.times) < 0:
            collector.count("ctf.no_call")
        if received >= 0:
            name = SERVICES.get(span.services[1].lower())
            if name is None:
                collector.count("ctf.service_of_no_tier")
            else:
                tier = TIERS.index(name)
                noted = part(tier, span.hosts[1])
                noted.calls += 1
                noted.stamps += (received, max(received, responded))
                collector.add(
                    tier=tier,
                    host=collector.hosts.code(span.hosts[1]),
                    source=noted.source,
                    line=number,
                    request_id=request_id,
                    arrive_ns=received,
                    depart_ns=responded,
                    precision_ns=(PRECISION_NS, PRECISION_NS),
                    command=STATEMENT if tier == _DB else "",
                )
        elif responded >= 0:
            collector.count("ctf.departure_only")
        if sent >= 0 and answered >= 0:
            name = SERVICES.get(span.services[0].lower())
            if name is None and span.parent_id:
                collector.count("ctf.service_of_no_tier")
                continue
            tier = _WEB if name is None else TIERS.index(name)
            noted = part(tier, span.hosts[0])
            noted.stamps += (sent, answered)
            collector.mark(
                MarkKind.CLIENT if name is None else MarkKind.STATEMENT,
                tier=tier,
                host=collector.hosts.code(span.hosts[0]),
                source=noted.source,
                request_id=request_id,
                at_ns=sent,
                until_ns=answered,
            )
    size = sum(path.stat().st_size for path in file.path.parent.rglob("*") if path.is_file())
    for (tier, host), noted in parts.items():
        # Which service's events the tracer discarded is not told: they may have been any tier's.
        for begin, end in losses:
            collector.gaps.row((tier, begin, end, noted.source))
        collector.sources.append(
            {
                "path": str(file.path.parent),
                "kind": "events",
                "monitor": SPANS.name,
                "tier": TIERS[tier],
                "host": host,
                "bytes": size,
                "lines": len(spans),
                "calls": noted.calls,
                "unreadable_lines": 0,
                "first_ns": min(noted.stamps),
                "last_ns": max(noted.stamps),
                "zone": "UTC epoch",
            }
        )


SPANS = Format(
    name="CTF trace of annotated spans",
    tier="web",  # and every other one that noted something
    family=re.compile(r"(?!)"),
    # The line stands behind a packet's header, whose bytes may look like line ends.
    recognise=lambda head: any(re.search(r"/\* CTF 1\.\d \*/$", line) for line in head),
    read=read_spans,
    expected="events with trace_id, span_id, parent_span_id, service_name and event",
)
