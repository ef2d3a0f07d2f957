"""The testbed end to end: real servers, a real mirror port, and a truth that every log agrees with."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from testbed_tables import Finished, rows

from tapscope.cli.commands import testbed_run
from tapscope.cli.inputs import find_inputs
from tapscope.store.errors import TapscopeError
from tapscope.validate.testbed import leftovers, packages, pcapfile, run, scrub
from tapscope.validate.testbed.options import Options
from tapscope.validate.testbed.scenarios import SCENARIOS
from tapscope.validate.testbed.shell import attempt

NOTES = Path("/run/tapscope-testbed")
LACKING = packages.missing(SCENARIOS["board"].needs)
pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"packages are missing: {', '.join(LACKING)}"),
]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    options = Options(
        users=10, seconds=6, seed=3, think_s=0.4, warmup_s=3, rampdown_s=1, keep_unscrubbed=True
    )
    return Finished(tmp_path_factory.mktemp("quiet") / "run", options)


@pytest.fixture(scope="module")
def dry_pool(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Many users, three database connections that are given back after each group of statements."""
    options = Options(
        users=40, seconds=5, seed=4, think_s=0.2, warmup_s=3, rampdown_s=1, work=60, pool_size=3,
        pool_habit="statement", connector="mod_proxy_ajp", jk_ping=True, ajp_secret=False, midstream=True,
        in_flight=8,
    )  # fmt: skip
    return Finished(tmp_path_factory.mktemp("dry") / "run", options)


@pytest.fixture(params=["quiet", "dry_pool"])
def ran(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_every_frame_is_mirrored_and_captured_once(ran: Finished) -> None:
    seen = ran.manifest["capture"]
    assert seen["frames_into_bridge"] == seen["frames_at_tap"] == seen["captured"] == seen["packets_in_file"]
    assert (seen["dropped_by_kernel"], seen["cut"]) == (0, 0)
    assert ran.manifest["truth"]["gaps"] == 0


def test_no_frame_is_in_the_capture_twice(ran: Finished) -> None:
    capture = pcapfile.read(ran.folder / "capture" / "tap.pcap")
    frames: Counter[tuple[object, ...]] = Counter()
    for flow, segments in capture.flows.items():
        for s in segments:
            # IP identification and TCP acknowledgement tell a mirrored copy from a retransmission.
            headers = capture.data[s.ip_at + 4 : s.ip_at + 6] + capture.data[s.tcp_at + 4 : s.tcp_at + 14]
            frames[flow, headers, s.payload_len] += 1
    assert max(frames.values()) == 1


def test_all_requests_were_answered(ran: Finished) -> None:
    assert len(ran.asked) > 20
    assert {r["status"] for r in ran.asked} <= {"200", "303", "403", "404"}
    assert sum(r["status"] in ("200", "303") for r in ran.asked) > 0.95 * len(ran.asked)


def most_at_a_time(ran: Finished) -> int:
    steps = [(int(r["start_ns"]), 1) for r in ran.asked] + [(int(r["end_ns"]), -1) for r in ran.asked]
    return max(accumulate(step for _, step in sorted(steps)))


def test_users_have_as_many_requests_in_flight_as_they_may(dry_pool: Finished) -> None:
    assert most_at_a_time(dry_pool) == dry_pool.options.in_flight


def test_every_request_is_one_http_and_one_ajp_call(ran: Finished) -> None:
    for protocol in ("http", "ajp"):
        assert Counter(c["request_id"] for c in ran.of(protocol)) == Counter(ran.ids)


def test_database_calls_belong_to_requests_that_were_asked(ran: Finished) -> None:
    calls = ran.of("mysql")
    assert {c["request_id"] for c in calls} - ran.ids <= {""}
    kinds = Counter(c["kind"] for c in calls if c["request_id"])
    assert min(kinds["COM_QUERY"], kinds["COM_STMT_EXECUTE"]) > 0.2 * sum(kinds.values())
    assert kinds["COM_STMT_PREPARE"] > 0
    # Only the pool's own start belongs to nobody, and a midstream capture does not see it.
    nobody = [c for c in calls if c["how"] == "none"]
    assert len(nobody) <= 3 * ran.options.pool_size


def test_both_sources_of_truth_agree(ran: Finished) -> None:
    summary = ran.manifest["truth"]
    assert summary["content_and_checkout_agree"] > 40
    assert summary.get("content_and_checkout_differ", 0) == 0
    assert summary.get("bytes_not_understood", 0) == 0
    assert summary.get("messages_with_two_ids", 0) == 0
    assert summary["mysql_checkout"] > 0


def test_the_capture_holds_no_id(ran: Finished) -> None:
    raw = (ran.folder / "capture" / "tap.pcap").read_bytes()
    assert b"X-Request-ID: " + scrub.FILLER in raw
    assert b"/*ID=" + scrub.FILLER + b"*/" in raw
    assert [i for i in ran.ids if i.encode() in raw] == []
    assert ran.manifest["scrub"]["ids_left"] == 0
    content = sum(ran.manifest["truth"][f"{p}_content"] for p in ("http", "ajp", "mysql"))
    assert ran.manifest["scrub"]["ids"] == content


def test_the_unscrubbed_capture_differs_in_ids_and_checksums_only(quiet: Finished) -> None:
    before = (quiet.folder / "truth" / "unscrubbed.pcap").read_bytes()
    after = (quiet.folder / "capture" / "tap.pcap").read_bytes()
    assert len(before) == len(after)
    plain = before
    for identity in quiet.ids:
        plain = plain.replace(identity.encode(), scrub.FILLER)
    changed = sum(a != b for a, b in zip(plain, after, strict=True))
    assert 0 < changed <= 2 * quiet.manifest["scrub"]["packets_changed"]


def test_a_trace_of_the_run_reads_only_the_capture_without_ids(quiet: Finished) -> None:
    """Ground truth never reaches the matcher, also where the run keeps it."""
    assert (quiet.folder / "truth" / "unscrubbed.pcap").is_file()
    assert find_inputs([quiet.folder]).captures == [quiet.folder / "capture" / "tap.pcap"]


def test_the_unscrubbed_capture_is_not_kept_unasked(dry_pool: Finished) -> None:
    assert [p.name for p in (dry_pool.folder / "capture").iterdir()] == ["tap.pcap"]


def test_every_monitor_saw_every_request(ran: Finished) -> None:
    events = ran.folder / "events"
    access = re.findall(r"^id=(\S+) ", (events / "apache" / "access.log").read_text(), re.M)
    sent = re.findall(r" DS id=(\S+)$", (events / "apache" / "error.log").read_text(), re.M)
    tomcat = re.findall(r"^id=(\S+) ", (events / "tomcat" / "access.log").read_text(), re.M)
    served = [r["request_id"] for r in rows(events / "tomcat" / "requests.tsv", "\t")]
    for log in (access, sent, tomcat, served):
        assert Counter(log) == Counter(ran.ids)


def test_the_slow_log_has_every_statement_with_an_id(ran: Finished) -> None:
    lines = rows(ran.folder / "events" / "mariadb" / "slow_log.tsv", "\t")
    logged = Counter(i for line in lines for i in set(scrub.IDENTITY.findall(line["sql_text"].encode())))
    on_wire = Counter(
        c["request_id"].encode()
        for c in ran.of("mysql")
        if c["how"] == "content" and c["kind"] != "COM_STMT_PREPARE"
    )
    assert logged == on_wire


def test_without_truth_the_monitors_log_and_statements_are_as_the_application_wants_them(
    tmp_path: Path,
) -> None:
    """So that a study measures the event monitors, and nothing that only the testbed does."""
    options = Options(
        users=10, seconds=3, seed=5, think_s=0.3, warmup_s=2, rampdown_s=1, statements="prepared", truth=False
    )
    folder = tmp_path / "run"
    manifest = run.run(options, folder)
    assert manifest["requests"]["in_run_phase"] > 0
    assert not (folder / "truth" / "calls.csv.gz").exists()
    assert not (folder / "events" / "tomcat" / "checkouts.tsv").exists()
    assert rows(folder / "events" / "tomcat" / "statements.tsv", "\t") != []
    logged = [line["sql_text"] for line in rows(folder / "events" / "mariadb" / "slow_log.tsv", "\t")]
    assert any("WHERE" in text for text in logged)
    assert [text for text in logged if "<> ''" in text] == []
    assert manifest["scrub"]["ids_left"] == 0 < manifest["scrub"]["ids"]


def test_log_times_agree_with_the_wire(quiet: Finished) -> None:
    """One clock: a servlet begins after its AJP request and ends about when the user has the answer."""
    wire = {c["request_id"]: int(c["ts_ns"]) for c in quiet.of("ajp")}
    ends = {r["request_id"]: int(r["end_ns"]) for r in quiet.asked}
    logged = rows(quiet.folder / "events" / "tomcat" / "requests.tsv", "\t")
    # The log cuts off below one microsecond.
    assert [r for r in logged if int(r["ua_us"]) * 1000 + 1000 < wire[r["request_id"]]] == []
    late = [int(r["ud_us"]) * 1000 - ends[r["request_id"]] for r in logged]
    # Where processors are short many are later than that; a clock that is another one would be for most.
    assert sum(abs(ns) < 20_000_000 for ns in late) > 0.5 * len(late)


def test_the_pool_ran_dry(dry_pool: Finished) -> None:
    """Requests waited for connections: more wished for one at a time than there are."""
    steps: list[tuple[int, int]] = []
    for row in rows(dry_pool.folder / "events" / "tomcat" / "checkouts.tsv", "\t"):
        steps += [(int(row["borrow_us"]), 1), (int(row["return_us"]), -1)]
    wishing, most = 0, 0
    for _, step in sorted(steps):
        wishing += step
        most = max(most, wishing)
    assert most > dry_pool.options.pool_size
    assert len({c["sport"] for c in dry_pool.of("mysql")}) <= dry_pool.options.pool_size


def test_host_records_are_there_and_dense(ran: Finished) -> None:
    begin, end = ran.manifest["phases_ns"]["run_begin"], ran.manifest["phases_ns"]["run_end"]
    for host in ("web", "app", "db"):
        [raw] = (ran.folder / "hosts" / host / "collectl").glob(f"{host}-*.raw.gz")
        # Collectl flushes once per second and need not have closed its last block.
        text = attempt(["sh", "-c", f"zcat '{raw}' 2>/dev/null"]).stdout
        times = [float(t) * 1e9 for t in re.findall(r"^>>> (\d+\.\d+) <<<", text, re.M)]
        inside = [t for t in times if begin <= t < end]
        assert len(inside) > 0.7 * ran.options.seconds * 20
    if ran.manifest["cgroups"]["flavour"] != "none":
        for host in ("client", "web", "app", "db"):
            samples = rows(ran.folder / "hosts" / host / "cgroup_cpu.csv")
            used = [int(s["usage_ns"]) for s in samples if begin <= int(s["time_ns_begin"]) < end]
            assert len(used) > 0.7 * ran.options.seconds * 20
            assert used == sorted(used)
            assert used[-1] > used[0]


def test_the_manifest_tells_the_run(ran: Finished) -> None:
    told = json.loads((ran.folder / "manifest.json").read_text())
    assert told == json.loads(json.dumps(ran.manifest))
    assert told["options"]["seed"] == ran.options.seed
    assert set(told["hosts"]) == {"client", "web", "app", "db"}
    assert told["mirror_method"] != ""


def left_behind(name: str) -> list[str]:
    """What is still there of a testbed."""
    namespaces = attempt(["ip", "netns", "list"]).stdout.split()
    groups = [str(p) for p in Path("/sys/fs/cgroup").glob("*")] + [
        str(p) for p in Path("/sys/fs/cgroup").glob("*/*")
    ]
    places = [*namespaces, *groups, *map(str, Path("/var/tmp").glob("*")), *map(str, NOTES.glob("*"))]
    return [p for p in places if name in p]


def test_nothing_is_left_behind(ran: Finished) -> None:
    assert left_behind(ran.manifest["name"]) == []


def test_a_folder_in_use_is_not_overwritten(quiet: Finished) -> None:
    with pytest.raises(TapscopeError, match="not empty"):
        run.run(Options(), quiet.folder)


SCRIPT = """
import sys
from pathlib import Path
from tapscope.validate.testbed import run
from tapscope.validate.testbed.options import Options
# Ended in the middle of a fault: its programs, its files and its control group must go as well.
caused = {"fault": ("dirty", "neighbour"), "fault_every_s": 0.1, "fault_ms": (4000, 5000)}
options = Options(users=2, seconds=60, warmup_s=1, **caused)
run.run(options, Path(sys.argv[1]), say=lambda text: print(text, flush=True))
"""


def name_of_the_testbed_of(pid: int) -> str:
    for note in NOTES.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # of another test, which has ended just now
            if json.loads(note.read_text())["pid"] == pid:
                return note.stem
    raise AssertionError(f"no testbed of {pid} is noted")


def start_and_wait_for_users(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A running testbed and its name."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "users" in line:
            time.sleep(3)
            return process, name_of_the_testbed_of(process.pid)
    raise AssertionError("the testbed ended before its users began")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, sig: signal.Signals) -> None:
    process, name = start_and_wait_for_users(tmp_path / "run")
    assert len(left_behind(name)) > 6
    process.send_signal(sig)
    assert process.wait(60) != 0
    assert left_behind(name) == []
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_clean_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    process, name = start_and_wait_for_users(tmp_path / "run")
    alive = CliRunner().invoke(testbed_run.testbed, ["clean"])
    assert f"{name} is running, left alone" in alive.output
    process.kill()
    process.wait()
    assert len(left_behind(name)) > 6
    cleaned = CliRunner().invoke(testbed_run.testbed, ["clean"])
    assert f"removed {name}" in cleaned.output
    assert left_behind(name) == []


def test_clean_bears_testbeds_that_begin_and_end_beside_it(tmp_path: Path) -> None:
    done, name = threading.Event(), f"tapscope-brief-{os.getpid()}"

    def begin_and_end() -> None:
        while not done.is_set():
            with leftovers.noted(name, tmp_path):
                pass

    beside = threading.Thread(target=begin_and_end)
    beside.start()
    try:
        for _ in range(300):
            assert name not in leftovers.clean(packages.find_root_program("ip"))["removed"]
    finally:
        done.set()
        beside.join()
