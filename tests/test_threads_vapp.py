"""vApp: paths of any shape on real threads and real connections; its answers tell what is true."""

from __future__ import annotations

import csv
import os
import platform
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from cli_program import wait_for

from tapscope.reconstruct import dapper
from tapscope.reconstruct.ctf import Event
from tapscope.reconstruct.threads import log
from tapscope.store.errors import TapscopeError
from tapscope.validate.testbed import vapp
from tapscope.validate.threads import answers, logged, record

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="vApp and the recorder are for Linux")


SOURCES = Path(__file__).resolve().parent.parent / "validate" / "testbed" / "vapp"


def free_places(count: int) -> list[str]:
    """ADDRESS:PORT of that many ports that nobody uses."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for number, each in enumerate(sockets):
            each.bind((f"127.0.1.{number + 1}", 0))
        return ["{}:{}".format(*each.getsockname()) for each in sockets]


def at_rest(server: subprocess.Popen[bytes]) -> bool:
    """All its threads wait: who has just answered has written that down, too."""
    stats = Path(f"/proc/{server.pid}/task").glob("*/stat")
    try:
        return all(stat.read_text().rpartition(")")[2].split()[0] == "S" for stat in stats)
    except (FileNotFoundError, ProcessLookupError):  # one of them has just ended
        return False


@contextmanager
def topology(seed: int, logs: Path, annotate: Path | None = None) -> Iterator[str]:
    """Starts recorded tiers of random width, kind and fan-out; gives the place of the first server.

    annotate : library that notes their spans, each server by its place
    """
    chance = random.Random(seed)
    tiers = [1, *(chance.randrange(1, 4) for _ in range(chance.randrange(1, 4)))]
    places = iter(free_places(sum(tiers)))
    rows = [[next(places) for _ in range(width)] for width in tiers]
    servers = []
    variables = record.environment(record.folder_for_logs(logs))
    with ExitStack() as stack:
        for depth in reversed(range(len(rows))):
            below = rows[depth + 1] if depth + 1 < len(rows) else []
            for place in rows[depth]:
                argv = [str(vapp.program()), place, "--pause", "300", "--seed", str(seed), "--threads", "24"]
                argv += ["--go", f"{chance.uniform(0.3, 0.6):.2f}"]
                argv += ["--dispatcher"] if chance.random() < 0.5 else []
                argv += [word for other in below for word in ("--below", other)]
                argv += ["--service", place, "--annotate", str(annotate)] if annotate else []
                server = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=subprocess.PIPE)
                stack.enter_context(server)
                stack.callback(server.terminate)
                assert server.stdout is not None
                assert b"is ready" in server.stdout.readline()
                servers.append(server)
        yield rows[0][0]
        wait_for(lambda: all(at_rest(server) for server in servers))


def ask(place: str, sessions: int, requests: int, out: Path) -> None:
    """Sessions ask at the same time; what they were told goes to a table like the testbed's requests.csv."""
    rows: list[tuple[object, ...]] = []

    def session() -> None:
        address, port = place.split(":")
        connection = HTTPConnection(address, int(port))
        connection.connect()
        own = connection.sock.getsockname()[1]
        for _ in range(requests):
            begin = time.time_ns()
            connection.request("GET", "/", headers={"X-Request-ID": f"{own}-{begin}"})
            answer = connection.getresponse()
            text = answer.read().decode()
            rows.append((begin, time.time_ns(), answer.status, own, text))
        connection.close()

    threads = [threading.Thread(target=session) for _ in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(answers.NEEDED)
        writer.writerows(rows)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_path_of_a_random_topology_is_found(seed, tmp_path):
    with topology(seed, tmp_path / "logs") as entry:
        ask(entry, sessions=12, requests=15, out=tmp_path / "requests.csv")
    logs = log.read([tmp_path / "logs"])
    assert logs.counters == {}
    found = logged.paths(logs)
    assert found.refused == []
    result = answers.judge(found, tmp_path / "requests.csv")
    assert (result.exist, result.reported, result.correct) == (180, 180, 180)
    assert result.completeness == result.accuracy == 1.0
    assert result.shapes > 5


def test_a_wrong_path_is_not_called_correct(tmp_path):
    with topology(4, tmp_path / "logs") as entry:
        ask(entry, sessions=4, requests=10, out=tmp_path / "requests.csv")
    found = logged.paths(log.read([tmp_path / "logs"]))
    linked = int((found.told.parent >= 0).argmax())
    found.told.parent[linked] = -1
    result = answers.judge(found, tmp_path / "requests.csv")
    assert (result.exist, result.reported, result.correct) == (40, 41, 39)


def spans_of(file: Path) -> dict[str, dapper.Span]:
    """The spans that tests/span_printer.c wrote down."""
    spans: dict[str, dapper.Span] = {}
    oddities: list[str] = []
    names = ("trace_id", "span_id", "parent_span_id", "service_name", "ip")
    for line in file.read_text().splitlines():
        at_ns, *cells, event, value = line.split("\t")
        noted = {"key": event, "val": value} if value else {"event": event}
        fields = dict(zip(names, cells, strict=True)) | noted
        dapper.add(Event(int(at_ns), "", "", fields), spans, lambda name, _: oddities.append(name))
    assert oddities == []
    return spans


def test_spans_that_the_servers_note_tell_the_same_paths(tmp_path, monkeypatch):
    library = tmp_path / "printer.so"
    printer = Path(__file__).with_name("span_printer.c")
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{SOURCES}", "-o", library, printer], check=True)
    monkeypatch.setenv("SPANS", str(tmp_path / "spans"))
    with topology(6, tmp_path / "logs", library) as entry:
        ask(entry, sessions=6, requests=10, out=tmp_path / "requests.csv")
    spans = spans_of(tmp_path / "spans")
    roots = [call for call, span in spans.items() if not span.parent_id]
    for call, span in spans.items():
        sent, received, responded, answered = span.times
        assert received <= responded
        if call not in roots:
            assert sent <= received
            assert responded <= answered
            assert spans[span.parent_id].times[1] <= sent <= answered <= spans[span.parent_id].times[2]

    def text(call: str) -> str:
        below = sorted((each.times[0], name) for name, each in spans.items() if each.parent_id == call)
        return spans[call].callee + "".join(f"({text(name)})" for _, name in below)

    with (tmp_path / "requests.csv").open(newline="") as file:
        told = sorted(row["answer"] for row in csv.DictReader(file))
    assert len(told) == len({spans[call].request_id for call in roots} - {""}) == 60
    assert sorted(map(text, roots)) == told
    assert len(set(told)) > 5


def test_a_table_without_answers_is_one_clear_error(tmp_path):
    (tmp_path / "requests.csv").write_text("start_ns,end_ns\n")
    with topology(5, tmp_path / "logs") as entry:
        ask(entry, sessions=1, requests=1, out=tmp_path / "other.csv")
    found = logged.paths(log.read([tmp_path / "logs"]))
    with pytest.raises(TapscopeError, match="column status is missing"):
        answers.judge(found, tmp_path / "requests.csv")
