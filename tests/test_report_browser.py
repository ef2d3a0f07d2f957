"""The report in a real browser: its page is whole, safe and calm; nothing leaves it."""

from __future__ import annotations

from http.server import HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_browser
from report_charts import series
from report_page import Canary
from selenium.webdriver.common.by import By
from simulator import WEB, simulate

from tapscope.report import html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not report_browser.available(), reason="neither Chromium nor WebKitGTK with its driver"
    ),
]


def test_texts_from_the_network_stay_texts(report: Any, evil: str, canary: HTTPServer) -> None:
    """A path may hold markup and script; it is shown, and neither runs nor loads anything."""
    about = report.execute_script(
        "const wanted = arguments[0];"
        "const found = Tapscope.transactions.all.find((each) => each.text === wanted);"
        "Tapscope.transactions.choose(found.trace);"
        "return document.querySelector('#waterfall .facts').textContent.includes(wanted);",
        evil,
    )
    assert about is True
    assert report.title == "run.db – tapscope"
    assert report.execute_script("return document.images.length") == 0
    assert report.execute_script("return document.scripts.length") == 3
    assert evil in report.execute_script("return document.getElementById('counters').textContent")
    assert Canary.seen == []


def test_theme_button_changes_the_colours_of_page_and_charts(report: Any) -> None:
    script = (
        "return [getComputedStyle(document.body).backgroundColor,"
        "document.querySelector('.strip .chart').data[1].line.color];"
    )
    button = report.find_element(By.ID, "theme")
    report.execute_script("window.scrollTo(0, 0);")
    button.click()
    light = report.execute_script(script)
    button.click()
    dark = report.execute_script(script)
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_charts_fit_on_paper_and_come_back_afterwards(report: Any) -> None:
    script = (
        "return [document.documentElement.dataset.theme,"
        "document.querySelector('.strip .chart')._fullLayout.width,"
        "document.querySelector('#waterfall svg').getBoundingClientRect().width];"
    )
    report.execute_script(
        "document.getElementById('theme').click(); document.getElementById('theme').click();"
    )
    before = report.execute_script(script)
    report.execute_script("dispatchEvent(new Event('beforeprint'));")
    theme, *widths = report.execute_script(script)
    assert theme == "light"
    assert max(widths) <= 700
    report.execute_script("dispatchEvent(new Event('afterprint'));")
    report_browser.wait(report, "return document.querySelector('.strip .chart')._fullLayout.width > 700")
    after = report.execute_script(script)
    assert before[0] == after[0] == "dark"
    assert before[1] == pytest.approx(after[1], abs=1)


def test_charts_follow_the_width_of_the_window(report: Any) -> None:
    script = "return [...document.querySelectorAll('.strip .chart')].map((chart) => chart._fullLayout.width);"
    before = report.execute_script(script)
    report.execute_script("document.querySelector('main').style.maxWidth = '800px';")
    report_browser.wait(
        report, f"return document.querySelector('.strip .chart')._fullLayout.width < {before[0]}"
    )
    after = report.execute_script(script)
    assert len(set(after)) == 1
    assert after[0] < 800


def test_strips_are_aligned_and_nothing_is_wider_than_the_window(report: Any) -> None:
    lefts = report.execute_script(
        "return [...document.querySelectorAll('.strip .nsewdrag')].map((d) => d.getBoundingClientRect())"
        ".map((box) => [box.left, box.width].map(Math.round).join());"
    )
    assert len(set(lefts)) == 1
    assert report.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_page_loads_without_complaint_and_asks_for_nothing(browser: Any, page: Path) -> None:
    if browser.browser_name == "chromium":
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get_log("performance")
        report_browser.load(browser, page)
        assert report_browser.console_errors(browser) == []
        assert report_browser.requests(browser) == []
    else:
        report_browser.load(browser, page)
    assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert Canary.seen == []


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A run with so many windows that they cannot all be drawn, and the load of its entry tier."""
    simulation = simulate(seed=2, users=5, seconds=1.0)
    windows = 30_000
    generator = np.random.default_rng(4)
    load = generator.random(windows)
    load[generator.integers(0, windows, 12)] = 50.0 + np.arange(12)  # single windows that stand out
    width = 50_000_000
    simulation.tables["loads"] = {
        "node": np.full(windows, WEB, dtype=np.int32),
        "window_ns": simulation.begin_ns + np.arange(windows, dtype=np.int64) * width,
        "width_ns": np.full(windows, width),
        "load": load,
        "max": np.ceil(load).astype(np.int32),
        "arrivals": np.ones(windows, dtype=np.int32),
        "completions": np.ones(windows, dtype=np.int32),
        "pit_mean_ns": np.full(windows, 1e6),
        "pit_max_ns": np.full(windows, 1_000_000),
    }
    simulation.sources[0]["last_ns"] = simulation.begin_ns + windows * width
    folder = tmp_path_factory.mktemp("long")
    simulation.save(folder / "run.db")
    html.write(folder / "run.db", folder / "report.html")
    return folder / "report.html", load


def test_long_series_keep_every_peak_and_show_all_windows_when_zoomed(
    browser: Any, long_run: tuple[Path, np.ndarray]
) -> None:
    page, load = long_run
    report_browser.load(browser, page)
    drawn = series(browser, f"queue-{WEB}")["tap"][1]
    assert len(drawn) < 5_000
    assert set(np.sort(load)[-12:].round(3)) <= set(drawn.round(3))
    browser.execute_script("Tapscope.strips.setRange(100, 200);")
    x, y = series(browser, f"queue-{WEB}")["tap"]
    inside = (x >= 100) & (x < 200)
    np.testing.assert_allclose(y[inside], load[2000:4000], atol=0.00051)
