"""Apache Avatica: our agent around the service of the server.

An Avatica server is a program of its user's with no configuration to change: the jar goes on its class path,
the handler gets `MonitoredService.of(...)` around its service, and the JDBC URL of what is behind it our
driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tapscope.validate.monitors.install import jar
from tapscope.validate.monitors.install.changes import MARK, Change, OwnFile

JAR = "tapscope-avatica-agent.jar"
_PAGE = f"""# {MARK}: an Avatica server with the agent
1. {JAR} on the class path, -Dtapscope.events=FOLDER for the logs.
2. In the program, of the HttpServer.Builder<Server>:
   .withHandler(tapscope.agent.MonitoredService.of(new LocalService(meta)), serialization)
   .withServerCustomizers(List.of(new tapscope.agent.MonitoredServer()), Server.class)
3. JDBC URL of the data base behind it: jdbc:tapscope:mariadb://... instead of jdbc:mariadb://...
"""


def agent(libraries: Sequence[Path], *, javac: str = "") -> bytes:
    """The agent's jar. libraries: jars of Avatica (avatica-core, or the shaded avatica)."""
    return jar.build(("core", "avatica"), libraries, javac=javac)


def changes(root: Path) -> list[Change]:
    """The jar and a page with what to change in the program. root: folder with the jars of the server."""
    libraries = [file for file in sorted(root.glob("*.jar")) if file.name != JAR]
    return [OwnFile("tapscope-avatica.txt", _PAGE), OwnFile(JAR, lambda: agent(libraries))]


def problems(root: Path) -> list[str]:
    """Whether these are the libraries of Avatica."""
    return [] if any(root.glob("avatica*.jar")) else [f"{root} has no jar of Avatica"]


def tree() -> Path:
    """There is no usual place: a name to be replaced by --into."""
    return Path("/opt/avatica/lib")
