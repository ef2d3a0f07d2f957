"""Ground truth of a run: which transaction each request message on the wire belongs to.

Two independent sources. *content*: the request id stands in the message. *checkout*: the message has no id
(commit, pool ping, prepare), but a rule of its protocol knows whose connection that is at that moment (a
pooled connection serves one request from checkout to return, and the application logged those: checkouts.py).
Where both exist they are compared, and the manifest says how often they agree.
"""

from __future__ import annotations

import csv
import gzip
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from . import parts
from .pcapfile import Capture
from .requests import READERS, Request
from .streams import Run, Stream, streams

IDENTITY = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
COLUMNS = (
    "ts_ns",
    "src",
    "sport",
    "dst",
    "dport",
    "tcp_seq",
    "protocol",
    "request_id",
    "how",
    "kind",
    "part",
)


class Call(NamedTuple):
    """One row of truth/calls.csv.gz."""

    ts_ns: int
    src: str
    sport: int
    dst: str
    dport: int
    tcp_seq: int
    protocol: str
    request_id: str
    how: str
    kind: str
    part: int = 0


class Holder(Protocol):
    """Names the transaction of a message that carries no request id itself."""

    def holder(self, stream: Stream, run: Run, request: Request, ts_ns: int) -> str:
        """Request id, or "" when the message belongs to none. Asked for messages with an id as well, so that
        both sources can be compared."""

    def knows(self) -> bool:
        """Whether there is anything to compare with."""


@dataclass
class Truth:
    """Rows and what is to be known about them."""

    calls: list[Call]
    summary: dict[str, int]


def extract(
    capture: Capture,
    ids: set[str],
    protocols: Mapping[int, str],
    holders: Mapping[str, Holder],
    split: bool = False,
    pattern: re.Pattern[bytes] = IDENTITY,
) -> Truth:
    """Truth rows for every request message of the capture, in order of time.

    ids: all request ids the users sent. protocols: port -> name of a reader. holders: per protocol, the rule
    for messages without an id; a protocol without one has its ids in every message that belongs to a request.
    split: ids name parts of requests as well (parts.py). pattern: what an id looks like.
    """
    calls: list[Call] = []
    summary: Counter[str] = Counter()
    for stream in streams(capture):
        if stream.flow.dport not in protocols:
            continue
        protocol = protocols[stream.flow.dport]
        rule = holders.get(protocol)
        for run in stream.runs(capture):
            summary["gaps"] += run.before_gap
            places, names = _identities(run, ids, pattern)
            for found in READERS[protocol](run):
                if not isinstance(found, Request):
                    summary["bytes_not_understood"] += found.size
                    continue
                ts_ns, seq = run.origin(found.begin)
                inside = names[bisect_left(places, found.begin) : bisect_left(places, found.end)]
                content = inside[0] if inside else ""
                summary["messages_with_two_ids"] += len(set(inside)) > 1
                held = rule.holder(stream, run, found, ts_ns) if rule else ""
                if rule and content and rule.knows():
                    agree = "agree" if held == content else "differ"
                    summary[f"content_and_checkout_{agree}"] += 1
                how = "content" if content else "checkout" if held else "none"
                name, part = content or held, 0
                if split and name:
                    name, part = parts.whole(name), parts.number(name)
                calls.append(Call(ts_ns, *stream.flow.text(), seq, protocol, name, how, found.kind, part))
                summary[f"{protocol}_{how}"] += 1
    calls.sort()
    return Truth(calls, dict(summary))


def _identities(run: Run, ids: set[str], pattern: re.Pattern[bytes]) -> tuple[list[int], list[str]]:
    places, names = [], []
    for match in pattern.finditer(run.data):
        name = match[0].decode("ascii", errors="replace")
        if name in ids:
            places.append(match.start())
            names.append(name)
    return places, names


def write(truth: Truth, path: Path) -> None:
    """Writes truth/calls.csv.gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="", encoding="ascii") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(truth.calls)
