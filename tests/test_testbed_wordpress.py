"""The testbed's WordPress: nginx, PHP-FPM, MariaDB; database connections per request or kept by workers."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import Any

import pytest
from testbed_tables import Finished, rows

from tapscope.validate.testbed import packages
from tapscope.validate.testbed.scenarios import SCENARIOS

WORDPRESS = SCENARIOS["wordpress"]
LACKING = packages.missing(WORDPRESS.needs)
pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(bool(LACKING), reason=f"packages are missing: {', '.join(LACKING)}"),
]


def a_run(tmp_path_factory: pytest.TempPathFactory, connections: str) -> Finished:
    options = WORDPRESS.options(
        users=10, seconds=4, seed=6, think_s=0.25, warmup_s=2, rampdown_s=1, php_workers=6,
        php_connections=connections,
    )  # fmt: skip
    return Finished(tmp_path_factory.mktemp(connections) / "run", options)


@pytest.fixture(scope="module")
def per_request(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return a_run(tmp_path_factory, "request")


@pytest.fixture(scope="module")
def persistent(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return a_run(tmp_path_factory, "persistent")


@pytest.fixture(params=["per_request", "persistent"])
def ran(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_all_pages_were_there_and_php_had_nothing_to_complain_of(ran: Finished) -> None:
    assert len(ran.asked) > 25
    assert {r["status"] for r in ran.asked} <= {"200", "201", "302"}
    assert "php_complaints" not in ran.manifest
    assert {"comment", "edit"} <= {r["interaction"] for r in ran.asked}


def test_every_request_is_one_http_and_one_fastcgi_call(ran: Finished) -> None:
    for protocol in ("http", "fastcgi"):
        assert Counter(c["request_id"] for c in ran.of(protocol)) == Counter(ran.ids)
        assert {c["kind"] for c in ran.of(protocol)} == {"GET", "POST"}


def test_every_database_call_belongs_to_a_request(ran: Finished) -> None:
    asked = ran.of("mysql")
    assert {c["request_id"] for c in asked} - {""} == ran.ids
    # Leaving is nobody's: the log of the request is written by then.
    assert set(ran.kinds("mysql", "none")) <= {"COM_QUIT"}
    assert ran.kinds("mysql", "content")["COM_QUERY"] > 10 * len(ran.asked)


def test_both_sources_of_truth_agree(ran: Finished) -> None:
    summary = ran.manifest["truth"]
    assert summary["content_and_checkout_agree"] > 200
    for odd in ("content_and_checkout_differ", "bytes_not_understood", "messages_with_two_ids", "gaps"):
        assert summary.get(odd, 0) == 0


def test_the_capture_holds_no_id(ran: Finished) -> None:
    assert ran.ids_in_capture() == []
    content = sum(ran.manifest["truth"][f"{p}_content"] for p in ("http", "fastcgi", "mysql"))
    assert ran.manifest["scrub"]["ids"] == content


def test_the_logs_know_every_request_and_statement(ran: Finished) -> None:
    events = ran.folder / "events" / "php"
    assert Counter(r["request_id"] for r in rows(events / "requests.tsv", "\t")) == Counter(ran.ids)
    assert len(rows(events / "statements.tsv", "\t")) == ran.manifest["truth"]["mysql_content"]
    nginx = (ran.folder / "events" / "nginx" / "nginx.log").read_text().splitlines()
    assert Counter(line.split()[0] for line in nginx) == Counter(f"id={i}" for i in ran.ids)


def test_a_connection_per_request_serves_one_request(per_request: Finished) -> None:
    """A port may be used again by a later connection, which then is another request's."""
    served: dict[str, list[str]] = {}
    for call in sorted(per_request.of("mysql"), key=lambda call: int(call["ts_ns"])):
        if call["request_id"]:
            served.setdefault(call["sport"], []).append(call["request_id"])
    assert sum(len(set(ids)) for ids in served.values()) == len(per_request.ids)
    assert per_request.kinds("mysql", "none")["COM_QUIT"] == len(per_request.ids)
    for ids in served.values():
        changes = sum(one != other for one, other in itertools.pairwise(ids))
        assert changes == len(set(ids)) - 1, "two requests take turns on one connection"
    assert sum(len(set(ids)) > 1 for ids in served.values()) <= 0.05 * len(served)


def test_kept_connections_are_few_and_begin_each_request_anew(persistent: Finished) -> None:
    ports = {c["sport"] for c in persistent.of("mysql")}
    assert len(ports) <= persistent.options.php_workers
    anew = persistent.kinds("mysql", "checkout")["COM_CHANGE_USER"]
    assert anew == len(persistent.ids) - len(ports)
