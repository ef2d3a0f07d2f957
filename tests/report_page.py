"""One report with everything in it, open in each browser: fixtures that all tests of it share.

A page takes a second or two to load, so that it is loaded once per browser and put back between tests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import report_browser
from simulator import Simulation, simulate

from tapscope.hostmon.load import load_host_files
from tapscope.report import html
from tapscope.store.runfile import RunFile


class Canary(BaseHTTPRequestHandler):
    """Notes every request; a report must never make one."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def canary() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Canary)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def evil(canary: HTTPServer) -> str:
    address = f"http://127.0.0.1:{canary.server_port}/leak"
    return (
        f"GET /a</script><img src={address}.png onerror=\"document.title='owned'\">"
        f"<script src={address}.js></script><script>document.title='owned'</script>'\"&lt;{{{{data}}}}"
    )


@pytest.fixture(scope="session")
def simulation(evil: str) -> Simulation:
    made = simulate(seed=11, users=40, seconds=6.0, stall_at_s=3.0, stall_ms=300.0, lose=3)
    made.classes = [(protocol, evil if "about" in text else text) for protocol, text in made.classes]
    made.counters.append((f"http.{evil}", 1, evil))
    made.sources[0]["path"] = f"{evil}.pcap"
    return made


def run_with_hosts(simulation: Simulation, folder: Path) -> Path:
    """The simulation's run file in this folder, with the logs of its three hosts."""
    simulation.save(folder / "run.db")
    simulation.write_host_logs(folder / "dir")
    with RunFile.open(folder / "run.db", write=True) as run:
        run.set_meta("manifest", {"hosts": {"web": "10.77.0.11", "app": "10.77.0.12", "db": "10.77.0.13"}})
        load_host_files(run, folder / "dir")
    return folder / "run.db"


@pytest.fixture(scope="session")
def page(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with RunFile.open(run_with_hosts(simulation, folder), write=True) as run:
        run.write_columns("event_load", simulation.event_loads())
    html.write(folder / "run.db", folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="session", params=report_browser.available())
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
