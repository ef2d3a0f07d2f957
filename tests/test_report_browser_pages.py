"""Transactions, nodes and findings of the report in a real browser: chosen, drawn, left again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import report_browser
from report_charts import finding_of_the_stall, ranges, strip_area
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from simulator import APP, DB, WEB, Simulation

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not report_browser.available(), reason="neither Chromium nor WebKitGTK with its driver"
    ),
]


def waterfall(browser: Any) -> tuple[str, int]:
    """Transaction that is shown, and how many calls its waterfall draws."""
    script = (
        "return [document.querySelector('#waterfall .facts').innerText,"
        "document.querySelectorAll('#waterfall .row').length];"
    )
    text, rows = browser.execute_script(script)
    return text, rows


def test_slowest_transaction_comes_first_and_its_waterfall_has_all_of_its_calls(
    report: Any, simulation: Simulation
) -> None:
    traces = simulation.tables["traces"]
    stay = np.where(traces["end_ns"] >= 0, traces["end_ns"] - traces["begin_ns"], -1)
    slowest = int(np.argmax(stay))
    first = report.find_element(By.CSS_SELECTOR, "#list tbody tr")
    assert first.get_attribute("data-trace") == str(slowest)
    assert first.get_attribute("aria-selected") == "true"
    assert waterfall(report)[1] == traces["calls"][slowest]


def test_choosing_another_transaction_redraws_the_waterfall(report: Any, simulation: Simulation) -> None:
    before = waterfall(report)
    calls = simulation.tables["traces"]["calls"]
    rows = report.find_elements(By.CSS_SELECTOR, "#list tbody tr")
    shown = int(rows[0].get_attribute("data-trace"))
    other = next(row for row in rows if calls[int(row.get_attribute("data-trace"))] != calls[shown])
    trace = int(other.get_attribute("data-trace"))
    report.execute_script("arguments[0].scrollIntoView({block: 'center'});", other)
    other.find_element(By.TAG_NAME, "td").click()
    after = waterfall(report)
    assert after != before
    assert after[1] == calls[trace]
    assert f"tx={trace}" in report.current_url


def test_solid_parts_of_a_waterfall_add_up_to_the_intra_node_delay(
    report: Any, simulation: Simulation
) -> None:
    chosen = int(report.find_element(By.CSS_SELECTOR, "#list tbody tr").get_attribute("data-trace"))
    members = simulation.tables["trace_calls"]
    rows = members["call"][members["trace"] == chosen]
    rows = rows[np.argsort(simulation.tables["calls"]["arrive_ns"][rows], kind="stable")]
    traces = simulation.tables["traces"]
    length = int(traces["end_ns"][chosen] - traces["begin_ns"][chosen])
    script = (
        "return [...document.querySelectorAll('#waterfall .row')].map((row) => [Number(row.dataset.call),"
        "[...row.querySelectorAll('g .intra')]"
        ".reduce((sum, bar) => sum + Number(bar.getAttribute('width')), 0)]);"
    )
    widths = dict(report.execute_script(script))
    root = report.execute_script(
        "return Number(document.querySelector('#waterfall .row .stay').getAttribute('width'));"
    )
    pixel = length / root
    for place, row in enumerate(rows.tolist()):
        intra = int(members["intra_node_ns"][np.flatnonzero(members["call"] == row)[0]])
        # Bars narrower than 0.8 pixels are widened to be seen, one per call made at most.
        assert widths[place] * pixel == pytest.approx(intra, abs=pixel * len(rows))


def test_click_on_a_strip_lists_the_transactions_in_flight(report: Any) -> None:
    area = strip_area(report, f"queue-{WEB}")
    ActionChains(report).move_to_element_with_offset(
        area, int(area.rect["width"] * 0.04), 0
    ).click().perform()
    chip = report_browser.wait(report, "return document.querySelector('#filters .chip')?.textContent")
    at_s = float(chip.split()[3])
    assert at_s == pytest.approx(3.24, abs=0.05)
    found = report.execute_script(
        "return [...document.querySelectorAll('#list tbody tr[data-trace]')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent));"
    )
    assert found
    for cells in found:
        begin = float(cells[1])
        assert begin <= at_s + 0.001
        assert begin + float(cells[2]) / 1e3 >= at_s - 0.002


def test_click_on_a_histogram_bar_lists_its_transactions(report: Any, simulation: Simulation) -> None:
    traces = simulation.tables["traces"]
    ended = traces["end_ns"] >= 0
    drawn = report.execute_script("return Array.from(document.getElementById('histogram').data[0].y);")
    assert sum(drawn) == ended.sum()
    report.execute_script("document.getElementById('histogram').scrollIntoView({block: 'center'});")
    area = report.find_element(By.CSS_SELECTOR, "#histogram .nsewdrag")
    last = max(i for i, count in enumerate(drawn) if count)
    offset = int(area.rect["width"] * ((last + 0.5) / len(drawn) - 0.5))
    ActionChains(report).move_to_element_with_offset(area, offset, 60).pause(0.3).click().perform()
    chip = report_browser.wait(report, "return document.querySelector('#filters .chip')?.textContent")
    low = float(chip.split()[0])
    shown = report.find_elements(By.CSS_SELECTOR, "#list tbody tr[data-trace]")
    assert shown
    for row in shown:
        assert float(row.find_elements(By.TAG_NAME, "td")[2].text) >= low * 0.95


def test_tab_of_a_node_draws_its_windows_and_n_star(report: Any) -> None:
    figures = report.execute_script(
        "return Tapscope.data.analysis.map((node) => [node.name, node.widths[1].of]);"
    )
    assert [name for name, _ in figures] == ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    tabs = report.find_elements(By.CSS_SELECTOR, "#analysis-nodes button")
    for tab, (_, windows) in zip(tabs, figures, strict=True):
        report.execute_script("arguments[0].scrollIntoView({block: 'center'});", tab)
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
        drawn = report.execute_script(
            "return [...document.querySelectorAll('#analysis-figures .chart')]"
            ".map((chart) => [chart.data.reduce((sum, t) => sum + t.x.length, 0), chart.layout.xaxis.range]);"
        )
        assert drawn[0][0] == drawn[5][0] == windows
        # Interval lengths are drawn on the same axes, so that they compare.
        assert drawn[2][1] == drawn[3][1] == drawn[4][1]
    tabs[-1].send_keys(Keys.ARROW_RIGHT)
    assert tabs[0].get_attribute("aria-selected") == "true"


def test_finding_opens_as_a_page_whose_strips_are_aligned(report: Any, simulation: Simulation) -> None:
    link = finding_of_the_stall(report).find_element(By.TAG_NAME, "a")
    fragment = link.get_attribute("href").partition("#")[2]
    report.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click();", link)
    page = f"document.getElementById('{fragment}')"
    report_browser.wait(report, f"return {page}.querySelector('.waterfall svg') !== null")
    assert report.current_url.endswith(f"#{fragment}")
    sections = "[...document.querySelectorAll('main > section')]"
    shown = report.execute_script(f"return {sections}.filter((s) => s.offsetParent).map((s) => s.id);")
    assert shown == [fragment]
    strips = f"[...{page}.querySelectorAll('.strip')]"
    ids = report.execute_script(f"return {strips}.map((strip) => strip.id.replace('{fragment}-strip-', ''));")
    assert ids[:4] == [f"response-{WEB}", f"queue-{WEB}", f"queue-{APP}", f"queue-{DB}"]
    assert "metric-stalled" in ids
    report_browser.wait(report, f"return {strips}.every((strip) => strip.querySelector('.nsewdrag'))")
    boxes = report.execute_script(
        f"return {strips}.map((strip) => strip.querySelector('.nsewdrag').getBoundingClientRect())"
        ".map((box) => [box.left, box.width].map(Math.round).join());"
    )
    assert len(set(boxes)) == 1
    axes = report.execute_script(
        f"return {strips}.map((strip) => strip.querySelector('.chart')._fullLayout)"
        ".map((layout) => [...layout.xaxis.range, layout.shapes[0].x0, layout.shapes[0].x1]);"
    )
    assert all(axis == axes[0] for axis in axes)
    low, high, begin, end = axes[0]
    assert low < 2.9 < begin < 3.1 < end < high
    calls = simulation.tables["traces"]["calls"]
    for row in report.find_elements(By.CSS_SELECTOR, f"#{fragment} .hits tbody tr")[:3]:
        row.click()
        drawn = report.execute_script(f"return {page}.querySelectorAll('.waterfall .row').length;")
        assert drawn == calls[int(row.get_attribute("data-trace"))]
    assert report.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_way_back_from_a_finding_shows_the_run_in_the_theme_that_was_chosen_there(report: Any) -> None:
    link = finding_of_the_stall(report).find_element(By.TAG_NAME, "a")
    fragment = link.get_attribute("href").partition("#")[2]
    before = ranges(report)
    widths = (
        "return [...document.querySelectorAll('#strips .chart')].map((chart) => chart._fullLayout.width);"
    )
    wide = report.execute_script(widths)
    report.execute_script("arguments[0].click();", link)
    report_browser.wait(report, f"return document.querySelector('#{fragment} .waterfall svg') !== null")
    report.execute_script(
        "document.getElementById('theme').click(); document.getElementById('theme').click();"
    )
    report.find_element(By.CSS_SELECTOR, f"#{fragment} .steps a").click()
    report_browser.wait(report, "return !document.querySelector('main').classList.contains('one-finding')")
    report_browser.wait(report, f"{widths[:-1]}.join() === '{','.join(map(str, wide))}';")
    assert ranges(report) == before
    assert report.find_elements(By.CSS_SELECTOR, f"#{fragment} .strip") == []
    line, colour = report.execute_script(
        "return [document.querySelector('#strips .chart').data[1].line.color,"
        "getComputedStyle(document.documentElement).getPropertyValue('--t1').trim()];"
    )
    assert line == colour
