"""What a user sees when something is wrong: one message with file, place and remedy, the right exit
status."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import click
import pytest
from cli_program import CAPTURE, COMMAND, broken_off, environment, tapscope

from tapscope.cli import main
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile


def failing(capsys, *arguments: object, code: ExitCode = ExitCode.ERROR) -> str:
    """The one message of a command line that fails."""
    assert main.run([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("(byte 0)", "empty")),
        (b"this is a text file, not packets\n" * 10, ("(byte 0)", "not a capture file")),
        (b"\xd4\xc3\xb2\xa1\x02\x00", ("(byte 6)", "cut")),
        (b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + bytes(8) + b"\xff\xff\x00\x00\xe7\x03\x00\x00", ("link",)),
    ],
    ids=["empty", "text", "cut header", "unknown link type"],
)
def test_an_unusable_capture_is_named_with_place_and_remedy(capsys, tmp_path, content, words):
    path = tmp_path / "given.pcap"
    path.write_bytes(content)
    message = failing(capsys, "trace", path, "-o", tmp_path / "run.db")
    assert message.startswith(f"tapscope: {path}")
    assert message.count("\n") == 1
    for word in words:
        assert word in message


def test_a_capture_cut_in_a_packet_is_read_up_to_there_and_said(capsys, tmp_path):
    path = tmp_path / "cut.pcap"
    path.write_bytes(CAPTURE.read_bytes()[:30_001])
    assert main.run(["trace", str(path), "-o", str(tmp_path / "run.db"), "--json"]) == ExitCode.DONE
    printed = capsys.readouterr()
    assert json.loads(printed.out)["calls"] > 20
    assert str(path) in printed.err
    with RunFile.open(tmp_path / "run.db") as stored:
        assert {n: v for n, v, _ in stored.counters()}["source.truncated_file"] == 1


def test_missing_things_are_named(capsys, tmp_path):
    nothing = tmp_path / "nothing"
    assert "no such file or folder" in failing(capsys, "trace", nothing, "-o", tmp_path / "run.db")
    for command in (["stats"], ["queues"], ["traces"], ["export", "--table", "calls"], ["query", "SELECT 1"]):
        words = [command[0], nothing, *command[1:]]
        assert f"{nothing}: no such file" in failing(capsys, *words)
    assert "its folder does not exist" in failing(capsys, "trace", CAPTURE, "-o", nothing / "run.db")


def test_an_output_that_exists_is_kept_unless_forced(capsys, tmp_path):
    out = tmp_path / "run.db"
    assert main.run(["trace", str(CAPTURE), "-o", str(out)]) == ExitCode.DONE
    before = out.read_bytes()
    capsys.readouterr()
    assert "--force" in failing(capsys, "trace", CAPTURE, "-o", out)
    assert out.read_bytes() == before
    theirs = tmp_path / "letter.txt"
    theirs.write_text("Dear reader, " * 100)
    assert "not a tapscope run file" in failing(capsys, "trace", CAPTURE, "-o", theirs, "--force")
    assert theirs.read_text().startswith("Dear reader")


@pytest.mark.parametrize("content", [b"", b"this is a text file\n"])
def test_an_input_that_is_no_capture_costs_no_run_file(capsys, tmp_path, content):
    """Neither the one that it would have replaced, nor an empty one that is in the way of the next try."""
    out, text = tmp_path / "run.db", tmp_path / "text.pcap"
    text.write_bytes(content)
    failing(capsys, "trace", text, "-o", out)
    assert not out.exists()
    assert main.run(["trace", str(CAPTURE), "-o", str(out)]) == ExitCode.DONE
    before = out.read_bytes()
    capsys.readouterr()
    failing(capsys, "trace", text, "-o", out, "--force")
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    "words", [("report",), ("export", "--table", "calls"), ("validate", "--events", CAPTURE.parent, "--plot")]
)
def test_nothing_is_written_over_the_run_that_is_read(capsys, tmp_path, words):
    out = tmp_path / "run.db"
    assert main.run(["trace", str(CAPTURE), "-o", str(out)]) == ExitCode.DONE
    before = out.read_bytes()
    capsys.readouterr()
    to = () if words[-1] == "--plot" else ("-o",)
    message = failing(capsys, words[0], out, *words[1:], *to, out, code=ExitCode.USAGE)
    assert "the run file that is read" in message
    assert out.read_bytes() == before


def test_what_lies_behind_damage_is_not_said_to_be_accounted_for(capsys, tmp_path):
    whole = CAPTURE.read_bytes()
    path, out = tmp_path / "damaged.pcap", tmp_path / "run.db"
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + b"\xff" * 5000 + whole[middle:])
    assert main.run(["trace", str(path), "-o", str(out)]) == ExitCode.LOW_QUALITY
    assert "was not read" in capsys.readouterr().err
    assert main.run(["stats", str(out)]) == ExitCode.DONE
    said = capsys.readouterr().out
    assert "Every byte that was read" in said
    assert "Every captured byte" not in said


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_a_device_is_never_replaced(capsys, tmp_path, device):
    assert "not a regular file" in failing(capsys, "trace", CAPTURE, "-o", device, "--force")
    assert stat.S_ISCHR(Path(device).stat().st_mode)


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["trace", "x.pcap"],
        ["trace", "x.pcap", "-o", "r.db", "--evidence", "magic"],
        ["trace", "x.pcap", "-o", "r.db", "--window", "50"],
        ["trace", "x.pcap", "-o", "r.db", "--window", "-5ms"],
        ["trace", "x.pcap", "-o", "r.db", "--port-map", "8009=gopher"],
        ["trace", "x.pcap", "-o", "r.db", "--port-map", "99999=ajp"],
        ["export", "r.db", "--table", "secrets"],
        ["capture"],
        ["capture", "-i", "lo"],
        ["capture", "-i", "lo", "-w", "x.pcap", "--keep-text"],
        ["capture", "-i", "lo", "-w", "x.pcap", "--force"],
        ["capture", "-i", "lo", "-w", "x.pcap", "--queues", "2"],
    ],
    ids=lambda words: " ".join(words),
)
def test_wrong_use_is_status_two(capsys, arguments):
    assert main.run(arguments) == ExitCode.USAGE
    assert "Error:" in capsys.readouterr().err


def command_that(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """A sub-command `fail` that raises."""

    @click.command()
    def fail() -> None:
        """Fail."""
        raise error

    module = types.ModuleType("tests_failing_command")
    module.fail = fail
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(main.COMMANDS, "fail", f"{module.__name__}:fail")


BROKEN = TapscopeError(
    "it is broken", path="a.b", offset=7, remedy="Mend it.", exit_code=ExitCode.LOW_QUALITY
)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BROKEN, ExitCode.LOW_QUALITY, "tapscope: a.b (byte 7): it is broken. Mend it."),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted"),
        (OSError(28, "No space left on device", "/x/run.db"), ExitCode.ERROR, "/x/run.db: the disk is full"),
        (PermissionError(13, "Permission denied", "/x"), ExitCode.ERROR, "/x: permission denied. Check"),
        (MemoryError(), ExitCode.ERROR, "not enough memory"),
        (ZeroDivisionError("oops"), ExitCode.ERROR, "this is a bug in tapscope (ZeroDivisionError: oops)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failures_have_a_message_and_a_status(monkeypatch, capsys, error, code, words):
    monkeypatch.delenv("TAPSCOPE_DEBUG", raising=False)
    command_that(monkeypatch, error)
    assert words in failing(capsys, "fail", code=code)


def test_the_traceback_is_there_for_those_who_ask(monkeypatch):
    monkeypatch.setenv("TAPSCOPE_DEBUG", "1")
    command_that(monkeypatch, ZeroDivisionError("oops"))
    with pytest.raises(ZeroDivisionError):
        main.run(["fail"])


@pytest.fixture
def stored(tmp_path) -> Path:
    assert main.run(["trace", str(CAPTURE), "-o", str(tmp_path / "run.db")]) == ExitCode.DONE
    return tmp_path / "run.db"


def test_the_program_ends_with_the_status_and_without_a_traceback(tmp_path):
    done = tapscope("stats", tmp_path / "nothing.db")
    assert done.returncode == ExitCode.ERROR
    assert done.stderr.startswith("tapscope: ")
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(stored):
    writer = subprocess.Popen(
        [*COMMAND, "export", str(stored), "--table", "messages"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert writer.stdout is not None
    writer.stdout.close()
    assert writer.stderr is not None
    assert writer.stderr.read() == b""
    assert writer.wait(60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_under_the_output_is_said(stored):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "export", str(stored), "--table", "messages"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert done.returncode == ExitCode.ERROR
    assert "the disk is full" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_under_a_file_is_said_with_its_name(stored, capsys):
    said = failing(capsys, "export", stored, "--table", "messages", "-o", "/dev/full")
    assert "/dev/full: cannot be written: no space left on device" in said


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(stored, capsys):
    said = failing(capsys, "report", stored, "-o", "/proc/report.html")
    assert "/proc/report.html: cannot be written" in said


ENDLESS = "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count) SELECT {} FROM count"


@pytest.mark.parametrize("what", ["max(n)", "n"], ids=["its first row", "a later row"])
def test_ctrl_c_ends_a_query_that_works(stored, what):
    status, said = broken_off(stored, "query", stored, "--csv", ENDLESS.format(what))
    assert status == ExitCode.INTERRUPTED
    assert said == "tapscope: interrupted; what was stored before stays readable"


def test_a_mistake_that_shows_at_a_later_row_is_the_querys(stored, capsys):
    query = "SELECT abs(-9223372036854775807 - (id > 5)) FROM call"
    said = failing(capsys, "query", stored, query, code=ExitCode.USAGE)
    assert "this query cannot be run: integer overflow" in said


@pytest.mark.parametrize(
    ("magic", "size"), [(b"\xd4\xc3\xb2\xa1", 10), (b"\xd4\xc3\xb2\xa1", 23), (b"\x0a\x0d\x0d\x0a", 12)]
)
def test_a_capture_that_ends_inside_its_header_leaves_the_run_file_as_it_was(tmp_path, capsys, magic, size):
    cut, out = tmp_path / "cut.pcap", tmp_path / "run.db"
    cut.write_bytes(magic.ljust(size, b"\0"))
    out.write_bytes(b"of before")
    said = failing(capsys, "trace", cut, "-o", out, "--force")
    assert f"(byte {size}): the file is cut inside its header" in said
    assert out.read_bytes() == b"of before"


def test_nothing_but_results_is_printed_when_nobody_watches(stored):
    done = tapscope("trace", CAPTURE, "-o", stored, "--force", "--json")
    assert json.loads(done.stdout)["complete"] is True
    assert done.stderr == ""


PIPE_BYTES = 65_536


def test_ctrl_c_keeps_what_was_read(tmp_path):
    out = tmp_path / "run.db"
    reader = subprocess.Popen(
        [*COMMAND, "trace", "-", "-o", str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    content = CAPTURE.read_bytes()
    reading = threading.Event()

    def feed() -> None:
        assert reader.stdin is not None
        try:
            reader.stdin.write(content)
            for written in itertools.count(len(content), len(content)):
                reader.stdin.write(content[24:])  # the same packets again: the capture never ends
                time.sleep(0.01)
                if written > 4 * PIPE_BYTES:
                    reading.set()
        except (BrokenPipeError, ValueError):
            reading.set()

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    reading.wait()
    time.sleep(0.5)
    reader.send_signal(signal.SIGINT)
    assert reader.wait(30) == ExitCode.INTERRUPTED
    assert reader.stderr is not None
    message = reader.stderr.read().decode()
    assert "interrupted" in message
    assert "Traceback" not in message
    with RunFile.open(out) as kept:
        assert kept.meta("complete") is False
        assert kept.count("messages") > 0


@pytest.fixture(scope="module")
def empty_run_kib(tmp_path_factory) -> int:
    """What a run file takes that holds nothing yet, while it is written to."""
    folder = tmp_path_factory.mktemp("empty")
    with RunFile.create(folder / "run.db"):
        return sum(path.stat().st_size for path in folder.iterdir()) // 1024


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize(("more_kib", "stage"), [(-350, None), (10, "none"), (90, "read"), (220, "store")])
def test_a_disk_that_fills_up_while_tracing_leaves_a_readable_run_or_none(
    tmp_path, empty_run_kib, more_kib, stage
):
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={empty_run_kib + more_kib}k", "tmpfs", str(small)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        done = tapscope("trace", CAPTURE, "-o", small / "run.db")
        assert done.returncode == ExitCode.ERROR
        assert done.stderr.startswith(f"tapscope: {small / 'run.db'}: the disk is full.")
        assert done.stderr.count("\n") == 1
        if stage is None:  # not even the empty tables fit
            assert list(small.iterdir()) == []
            return
        shown = tapscope("stats", small / "run.db", "--json")
        assert shown.returncode == ExitCode.DONE, shown.stderr
        record = json.loads(shown.stdout)
        assert record["complete"] is False
        assert record["stage"] == stage
        if stage == "store":
            assert record["loss"]["messages"] > 100
        for command in (["queues"], ["traces"], ["findings"], ["export", "--table", "links"]):
            read = tapscope(command[0], small / "run.db", *command[1:])
            assert f"The last stage done was: {stage}." in read.stderr, command
    finally:
        subprocess.run(["umount", str(small)], check=True)
