"""Real captures of real servers against what these servers logged."""

from __future__ import annotations

from pathlib import Path

import pytest
from damaged_captures import records, write

from tapscope.cli import pipeline
from tapscope.store.errors import TapscopeError
from tapscope.validate.validation import Validation, validate

PCAPS = Path(__file__).resolve().parent.parent / "pcaps"


@pytest.fixture(scope="module")
def light(traced_light) -> Validation:
    return validate(traced_light, PCAPS / "testbed_light")


def test_no_call_of_the_light_run_is_missing_on_either_side(light):
    for tier in light.tiers:
        assert abs(tier.calls["tap"] - tier.calls["log"]) <= 1, tier.tier
        started = tier.reading("started")
        assert abs(started.bias) < 0.01
        assert started.windows > 700
    for each in light.requests[:2]:
        assert (each.tap_only, each.log_only) == (0, 0)


def test_every_tier_of_the_light_run_agrees(light):
    assert light.failures == []
    web, app, db = light.tiers
    assert web.reading("concurrent").pearson_r > 0.99
    assert app.between.inside > 0.98
    assert db.between.inside > 0.98
    assert web.agrees_with
    assert app.agrees_with
    # MariaDB stamps a statement when its thread has the processor, its caller when it sends: neither log by
    # itself tells what the wire saw, but both senders' stamps together do.
    assert (db.agrees_with, light.verdict) == ("senders", "passed")
    assert db.reading("concurrent_by_senders").pearson_r > 0.995
    for tier in (app, db):
        assert abs(tier.reading("concurrent_at_wire").bias_percent) < 2, tier.tier


def test_the_clocks_of_one_machine_are_one_clock(light):
    assert [clock["of"] for clock in light.clocks] == ["client", "web", "app", "db"]
    for clock in light.clocks:
        assert clock["method"] == "matched requests"
        (line,) = clock["lines"]
        assert abs(line["offset_ns"]) <= clock["error_ns"] + 50_000, "the way to the tap is in it"
        assert abs(line["drift_ppb"]) < 5_000
        assert clock["steps"] == []


def test_senders_stamp_before_the_wire_and_receivers_after(light):
    for each in light.requests:
        assert each.sent.median_ns < 0 < each.arrive.median_ns, each.tier
        assert each.received.median_ns > 0, each.tier
        assert each.near.mean_arrive_ns < 0.1 * each.near.mean_stay_ns


def test_each_stay_on_the_wire_is_longer_than_in_the_server_and_shorter_than_for_its_caller(light):
    for tier in light.tiers:
        assert tier.stay_ns["log_mean"] < tier.stay_ns["tap_mean"] < tier.stay_ns["caller_mean"], tier.tier
    for each in light.requests:
        assert 0 < each.arrive.median_ns < 1_000_000, "a server stamps an arrival after the wire"
        assert abs(each.depart.median_ns) < 500_000


def test_the_truth_of_the_light_run_is_joined_completely(light):
    found = light.paths
    assert found.counters.get("truth_without_call", 0) == 0
    assert found.counters.get("parent_not_captured", 0) == 0
    assert {edge.pair for edge in found.edges} == {"HTTP->AJP", "AJP->MYSQL"}
    assert all(edge.accuracy > 0.95 for edge in found.edges)
    assert found.completeness > 0.9


def test_twenty_requests_on_loopback_with_two_listeners_of_one_apache(tmp_path):
    capture = PCAPS / "http_ajp_mysql_groundtruth.pcap"
    found = validate(
        pipeline.trace([capture], tmp_path / "run.db"), PCAPS / "http_ajp_mysql_groundtruth.logs"
    )
    web, app, db = found.tiers
    assert web.nodes == ["127.0.0.1:8091", "127.0.0.1:8092"]
    assert [(tier.calls["tap"], tier.calls["log"]) for tier in (web, app, db)] == [(19, 19)] * 3
    # 13 prepares in the log, three of them before the capture; the tap saw the driver's own commands, too.
    assert db.calls["log_rows_without_statement"] == 13
    assert db.calls["tap_calls_without_statement"] >= 10
    assert found.verdict == "undecided", "a quarter of a second is too little to judge by"


def test_the_truth_can_be_read_from_ids_that_stand_in_the_capture(tmp_path):
    capture = PCAPS / "http_ajp_mysql_groundtruth.pcap"
    run = pipeline.trace([capture], tmp_path / "run.db")
    logs = PCAPS / "http_ajp_mysql_groundtruth.logs"
    found = validate(run, logs, ids_in=capture)
    assert [each.matched for each in found.requests if each.tier == "app"] == [20]
    assert {edge.pair for edge in found.paths.edges} >= {"HTTP->AJP", "AJP->MYSQL"}
    assert sum(edge.edges for edge in found.paths.edges) > 30
    assert found.paths.completeness > 0.9
    with pytest.raises(TapscopeError, match="holds a request ID"):
        validate(run, logs, ids_in=PCAPS / "mysql_bulk_mariadb_j.pcap")


def test_a_run_that_does_not_say_what_the_capture_speaks_is_told_apart_from_a_capture_without_ids(tmp_path):
    capture, logs = PCAPS / "http_ajp_mysql_groundtruth.pcap", PCAPS / "http_ajp_mysql_groundtruth.logs"
    link, _ = records(capture)
    write(tmp_path / "empty.pcap", link, [])
    without_calls = pipeline.trace([tmp_path / "empty.pcap"], tmp_path / "empty.db")
    with pytest.raises(TapscopeError, match="the run has no calls"):
        validate(without_calls, logs, ids_in=capture)
    of_cjdbc = pipeline.trace([PCAPS / "cjdbc" / "cjdbc_every_command.pcap"], tmp_path / "cjdbc.db")
    with pytest.raises(TapscopeError, match="no request IDs are looked for: cjdbc"):
        validate(of_cjdbc, logs, ids_in=capture)
