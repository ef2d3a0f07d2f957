"""Ground truth of PostgreSQL, Redis and memcached: message borders, and who held a connection."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tapscope import capture
from tapscope.validate.testbed import pcapfile, requests
from tapscope.validate.testbed.checkouts import Checkouts, WireCheckouts
from tapscope.validate.testbed.pcapfile import Flow
from tapscope.validate.testbed.requests import Request, Unread
from tapscope.validate.testbed.streams import Piece, Run, Stream, streams
from tapscope.validate.truth import ONE_WAY

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"


def run_of(data: bytes, *, after_gap: bool = False, borders: tuple[int, ...] = (0,)) -> Run:
    return Run(0, data, [Piece(at, 1000 + at, at) for at in borders], after_gap)


def read(reader: str, data: bytes, **given: object) -> list[tuple[int, int, str]]:
    found = list(requests.READERS[reader](run_of(data, **given)))  # type: ignore[arg-type]
    assert not any(isinstance(each, Unread) for each in found)
    return [(each.begin, each.end, each.kind) for each in found if isinstance(each, Request)]


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (4 + len(body)).to_bytes(4, "big") + body


def resp(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


LOGIN = (
    (8).to_bytes(4, "big")
    + (80877103).to_bytes(4, "big")
    + (18).to_bytes(4, "big")
    + (3 << 16).to_bytes(4, "big")
    + b"user\0tap\0\0"
    + message(b"p", b"SCRAM-SHA-256\0")
)


def test_a_postgres_request_ends_with_its_execute_and_the_log_in_is_none() -> None:
    first = message(b"P", b"\0SELECT $1\0\0\0") + message(b"B") + message(b"D") + message(b"E")
    second = message(b"B") + message(b"E")
    data = LOGIN + first + second + message(b"S")
    at = len(LOGIN)
    assert read("postgres", data) == [
        (at, at + len(first), "EXECUTE"),
        (at + len(first), at + len(first) + len(second), "EXECUTE"),
    ]


def test_postgres_messages_without_an_execute_are_a_request_up_to_their_sync() -> None:
    prepare = message(b"P", b"s1\0SELECT 1\0\0\0") + message(b"S")
    query, leave = message(b"Q", b"SELECT 1\0"), message(b"X")
    found = read("postgres", prepare + query + leave)
    assert found == [
        (0, len(prepare), "PREPARE"),
        (len(prepare), len(prepare) + len(query), "QUERY"),
        (len(prepare) + len(query), len(prepare) + len(query) + len(leave), "TERMINATE"),
    ]


def test_commands_inside_values_are_no_requests() -> None:
    value = resp(b"GET", b"a") + b"get a\r\n"
    pipeline = resp(b"set", b"k", value) + resp(b"EXEC")
    assert [kind for _, _, kind in read("redis", pipeline)] == ["SET", "EXEC"]
    stored = b"set k 0 9 %d noreply\r\n%s\r\n" % (len(value), value)
    assert read("memcached", stored + b"get k l\r\n") == [
        (0, len(stored), "set noreply"),
        (len(stored), len(stored) + 9, "get"),
    ]


def test_what_asks_for_no_answer_is_known_as_one_way() -> None:
    data = b"set k 0 9 1 noreply\r\nx\r\ndelete k noreply\r\ndelete k\r\nquit\r\n"
    kinds = [kind for _, _, kind in read("memcached", data)]
    assert [kind in ONE_WAY for kind in kinds] == [True, True, False, True]


@pytest.mark.parametrize(
    ("reader", "rest", "whole"),
    [
        ("postgres", b"rest of a value", message(b"B") + message(b"E")),
        ("redis", b"rest of a value\r\n", resp(b"GET", b"k")),
        ("memcached", b"\x00rest of a value\r\n", b"get k\r\n"),
    ],
)
def test_readers_resume_at_the_next_packet_that_begins_a_request(
    reader: str, rest: bytes, whole: bytes
) -> None:
    found = list(requests.READERS[reader](run_of(rest + whole, after_gap=True, borders=(0, len(rest)))))
    assert found[0] == Unread(len(rest))
    assert [(each.begin, each.end) for each in found[1:] if isinstance(each, Request)] == [
        (len(rest), len(rest) + len(whole))
    ]


@pytest.mark.parametrize(
    ("folder", "name", "reader", "port"),
    [
        ("postgres", "psycopg_pipeline.pcap", "postgres", 25432),
        ("postgres", "psycopg_plain.pcap", "postgres", 25432),
        ("postgres", "jdbc_batch.pcap", "postgres", 25432),
        ("redis", "benchmark.pcap", "redis", 26379),
        ("redis", "resp3.pcap", "redis", 26379),
        ("memcached", "pipeline.pcap", "memcached", 21211),
    ],
)
def test_the_truth_and_the_engine_find_the_same_requests_in_recordings_of_real_clients(
    folder: str, name: str, reader: str, port: int
) -> None:
    """Two readers that share nothing. The engine alone counts the log-in, and a Sync that comes by itself."""
    path = PCAPS / folder / name
    tables = capture.read_files([str(path)])
    sent = tables.messages["direction"] == 0
    asked = np.flatnonzero(sent & (tables.messages["kind"] == 0))
    classes = [tables.classes[n][1] for n in tables.messages["class_id"][asked]]
    others = ("LOGIN", "SSL_REQUEST", "GSSENC_REQUEST", "SYNC")
    by_engine = Counter(
        int(tables.messages["tcp_seq"][row])
        for row, text in zip(asked, classes, strict=True)
        if text not in others
    )
    packets = pcapfile.read(path)
    found: Counter[int] = Counter()
    for stream in streams(packets):
        if stream.flow.dport != port:
            continue
        for run in stream.runs(packets):
            for each in requests.READERS[reader](run):
                assert isinstance(each, Request)
                if each.kind not in ONE_WAY:
                    found[run.origin(each.begin)[1]] += 1
    assert sum(found.values()) > 5
    assert found == by_engine


def test_the_holder_of_a_connection_is_found_by_its_ports(tmp_path: Path) -> None:
    path = tmp_path / "checkouts.tsv"
    with path.open("w") as file:
        out = csv.writer(file, delimiter="\t", lineterminator="\n")
        out.writerow(("request_id", "connection", "borrow_us", "return_us"))
        out.writerow(("a", "10.77.0.30:4000>6379", 100, 200))
        out.writerow(("b", "10.77.0.30:4000>5432", 100, 200))
    rule = WireCheckouts(Checkouts.read(path, key="connection"))
    request = Request(0, 1, "GET")

    def holder(server_port: int, at_us: int) -> str:
        flow = Flow(bytes((10, 77, 0, 30)), 4000, bytes((10, 77, 0, 41)), server_port)
        return rule.holder(Stream(flow, [], 0, True), run_of(b"x"), request, at_us * 1000)

    assert [holder(6379, 150), holder(5432, 150), holder(6379, 250), holder(11211, 150)] == ["a", "b", "", ""]
    assert rule.knows()
