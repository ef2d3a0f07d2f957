"""The report's timeline in a real browser: it draws what the run file holds, and its charts move together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import report_browser
from report_charts import drag, finding_of_the_stall, ranges, series, strip_area
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from simulator import APP, DB, WEB, Simulation

from tapscope.analyze.response_time import vlrt

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not report_browser.available(), reason="neither Chromium nor WebKitGTK with its driver"
    ),
]


@pytest.mark.parametrize("node", [WEB, APP, DB])
def test_queue_strip_draws_every_window_of_the_run_file(
    report: Any, simulation: Simulation, node: int
) -> None:
    loads = {
        name: values[simulation.tables["loads"]["node"] == node]
        for name, values in simulation.tables["loads"].items()
    }
    drawn = series(report, f"queue-{node}")
    x, y = drawn["tap"]
    np.testing.assert_allclose(x, (loads["window_ns"] - simulation.begin_ns) / 1e9, atol=1e-9)
    np.testing.assert_allclose(y, loads["load"], atol=0.00051)
    np.testing.assert_array_equal(drawn["max"][1], loads["max"])


def test_event_monitor_curve_is_drawn_over_the_tap(report: Any, simulation: Simulation) -> None:
    columns = simulation.event_loads()
    expected = [load for tier, load in zip(columns["tier"], columns["load"], strict=True) if tier == "app"]
    np.testing.assert_allclose(series(report, f"queue-{APP}")["event monitor"][1], expected, atol=0.00051)


def test_throughput_and_response_time_strips_equal_the_run_file(report: Any, simulation: Simulation) -> None:
    loads = {
        name: values[simulation.tables["loads"]["node"] == WEB]
        for name, values in simulation.tables["loads"].items()
    }
    rate = series(report, f"throughput-{WEB}")["completed"][1]
    np.testing.assert_allclose(rate, loads["completions"] / 0.05, atol=0.01)
    drawn = series(report, f"response-{WEB}")
    np.testing.assert_allclose(drawn["mean"][1], loads["pit_mean_ns"] / 1e6, atol=0.0006, equal_nan=True)
    longest = np.where(loads["pit_max_ns"] < 0, np.nan, loads["pit_max_ns"] / 1e6)
    np.testing.assert_allclose(drawn["max"][1], longest, atol=0.0006, equal_nan=True)


def test_slow_calls_are_marked_where_they_ended(report: Any, simulation: Simulation) -> None:
    calls = simulation.tables["calls"]
    mine = (calls["server_node"] == WEB) & (calls["depart_ns"] >= 0)
    depart = calls["depart_ns"][mine]
    stay = depart - calls["arrive_ns"][mine]
    slow, _ = vlrt(stay)
    assert slow.any()
    order = np.argsort(depart[slow])
    x, y = series(report, f"response-{WEB}")["VLRT"]
    np.testing.assert_allclose(x, (depart[slow][order] - simulation.begin_ns) / 1e9, atol=1e-6)
    np.testing.assert_allclose(y, stay[slow][order] / 1e6, atol=0.0006)


def test_processor_use_of_each_host_is_what_the_host_did(report: Any, simulation: Simulation) -> None:
    drawn = series(report, "cpu-of-one-core")
    assert list(drawn) == ["web", "app", "db"]
    for name, node in (("web", WEB), ("app", APP), ("db", DB)):
        x, y = drawn[name]
        at, percent = simulation.cpu_percent(node)
        both = np.isin(np.round(x, 6), np.round((at - simulation.begin_ns) / 1e9, 6)) & np.isfinite(y)
        expected = percent * simulation.processors[node]
        assert both.sum() > 0.95 * len(at)
        np.testing.assert_allclose(y[both], expected[-both.sum() :], atol=0.2)


def test_zoom_on_one_strip_moves_all_and_reset_brings_them_back(report: Any) -> None:
    drag(report, f"queue-{APP}", 0.25, 0.5)
    report_browser.wait(report, "return !document.getElementById('reset').disabled")
    moved = ranges(report)
    assert len(moved) == 8
    assert all(each == moved[0] for each in moved)
    low, high = moved[0]
    assert low == pytest.approx(1.5, abs=0.15)
    assert high == pytest.approx(3.0, abs=0.15)
    assert "#t=" in report.current_url
    report.find_element(By.ID, "reset").click()
    assert ranges(report) == [[0, 6.0]] * 8


def test_a_finding_zooms_the_timeline_to_its_episode(report: Any) -> None:
    """The application stood still from 3.0 to 3.3 s."""
    stop = finding_of_the_stall(report).find_element(By.CLASS_NAME, "to-timeline")
    row = finding_of_the_stall(report).text
    assert "10.77.0.12" in row
    assert "node stood still" in row
    report.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click();", stop)
    report_browser.wait(report, "return !document.getElementById('reset').disabled")
    low, high = ranges(report)[0]
    assert low == pytest.approx(2.5, abs=0.15)
    assert 3.5 < high < 5.5


def test_cursor_is_shared_and_read_in_every_strip(report: Any, simulation: Simulation) -> None:
    area = strip_area(report, f"queue-{APP}")
    ActionChains(report).move_to_element(area).perform()
    shown = report.execute_script(
        "return [...document.querySelectorAll('.hair')].map((h) => [h.hidden, h.style.left]);"
    )
    assert len(shown) == 8
    assert {tuple(each) for each in shown} == {tuple(shown[0])}
    assert shown[0][0] is False
    text = report.find_element(By.ID, "cursor").text
    at_s = float(text.split()[0])
    assert at_s == pytest.approx(3.0, abs=0.1)
    assert "2026-09-21 14:13:2" in text
    loads = simulation.tables["loads"]
    row = np.flatnonzero(loads["node"] == APP)[int(at_s / 0.05 + 1e-6)]
    read = report.find_elements(By.CSS_SELECTOR, f"#strip-queue-{APP} .reading b")[1].text
    assert float(read) == pytest.approx(loads["load"][row], rel=0.01, abs=0.001)


def test_keyboard_moves_the_cursor_and_zooms(report: Any) -> None:
    # The pointer must not rest on a strip, or scrolling would move the cursor too.
    ActionChains(report).move_to_element(report.find_element(By.TAG_NAME, "h1")).perform()
    strip = report.find_element(By.ID, f"strip-queue-{DB}")
    report.execute_script("arguments[0].focus();", strip)
    strip.send_keys(Keys.ARROW_RIGHT)
    assert report.find_element(By.ID, "cursor").text.startswith("3.050 s")
    strip.send_keys("+")
    low, high = ranges(report)[0]
    assert high - low == pytest.approx(3.0)
    strip.send_keys("0")
    assert ranges(report)[0] == [0, 6.0]
