"""What is told of a connection of which a tap sees one direction only: every recorded capture cut to either
one, judged by what is read of both."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recorded

from tapscope import capture
from tapscope.store.codes import Direction, MessageFlag, Protocol

PCAPS = Path(__file__).resolve().parent.parent.parent / "pcaps"
SALT = b"sixteen bytes ok"
SAID = MessageFlag.INFERRED | MessageFlag.RESYNCHRONISED | MessageFlag.TRUNCATED | MessageFlag.OPAQUE
"""Flags of a message that say that its borders, or what it is, are not sure."""
SIDES = (Direction.TO_SERVER, Direction.TO_CLIENT)

Place = tuple[recorded.Flow, int, int]
"""Where a message begins: who sends it to whom, sequence number, time."""


@dataclass(frozen=True)
class Message:
    place: Place
    direction: int
    protocol: int
    text: str
    """Of its class."""
    rest: tuple[int, ...]
    """Kind, status, size and end."""
    flags: int

    @property
    def size(self) -> int:
        return self.rest[2]


@dataclass(frozen=True)
class Told:
    """Numbers of messages of one protocol and direction. Those without bytes, which stand for what a server
    skipped, are left out."""

    there: int = 0
    found: int = 0
    whole: int = 0
    """Of those found: kind, status, size and end are the same."""
    classed: int = 0
    """Of those found: the class is the same."""

    def __add__(self, other: Told) -> Told:
        return Told(
            self.there + other.there,
            self.found + other.found,
            self.whole + other.whole,
            self.classed + other.classed,
        )


@dataclass(frozen=True)
class Reading:
    """One capture cut to one direction."""

    tables: capture.CaptureTables
    told: dict[Protocol, Told]
    unsaid: list[Message]
    """Messages that the reading of both directions does not have, and that are not flagged as unsure."""


def captures() -> list[Path]:
    """Every recorded capture in plain pcap; those of overlays carry the same few connections in tunnels."""
    found = [*PCAPS.rglob("*.pcap"), *PCAPS.rglob("*.pcap.gz")]
    return sorted(path for path in found if path.parent.name != "overlays")


def messages_of(tables: Any) -> list[Message]:
    """The messages of a capture that have bytes."""
    m, flows = tables.messages, list(recorded.flows_of(tables))
    names = ("conn", "direction", "tcp_seq", "begin_ns", "protocol", "class_id", "flags")
    rest = zip(*(m[name].tolist() for name in ("kind", "status", "wire_bytes", "end_ns")), strict=True)
    out = []
    for (conn, side, seq, begin, protocol, class_id, flags), values in zip(
        zip(*(m[name].tolist() for name in names), strict=True), rest, strict=True
    ):
        text = tables.classes[class_id][1] if class_id >= 0 else ""
        out.append(Message((flows[conn][side], seq, begin), side, protocol, text, values, flags))
    return [message for message in out if message.size > 0]


def read(path: Path, side: Direction, folder: Path, fixed: Protocol | None = None) -> Reading:
    """`path` as a tap sees it that gets one direction only. `fixed`: what the port map says of all ports."""
    plain = folder / "both.pcap"
    plain.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    both = capture.read_files([plain], salt=SALT)
    seen = {flows[side] for flows in recorded.flows_of(both)}
    packets = recorded.read_packets(plain)
    one = folder / "one.pcap"
    recorded.write_packets(one, [p for p in packets if (tcp := recorded.tcp_of(p[1])) and tcp[0] in seen])
    ports = {} if fixed is None else {int(port): fixed for port in both.connections["server_port"]}
    tables = capture.read_files([one], salt=SALT, port_map=ports)
    found: defaultdict[Place, list[Message]] = defaultdict(list)
    for message in messages_of(tables):
        found[message.place].append(message)
    sums: defaultdict[Protocol, Told] = defaultdict(Told)
    for right in messages_of(both):
        if right.direction != side:
            continue
        mine = found[right.place].pop(0) if found[right.place] else None
        protocol = Protocol(right.protocol)
        if mine is None:
            sums[protocol] += Told(there=1)
        else:
            sums[protocol] += Told(1, 1, int(mine.rest == right.rest), int(mine.text == right.text))
    more = [message for left in found.values() for message in left]
    return Reading(tables, dict(sums), [message for message in more if not message.flags & SAID])


def totals(folder: Path) -> dict[tuple[Protocol, Direction], Told]:
    """The sums over all captures."""
    sums: defaultdict[tuple[Protocol, Direction], Told] = defaultdict(Told)
    for path in captures():
        for side in SIDES:
            for protocol, told in read(path, side, folder).told.items():
                sums[protocol, side] += told
    return dict(sums)


def table(folder: Path) -> Iterator[str]:
    """Lines of a Markdown table: for each protocol what each direction tells."""
    sums = totals(folder)
    heads: Sequence[str] = ("requests", "found", "whole", "class", "answers", "found", "whole")
    yield f"| protocol | {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * len(heads)
    for protocol in Protocol:
        asks, answers = (sums.get((protocol, side), Told()) for side in SIDES)
        if not asks.there and not answers.there:
            continue
        cells = [
            asks.there,
            asks.found,
            asks.whole,
            asks.classed,
            answers.there,
            answers.found,
            answers.whole,
        ]
        yield f"| {protocol.name} | {' | '.join(map(str, cells))} |"
