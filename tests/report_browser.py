"""Browsers for the tests of the report: Chromium, or WebKitGTK where Chromium is only a snap."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options as ChromeOptions
from selenium.webdriver.chrome.service import Service as ChromeService
from selenium.webdriver.webkitgtk.options import Options as WebKitOptions
from selenium.webdriver.webkitgtk.service import Service as WebKitService

CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
LOCAL = ("file:", "data:", "blob:", "about:", "chrome:")


def _program(*names: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def chromium() -> tuple[str, str] | None:
    """Chromium and its driver; None when either is missing or is Ubuntu's stand-in for a snap."""
    browser, driver = _program("chromium", "google-chrome"), _program("chromedriver")
    if browser is None or driver is None or "/snap/" in str(Path(browser).resolve()):
        return None
    return browser, driver


def webkit() -> tuple[str, str, str | None] | None:
    """WebKitGTK's MiniBrowser and driver, and Xvfb when there is no display."""
    driver = _program("WebKitWebDriver")
    libraries = Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser")
    browser = next((str(path) for path in sorted(libraries, reverse=True)), None)
    display = _program("Xvfb")
    if driver is None or browser is None or (display is None and not os.environ.get("DISPLAY")):
        return None
    return driver, browser, display


def available() -> list[str]:
    """Names of the browsers that this machine has."""
    return [name for name, found in (("chromium", chromium()), ("webkit", webkit())) if found is not None]


@contextlib.contextmanager
def opened(name: str, profile: Path) -> Iterator[Any]:
    """A browser with a new profile and a window of 1400 x 1000; it is closed afterwards."""
    if name == "chromium":
        with _chromium(profile) as browser:
            yield browser
        return
    with _webkit() as browser:
        yield browser


@contextlib.contextmanager
def _chromium(profile: Path) -> Iterator[Any]:
    found = chromium()
    assert found is not None
    options = ChromeOptions()
    options.binary_location = found[0]
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={profile}", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=ChromeService(found[1]))
    try:
        yield browser
    finally:
        browser.quit()


@contextlib.contextmanager
def _webkit() -> Iterator[Any]:
    found = webkit()
    assert found is not None
    driver, program, xvfb = found
    environment = dict(os.environ)
    with contextlib.ExitStack() as stack:
        if not environment.get("DISPLAY"):
            assert xvfb is not None
            environment["DISPLAY"] = stack.enter_context(_display(xvfb))
        # Software drawing and no sandbox: test machines have neither a GPU nor user namespaces.
        environment |= {
            "WEBKIT_DISABLE_COMPOSITING_MODE": "1",
            "WEBKIT_DISABLE_DMABUF_RENDERER": "1",
            "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",
            "LIBGL_ALWAYS_SOFTWARE": "1",
            "NO_AT_BRIDGE": "1",
        }
        options = WebKitOptions()
        options.binary_location = program
        for argument in ("--automation", "--geometry=1400x1000"):
            options.add_argument(argument)
        browser = webdriver.WebKitGTK(options=options, service=WebKitService(driver, env=environment))
        stack.callback(browser.quit)
        yield browser


@contextlib.contextmanager
def _display(xvfb: str) -> Iterator[str]:
    """An X server of our own; it chooses a free display."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [xvfb, "-displayfd", str(write), "-screen", "0", "1400x1100x24", "-nolisten", "tcp"],
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with os.fdopen(read) as pipe:
            number = pipe.readline().strip()
        assert number, "Xvfb did not start"
        yield f":{number}"
    finally:
        process.terminate()
        process.wait(10)


def load(browser: Any, page: Path, seconds: float = 60.0) -> None:
    """Open a report and wait until all of it is drawn; fails when a script failed."""
    browser.get(page.resolve().as_uri())
    wait(
        browser,
        "return document.documentElement.dataset.ready || document.documentElement.dataset.error",
        seconds,
    )
    assert browser.execute_script("return document.documentElement.dataset.error || null") is None


def wait(browser: Any, script: str, seconds: float = 60.0) -> Any:
    """Value of a script once it is true."""
    end = time.monotonic() + seconds
    while True:
        value = browser.execute_script(script)
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {script}"
        time.sleep(0.05)


def console_errors(browser: Any) -> list[str]:
    """What Chromium's console complains about."""
    return [
        entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]


def requests(browser: Any) -> list[str]:
    """Addresses that Chromium asked for beyond the page itself."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith(LOCAL)]
