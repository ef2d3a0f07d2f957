"""Every capture without any one of its packets, and without any two neighbours of a direction."""

from __future__ import annotations

import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from capture_packets import unaccounted
from damaged_captures import CAPTURES, Record, is_plain, name_of, records, write

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind

GOLDEN = [path for path in CAPTURES if is_plain(path) and path.parent.name != "overlays"]
SALT = b"sixteen bytes ok"
MOST_PACKETS = 600
MOST_LOSSES = 400
"""Of a longer capture this many losses are chosen by its name."""
ESTIMATE = MessageFlag.INFERRED | MessageFlag.OPAQUE | MessageFlag.TRUNCATED | MessageFlag.UNFINISHED
"""Said of a message: its pair, its borders, or what it was is not sure."""

Place = tuple[int, int, int, int]
"""Ports of client and server, direction, sequence number: where a message begins."""


@dataclass(frozen=True)
class Segment:
    """Where the payload of a packet stands: ports of sender and receiver, sequence number, bytes."""

    ports: tuple[int, int]
    seq: int
    size: int
    acknowledges: int

    def takes(self, place: Place, size: int) -> bool:
        """Does it hold a byte of a message of `size` bytes?"""
        client, server, direction, seq = place
        if self.ports != ((server, client) if direction else (client, server)) or self.size == 0:
            return False
        return (self.seq - seq) % 2**32 < max(size, 1) or (seq - self.seq) % 2**32 < self.size


@dataclass(frozen=True)
class Message:
    place: Place
    kind: int
    text: str
    status: int
    size: int
    flags: int
    request: int


def segment_of(frame: bytes) -> Segment:
    ip = 14
    tcp = ip + (frame[ip] & 15) * 4
    source, target, seq, acknowledges = struct.unpack_from("!HHII", frame, tcp)
    begin, end = tcp + (frame[tcp + 12] >> 4) * 4, ip + struct.unpack_from("!H", frame, ip + 2)[0]
    return Segment((source, target), seq, end - begin, acknowledges)


def losses(path: Path, segments: list[Segment]) -> list[tuple[int, ...]]:
    """Each packet, and each two that follow each other in one direction and carry bytes."""
    found: list[tuple[int, ...]] = [(i,) for i in range(len(segments))]
    last: dict[tuple[int, int], int] = {}
    for i, segment in enumerate(segments):
        if segment.size == 0:
            continue
        if segment.ports in last:
            found.append((last[segment.ports], i))
        last[segment.ports] = i
    return found if len(found) <= MOST_LOSSES else random.Random(path.name).sample(found, MOST_LOSSES)


def messages_of(tables: capture.CaptureTables) -> list[Message]:
    m, c = tables.messages, tables.connections
    conn = m["conn"]
    places = zip(
        c["client_port"][conn].tolist(),
        c["server_port"][conn].tolist(),
        m["direction"].tolist(),
        m["tcp_seq"].tolist(),
        strict=True,
    )
    texts = [tables.classes[i][1] if i >= 0 else "" for i in m["class_id"].tolist()]
    columns = [m[name].tolist() for name in ("kind", "status", "wire_bytes", "flags", "request")]
    return [
        Message(place, kind, text, status, size, flags, request)
        for place, text, kind, status, size, flags, request in zip(places, texts, *columns, strict=True)
    ]


def responses(messages: list[Message]) -> dict[Place, Message]:
    """By where they begin; those of which several begin in one place, or without bytes, are left out."""
    several = {
        key for key, n in Counter((message.place, message.kind) for message in messages).items() if n > 1
    }
    return {
        message.place: message
        for message in messages
        if message.kind == MessageKind.RESPONSE
        and message.size > 0
        and (message.place, message.kind) not in several
    }


def told_of(unseen: str, text: str) -> bool:
    """Can what is told of a statement whose text was not seen be of this one?"""
    _, told, what = unseen.partition("(text unseen, ")[2].partition("): ")
    if not told or "text unseen" in text:
        return True
    if what == "no rows":
        return not text.startswith("EXECUTE SELECT")
    if what == "COMMIT":
        return text in ("EXECUTE END", "EXECUTE COMMIT")
    words = re.findall(r"[A-Za-z_]+", re.sub(r"of \d+ columns?|^\d+ columns?", "", what))
    return "*" in text or all(word.lower() in text.lower() for word in words)


def faults(whole: list[Message], found: list[Message], lost: list[Segment]) -> Iterator[str]:
    """Calls of `found` that are another one than in `whole`, and say so by no flag."""
    truth = responses(whole)
    for place, response in responses(found).items():
        right = truth.get(place)
        if right is None or right.request < 0 or response.request < 0:
            continue
        asked, wanted = found[response.request], whole[right.request]
        flags = asked.flags | response.flags
        if asked.place != wanted.place:
            # The head of the right request may be lost: its rest is found as another one.
            rest = (
                asked.place[:3] == wanted.place[:3]
                and (asked.place[3] - wanted.place[3]) % 2**32 < wanted.size
            )
            if not flags & MessageFlag.INFERRED and not rest:
                yield f"{response} answers {wanted}, and was given to {asked}"
            continue
        if flags & ESTIMATE or any(
            segment.takes(message.place, message.size) for segment in lost for message in (right, wanted)
        ):
            continue
        known = asked.text and "text unseen" not in asked.text and "not seen)" not in asked.text
        certain = asked.text.removesuffix(" ...")  # what follows a quote in doubt is not told
        if known and "text unseen" not in wanted.text and not wanted.text.startswith(certain):
            yield f"{wanted} became {asked}"
        if not told_of(asked.text, wanted.text):
            yield f"{asked} is not {wanted}"
        if (response.status, response.size, asked.size) != (right.status, right.size, wanted.size):
            yield f"{right} became {response}, its request {asked}"


def unnamed(tables: capture.CaptureTables, kept: list[Segment], lost: list[Segment]) -> Iterator[str]:
    """Lost bytes that a later packet proves to have been sent, and that no connection misses."""
    c = tables.connections
    for segment in lost:
        source, target = segment.ports
        later = any(
            (
                other.ports == segment.ports
                and other.size > 0
                and 0 < (other.seq - segment.seq) % 2**32 < 2**31
            )
            for other in kept
        )
        again = any(
            other.ports == segment.ports and (segment.seq - other.seq) % 2**32 < other.size for other in kept
        )
        earlier = any(
            other.ports == segment.ports and 0 < (segment.seq - other.seq) % 2**32 < 2**31 for other in kept
        )
        if segment.size == 0 or again or not later or not earlier:
            continue
        to_server = (c["client_port"] == source) & (c["server_port"] == target)
        to_client = (c["client_port"] == target) & (c["server_port"] == source)
        missing = c["missing_to_server"][to_server].sum() + c["missing_to_client"][to_client].sum()
        if missing < segment.size:
            yield f"{missing} bytes missing, and {segment} is lost"


@pytest.mark.parametrize("path", GOLDEN, ids=name_of)
def test_without_any_packet_no_call_is_wrong_and_the_loss_is_named(path: Path, tmp_path: Path) -> None:
    link, packets = records(path)
    packets = packets[:MOST_PACKETS]
    keys = path.parent / (path.name.split(".")[0] + ".keys")

    def read(kept: list[Record]) -> capture.CaptureTables:
        file = write(tmp_path / "a.pcap", link, kept)
        return capture.read_files([file], salt=SALT, tls_keylog=keys if keys.exists() else None)

    whole = messages_of(read(packets))
    assert any(message.kind == MessageKind.RESPONSE and message.request >= 0 for message in whole)
    segments = [segment_of(frame) for _, frame, _ in packets]
    for loss in losses(path, segments):
        tables = read([packet for i, packet in enumerate(packets) if i not in loss])
        lost = [segments[i] for i in loss]
        assert unaccounted(tables) == [], f"without {loss}"
        assert list(faults(whole, messages_of(tables), lost)) == [], f"without {loss}"
        kept = [segment for i, segment in enumerate(segments) if i not in loss]
        assert list(unnamed(tables, kept, lost)) == [], f"without {loss}"
