"""The board in other scenarios: middleware, two Tomcats, a throttled database, servers that stand still."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from testbed_tables import Finished, rows

from tapscope import capture
from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads.run import trace as by_threads
from tapscope.store.errors import TapscopeError
from tapscope.validate import accuracy, truth
from tapscope.validate.event_calls import Names
from tapscope.validate.testbed import avatica as middleware
from tapscope.validate.testbed import packages, run
from tapscope.validate.testbed.scenarios import SCENARIOS

LACKING = packages.missing(SCENARIOS["avatica"].needs)
pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"packages are missing: {', '.join(LACKING)}"),
]
SHORT: dict[str, Any] = {"seconds": 4, "warmup_s": 2, "rampdown_s": 1, "seed": 5}


def a_run(tmp_path_factory: pytest.TempPathFactory, name: str, **given: Any) -> Finished:
    options = SCENARIOS[name].options(**{**SHORT, **given})
    return Finished(tmp_path_factory.mktemp(name) / "run", options)


@pytest.fixture(scope="module")
def avatica(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    try:
        middleware.jars(packages.find(SCENARIOS["avatica"].needs))
    except TapscopeError as error:
        pytest.skip(str(error))
    return a_run(tmp_path_factory, "avatica", users=10, think_s=0.4)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return a_run(
        tmp_path_factory, "balanced", users=20, think_s=0.3, statements="prepared", record_threads=True
    )


@pytest.fixture(scope="module")
def saturated(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return a_run(tmp_path_factory, "saturated", users=150, think_s=0.2, pool_size=5)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Stops of both servers, forced collections, short accept queues and bursts in one run."""
    return a_run(
        tmp_path_factory, "overflow", users=100, think_s=0.4, fault_every_s=0.8, collect_every_s=1.0,
        serial_gc=True, heap_mib=256, ballast_mib=48,
    )  # fmt: skip


@pytest.fixture(params=["avatica", "balanced", "saturated", "still"])
def ran(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_requests_were_answered(ran: Finished) -> None:
    assert len(ran.asked) > 20  # as many as a machine that does other things, too, gets done
    answered = sum(r["status"] in ("200", "303") for r in ran.asked)
    assert answered > 0.95 * len(ran.asked)


def test_every_request_is_one_http_and_one_ajp_call(ran: Finished) -> None:
    for protocol in ("http", "ajp"):
        assert Counter(c["request_id"] for c in ran.of(protocol)) == Counter(ran.ids)


def test_calls_belong_to_requests_or_to_the_start_of_a_pool(ran: Finished) -> None:
    first = min(int(c["ts_ns"]) for c in ran.of("http"))
    below = [c for c in ran.calls if c["protocol"] in ("mysql", "avatica")]
    assert {c["request_id"] for c in below} - {""} <= ran.ids
    assert [c for c in below if c["how"] == "none" and int(c["ts_ns"]) > first] == []


def test_both_sources_of_truth_agree(ran: Finished) -> None:
    summary = ran.manifest["truth"]
    assert summary["content_and_checkout_agree"] > 200
    for odd in ("content_and_checkout_differ", "bytes_not_understood", "messages_with_two_ids", "gaps"):
        assert summary.get(odd, 0) == 0


def test_the_capture_is_whole_and_holds_no_id(ran: Finished) -> None:
    seen = ran.manifest["capture"]
    assert seen["frames_into_bridge"] == seen["frames_at_tap"] == seen["captured"] == seen["packets_in_file"]
    assert ran.ids_in_capture() == []


def test_the_middleware_asks_the_database_what_it_was_asked(avatica: Finished) -> None:
    assert avatica.manifest["hosts"]["middle"] in {c["dst"] for c in avatica.of("avatica")}
    assert {c["src"] for c in avatica.of("mysql")} == {avatica.manifest["hosts"]["middle"]}
    above = Counter(c["request_id"] for c in avatica.of("avatica") if c["how"] == "content")
    below = Counter(c["request_id"] for c in avatica.of("mysql") if c["how"] == "content")
    assert above == below
    # What has no id (createStatement, prepare, closeStatement, commit) is known by the connection it names.
    assert avatica.manifest["truth"]["avatica_checkout"] > avatica.manifest["truth"]["avatica_content"]


def test_the_balancer_uses_both_application_servers(balanced: Finished) -> None:
    to = Counter(c["dst"] for c in balanced.of("ajp"))
    assert set(to) == {balanced.manifest["hosts"][h] for h in ("app1", "app2")}
    assert min(to.values()) > 0.2 * sum(to.values())
    for host in ("app1", "app2"):
        served = rows(balanced.folder / "events" / f"tomcat-{host}" / "requests.tsv", "\t")
        assert len(served) == to[balanced.manifest["hosts"][host]]


def test_prepared_statements_are_prepared_once_per_connection(balanced: Finished) -> None:
    kinds = Counter(c["kind"] for c in balanced.of("mysql") if c["request_id"])
    # As text there are only commit, SET autocommit and the pool's ping, none of which carries an id.
    assert balanced.kinds("mysql", "content").keys() == {"COM_STMT_EXECUTE"}
    assert kinds["COM_STMT_EXECUTE"] > 2 * kinds["COM_STMT_PREPARE"] > 0


def test_the_pool_of_a_throttled_database_runs_dry(saturated: Finished) -> None:
    steps: list[tuple[int, int]] = []
    for row in rows(saturated.folder / "events" / "tomcat" / "checkouts.tsv", "\t"):
        steps += [(int(row["borrow_us"]), 1), (int(row["return_us"]), -1)]
    wishing, most = 0, 0
    for _, step in sorted(steps):
        wishing += step
        most = max(most, wishing)
    assert most > 5 * saturated.options.pool_size
    assert len({c["sport"] for c in saturated.of("mysql")}) <= saturated.options.pool_size


def test_pauses_are_in_the_truth_and_stopped_servers_send_nothing(still: Finished) -> None:
    pauses = rows(still.folder / "truth" / "faults.csv")
    stops = [p for p in pauses if p["cause"] == "stop"]
    assert {p["host"] for p in stops} == {"web", "app"}
    assert any(p["cause"].startswith("Pause Full") for p in pauses if p["host"] == "app")
    phases = still.manifest["phases_ns"]
    stood, sent_then, sent = 0, 0, 0
    for host in ("web", "app"):
        times = [int(c["ts_ns"]) for c in still.calls if c["src"] == still.manifest["hosts"][host]]
        sent += sum(phases["warmup_begin"] <= t < phases["rampdown_end"] for t in times)
        for pause in (p for p in stops if p["host"] == host):
            # A thread that waits for a processor inside a system call finishes the call before it stops.
            begin, end = int(pause["begin_ns"]) + 5_000_000, int(pause["end_ns"])
            stood += end - begin
            sent_then += sum(begin < t < end for t in times)
    share_of_time = stood / 2 / (phases["rampdown_end"] - phases["warmup_begin"])
    assert sent_then / sent < 0.05 * share_of_time


def test_accept_queues_overflowed(still: Finished) -> None:
    assert still.manifest["listen"]["web"]["overflows"] > 0
    assert still.manifest["listen"]["db"] == {"overflows": 0, "drops": 0}


def test_a_host_without_a_server_cannot_be_stopped(tmp_path: Path) -> None:
    options = SCENARIOS["board"].options(fault=("stop@client",), **SHORT)
    with pytest.raises(TapscopeError, match="no server on host 'client'"):
        run.run(options, tmp_path / "run")


def test_two_application_servers_need_the_balancer(tmp_path: Path) -> None:
    options = SCENARIOS["balanced"].options(connector="mod_proxy_ajp", **SHORT)
    with pytest.raises(TapscopeError, match="balancer of mod_jk"):
        run.run(options, tmp_path / "run")


def test_threads_and_request_ids_tell_the_same_paths(balanced: Finished) -> None:
    logs = log.read([balanced.folder / "threads"])
    tables = capture.read_files([str(balanced.folder / "capture" / "tap.pcap")])
    found = by_threads(tables, logs)
    assert found.refused == []
    names = Names()
    made = found.made
    linked = accuracy.from_tables(made.calls, tables.connections, tables.addresses, made.links, names)
    result = accuracy.paths(linked, truth.read(balanced.folder / "truth" / "calls.csv.gz", names))
    assert result.paths_correct == result.paths_exist == result.paths_reported > 40
