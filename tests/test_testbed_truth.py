"""Ground truth: message borders of three protocols, and who held a database connection."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest

from tapscope.validate.testbed import fanout, parts, pcapfile, requests, truth
from tapscope.validate.testbed.checkouts import Checkouts
from tapscope.validate.testbed.requests import Request, Unread
from tapscope.validate.testbed.streams import Piece, Run, streams

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"


def run_of(data: bytes, *, after_gap: bool = False, borders: tuple[int, ...] = (0,)) -> Run:
    return Run(0, data, [Piece(at, 1000 + at, at) for at in borders], after_gap)


def ajp_packet(payload: bytes) -> bytes:
    return b"\x12\x34" + len(payload).to_bytes(2, "big") + payload


def mysql_packet(payload: bytes, number: int = 0) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode() + b"\0"


def test_http_requests_end_behind_their_bodies() -> None:
    form = b"POST /board/rate HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    page = b"GET /board/front HTTP/1.1\r\nHost: x\r\n\r\n"
    found = list(requests.http(run_of(form + page)))
    assert found == [Request(0, len(form), "POST"), Request(len(form), len(form) + len(page), "GET")]


def test_http_resumes_at_the_next_packet_that_begins_a_request() -> None:
    rest = b"cut off header\r\n\r\n"
    page = b"GET /board/front HTTP/1.1\r\nHost: x\r\n\r\n"
    found = list(requests.http(run_of(rest + page, after_gap=True, borders=(0, len(rest)))))
    assert found == [Unread(len(rest)), Request(len(rest), len(rest) + len(page), "GET")]


def test_ajp_body_packets_belong_to_their_request_even_when_they_look_like_one() -> None:
    head = b"\x02\x04" + text("HTTP/1.1") + text("/board/rate") + b"\xa0\x08" + text("9") + b"\xff"
    body = (9).to_bytes(2, "big") + b"\x02\x02 a body"
    forward = ajp_packet(head) + ajp_packet(body)
    ping = ajp_packet(b"\x0a")
    page = ajp_packet(b"\x02\x02" + text("HTTP/1.1") + text("/board/front") + b"\xff")
    found = list(requests.ajp(run_of(forward + ping + page)))
    second = len(forward) + len(ping)
    assert found == [Request(0, len(forward), "POST"), Request(second, second + len(page), "GET")]


def test_mysql_log_in_packets_are_no_commands() -> None:
    login = mysql_packet(b"\x85\xa6\x3f\x20 log in", number=1)
    query = mysql_packet(b"\x03SELECT 1")
    execute = mysql_packet(b"\x17\x01\0\0\0\0\x01\0\0\0")
    found = list(requests.mysql(run_of(login + query + execute)))
    assert [(f.begin, f.kind) for f in found if isinstance(f, Request)] == [
        (len(login), "COM_QUERY"),
        (len(login) + len(query), "COM_STMT_EXECUTE"),
    ]


def checkouts(tmp_path: Path, rows: list[tuple[str, int, int, int]]) -> Checkouts:
    lines = ["request_id\tthread_id\tborrow_us\treturn_us", *("\t".join(map(str, r)) for r in rows)]
    path = tmp_path / "checkouts.tsv"
    path.write_text("\n".join(lines) + "\n")
    return Checkouts.read(path)


@pytest.mark.parametrize(
    ("thread", "at_us", "expected"),
    [(7, 99, ""), (7, 150, "a"), (7, 200, "a"), (7, 250, "b"), (7, 350, ""), (7, 500, "c"), (8, 150, "")],
)
def test_the_holder_of_a_connection_is_the_next_to_return_it(
    tmp_path: Path, thread: int, at_us: int, expected: str
) -> None:
    # b began to wait for the connection while a still held it.
    table = checkouts(tmp_path, [("a", 7, 100, 200), ("b", 7, 120, 300), ("c", 7, 400, 600)])
    assert table.holder(str(thread), at_us * 1000) == expected


def test_a_checkout_without_an_id_is_nobodys(tmp_path: Path) -> None:
    assert checkouts(tmp_path, [("-", 7, 100, 200)]).holder("7", 150_000) == ""


def test_without_checkout_logs_nobody_is_known() -> None:
    assert Checkouts.read().holder("1", 1) == ""


def test_the_ground_truth_capture_has_its_twenty_requests() -> None:
    capture = pcapfile.read(PCAPS / "http_ajp_mysql_groundtruth.pcap")
    kinds: Counter[str] = Counter()
    readers = {b"GET": requests.http, b"POS": requests.http, b"\x12\x34": requests.ajp}
    for stream in streams(capture):
        for run in stream.runs(capture):
            reader = readers.get(run.data[:3]) or readers.get(run.data[:2])
            if reader is not None:
                kinds[reader.__name__] += sum(isinstance(r, Request) for r in reader(run))
    assert kinds == {"http": 20, "ajp": 20}


def test_truth_is_written_with_its_header(tmp_path: Path) -> None:
    call = truth.Call(1, "10.77.0.10", 4000, "10.77.0.20", 80, 5, "http", "id", "content", "GET")
    truth.write(truth.Truth([call], {}), tmp_path / "calls.csv.gz")
    with gzip.open(tmp_path / "calls.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{name: str(value) for name, value in call._asdict().items()}]
    assert tuple(rows[0]) == truth.COLUMNS


def test_ids_of_parts_lead_back_to_the_request() -> None:
    visitor = fanout.Visitor(1, 1, "write10")
    asked = {visitor.request_id() for _ in range(50)}
    named = parts.with_parts(asked, 3)
    assert len(named) == 4 * len(asked)
    assert {parts.whole(name) for name in named} == asked
    assert Counter(parts.number(name) for name in named) == dict.fromkeys(range(4), len(asked))


def test_without_parts_ids_stay_as_they_are() -> None:
    assert parts.with_parts({"0-7"}, 0) == {"0-7"}
