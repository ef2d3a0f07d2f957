"""Two threads give the tables that one gives, row by row."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from generated import generate

from tapscope import capture
from tapscope.store.errors import TapscopeError

ROOT = Path(__file__).resolve().parent.parent
SALT = b"sixteen bytes ok"
PCAPS = sorted(path for path in (ROOT / "pcaps").rglob("*") if ".pcap" in path.name and path.is_file())
PCAPS = [path for path in PCAPS if path.suffix not in (".py", ".md")]


def assert_same(one: capture.CaptureTables, several: capture.CaptureTables) -> None:
    for table in ("connections", "messages", "evidence", "tcp_events"):
        expected, actual = getattr(one, table), getattr(several, table)
        assert list(expected) == list(actual)
        for name, column in expected.items():
            np.testing.assert_array_equal(column, actual[name], err_msg=f"{table}.{name}")
    for name in ("classes", "addresses", "counters", "sources", "examples", "tap_points", "interrupted"):
        assert getattr(one, name) == getattr(several, name), name


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: str(path.relative_to(ROOT / "pcaps")))
def test_every_sample_gives_the_same_tables(path: Path) -> None:
    one = capture.read_files([path], salt=SALT, keep_text=True, threads=1)
    assert_same(one, capture.read_files([path], salt=SALT, keep_text=True, threads=2))


@pytest.mark.parametrize("kind", ["http_small", "http_chunked", "mysql_prepared", "ajp", "tiers", "churn"])
def test_impaired_captures_give_the_same_tables(generator: Path, tmp_path: Path, kind: str) -> None:
    made = generate(
        generator, kind, tmp_path / "x.pcap", bytes=6e6, displaced=0.01, duplicated=0.01, lost=0.002
    )
    one = capture.read_files([made.path], salt=SALT, threads=1)
    assert_same(one, capture.read_files([made.path], salt=SALT, threads=2))


def test_columns_that_grow_into_huge_pages_are_the_same(generator: Path, tmp_path: Path) -> None:
    made = generate(generator, "http_small", tmp_path / "x.pcap", bytes=150e6)
    one = capture.read_files([made.path], salt=SALT, threads=1)
    assert one.evidence["hash"].nbytes > 4 << 20
    assert_same(one, capture.read_files([made.path], salt=SALT, threads=2))


def test_several_files_are_merged_in_the_same_order(generator: Path, tmp_path: Path) -> None:
    paths = []
    for seed in (1, 2, 3):
        paths.append(tmp_path / f"{seed}.pcap")
        generate(generator, "tiers", paths[-1], bytes=2e6, seed=seed)
    (tmp_path / "1.pcap.gz").write_bytes(gzip.compress(paths[0].read_bytes(), 1))
    paths[0] = tmp_path / "1.pcap.gz"
    one = capture.read_files(paths, salt=SALT, threads=1)
    assert_same(one, capture.read_files(paths, salt=SALT, threads=2))


def test_a_pipe_is_read_once_for_all(generator: Path, tmp_path: Path) -> None:
    made = generate(generator, "http_small", tmp_path / "x.pcap", bytes=3e6)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(made.path.read_bytes()))
    writer.start()
    through_pipe = capture.read_files([pipe], salt=SALT, threads=2)
    writer.join()
    one = capture.read_files([made.path], salt=SALT, threads=1)
    np.testing.assert_array_equal(one.messages["begin_ns"], through_pipe.messages["begin_ns"])
    assert one.counters == through_pipe.counters


def test_a_cut_file_is_read_up_to_the_cut_and_no_capture_is_refused(generator: Path, tmp_path: Path) -> None:
    made = generate(generator, "http_small", tmp_path / "x.pcap", bytes=2e6)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(made.path.read_bytes()[:1_500_001])
    one = capture.read_files([cut], salt=SALT, threads=1)
    several = capture.read_files([cut], salt=SALT, threads=2)
    assert "warning" in several.sources[0]
    assert_same(one, several)
    cut.write_bytes(b"no capture")
    with pytest.raises(TapscopeError, match="not a capture file"):
        capture.read_files([cut], threads=2)


def test_an_exception_of_the_progress_callback_ends_the_reading(generator: Path, tmp_path: Path) -> None:
    made = generate(generator, "tiers", tmp_path / "x.pcap", bytes=200e6)

    def progress(done: int, total: int) -> None:
        raise ValueError(f"{done} of {total}")

    with pytest.raises(ValueError, match="of"):
        capture.read_files([made.path], threads=2, progress=progress)


def test_ctrl_c_keeps_what_was_read(generator: Path, tmp_path: Path) -> None:
    made = generate(generator, "tiers", tmp_path / "x.pcap", bytes=4e6)
    script = (
        "import sys\n"
        "from tapscope import capture\n"
        "print('reading', flush=True)\n"
        "tables = capture.read_files(['-'], threads=2)\n"
        "print(tables.interrupted, len(tables.messages['conn']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=False,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(made.path.read_bytes()[:3_000_000])  # and then the pipe is silent
    process.stdin.flush()
    assert process.stdout.readline() == b"reading\n"
    time.sleep(2.0)  # what came is read, and the reader waits
    process.send_signal(signal.SIGINT)
    words = process.stdout.read().split()
    assert process.wait(timeout=30) == 0
    process.stdin.close()
    assert words[0] == b"True"
    assert 0 < int(words[1]) < made.messages
