"""The page of a finding: its strips, the transactions it hit and what was inside with them, as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulator import APP, DB, NODE_NAMES, WEB, Simulation, simulate

from tapscope.analyze.finding import Finding
from tapscope.analyze.findings import findings
from tapscope.report import analysis, episodes, html
from tapscope.report import findings as words
from tapscope.report.episodes import Page
from tapscope.report.run import Run, read
from tapscope.report.together import together
from tapscope.store.runfile import RunFile

STALL_S = 3.0


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """The application server stands still for 300 ms, once."""
    return simulate(seed=11, users=40, seconds=6.0, stall_at_s=STALL_S, stall_ms=300.0)


@pytest.fixture(scope="module")
def path(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("findings") / "run.db"
    simulation.save(file)
    return file


@pytest.fixture(scope="module")
def opened(path: Path) -> Any:
    with RunFile.open(path) as file:
        yield read(file), findings(file)


@pytest.fixture(scope="module")
def stall(opened: tuple[Run, list[Finding]], simulation: Simulation) -> Page:
    """Page of the episode in which the server stood still."""
    at = simulation.begin_ns + int(STALL_S * 1e9)
    run, found = opened
    return next(
        page
        for page in episodes.pages(run, analysis.analyse(run), found)
        if abs(page.found.episode.begin_ns - at) < 200_000_000 and page.found.origin == APP
    )


@pytest.fixture(scope="module")
def drawn(opened: tuple[Run, list[Finding]], stall: Page) -> dict[str, Any]:
    run, _ = opened
    return episodes.Episodes(run, analysis.analyse(run)).drawn(stall)


def decoded(strip: dict[str, Any], label: str) -> tuple[np.ndarray, np.ndarray]:
    """Times (s from the start) and values of one series."""
    series = next(each for each in strip["series"] if each["label"] == label)
    x, y = series["x"], series["y"]
    times = (
        np.cumsum(x["micro"]) / 1e6
        if "micro" in x
        else (x["first"] + x["step"] * np.arange(x["count"])) / 1e9
    )
    steps = np.array([np.nan if step is None else step for step in y["delta"]])
    values = np.where(np.isnan(steps), np.nan, np.nancumsum(steps) / y["scale"])
    return times, values


@pytest.mark.parametrize("node", [WEB, APP, DB])
def test_queue_of_every_tier_is_that_of_its_calls_in_fine_windows(drawn, simulation, node) -> None:
    calls = simulation.tables["calls"]
    strip = next(each for each in drawn["strips"] if each["id"] == f"queue-{node}")
    times, load = decoded(strip, "mean")
    begin = simulation.begin_ns + np.round(times * 1e9).astype(np.int64)
    assert set(np.diff(begin)) == {10_000_000}
    mine = (calls["server_node"] == node) & (calls["depart_ns"] >= 0)
    arrive, depart = calls["arrive_ns"][mine], calls["depart_ns"][mine]
    for at, value in list(zip(begin.tolist(), load.tolist(), strict=True))[::7]:
        inside = np.clip(depart, at, at + 10_000_000) - np.clip(arrive, at, at + 10_000_000)
        assert value == pytest.approx(inside.sum() / 1e7, abs=0.001)


def test_strips_share_the_stretch_around_the_episode(drawn: dict[str, Any], stall: Page) -> None:
    first, last = drawn["shown"]
    begin, end = drawn["band"]
    assert first == pytest.approx(begin - 1.0, abs=0.001)
    assert last == pytest.approx(end + 1.0, abs=0.001)
    assert STALL_S - 0.1 < begin < STALL_S + 0.1
    for strip in drawn["strips"]:
        for series in strip["series"]:
            times, values = decoded(strip, series["label"])
            assert len(times) == len(values) > 0
            assert times[0] >= first - 0.1
            assert times[-1] <= last + 0.1
    own = next(each for each in drawn["strips"] if each["id"] == f"queue-{WEB}")
    # The web tier only waits for the server that stands still.
    assert decoded(own, "its own")[1].max() < 0.5 * decoded(own, "mean")[1].max()
    assert f"metric-{stall.found.mechanisms[0].metric}" in [
        strip["id"] for strip in drawn["strips"] if strip["group"] == "named"
    ]


def test_windows_of_the_episode_end_above_the_usual_load(drawn: dict[str, Any], stall: Page) -> None:
    windows = drawn["windows"]
    load = np.cumsum(windows["x"]["delta"]) / windows["x"]["scale"]
    rate = np.cumsum(windows["y"]["delta"]) / windows["y"]["scale"]
    rise = next(rise for rise in stall.found.path if rise.node == APP)
    assert load.max() == pytest.approx(rise.peak_load, abs=0.0051)
    # It stood still for 300 ms: of the 50 ms windows at least four are stalls, without throughput.
    assert (np.array(windows["kind"]) == 3).sum() >= 4
    assert rate[np.array(windows["kind"]) == 3].max() < 0.1 * rate.max()


def test_hits_were_under_way_and_the_very_long_come_first(drawn, stall, simulation) -> None:
    traces, episode = simulation.tables["traces"], stall.found.episode
    assert len(drawn["hits"]) == episodes.HITS
    for trace in drawn["hits"]:
        assert traces["begin_ns"][trace] < episode.end_ns
        assert traces["end_ns"][trace] > episode.begin_ns
    assert drawn["late"] == [int(root) in episode.roots for root in traces["root"][drawn["hits"]]]
    assert drawn["late"] == sorted(drawn["late"], reverse=True)
    longest = episode.longest_ns
    first = drawn["hits"][0]
    assert traces["end_ns"][first] - traces["begin_ns"][first] + drawn["waited"][0] == longest


def test_a_client_that_waited_for_its_connection_is_hit_however_late_its_request_came(
    opened, stall, simulation
) -> None:
    """A second after the episode a request arrives whose SYN was sent in it: it comes first."""
    run, _ = opened
    known = analysis.analyse(run)
    traces = simulation.tables["traces"]
    late = np.flatnonzero(traces["begin_ns"] > stall.found.episode.end_ns + 10**9)[0]
    waited = np.zeros_like(known.waited)
    waited[traces["root"][late]] = traces["begin_ns"][late] - stall.found.episode.begin_ns
    grave = replace(stall.found.episode, roots=np.append(stall.found.episode.roots, traces["root"][late]))
    found = replace(stall.found, episode=grave)
    (page,) = episodes.pages(run, replace(known, waited=waited), [found])
    assert page.hits[0] == late
    assert set(page.hits[1:]) == set(stall.hits[:-1])


def test_concurrent_calls_and_their_statements_are_those_of_the_run(opened, stall, simulation) -> None:
    run, _ = opened
    seen = together(run, stall)
    assert seen is not None
    calls, parent = simulation.tables["calls"], simulation.tables["links"]["parent"]
    assert calls["server_node"][seen.row] == APP
    arrive, depart = calls["arrive_ns"], np.where(calls["depart_ns"] < 0, 2**62, calls["depart_ns"])
    inside = (calls["server_node"] == APP) & (arrive < depart[seen.row]) & (depart > arrive[seen.row])
    assert seen.total == inside.sum() - 1
    assert len(seen.others) == min(seen.total, 12)
    for other in seen.others:
        assert inside[other.row]
        made = np.flatnonzero(parent == other.row)
        assert other.made == len(made)
        took = sorted((calls["depart_ns"] - arrive)[made].tolist(), reverse=True)
        assert [each for _, each in other.statements] == took[:4]


def test_words_of_the_page_have_the_ranking_and_what_was_ruled_out(opened, stall) -> None:
    run, found = opened
    text = words.articles(run, found, [stall])
    assert f'id="finding-{stall.number}"' in text
    assert f"node stood still at {NODE_NAMES[APP]}" in text
    for mechanism in stall.found.mechanisms:
        assert mechanism.words.replace("'", "&#x27;") in text
    assert text.count("<li>") == len(stall.found.ruled_out) > 3
    assert stall.found.ranking[0].words in text


def test_a_queue_that_began_nowhere_has_a_page_too(opened, stall) -> None:
    """No origin, no mechanism, no path: what is left is the symptom, and what was ruled out."""
    run, found = opened
    nowhere = replace(
        stall.found, origin=-1, path=[], travel=[], mechanisms=[], ranking=[], ruled_out=["<everything>"]
    )
    page = replace(stall, found=nowhere)
    text = words.articles(run, found, [page])
    assert "Finding 1 of" in text
    assert "unknown" in text
    assert "&lt;everything&gt;" in text
    assert "load-throughput" not in text
    drawn = episodes.Episodes(run, analysis.analyse(run)).drawn(page)
    assert [strip["group"] for strip in drawn["strips"]] == ["response", "queue", "queue", "queue"]
    assert drawn["windows"] is None


def test_only_the_findings_with_the_longest_responses_have_a_page(monkeypatch, path, opened) -> None:
    run, found = opened
    monkeypatch.setattr(episodes, "MOST_PAGES", 1)
    pages = episodes.pages(run, analysis.analyse(run), found * 3)
    assert len(pages) == 1
    assert pages[0].found.episode.longest_ns == max(one.episode.longest_ns for one in found)
    table = words.section(run, found * 3, pages)
    assert table.count('href="#finding-') == 1
    assert table.count('class="to-timeline"') == 3 * len(found)
    assert "longest responses have a page" in table
    with RunFile.open(path) as file:
        assert html.page(read(file)).count('class="finding"') == 1
