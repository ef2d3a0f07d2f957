"""What every test can rely on."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest
from generated import build_generator
from hypothesis import settings

pytest_plugins = ["report_page"]

# Other workers have the processors, too: how long an example takes says nothing.
settings.register_profile("beside others", deadline=None)
settings.load_profile("beside others")

# A shell without job control starts what it puts in the background with Ctrl-C ignored, and children inherit
# that: programs that the tests interrupt would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def traced_light(tmp_path_factory) -> Path:
    """pcaps/testbed_light as `trace` leaves it: made once, because a real run takes seconds. Tests may
    validate it."""
    from tapscope.cli import pipeline

    source = Path(__file__).resolve().parent.parent / "pcaps" / "testbed_light"
    return pipeline.trace([source], tmp_path_factory.mktemp("light") / "run.db")


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that generates captures, compiled once for all workers."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with (shared / "generator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_generator(shared / "generator")
