"""What is left of a capture's messages when packets are displaced, duplicated and lost: judged by the truth.

A message counts as found when one begins at its first byte; as lost with its packet when that byte is in no
packet of the capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import generated
import numpy as np
import recorded

from tapscope import capture
from tapscope.store.codes import MessageFlag, MessageKind, Protocol

PCAPS = Path(__file__).resolve().parent.parent.parent / "pcaps"
SALT = b"sixteen bytes ok"
MOVED = {"displaced": 0.01, "duplicated": 0.01}  # displaced by up to 64 places
UNSURE = MessageFlag.RESYNCHRONISED | MessageFlag.INFERRED | MessageFlag.TRUNCATED


@dataclass(frozen=True)
class Judged:
    """Numbers of messages. The last ones but two are of the responses found: paired with the right request,
    or with none where that is lost; with none although it is there; with another one, flagged as inferred or
    not."""

    requests: int = 0
    requests_found: int = 0
    responses: int = 0
    responses_found: int = 0
    commands: int = 0
    """Requests of MySQL."""
    commands_found: int = 0
    right: int = 0
    unpaired: int = 0
    wrong_inferred: int = 0
    wrong: int = 0
    invented: int = 0
    """Begin where no message does, and no flag tells that it is in doubt."""
    lost: int = 0
    """Messages whose first byte is in no packet."""

    @property
    def pairs(self) -> int:
        return self.right + self.unpaired + self.wrong_inferred + self.wrong

    def __add__(self, other: Judged) -> Judged:
        return Judged(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def judge(tables: Any, truth: np.ndarray) -> Judged:
    """Compare what was found with what was there."""
    m = tables.messages
    rows = generated.truth_rows(tables, truth)
    found = np.isin(np.arange(len(truth)), rows)
    there = (truth["lost"] & 1) == 0
    asks, answers = truth["kind"] == MessageKind.REQUEST, truth["kind"] == MessageKind.RESPONSE
    commands = asks & (truth["protocol"] == Protocol.MYSQL)

    known = rows >= 0
    pairs = known & np.isin(m["kind"], (MessageKind.RESPONSE, MessageKind.INTERIM))
    none = m["request"] < 0
    paired = np.where(none, -1, rows[m["request"]])
    right = truth["request"][rows]
    right_lost = (right >= 0) & ~there[right]
    # Of a request whose first byte is lost the rest may be there.
    good = np.where(none, (right < 0) | right_lost, (paired == right) | ((paired < 0) & right_lost))
    inferred = (m["flags"] & MessageFlag.INFERRED) != 0
    wrong = pairs & ~good & ~none
    count = np.count_nonzero
    return Judged(
        requests=count(asks & there),
        requests_found=count(asks & there & found),
        responses=count(answers & there),
        responses_found=count(answers & there & found),
        commands=count(commands & there),
        commands_found=count(commands & there & found),
        right=count(pairs & good),
        unpaired=count(pairs & ~good & none),
        wrong_inferred=count(wrong & inferred),
        wrong=count(wrong & ~inferred),
        invented=count(~known & ((m["flags"] & UNSURE) == 0)),
        lost=count(~there),
    )


@dataclass(frozen=True)
class Traffic:
    """One row of the table: `kind` of the generator, or recorded captures."""

    name: str
    kind: str = ""
    captures: tuple[str, ...] = ()
    times: int = 0
    """How many connections of each recorded one."""

    def read(self, generator: Path, folder: Path, size: float, seed: int, **options: float) -> Read:
        """One impaired capture of about `size` bytes (or `times` connections), read."""
        path = folder / "impaired.pcap"
        if self.kind:
            where = folder / "impaired.truth"
            made = generated.generate(
                generator, self.kind, path, truth=where, bytes=size, seed=seed, **options
            )
            truth = generated.read_truth(where)
            packets = made.packets
        else:
            whole = recorded.repeated([PCAPS / name for name in self.captures], self.times, seed)
            recorded.write_packets(path, whole)
            clean = capture.read_files([path], salt=SALT)
            truth = recorded.truth_of(clean)
            kept, gone = recorded.impaired(whole, seed, **options)
            recorded.mark_lost(truth, clean, kept, gone)
            recorded.write_packets(path, kept)
            packets = len(kept)
        tables = capture.read_files([path], salt=SALT)
        path.unlink()
        return Read(tables, truth, packets)


@dataclass(frozen=True)
class Read:
    """A capture as the engine reads it, what is in it, and how many packets were written."""

    tables: Any
    truth: np.ndarray
    packets: int

    @property
    def rows(self) -> np.ndarray:
        """Row in the truth of each message that was found, -1 where there is none."""
        return generated.truth_rows(self.tables, self.truth)


def captures(*patterns: str) -> tuple[str, ...]:
    """Captures below pcaps/ by name."""
    found = [path for pattern in patterns for path in sorted(PCAPS.glob(pattern))]
    return tuple(str(path.relative_to(PCAPS)) for path in found)


TRAFFIC = (
    Traffic("HTTP, one request at a time", "http_small"),
    Traffic("HTTP, chunked, batches of 1 to 6", "http_chunked"),
    Traffic("HTTP, always 4 open", "http_window"),
    Traffic("HTTP, large bodies", "http_large"),
    Traffic("AJP", "ajp"),
    Traffic("MySQL, text", "mysql_text"),
    Traffic("MySQL, prepared", "mysql_prepared"),
    Traffic("four tiers", "tiers"),
    Traffic("MySQL, compressed", captures=captures("mysql_compressed_*.pcap"), times=30),
    Traffic(
        "MySQL, recorded clients",
        captures=captures("mysql_[!c]*.pcap", "mysql_cursor*.pcap", "mediawiki_http_mysql.pcap"),
        times=10,
    ),
    Traffic(
        "PostgreSQL",
        captures=captures("postgres/pg*.pcap", "postgres/jdbc_[!b]*.pcap", "postgres/psycopg_plain.pcap"),
        times=12,
    ),
    Traffic("C-JDBC", captures=captures("cjdbc/*.pcap"), times=40),
    Traffic("FastCGI behind HTTP", captures=captures("fastcgi/*.pcap.gz"), times=40),
    Traffic("Redis", captures=captures("redis/benchmark.pcap", "redis/pipeline.pcap.gz"), times=6),
    Traffic("memcached", captures=captures("memcached/*.pcap*"), times=15),
)


def heading(losses: Sequence[float], seeds: Sequence[int]) -> str:
    """What the table is about."""
    return (
        "### Impairment: 1 % displaced by up to 64 places, 1 % duplicated, and "
        f"{', '.join(f'{100 * lost:g}' for lost in losses)} % lost; {len(seeds)} seeds each"
    )


def share(part: int, whole: int) -> str:
    """A share in %, rounded down so that 100 % is all of them."""
    if whole == 0:
        return "-"
    return "100" if part == whole else f"{np.floor(10_000 * part / whole) / 100:.2f}"


def measure(
    generator: Path, folder: Path, traffic: Traffic, lost: float, size: float, seeds: Sequence[int]
) -> Judged:
    """The sum over several seeds."""
    total = Judged()
    for seed in seeds:
        read = traffic.read(generator, folder, size, seed, lost=lost, **MOVED)
        total += judge(read.tables, read.truth)
    return total


def table(
    generator: Path, folder: Path, losses: Sequence[float], size: float, seeds: Sequence[int]
) -> Iterator[str]:
    """Lines of a Markdown table: for each traffic and share of lost packets what was found."""
    words = ("requests,", "responses,", "right,", "wrong,")
    heads = [f"{word} {100 * lost:g} %" for lost in losses for word in words]
    yield f"| traffic | {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * len(heads)
    for traffic in TRAFFIC:
        cells = []
        for lost in losses:
            judged = measure(generator, folder, traffic, lost, size, seeds)
            cells += [
                share(judged.requests_found, judged.requests),
                share(judged.responses_found, judged.responses),
                share(judged.right, judged.pairs),
                str(judged.wrong),
            ]
        yield f"| {traffic.name} | {' | '.join(cells)} |"
