"""Signals to a command that runs: those that do not end it leave its writes alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time

import pytest
from cli_program import CAPTURE

from tapscope.capture import _native
from tapscope.capture.live import Control
from tapscope.cli.signals import asked_to_stop


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
def test_a_write_that_waits_for_its_reader_goes_on(number: signal.Signals) -> None:
    """As the engine writes: by the C library, which does not try again by itself."""
    library = ctypes.CDLL(None, use_errno=True)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    main = threading.get_ident()

    def signal_then_read() -> None:
        time.sleep(0.3)
        signal.pthread_kill(main, number)
        time.sleep(0.3)
        os.read(reading, 1 << 20)

    other = threading.Thread(target=signal_then_read)
    control = Control()
    with asked_to_stop(control):
        other.start()
        written = library.write(writing, b"x" * 100, 100)
        other.join()
    os.close(reading)
    os.close(writing)
    assert written == 100, os.strerror(ctypes.get_errno())
    assert control.report == (number == signal.SIGUSR1)
    assert not control.stop


def test_what_a_signal_prints_is_counted_up_to_now() -> None:
    """Not up to the last segment, which may be ten seconds ago."""
    capture = _native.Capture.of_files(
        paths=[str(CAPTURE)], salt=bytes(16), keep_text=False, port_map={}, limits={}
    )
    for packets in (100, 300):
        capture.run(60_000, packets)
        status = capture.status()
        counted = {name: value for name, value, _ in status["counters"]}
        assert counted["packets"] == status["packets"] == packets
        assert 0 < counted["tcp.segments"] <= packets
        assert counted["tcp.payload"] > 0
