"""Nodes matched beside each other: the same links for any number of threads, and an early end when asked."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from cli_program import environment
from simulator import simulate

from tapscope.reconstruct import _kernel
from tapscope.reconstruct.live.held import NEVER_NS
from tapscope.reconstruct.live.matching import Matching
from tapscope.reconstruct.match.crew import Crew
from tapscope.reconstruct.match.links import Unlinked, links, links_of
from tapscope.reconstruct.unseen import Unseen
from tapscope.store.codes import EvidenceMode


@pytest.fixture(scope="module")
def world():
    return simulate(seed=41, users=60, seconds=4.0)


@pytest.mark.parametrize("mode", [EvidenceMode.ALL, EvidenceMode.TIMING])
def test_the_links_do_not_depend_on_the_number_of_threads(world, mode):
    tables = world.tables
    alone = links(tables["calls"], tables["evidence"], mode, threads=1)
    for threads in (2, 3, 7):
        beside = links(tables["calls"], tables["evidence"], mode, threads=threads)
        assert beside[1] == alone[1]
        for name, values in alone[0].items():
            np.testing.assert_array_equal(beside[0][name], values)


def test_sets_that_are_linked_together_get_the_links_that_each_gets_alone(world):
    other = simulate(seed=42, users=20, seconds=3.0)
    both = [world.tables, other.tables]
    asked = [Unlinked(tables["calls"], tables["evidence"]) for tables in both]
    for tables, (made, counters) in zip(both, links_of(asked, EvidenceMode.NOIDS), strict=True):
        calls, evidence = tables["calls"], tables["evidence"]
        expected, expected_counters = links(calls, evidence, EvidenceMode.NOIDS, threads=1)
        assert counters == expected_counters
        np.testing.assert_array_equal(made["parent"], expected["parent"])
        np.testing.assert_array_equal(made["probability"], expected["probability"])


def test_progress_grows_from_nothing_to_all_calls_that_nodes_made(world):
    calls = world.tables["calls"]
    told: list[tuple[int, int]] = []
    links(calls, world.tables["evidence"], EvidenceMode.ALL, progress=lambda *now: told.append(now))
    total = int(np.isin(calls["client_node"], calls["server_node"]).sum())
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert told == sorted(told)


def test_an_error_in_one_job_ends_the_others_and_is_raised():
    crew = Crew(2)
    begun = threading.Event()
    stopped = threading.Event()

    class Slow:
        """Stands for a stream that is matching."""

        def stop(self) -> None:
            stopped.set()

    def fail() -> None:
        begun.wait(10)
        raise ValueError("no")

    def slow() -> bool:
        stream = crew.watch(Slow())
        begun.set()
        assert stream is not None
        return stopped.wait(10)

    with pytest.raises(ValueError, match="no"):
        crew.run([slow, fail])
    assert stopped.is_set()


def test_a_stream_that_begins_after_the_end_was_asked_for_ends_at_once():
    crew = Crew(2)
    with pytest.raises(ZeroDivisionError):
        crew.run([lambda: 1 // 0, lambda: 1])
    stream = crew.watch(_kernel.NodeStream())
    stream.finish()
    assert not len(stream.take()["parent"])


def test_a_crew_does_not_keep_what_a_node_has_learned():
    crew = Crew(2)
    stream = crew.watch(_kernel.NodeStream())
    left = weakref.ref(stream)
    del stream
    assert left() is None


def test_followed_nodes_are_matched_beside_each_other_with_the_same_links(world):
    calls, evidence = world.tables["calls"], world.tables["evidence"]
    gone = np.full(len(calls["conn"]), -1, dtype=np.int64)
    ids = np.arange(len(gone))
    alone, beside = (
        Matching(EvidenceMode.ALL, threads=threads).take(
            calls, ids, evidence, gone, NEVER_NS, 0, Unseen.none()
        )
        for threads in (1, 4)
    )
    order = [np.argsort(found["child"], kind="stable") for found in (alone, beside)]
    for name in ("child", "parent", "kind", "probability"):
        np.testing.assert_array_equal(alone[name][order[0]], beside[name][order[1]])


INTERRUPTED = """
import sys
from cli_program import environment
from simulator import simulate
from tapscope.reconstruct.match.links import links
from tapscope.store.codes import EvidenceMode

tables = simulate(seed=43, users=700, seconds=12.0).tables
print("matching", flush=True)
try:
    links(tables["calls"], tables["evidence"], EvidenceMode.TIMING, threads=3)
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_ctrl_c_stops_all_threads_soon():
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"matching\n"
        time.sleep(1.0)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 7, "it was over before it could be interrupted"
        assert time.monotonic() - asked < 10
