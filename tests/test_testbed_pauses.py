"""Pauses of a run as they are found in a JVM's log, and the middleware's parts that need no run."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tapscope.cli.commands import testbed_run
from tapscope.store.errors import TapscopeError
from tapscope.validate.testbed import apache, avatica, pauses
from tapscope.validate.testbed.checkouts import Checkouts
from tapscope.validate.testbed.packages import Paths
from tapscope.validate.testbed.pcapfile import Flow
from tapscope.validate.testbed.requests import Request
from tapscope.validate.testbed.scenarios import SCENARIOS
from tapscope.validate.testbed.streams import Piece, Run, Stream

LOG = """\
[2026-11-21T06:12:59.100+0000][0.010s][info][gc] Using Serial
[2026-11-21T06:13:00.680+0000][0.768s][info][gc,start    ] GC(0) Pause Young (Allocation Failure)
[2026-11-21T06:13:00.688+0000][0.775s][info][gc ] GC(0) Pause Young (Allocation Failure) 12M->3M(258M) 7.378ms
[2026-11-21T06:13:01.500+0000][1.600s][info][gc ] GC(1) Pause Full (System.gc()) 90M->65M(248M) 187.250ms
[2026-11-21T06:13:01.500+0000][1.600s][info][gc,cpu      ] GC(1) User=0.18s Sys=0.00s Real=0.19s
[2026-11-21T06:13:02.0
"""


def test_a_collection_ends_when_its_line_is_written(tmp_path: Path) -> None:
    (tmp_path / "gc.log").write_text(LOG)
    found = list(pauses.collections(tmp_path / "gc.log", "app"))
    second = 1_795_241_580_000_000_000  # 2026-11-21 06:13:00 UTC
    assert [(p.end_ns - second, p.end_ns - p.begin_ns, p.cause) for p in found] == [
        (688_000_000, 7_378_000, "Pause Young (Allocation Failure)"),
        (1_500_000_000, 187_250_000, "Pause Full (System.gc())"),
    ]


CONNECTION = "5c0bd6a1-23c8-4a0c-9ac1-0f0c6b1f2a3d"
OTHER = "0cf3b0a2-9b1e-4f7d-8a43-64c1a1b6a5de"


@pytest.mark.parametrize(
    ("body", "at_us", "expected"),
    [
        (f"commit {CONNECTION}", 150, "a"),
        (f"SELECT 1 /*ID={OTHER}*/ {CONNECTION}", 250, "b"),
        (f"commit {CONNECTION}", 350, ""),
        (f"openConnection {OTHER}", 150, ""),
        ("getCatalogs", 150, ""),
    ],
)
def test_a_call_to_the_middleware_belongs_to_the_holder_of_the_connection_it_names(
    tmp_path: Path, body: str, at_us: int, expected: str
) -> None:
    log = tmp_path / "checkouts.tsv"
    lines = ["request_id\tthread_id\tconnection\tborrow_us\treturn_us"]
    lines += [f"{i}\t9\t{CONNECTION}\t{b}\t{r}" for i, b, r in (("a", 100, 200), ("b", 210, 300))]
    log.write_text("\n".join(lines) + "\n")
    rule = avatica.AvaticaCheckouts(Checkouts.read(log, key="connection"))
    run = Run(0, body.encode(), [Piece(0, 1, 1)], False)
    assert rule.knows()
    stream = Stream(Flow(b"\x0a\x4d\0\x1e", 4000, b"\x0a\x4d\0\x23", 8765), [], 0, True)
    assert rule.holder(stream, run, Request(0, len(body), "POST"), at_us * 1000) == expected


def test_jars_that_are_not_the_expected_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that delivers something else: the program that fetches leaves one strange file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetch = tmp_path / "mvn"
    fetch.write_text(
        '#!/bin/sh\nfor last; do :; done\nd=${last#*=}; mkdir -p "$d"; echo x > "$d/strange.jar"\n'
    )
    fetch.chmod(0o755)
    paths = Paths({"mvn": fetch}, {})
    with pytest.raises(TapscopeError, match=r"not the files that were expected.*strange\.jar"):
        avatica.jars(paths)
    assert list((tmp_path / "cache" / "tapscope-testbed").iterdir()) == []


def test_a_repository_that_cannot_be_reached_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetch = tmp_path / "mvn"
    fetch.write_text("#!/bin/sh\necho '[ERROR] no route to repository'\nexit 1\n")
    fetch.chmod(0o755)
    with pytest.raises(TapscopeError, match=r"cannot be fetched.*no route"):
        avatica.jars(Paths({"mvn": fetch}, {}))


def test_one_application_server_needs_no_balancer() -> None:
    text = apache.workers(SCENARIOS["board"].options(), {"app": "10.77.0.30"})
    assert "type=lb" not in text
    assert "worker.board.host=10.77.0.30" in text


def test_several_application_servers_are_behind_a_balancer() -> None:
    text = apache.workers(SCENARIOS["balanced"].options(), {"app1": "10.77.0.31", "app2": "10.77.0.32"})
    assert "worker.board.balance_workers=app1,app2" in text
    assert "worker.app2.host=10.77.0.32" in text


def test_what_is_given_goes_before_a_scenarios_own_defaults() -> None:
    saturated = SCENARIOS["saturated"]
    assert saturated.options().users == saturated.defaults["users"]
    assert saturated.options(users=7).users == 7
    assert saturated.options().scenario == "saturated"


def test_help_lists_every_scenario() -> None:
    shown = CliRunner().invoke(testbed_run.testbed, ["run", "--help"]).output
    for scenario in SCENARIOS.values():
        assert f"  {scenario.name} " in shown
        assert scenario.summary.split()[0] in shown
