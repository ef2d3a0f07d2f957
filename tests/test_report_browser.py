"""The report in a real browser: it draws what the run file holds, charts move together, nothing leaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import report_browser
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from simulator import APP, DB, WEB, Simulation, simulate

from tapscope.analyze.response_time import vlrt
from tapscope.hostmon.load import load_host_files
from tapscope.report import html
from tapscope.store.runfile import RunFile

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not report_browser.available(), reason="neither Chromium nor WebKitGTK with its driver"
    ),
]


class Canary(BaseHTTPRequestHandler):
    """Notes every request; a report must never make one."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def canary() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Canary)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def evil(canary: HTTPServer) -> str:
    address = f"http://127.0.0.1:{canary.server_port}/leak"
    return (
        f"GET /a</script><img src={address}.png onerror=\"document.title='owned'\">"
        f"<script src={address}.js></script><script>document.title='owned'</script>'\"&lt;{{{{data}}}}"
    )


@pytest.fixture(scope="module")
def simulation(evil: str) -> Simulation:
    made = simulate(seed=11, users=40, seconds=6.0, stall_at_s=3.0, stall_ms=300.0, lose=3)
    made.classes = [(protocol, evil if "about" in text else text) for protocol, text in made.classes]
    made.counters.append((f"http.{evil}", 1, evil))
    made.sources[0]["path"] = f"{evil}.pcap"
    return made


@pytest.fixture(scope="module")
def page(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    simulation.save(folder / "run.db")
    simulation.write_host_logs(folder / "dir")
    with RunFile.open(folder / "run.db", write=True) as run:
        run.set_meta("manifest", {"hosts": {"web": "10.77.0.11", "app": "10.77.0.12", "db": "10.77.0.13"}})
        load_host_files(run, folder / "dir")
        run.write_columns("event_load", simulation.event_loads())
    html.write(folder / "run.db", folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module", params=report_browser.available())
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with report_browser.opened(request.param, tmp_path_factory.mktemp("profile")) as browser:
        browser.browser_name = request.param
        yield browser


AS_LOADED = """
    document.querySelector('main').style.maxWidth = '';
    const theme = document.getElementById('theme');
    while (theme.textContent !== 'Theme: system') theme.click();
    for (let chip; (chip = document.querySelector('#filters .chip'));) chip.click();
    if (location.hash.startsWith('#finding-')) location.hash = '#findings';
    Tapscope.strips.reset();
    Tapscope.strips.setCursor(null);
    Tapscope.transactions.choose(Tapscope.transactions.all[0].trace);
    scrollTo(0, 0);
"""


@pytest.fixture
def report(browser: Any, page: Path) -> Any:
    """The page as it is after loading; it is loaded once per browser, which takes most of the time."""
    if not browser.current_url.startswith(page.resolve().as_uri()):
        report_browser.load(browser, page)
    browser.execute_script(AS_LOADED)
    return browser


def series(browser: Any, strip: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Label -> x (seconds), y as the chart of a strip holds them."""
    script = (
        "const chart = document.querySelector(`#${CSS.escape(arguments[0])} .chart`);"
        "return JSON.stringify(chart.data.map((t) => [t.name, Array.from(t.x), Array.from(t.y)]));"
    )
    drawn = json.loads(browser.execute_script(script, f"strip-{strip}"))
    return {name: (np.array(x), np.array(y, dtype=float)) for name, x, y in drawn}


def ranges(browser: Any) -> list[list[float]]:
    script = (
        "return [...document.querySelectorAll('.strip .chart')]"
        ".map((chart) => chart._fullLayout.xaxis.range.map(Number));"
    )
    return browser.execute_script(script)


def finding_of_the_stall(browser: Any) -> Any:
    """Row of the table of findings."""
    rows = browser.find_elements(By.CSS_SELECTOR, "#findings-table tbody tr")
    return next(row for row in rows if 2.9 <= float(row.text.split()[0]) <= 3.1)


def strip_area(browser: Any, strip: str) -> Any:
    """Element over which a strip is dragged and clicked, scrolled to the middle of the window."""
    element = browser.find_element(By.CSS_SELECTOR, f"#strip-{strip} .nsewdrag")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'});", element)
    return element


def drag(browser: Any, strip: str, begin: float, end: float) -> None:
    """Drag across a strip, from one fraction of its width to another."""
    area = strip_area(browser, strip)
    width = area.rect["width"]
    at = ActionChains(browser, duration=20).move_to_element_with_offset(area, int((begin - 0.5) * width), 0)
    at.click_and_hold().pause(0.05).move_by_offset(int((end - begin) * width / 2), 0)
    at.move_by_offset(int((end - begin) * width / 2), 0).pause(0.05).release().perform()


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
        assert drawn[0][0] == windows
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
