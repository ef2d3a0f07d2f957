"""A capture in which one call is stamped weeks or decades away from the others: every command works, and
none of them makes a window for every 50 ms between."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_packets import CLIENT, SERVER, START_NS, Dialogue, write_pcap

from tapscope.cli.main import run
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

DAY = 86_400_000_000_000
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
