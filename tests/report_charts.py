"""What tests of the report read from its page, and how they drag over its charts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By


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
