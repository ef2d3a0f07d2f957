"""The testbed's shop: a Python service whose pages ask PostgreSQL, Redis and memcached."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from testbed_tables import Finished, rows

from tapscope import capture
from tapscope.store.codes import Protocol
from tapscope.validate.testbed import packages
from tapscope.validate.testbed.scenarios import SCENARIOS
from tapscope.validate.truth import ONE_WAY

SHOP = SCENARIOS["shop"]
LACKING = packages.missing(SHOP.needs)
pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"packages are missing: {', '.join(LACKING)}"),
]
STORES = ("postgres", "redis", "memcached")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    options = SHOP.options(users=20, seconds=9, seed=6, think_s=0.2, warmup_s=2, rampdown_s=1, pool_size=8)
    return Finished(tmp_path_factory.mktemp("shop") / "run", options)


def test_all_requests_were_answered(ran: Finished) -> None:
    assert len(ran.asked) > 40
    assert {r["status"] for r in ran.asked} <= {"200", "303", "404", "409"}
    assert sum(r["status"] in ("404", "409") for r in ran.asked) < 0.05 * len(ran.asked)
    assert {"login", "add", "order", "review"} <= {r["interaction"] for r in ran.asked}


def test_every_request_is_one_call_to_nginx_and_one_to_the_service(ran: Finished) -> None:
    for port in ("80", "8000"):
        at = Counter(c["request_id"] for c in ran.of("http") if c["dport"] == port)
        assert at == Counter(ran.ids)


def test_everything_that_the_stores_are_asked_belongs_to_a_request(ran: Finished) -> None:
    for store in STORES:
        asked = ran.of(store)
        assert {c["request_id"] for c in asked} <= ran.ids
        assert len(asked) > 20
    assert ran.kinds("postgres", "content").keys() == {"EXECUTE"}
    # What has no place for an id: transactions, INSERT, statements that are prepared on the server.
    assert ran.kinds("postgres", "checkout").keys() == {"EXECUTE", "PREPARE"}
    assert {c["how"] for c in ran.of("redis") + ran.of("memcached")} == {"checkout"}
    assert {"MULTI", "EXEC", "MGET", "HGETALL", "INCRBY"} <= ran.kinds("redis", "checkout").keys()
    assert {"get", "set noreply", "delete"} <= ran.kinds("memcached", "checkout").keys()


def test_both_sources_of_truth_agree(ran: Finished) -> None:
    summary = ran.manifest["truth"]
    assert summary["content_and_checkout_agree"] > 80
    for odd in ("content_and_checkout_differ", "bytes_not_understood", "messages_with_two_ids", "gaps"):
        assert summary.get(odd, 0) == 0


def test_the_capture_holds_no_id(ran: Finished) -> None:
    assert ran.ids_in_capture() == []
    content = sum(ran.manifest["truth"][f"{p}_content"] for p in ("http", "postgres"))
    assert ran.manifest["scrub"]["ids"] == content


def test_what_is_asked_depends_on_what_is_kept(ran: Finished) -> None:
    """The same page makes different calls: some miss a cache, some do not."""
    pages = {r["request_id"] for r in ran.asked if r["interaction"] == "product"}
    made: dict[str, Counter[str]] = {identity: Counter() for identity in pages}
    for call in ran.calls:
        if call["request_id"] in pages and call["protocol"] in STORES:
            made[call["request_id"]][call["protocol"] + call["kind"]] += 1
    assert len({tuple(sorted(kinds.items())) for kinds in made.values()}) > 2


def test_the_engine_sees_the_requests_that_the_truth_knows(ran: Finished) -> None:
    tables = capture.read_files([str(ran.folder / "capture" / "tap.pcap")])
    asked = (tables.messages["direction"] == 0) & (tables.messages["kind"] == 0)
    for store in STORES:
        of_store = asked & (tables.messages["protocol"] == Protocol[store.upper()])
        log_in = [n for n, (_, text) in enumerate(tables.classes) if text in ("LOGIN", "SSL_REQUEST", "SYNC")]
        seen = Counter(
            int(seq)
            for seq, kind in zip(
                tables.messages["tcp_seq"][of_store], tables.messages["class_id"][of_store], strict=True
            )
            if kind not in log_in
        )
        known = Counter(int(c["tcp_seq"]) for c in ran.of(store) if c["kind"] not in ONE_WAY)
        assert seen == known, store


def test_the_logs_know_every_request(ran: Finished) -> None:
    events = ran.folder / "events" / "shop"
    assert Counter(r["request_id"] for r in rows(events / "requests.tsv", "\t")) == Counter(ran.ids)
    used = {r["connection"].split(">")[1] for r in rows(events / "checkouts.tsv", "\t")}
    assert used == {"5432", "6379", "11211"}


def test_connections_are_kept_and_few(ran: Finished) -> None:
    # memcached's pool has no bound but the number of threads.
    most = {"postgres": ran.options.pool_size, "redis": ran.options.pool_size}
    for store in STORES:
        ports = {c["sport"] for c in ran.of(store)}
        assert len(ports) <= most.get(store, ran.options.people_threads)
