"""A capture in which one call is stamped weeks or decades away from the others, or over which the clock was
set back: every command works, none makes a window for every 50 ms between, no response time is negative."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, START_NS, Dialogue, write_pcap

from tapscope.cli.main import run
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

DAY = 86_400_000_000_000
HOUR = 3_600_000_000_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CALLS = 20


def capture(path: Path, away: int) -> Path:
    dialogues = [
        Dialogue(client_port=41000 + number, now_ns=START_NS + number * 100_000_000)
        for number in range(CALLS)
    ]
    far = Dialogue(client_port=50000, now_ns=START_NS + away)
    packets = []
    for dialogue in [far, *dialogues] if away < 0 else [*dialogues, far]:
        dialogue.open().send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n").send(SERVER, ANSWER).close()
        packets += dialogue.packets
    return write_pcap(path, packets)


@pytest.mark.parametrize("away", [-START_NS, -30 * DAY, 30 * DAY, 76 * 365 * DAY])
def test_every_command_works_on_what_is_near(away: int, tmp_path: Path, capsys) -> None:
    path = tmp_path / "x.db"
    made = capture(tmp_path / "x.pcap", away)
    assert run(["trace", str(made), "-o", str(path)]) == ExitCode.DONE
    told = capsys.readouterr()
    assert "1 calls are stamped days away from all others" in told.out + told.err
    assert "editcap" in told.out + told.err
    with RunFile.open(path) as stored:
        assert stored.count("calls") == CALLS + 1
        assert ("load.far_stamp_excluded", 1, "calls") in stored.counters()
        assert 35 <= stored.count("loads") <= 45
    for words in (
        ["stats"],
        ["queues"],
        ["congestion"],
        ["findings"],
        ["traces"],
        ["listeners"],
        ["response-times", "--pit", "--by-start"],
    ):
        assert run([words[0], str(path), *words[1:]]) == ExitCode.DONE, words
    page = tmp_path / "x.html"
    assert run(["report", str(path), "-o", str(page)]) == ExitCode.DONE
    assert page.stat().st_size < 6_000_000


def test_a_call_during_which_the_clock_went_back_is_told_and_has_no_response_time(
    tmp_path: Path, capsys
) -> None:
    packets = []
    for number in range(3):
        dialogue = Dialogue(client_port=41000 + number, now_ns=START_NS + number * 100_000_000)
        dialogue.open().send(CLIENT, b"GET /a HTTP/1.1\r\n\r\n")
        if number == 1:
            dialogue.now_ns -= HOUR
        dialogue.send(SERVER, ANSWER).close()
        packets += dialogue.packets
    made, path = write_pcap(tmp_path / "x.pcap", packets), tmp_path / "x.db"
    assert run(["trace", str(made), "-o", str(path), "--json"]) == ExitCode.DONE
    told = json.loads(capsys.readouterr().out)
    assert any("1 calls end before they begin" in note for note in told["notes"])
    assert 0 < told["nodes"][0]["mean_response_ms"] < 100
    assert run(["response-times", str(path), "--pit", "--json"]) == ExitCode.DONE
    windows = json.loads(capsys.readouterr().out)
    assert sum(one["calls"] for one in windows) == 2
    assert all(0 < one["mean_ms"] <= one["max_ms"] < 100 for one in windows)
