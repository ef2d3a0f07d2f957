"""Ground truth of a run: which transaction each request message on the wire belongs to.

Two independent sources. *content*: the request id stands in the message. *checkout*: the message has no id
(commit, pool ping, prepare), but a pooled connection serves one request from checkout to return, and the
application logged those; the packet time then decides. Where both exist they are compared, and the manifest
says how often they agree.
"""

from __future__ import annotations

import csv
import gzip
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .pcapfile import Capture
from .requests import READERS, Request
from .streams import Run, Stream, streams

IDENTITY = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
COLUMNS = ("ts_ns", "src", "sport", "dst", "dport", "tcp_seq", "protocol", "request_id", "how", "kind")
# The application logs whole microseconds, cut off; the last packet of a checkout may lie within the cut part.
_LOG_STEP_NS = 1_000


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


@dataclass
class Checkouts:
    """Per database connection (MariaDB thread id): return times, borrow times, ids; by return time."""

    returned: dict[int, list[int]] = field(default_factory=dict)
    records: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Checkouts:
        """Reads the application's checkouts.tsv; a missing file gives no checkouts."""
        found: dict[int, list[tuple[int, int, str]]] = {}
        if path.exists():
            with path.open(encoding="utf-8") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    identity = "" if row["request_id"] == "-" else row["request_id"]
                    found.setdefault(int(row["thread_id"]), []).append(
                        (int(row["return_us"]) * 1000, int(row["borrow_us"]) * 1000, identity)
                    )
        table = cls()
        for thread, rows in found.items():
            rows.sort()
            table.returned[thread] = [r[0] + _LOG_STEP_NS for r in rows]
            table.records[thread] = [(r[1], r[2]) for r in rows]
        return table

    def holder(self, thread: int, ts_ns: int) -> str:
        """Request that held a connection at a moment, or "".

        Holders of one connection return it one after the other, so the first return at or after the moment is
        the holder's, if it had begun to borrow by then (waiting for the previous holder counts as borrowing).
        """
        returned = self.returned.get(thread)
        if returned is None:
            return ""
        n = bisect_left(returned, ts_ns)
        if n == len(returned):
            return ""
        borrowed, identity = self.records[thread][n]
        return identity if borrowed <= ts_ns else ""


@dataclass
class Truth:
    """Rows and what is to be known about them."""

    calls: list[Call]
    summary: dict[str, int]


def thread_ids(capture: Capture) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """(client address, port) -> [(time of the greeting, MariaDB thread id)], from the greetings."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for stream in streams(capture):
        if stream.flow.sport != 3306:
            continue
        runs = stream.runs(capture)
        if not runs or runs[0].after_gap or len(runs[0].data) < 12 or runs[0].data[3:5] != b"\x00\x0a":
            continue
        data = runs[0].data
        end = data.find(b"\x00", 5)
        _, _, client, port = stream.flow.text()
        thread = int.from_bytes(data[end + 1 : end + 5], "little")
        found.setdefault((client, port), []).append((runs[0].origin(0)[0], thread))
    for times in found.values():
        times.sort()
    return found


def _thread_of(
    stream: Stream,
    ts_ns: int,
    greeted: dict[tuple[str, int], list[tuple[int, int]]],
    known: dict[tuple[str, int], int],
) -> int:
    client, port, _, _ = stream.flow.text()
    times = greeted.get((client, port), [])
    n = bisect_right(times, (ts_ns, 1 << 62))
    return times[n - 1][1] if n else known.get((client, port), -1)


def extract(
    capture: Capture, ids: set[str], checkouts: Checkouts, known: dict[tuple[str, int], int]
) -> Truth:
    """Truth rows for every request message of the capture, in order of time.

    ids: all request ids the users sent. known: (client address, port) -> MariaDB thread id for connections
    whose greeting was not captured.
    """
    greeted = thread_ids(capture)
    calls: list[Call] = []
    summary: Counter[str] = Counter()
    for stream in streams(capture):
        if stream.flow.dport not in READERS:
            continue
        protocol, reader = READERS[stream.flow.dport]
        for run in stream.runs(capture):
            summary["gaps"] += run.before_gap
            places, names = _identities(run, ids)
            for found in reader(run):
                if not isinstance(found, Request):
                    summary["bytes_not_understood"] += found.size
                    continue
                ts_ns, seq = run.origin(found.begin)
                inside = names[bisect_left(places, found.begin) : bisect_left(places, found.end)]
                content = inside[0] if inside else ""
                summary["messages_with_two_ids"] += len(set(inside)) > 1
                held = ""
                if protocol == "mysql":
                    held = checkouts.holder(_thread_of(stream, ts_ns, greeted, known), ts_ns)
                    if content and checkouts.returned:
                        summary[
                            "content_and_checkout_agree" if held == content else "content_and_checkout_differ"
                        ] += 1
                how = "content" if content else "checkout" if held else "none"
                calls.append(
                    Call(ts_ns, *stream.flow.text(), seq, protocol, content or held, how, found.kind)
                )
                summary[f"{protocol}_{how}"] += 1
    calls.sort()
    return Truth(calls, dict(summary))


def _identities(run: Run, ids: set[str]) -> tuple[list[int], list[str]]:
    places, names = [], []
    for match in IDENTITY.finditer(run.data):
        name = match[0].decode()
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
