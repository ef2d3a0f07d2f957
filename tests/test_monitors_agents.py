"""The agents, built as they are installed, in a real Tomcat, a real JVM and a real PHP."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from web_answers import answer, free_port

from tapscope.cli import main
from tapscope.validate import events
from tapscope.validate.monitors.install import jar, php
from tapscope.validate.monitors.install.servers import SERVERS
from tapscope.validate.monitors.install.tomcat import servlet_api

CHECK = """
package tapscope.agent;

public final class Check {
    public static void main(String[] arguments) throws Exception {
        for (String id : new String[] {"abc-1", "x*/ OR 1=1 /*", "", "a\\tb", null}) {
            Current now = Current.begin(id, "");
            System.out.println(now.logged() + "|" + now.comment());
            Current.end();
        }
        Recorder.Rows rows = Recorder.open("requests.tsv", "request_id", "ua_us", "ud_us");
        for (int i = 0; i < 300000; i++) {
            rows.add("R" + i + "\\t" + (1795215268000000L + i) + "\\t" + (1795215268000100L + i));
        }
    }
}
"""


def test_a_stock_tomcat_logs_every_request_once_the_monitors_are_installed(tmp_path):
    source = SERVERS["tomcat"].tree()
    if not (source / "conf").is_dir():
        pytest.skip("tomcat is not installed")
    for folder in ("lib", "webapps/ROOT", "work", "temp", "logs"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copytree(source / "conf", tmp_path / "conf")
    (tmp_path / "webapps/ROOT/page.html").write_text("a page\n")
    assert main.run(["monitors", "install", "--server", "tomcat", "--into", str(tmp_path)]) == 0
    port = free_port()
    conf = tmp_path / "conf" / "server.xml"
    conf.write_text(conf.read_text().replace('port="8005"', 'port="-1"').replace('"8080"', f'"{port}"'))
    home = servlet_api(tmp_path).parent.parent
    argv = ["java", f"-Dcatalina.home={home}", f"-Dcatalina.base={tmp_path}"]
    argv += ["-cp", f"{home}/bin/bootstrap.jar:{home}/bin/tomcat-juli.jar"]
    with (tmp_path / "out").open("wb") as out:
        argv += ["org.apache.catalina.startup.Bootstrap", "start"]
        server = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
    try:
        for number in range(20):
            assert answer(f"http://127.0.0.1:{port}/page.html", X_Request_ID=f"R{number}") == "a page\n"
    finally:
        server.terminate()
        server.wait(30)
    found = events.load(tmp_path / "logs")
    assert {source["monitor"] for source in found.sources} == {
        "tomcat access log",
        "application request file",
    }
    ids = [found.request_ids[code] for code in found.calls["request_id"][found.of_tier("app")]]
    assert ids == [f"R{number}" for number in range(20)]
    counters = {name: value for name, value, _ in found.counters}
    assert "events.inside_contradicts_call" not in counters, "filter and access log contradict each other"
    assert (found.calls["arrive_precision_ns"] < 500_000).any(), "the filter narrows arrivals down"


def test_the_agent_never_waits_and_says_what_it_lost(tmp_path):
    (tmp_path / "agent.jar").write_bytes(jar.build(["core"], []))
    (tmp_path / "Check.java").write_text(CHECK)
    argv = ["java", f"-Dtapscope.events={tmp_path / 'events'}", "-cp", f"{tmp_path}/agent.jar:{tmp_path}/out"]
    compiler = ["javac", "-d", f"{tmp_path}/out", "-cp", f"{tmp_path}/agent.jar", f"{tmp_path}/Check.java"]
    subprocess.run(compiler, check=True)
    done = subprocess.run([*argv, "tapscope.agent.Check"], check=True, capture_output=True, text=True)
    # Only an ID that cannot end the comment is put into SQL.
    assert done.stdout.splitlines() == ["abc-1| /*ID=abc-1*/", "-|", "-|", "-|", "-|"]
    lines = (tmp_path / "events" / "requests.tsv").read_text().splitlines()
    lost = [line for line in lines if line.startswith("#lost ")]
    kept = len(lines) - 1 - len(lost)
    assert kept >= 1 << 16
    assert kept + sum(int(line.split()[1]) for line in lost) == 300_000
    found = events.load(tmp_path / "events")
    counters = {name: value for name, value, _ in found.counters}
    assert counters.get("events.unreadable_line", 0) == len(lost)
    assert len(found.gaps["begin_ns"]) == len(lost), "where rows were lost nothing is compared"


def test_the_php_agent_logs_requests_and_the_statements_that_it_is_told_of(tmp_path):
    if shutil.which("php") is None:
        pytest.skip("php is not installed")
    (tmp_path / "site").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "agent.php").write_text(php.agent())
    ini = f'auto_prepend_file = "{tmp_path}/agent.php"\ntapscope.events = "{tmp_path}/logs"\n'
    (tmp_path / "php.ini").write_text(ini)
    (tmp_path / "site" / "page.php").write_text(
        "<?php $sent = TapscopeRequest::now_us(); echo 'SELECT 1' . TapscopeRequest::$tag;"
        " TapscopeRequest::statement($sent, TapscopeRequest::now_us(), 7);\n"
    )
    port = free_port()
    argv = ["php", "-c", str(tmp_path / "php.ini"), "-S", f"127.0.0.1:{port}", "-t", str(tmp_path / "site")]
    server = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        page = f"http://127.0.0.1:{port}/page.php"
        assert answer(page, X_Request_ID="R1") == "SELECT 1 /*ID=R1*/"
        assert answer(page, X_Request_ID="x*/ OR 1=1") == "SELECT 1", "what could end the comment is no ID"
        assert answer(page) == "SELECT 1"
    finally:
        server.terminate()
        server.wait(10)
    found = events.load(tmp_path / "logs")
    assert len(found.of_tier("app")) == 3
    assert found.request_ids == ["R1"]
    assert found.downstream["thread"].tolist() == [7]
    stay = found.calls["depart_ns"] - found.calls["arrive_ns"]
    assert ((stay > 0) & (stay < 10**9)).all()


def test_the_filter_is_compiled_for_the_older_servlet_interface_too(tmp_path):
    written = jar.sources(tmp_path / "src", ["core", "servlet"], "javax")
    text = "".join(path.read_text() for path in written)
    assert "javax.servlet.Filter" in text
    assert "jakarta" not in text
