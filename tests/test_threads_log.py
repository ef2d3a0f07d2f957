"""Thread logs: real ones, and what is made of damaged ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from thread_world import BEGIN_NS, closed, end, header, moved, opened

from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads.log import RECORD, How, Way
from tapscope.reconstruct.threads.parents import Why
from tapscope.store.errors import TapscopeError
from tapscope.validate.threads import logged

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"
GOLDEN = PCAPS / "threads"

ENDS = (("10.0.0.1", 20_000), ("10.0.0.2", 80))
SMALL = b"".join(
    [
        header(7, "server"),
        opened(BEGIN_NS, 1, 70, How.CONNECTED, *ENDS),
        moved(BEGIN_NS + 10, BEGIN_NS + 20, 1, 70, Way.SENT, 0, 100),
        moved(BEGIN_NS + 10, BEGIN_NS + 90, 1, 71, Way.RECEIVED, 0, 300),
        closed(BEGIN_NS + 99, 1, 70, (300, 100)),
        end(BEGIN_NS + 100),
    ]
)
HEADER_BYTES = 176


def read(folder: Path, *contents: bytes) -> log.ThreadLogs:
    for number, content in enumerate(contents):
        (folder / f"{number}.threads").write_bytes(content)
    return log.read([folder])


def test_a_log_becomes_tables(tmp_path):
    logs = read(tmp_path, SMALL)
    assert [process.title() for process in logs.processes] == ["server (process 7)"]
    assert logs.counters == {}
    assert logs.addresses == ["10.0.0.1", "10.0.0.2"]
    assert {name: values.tolist() for name, values in logs.connections.items()} == {
        "process": [0],
        "own": [0],
        "peer": [1],
        "own_port": [20_000],
        "peer_port": [80],
        "how": [How.CONNECTED],
        "begin_ns": [BEGIN_NS],
        "end_ns": [BEGIN_NS + 99],
        "received": [300],
        "sent": [100],
        "counted_received": [300],
        "counted_sent": [100],
    }
    assert logs.events["thread"].tolist() == [70, 71]
    assert logs.events["way"].tolist() == [Way.SENT, Way.RECEIVED]
    assert logs.events["bytes"].tolist() == [100, 300]


def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(tmp_path):
    for length in range(len(SMALL)):
        (tmp_path / "0.threads").write_bytes(SMALL[:length])
        if length < HEADER_BYTES:
            with pytest.raises(TapscopeError, match="none of 1 files is a thread log"):
                log.read([tmp_path])
            continue
        logs = log.read([tmp_path])
        whole, rest = divmod(length - HEADER_BYTES, RECORD.itemsize)
        assert len(logs.events["way"]) == max(0, min(whole - 1, 2))
        assert logs.counters.get("threads.cut_records", 0) == (rest > 0)
        assert logs.counters["threads.logs_without_end"] == 1


def test_every_byte_of_a_log_may_be_wrong(tmp_path):
    chance = np.random.default_rng(1)
    for place in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[place] = int(chance.integers(256))
        (tmp_path / "0.threads").write_bytes(damaged)
        try:
            logs = log.read([tmp_path])
        except TapscopeError:
            assert place < 16  # magic and sizes
            continue
        assert len(logs.events["way"]) <= 2


def test_a_file_that_is_no_log_is_counted_and_the_others_are_read(tmp_path):
    other = SMALL[:12] + b"\x40" + SMALL[13:]
    logs = read(tmp_path, SMALL, b"hello", other)
    assert len(logs.processes) == 1
    assert logs.counters == {"threads.files_that_are_no_logs": 1, "threads.logs_of_another_version": 1}


def test_calls_of_a_connection_whose_beginning_is_lost_are_counted(tmp_path):
    logs = read(tmp_path, SMALL[:HEADER_BYTES] + SMALL[HEADER_BYTES + RECORD.itemsize :])
    assert logs.counters["threads.calls_of_unknown_connections"] == 2
    assert len(logs.events["way"]) == 0


def test_nothing_there_is_one_clear_error(tmp_path):
    with pytest.raises(TapscopeError, match="no thread logs here"):
        log.read([tmp_path])
    with pytest.raises(TapscopeError, match="no such file"):
        log.read([tmp_path / "missing"])


def test_logs_of_real_servers_are_whole():
    logs = log.read([GOLDEN])
    assert sorted(process.program for process in logs.processes) == ["apache2", "apache2", "java", "mariadbd"]
    assert logs.counters == {}
    assert all(process.ended for process in logs.processes)
    # Every byte that the kernel moved passed through the recorder, and none twice.
    for way, name in ((Way.RECEIVED, "received"), (Way.SENT, "sent")):
        rows = logs.events["way"] == way
        size = len(logs.connections["own"])
        moved_bytes = np.bincount(
            logs.events["connection"][rows], weights=logs.events["bytes"][rows], minlength=size
        )
        assert moved_bytes.tolist() == logs.connections[name].tolist()


def test_a_real_server_that_is_driven_by_events_is_refused_and_those_behind_it_are_whole():
    found = logged.paths(log.read([PCAPS / "threads_nginx"]))
    assert found.logs.counters == {}
    assert len(found.refused) == 1
    assert "nginx" in found.refused[0]
    assert "driven by events" in found.refused[0]
    why = Counter(found.told.why.tolist())
    assert why == {Why.REFUSED: 40, Why.NOT_LOGGED: 40}  # nginx's calls; the clients', who have no log
    assert (found.told.parent < 0).all()
