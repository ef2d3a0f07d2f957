"""Byte streams out of TCP segments, one per direction of a connection instance, retransmissions left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from .pcapfile import SYN, Capture, Flow, Segment


@dataclass
class Piece:
    """The first transmission of some bytes: where they lie in the run, and their packet."""

    at: int
    ts_ns: int
    seq: int


@dataclass
class Run:
    """Bytes without a gap, from `begin` of the stream on. after_gap: bytes before them are missing."""

    begin: int
    data: bytes
    pieces: list[Piece]
    after_gap: bool
    before_gap: bool = False
    _starts: list[int] = field(default_factory=list)

    def origin(self, at: int) -> tuple[int, int]:
        """(time in ns, raw sequence number) of the byte at an offset of this run."""
        if not self._starts:
            self._starts = [p.at for p in self.pieces]
        piece = self.pieces[bisect_right(self._starts, at) - 1]
        return piece.ts_ns, (piece.seq + at - piece.at) & 0xFFFFFFFF

    def segment_starts(self) -> list[int]:
        """Offsets at which packets begin: candidates for resuming after unknown bytes."""
        return [p.at for p in self.pieces]


@dataclass
class Stream:
    """One direction of one connection instance; segments in order of capture."""

    flow: Flow
    segments: list[Segment]
    base_seq: int
    has_syn: bool

    def offset(self, seq: int) -> int:
        """Signed distance of a sequence number from the stream's first byte, modulo 2^32 (RFC 9293, 3.4).

        Right for streams below 2 GiB, which a run of the testbed never reaches.
        """
        return ((seq - self.base_seq + 0x80000000) & 0xFFFFFFFF) - 0x80000000

    def runs(self, capture: Capture) -> list[Run]:
        """The bytes of this direction, in order, each byte once."""
        with_data = [
            (self.offset(s.seq + (s.flags & SYN != 0)), n, s)
            for n, s in enumerate(self.segments)
            if s.payload_len > 0
        ]
        with_data.sort(key=lambda item: (item[0], item[1]))
        runs: list[Run] = []
        parts: list[bytes] = []
        cursor = 0
        for begin, _, segment in with_data:
            if begin < 0 and not self.has_syn and not runs:
                cursor = begin
            skip = max(0, cursor - begin)
            if skip >= segment.payload_len:
                continue
            if not runs or begin > cursor:
                if runs:
                    runs[-1].data = b"".join(parts)
                    runs[-1].before_gap = True
                parts = []
                # A keep-alive probe repeats one old byte before the first; it lies before the stream.
                runs.append(Run(begin, b"", [], after_gap=bool(runs) or begin > 0 or not self.has_syn))
                cursor = begin
            first = segment.payload_at + skip
            runs[-1].pieces.append(
                Piece(cursor - runs[-1].begin, segment.ts_ns, (segment.seq + skip) & 0xFFFFFFFF)
            )
            parts.append(capture.data[first : segment.payload_at + segment.payload_len])
            cursor = begin + segment.payload_len
        if runs:
            runs[-1].data = b"".join(parts)
        return runs


def streams(capture: Capture) -> Iterator[Stream]:
    """Every direction of every connection instance. A SYN with a new sequence number begins a new one."""
    for flow, segments in capture.flows.items():
        instance: list[Segment] = []
        first_syn: int | None = None
        for segment in segments:
            if segment.flags & SYN and first_syn != segment.seq:
                if instance:
                    yield _stream(flow, instance, first_syn)
                instance = []
                first_syn = segment.seq
            instance.append(segment)
        if instance:
            yield _stream(flow, instance, first_syn)


def _stream(flow: Flow, segments: list[Segment], syn_seq: int | None) -> Stream:
    if syn_seq is not None:
        return Stream(flow, segments, (syn_seq + 1) & 0xFFFFFFFF, True)
    first = next((s for s in segments if s.payload_len > 0), segments[0])
    return Stream(flow, segments, first.seq, False)
