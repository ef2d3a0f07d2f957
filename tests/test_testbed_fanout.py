"""The testbed's fan-out: nginx asks two services at the same time; the truth knows which call is whose."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from testbed_tables import Finished, rows

from tapscope.validate.testbed import fanout, packages, parts
from tapscope.validate.testbed.scenarios import SCENARIOS

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


def a_run(tmp_path_factory: pytest.TempPathFactory, name: str) -> Finished:
    scenario = SCENARIOS[name]
    lacking = packages.missing(scenario.needs)
    if lacking:
        pytest.skip(f"packages are missing: {', '.join(lacking)}")
    options = scenario.options(
        users=12, seconds=5, seed=6, think_s=0.25, warmup_s=2, rampdown_s=1, people_threads=8
    )
    return Finished(tmp_path_factory.mktemp(name) / "run", options)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return a_run(tmp_path_factory, "fanout")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return a_run(tmp_path_factory, "fanout-events")


@pytest.fixture(params=["threads", "events"])
def ran(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_all_requests_were_answered(ran: Finished) -> None:
    assert len(ran.asked) > 30
    assert {r["status"] for r in ran.asked} <= {"200", "303", "404"}
    assert sum(r["status"] == "404" for r in ran.asked) < 0.05 * len(ran.asked)


def test_a_page_is_one_call_to_nginx_and_its_parts_one_call_each(ran: Finished) -> None:
    pages = {r["request_id"] for r in ran.asked if r["target"].startswith("/page/")}
    assert len(pages) > 8
    behind = [c for c in ran.of("http") if c["dport"] != "80"]
    assert Counter(c["request_id"] for c in ran.of("http") if c["dport"] == "80") == Counter(ran.ids)
    found: dict[str, list[tuple[str, str]]] = {}
    for call in behind:
        found.setdefault(call["request_id"], []).append((call["part"], call["dport"]))
    for identity in ran.ids:
        if identity in pages:
            assert [part for part, _ in sorted(found[identity])] in (["1", "2", "3"], ["1", "2"])
            assert ("2", "8000") in found[identity]
        else:
            assert [part for part, _ in found[identity]] == ["0"]


def test_parts_ran_at_the_same_time(ran: Finished) -> None:
    """nginx asks before it has the first answer: the services' own times of one page overlap."""
    stays: dict[str, list[tuple[int, int]]] = {}
    for server in ("tomcat", "people"):
        for row in rows(ran.folder / "events" / server / "requests.tsv", "\t"):
            part = parts.number(row["request_id"])
            if part:
                times = (int(row["ua_us"]), int(row["ud_us"]))
                stays.setdefault(parts.whole(row["request_id"]), []).append(times)
    together = [len(s) > 1 and max(a for a, _ in s) < min(d for _, d in s) for s in stays.values()]
    assert sum(together) > 0.1 * len(together)


def test_statements_name_their_part(ran: Finished) -> None:
    asked = ran.of("mysql")
    assert {c["request_id"] for c in asked} - {""} <= ran.ids
    by_server = {c["part"] for c in asked if c["src"] == ran.manifest["hosts"]["people"]}
    assert by_server <= {"0", "2", "3"}
    assert {"1", "2", "3"} <= {c["part"] for c in asked}


def test_both_sources_of_truth_agree(ran: Finished) -> None:
    summary = ran.manifest["truth"]
    assert summary["content_and_checkout_agree"] > 100
    for odd in ("content_and_checkout_differ", "bytes_not_understood", "messages_with_two_ids", "gaps"):
        assert summary.get(odd, 0) == 0


def test_the_capture_holds_neither_an_id_nor_that_of_a_part(ran: Finished) -> None:
    raw = (ran.folder / "capture" / "tap.pcap").read_bytes()
    assert [name for name in parts.with_parts(ran.ids, fanout.PARTS) if name.encode() in raw] == []
    assert ran.manifest["scrub"]["ids"] == sum(
        ran.manifest["truth"][f"{p}_content"] for p in ("http", "mysql")
    )


def statements_at_once(ran: Finished) -> int:
    """Requests to the Python service two of whose statements were under way at the same time."""
    logged: dict[str, list[tuple[int, int]]] = {}
    for row in rows(ran.folder / "events" / "people" / "statements.tsv", "\t"):
        logged.setdefault(row["request_id"], []).append((int(row["ds_us"]), int(row["dr_us"])))
    return sum(
        any(later[0] < earlier[1] for earlier, later in pairwise(sorted(times))) for times in logged.values()
    )


def test_only_the_event_driven_service_asks_several_things_at_once(
    threads: Finished, events: Finished
) -> None:
    assert statements_at_once(threads) == 0
    assert statements_at_once(events) > 8
    assert "COM_PING" not in {c["kind"] for c in events.of("mysql")}
    assert len({c["sport"] for c in events.of("mysql") if c["part"] == "2"}) > 1
