"""vApp in the testbed: the tap, the threads and the answers of the servers tell the same paths."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from cli_program import tapscope
from testbed_tables import Finished, rows

from tapscope.reconstruct.threads import log
from tapscope.validate.testbed import packages
from tapscope.validate.testbed.scenarios import SCENARIOS
from tapscope.validate.threads import answers, logged

LACKING = packages.missing(SCENARIOS["random"].needs)
pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"packages are missing: {', '.join(LACKING)}"),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    options = SCENARIOS["random"].options(
        users=20, seconds=2, warmup_s=1, rampdown_s=0.5, think_s=0.05, record_threads=True
    )
    return Finished(tmp_path_factory.mktemp("random") / "run", options)


def test_every_answer_tells_a_path_and_the_truth_has_its_calls(ran: Finished) -> None:
    assert {r["status"] for r in ran.asked} == {"200"}
    calls = Counter(c["request_id"] for c in ran.of("http"))
    for request in ran.asked:
        assert request["answer"].startswith("10.77.0.20:80")
        assert calls[request["request_id"]] == request["answer"].count(":")


def test_the_threads_tell_what_the_answers_told(ran: Finished) -> None:
    found = logged.paths(log.read([ran.folder / "threads"]))
    assert found.refused == []
    result = answers.judge(found, ran.folder / "users" / "requests.csv")
    assert result.correct == result.exist == result.reported == len(ran.asked)
    assert result.shapes > 20


def test_a_trace_by_threads_is_exact(ran: Finished, tmp_path: Path) -> None:
    run, threads = tmp_path / "run.db", ran.folder / "threads"
    done = tapscope("trace", ran.folder, "--thread-log", threads, "-o", run, "--json")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "calls.csv.gz"
    assert tapscope("threads", "truth", run, threads, "-o", out).returncode == 0
    by_ids = {(c["src"], c["sport"], c["tcp_seq"]): c["request_id"] for c in ran.calls}
    by_threads = {(c["src"], c["sport"], c["tcp_seq"]): c["request_id"] for c in rows(out)}
    assert by_ids.keys() == by_threads.keys()
    # Two names for one thing: every transaction of the one is a transaction of the other.
    pairs = {(by_ids[key], by_threads[key]) for key in by_ids}
    assert len(pairs) == len(set(by_ids.values())) == len(set(by_threads.values()))
    assert json.loads(done.stdout)["quality"]["unknown"] == 0
