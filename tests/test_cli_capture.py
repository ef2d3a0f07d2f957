"""`tapscope capture` on the loopback interface, and `tapscope validate` and `report` after a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cli_program import CAPTURE, COMMAND, environment, tapscope, wait_for

from tapscope.cli.main import run
from tapscope.store.errors import ExitCode
from tapscope.store.runfile import RunFile

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to capture")


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.mark.root
@needs_root
def test_live_traffic_becomes_packets_and_calls(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    words = ["-i", "lo", "-w", tmp_path / "lo.pcap", "-o", tmp_path / "run.db", "--duration", "8s", "--json"]
    recorder = subprocess.Popen(
        [*COMMAND, "capture", *map(str, words), "tcp", "port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    wait_for((tmp_path / "lo.pcap").exists)
    for number in range(5):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/story/{number}", timeout=60) as answer:
            assert answer.read() == b"ok"
    out, errors = recorder.communicate(timeout=30)
    server.shutdown()
    assert recorder.returncode == ExitCode.DONE, errors.decode()
    record = json.loads(out)
    assert record["dropped_by_kernel"] == 0
    with RunFile.open(tmp_path / "run.db") as live:
        assert live.sql("SELECT class, count(*) FROM v_call GROUP BY class") == [("GET /story/{n}", 5)]
    # The packet file holds the same traffic.
    assert run(["trace", str(tmp_path / "lo.pcap"), "-o", str(tmp_path / "again.db")]) == ExitCode.DONE
    with RunFile.open(tmp_path / "again.db") as again:
        assert again.count("calls") == 5


@pytest.mark.root
@needs_root
def test_an_interrupt_that_only_the_program_gets_ends_a_traced_capture(tmp_path):
    """As a supervisor sends it: a terminal would send it to the capturing process, too."""
    out = tmp_path / "run.db"
    command = [*COMMAND, "capture", "-i", "lo", "-o", str(out)]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment())
    wait_for(lambda: any(tmp_path.glob("run.db.spool/*")))
    recorder.send_signal(signal.SIGINT)
    _, errors = recorder.communicate(timeout=30)
    assert recorder.returncode in (ExitCode.DONE, ExitCode.LOW_QUALITY), errors.decode()


@pytest.mark.root
@needs_root
def test_a_capture_without_a_call_is_said_to_be_one(tmp_path):
    done = tapscope("capture", "-i", "lo", "-o", tmp_path / "run.db", "--duration", "1s", "tcp port 1")
    assert done.returncode == ExitCode.LOW_QUALITY
    assert "no call of a known protocol in 0 TCP connections" in done.stderr


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("traced", [False, True])
def test_a_disk_that_is_full_from_the_first_byte_is_said(tmp_path, traced):
    words = ["-o", tmp_path / "run.db"] if traced else []
    done = tapscope("capture", "-i", "lo", "-w", "/dev/full", "--duration", "1s", *words)
    assert done.returncode == ExitCode.ERROR
    assert "/dev/full: writing failed: No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_packets_and_run_have_files_of_their_own(tmp_path, capsys):
    same = str(tmp_path / "both")
    assert run(["capture", "-i", "lo", "-w", same, "-o", same]) == ExitCode.USAGE
    assert "the same file" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_interfaces_are_listed():
    assert "lo" in tapscope("capture", "-D").stdout.split()
    assert "any" in json.loads(tapscope("capture", "-D", "--json").stdout)


def test_an_unknown_interface_is_named_with_those_that_exist(tmp_path):
    done = tapscope("capture", "-i", "mars0", "-w", tmp_path / "x.pcap")
    assert done.returncode == ExitCode.USAGE
    assert "there is no interface 'mars0'" in done.stderr


def test_a_capture_that_never_begins_leaves_nothing(tmp_path):
    done = tapscope("capture", "-i", "lo", "-o", tmp_path / "run.db", "no filter (((")
    assert done.returncode == ExitCode.ERROR
    assert "filter" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_validation_is_printed_stored_and_shown_by_its_exit_status(tmp_path, capsys):
    out = tmp_path / "run.db"
    assert run(["trace", str(CAPTURE), "-o", str(out)]) == ExitCode.DONE
    logs = CAPTURE.with_suffix(".logs")
    capsys.readouterr()
    code = run(["validate", str(out), "--events", str(logs), "--json"])
    record = json.loads(capsys.readouterr().out)
    expected = {
        "passed": ExitCode.DONE,
        "failed": ExitCode.VALIDATION_FAILED,
        "undecided": ExitCode.LOW_QUALITY,
    }
    assert code == expected[record["verdict"]]
    assert {tier["tier"] for tier in record["tiers"]} == {"web", "app", "db"}
    assert run(["validate", str(out), "--events", str(logs)]) == code
    assert "Validation " in capsys.readouterr().out
    with RunFile.open(out) as stored:
        assert set(stored.read_columns("agreement")["tier"]) == {"web", "app", "db"}
        assert len(stored.read_columns("event_call")["tier"]) > 0


def test_a_folder_without_logs_cannot_validate(tmp_path, capsys):
    out = tmp_path / "run.db"
    assert run(["trace", str(CAPTURE), "-o", str(out)]) == ExitCode.DONE
    (tmp_path / "logs").mkdir()
    assert run(["validate", str(out), "--events", str(tmp_path / "logs")]) == ExitCode.ERROR
    assert str(tmp_path / "logs") in capsys.readouterr().err


def test_the_report_is_one_page(tmp_path, capsys):
    pytest.importorskip("plotly")
    out = tmp_path / "run.db"
    assert run(["trace", str(CAPTURE), "-o", str(out)]) == ExitCode.DONE
    assert run(["report", str(out), "-o", str(tmp_path / "page.html")]) == ExitCode.DONE
    assert (tmp_path / "page.html").as_uri() in capsys.readouterr().err
    assert (tmp_path / "page.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
