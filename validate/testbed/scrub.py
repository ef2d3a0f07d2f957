"""Overwrites every request id in a capture with a constant of the same length, and proves that none is left.

Ids are looked for in the reassembled byte streams of both directions, so that an id cut by a segment
border is found; every packet that carries any byte of it is changed, retransmissions included. TCP
checksums are made anew (RFC 9293, 3.1; the payload does not enter the IP header's checksum, which stays
valid).
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tapscope.store.errors import TapscopeError

from .pcapfile import SYN, Capture, Segment, read
from .streams import Run, Stream, streams
from .truth import IDENTITY

# Shorter remains of an id at the edge of a capture gap are no longer an id: 6 hex digits and a few more.
_SHORTEST_REMAINS = 6
_LENGTH = 36
FILLER = b"X" * _LENGTH


@dataclass
class Scrubbed:
    """What was done. ids: occurrences in the byte streams; across_segments: those cut by a segment border."""

    ids: int = 0
    across_segments: int = 0
    cut_by_gaps: int = 0
    packets_changed: int = 0
    packets_retransmitted_changed: int = 0
    ids_left: int = 0

    def record(self) -> dict[str, int]:
        """Plain dictionary for the manifest."""
        return asdict(self)


class _Known:
    """All ids, with look-up by beginning and by end for remains at a gap."""

    def __init__(self, ids: set[str]) -> None:
        self.names = {i.encode() for i in ids}
        self._forward = sorted(self.names)
        self._backward = sorted(i[::-1] for i in self.names)

    def begins(self, tail: bytes) -> bool:
        n = bisect_left(self._forward, tail)
        return n < len(self._forward) and self._forward[n].startswith(tail)

    def ends(self, head: bytes) -> bool:
        turned = head[::-1]
        n = bisect_left(self._backward, turned)
        return n < len(self._backward) and self._backward[n].startswith(turned)


def _places(run: Run, known: _Known, done: Scrubbed) -> list[tuple[int, int]]:
    """(begin, end) of everything to overwrite, as offsets in the run."""
    places = [(m.start(), m.end()) for m in IDENTITY.finditer(run.data) if m[0] in known.names]
    done.ids += len(places)
    for size in range(min(_LENGTH - 1, len(run.data)), _SHORTEST_REMAINS - 1, -1):
        if run.after_gap and known.ends(run.data[:size]):
            places.append((0, size))
            done.cut_by_gaps += 1
            break
    for size in range(min(_LENGTH - 1, len(run.data)), _SHORTEST_REMAINS - 1, -1):
        # The end of a stream may lie beyond the end of the capture: look there too.
        if known.begins(run.data[-size:]):
            places.append((len(run.data) - size, len(run.data)))
            done.cut_by_gaps += 1
            break
    return places


def _overwrite(
    capture: Capture, stream: Stream, places: list[tuple[int, int]], changed: set[Segment]
) -> None:
    """Overwrites stream ranges in every segment that carries a part of them; adds those to `changed`."""
    begins = sorted(places)
    ends = [e for _, e in begins]
    for segment in stream.segments:
        if segment.payload_len == 0:
            continue
        first = stream.offset(segment.seq + (segment.flags & SYN != 0))
        last = first + segment.payload_len
        n = bisect_left(ends, first + 1)
        while n < len(begins) and begins[n][0] < last:
            begin, end = max(begins[n][0], first), min(begins[n][1], last)
            at = segment.payload_at - first
            capture.data[at + begin : at + end] = FILLER[: end - begin]
            changed.add(segment)
            n += 1


def _checksum(capture: Capture, segment: Segment) -> None:
    """Recomputes a segment's TCP checksum over pseudo-header, header and payload."""
    data = capture.data
    data[segment.tcp_at + 16 : segment.tcp_at + 18] = b"\0\0"
    length = segment.payload_at + segment.payload_len - segment.tcp_at
    body = data[segment.ip_at + 12 : segment.ip_at + 20] + b"\0\x06" + length.to_bytes(2, "big")
    body += data[segment.tcp_at : segment.tcp_at + length]
    if len(body) % 2:
        body += b"\0"
    total = int(np.frombuffer(body, dtype=">u2").sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    data[segment.tcp_at + 16 : segment.tcp_at + 18] = (~total & 0xFFFF).to_bytes(2, "big")


def scrub(source: Path, target: Path, ids: set[str]) -> Scrubbed:
    """Copies a capture without its ids. Raises TapscopeError (and removes the copy) when one is left."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    done = Scrubbed()
    capture = read(target, writable=True)
    known = _Known(ids)
    for stream in streams(capture):
        places: list[tuple[int, int]] = []
        for run in stream.runs(capture):
            here = _places(run, known, done)
            borders = run.segment_starts()
            for begin, end in here:
                inner = bisect_left(borders, begin + 1)
                done.across_segments += inner < len(borders) and borders[inner] < end
            places += [(run.begin + b, run.begin + e) for b, e in here]
        if not places:
            continue
        changed: set[Segment] = set()
        _overwrite(capture, stream, places, changed)
        for segment in changed:
            _checksum(capture, segment)
        done.packets_changed += len(changed)
        done.packets_retransmitted_changed += len(changed) - len({s.seq for s in changed})
    capture.data.flush()
    capture.data.close()
    done.ids_left = count_left(target, ids)
    if done.ids_left:
        target.unlink()
        raise TapscopeError(f"{done.ids_left} request ids are left in the scrubbed capture", path=target)
    return done


def count_left(path: Path, ids: set[str]) -> int:
    """Ids, or the last twelve digits of one, still in a capture: in its raw bytes or in its streams."""
    names = {i.encode() for i in ids}
    ends = {n[-13:] for n in names}
    capture = read(path)
    found = sum(m[0] in names for m in IDENTITY.finditer(capture.data))
    for stream in streams(capture):
        for run in stream.runs(capture):
            found += sum(m[0] in names for m in IDENTITY.finditer(run.data))
            at = run.data.find(b"-")
            while at >= 0:
                found += run.data[at : at + 13] in ends
                at = run.data.find(b"-", at + 1)
    capture.data.close()
    return found
