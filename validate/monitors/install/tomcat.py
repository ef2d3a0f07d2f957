"""Tomcat: an access log to the microsecond of stay, and our agent: a request filter and a JDBC driver.

The agent is one jar among the container's libraries. Its filter puts itself in front of every application;
its driver `jdbc:tapscope:...` times every statement and puts the request ID behind its text, where a data
source names it. Tomcat 10 and later have jakarta.servlet, Tomcat 9 and earlier javax.servlet: the jar is
compiled for the API that the installation has.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tapscope.store.errors import TapscopeError
from tapscope.validate.monitors.install import jar
from tapscope.validate.monitors.install.changes import Block, Change, OwnFile

ACCESS_PATTERN = (
    'id=%{X-Request-ID}i beg=%{begin:msec}t end=%{end:msec}t D=%D F=%F s=%s b=%b "%r" thr=%I a=%a:%{remote}p'
)
JAR = "tapscope-agent.jar"
DRIVER = "tapscope.agent.MonitoredDriver"
_HOMES = ("/usr/share/tomcat{}", "/opt/tomcat{}", "/opt/tomcat")
_VERSION = re.compile(r"tomcat(\d+)")


def valve(directory: str, prefix: str, suffix: str) -> str:
    """The access log as an element of server.xml."""
    return (
        '<Valve className="org.apache.catalina.valves.AccessLogValve" buffered="true" rotatable="false"'
        f' directory={quoteattr(directory)} prefix="{prefix}" suffix="{suffix}"'
        f" pattern={quoteattr(ACCESS_PATTERN)}/>"
    )


def monitored(url: str) -> str:
    """The JDBC URL with our driver in front of its own."""
    return url.replace("jdbc:", "jdbc:tapscope:", 1)


def agent(servlet_api: Path, *, javac: str = "") -> bytes:
    """The agent's jar for a container with this servlet API."""
    with zipfile.ZipFile(servlet_api) as api:
        new = "jakarta/servlet/Filter.class" in api.namelist()
    return jar.build(("core", "servlet"), [servlet_api], servlet="jakarta" if new else "javax", javac=javac)


def tree() -> Path:
    """CATALINA_BASE of the newest Tomcat that a package has installed: conf/ and lib/ are below it."""
    found = sorted(
        Path("/var/lib").glob("tomcat[0-9]*"), key=lambda path: int(_VERSION.findall(path.name)[0])
    )
    return found[-1] if found else Path("/var/lib/tomcat10")


def servlet_api(root: Path) -> Path:
    """servlet-api.jar of the installation whose CATALINA_BASE is `root`; TapscopeError when there is none."""
    version = _VERSION.findall(root.resolve().name)
    homes = [root, *(Path(home.format(version[0] if version else "")) for home in _HOMES)]
    homes += sorted(Path("/usr/share").glob("tomcat[0-9]*"), reverse=True)
    for home in homes:
        if (home / "lib" / "servlet-api.jar").exists():
            return home / "lib" / "servlet-api.jar"
    raise TapscopeError(
        "no servlet-api.jar: the agent is compiled against the one that Tomcat brings",
        path=root,
        remedy="Install Tomcat on this host, or copy its lib/servlet-api.jar into lib/ of this tree.",
    )


def changes(root: Path) -> list[Change]:
    """The valve in conf/server.xml, and the agent in lib/. root: CATALINA_BASE."""
    return [
        Block(
            "conf/server.xml",
            valve("logs", "tapscope_access", ".log"),
            before="</Host>",
            comment=("<!-- ", " -->"),
        ),
        OwnFile(f"lib/{JAR}", lambda: agent(servlet_api(root))),
    ]


def problems(root: Path) -> list[str]:
    """Data sources whose statements are not logged, because their URL does not name our driver."""
    found = []
    for file in sorted([*(root / "conf").glob("*.xml"), *(root / "conf").glob("*/*/*.xml")]):
        text = re.sub(r"<!--.*?-->", "", file.read_text(errors="replace"), flags=re.DOTALL)
        for url in re.findall(r'url="(jdbc:(?!tapscope:)[^"]*)"', text):
            found.append(
                f'{file}: for its statements, set url="{monitored(url)}" and driverClassName="{DRIVER}"'
            )
    return found
