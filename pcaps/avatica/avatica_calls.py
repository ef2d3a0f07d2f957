"""Record every kind of Avatica call between the real driver and server, in JSON and in protocol buffers.

Needs a JDK, Maven (which gets Avatica and HSQLDB from Maven Central), tcpdump and the right to capture on the
loopback interface.

    python3 avatica_calls.py [FOLDER]        # writes avatica_json.pcap and avatica_protobuf.pcap
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PORTS = {"json": 18766, "protobuf": 18765}
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>calls</groupId><artifactId>calls</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.calcite.avatica</groupId><artifactId>avatica-server</artifactId>
<version>1.25.0</version></dependency>
<dependency><groupId>org.hsqldb</groupId><artifactId>hsqldb</artifactId><version>2.7.2</version></dependency>
</dependencies></project>
"""


def record(coding: str, classes: str, out: Path) -> None:
    """One run of Calls.java with the loopback interface captured."""
    port = PORTS[coding]
    tcpdump = subprocess.Popen(
        ["tcpdump", "-i", "lo", "-s", "0", "-U", "-B", "4096", "-w", str(out), "tcp", "port", str(port)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tcpdump.stderr is not None
    for line in tcpdump.stderr:
        if "listening on" in line:
            break
    subprocess.run(["java", "-cp", classes, "Calls", coding, str(port)], check=True)
    time.sleep(1)
    tcpdump.terminate()
    tcpdump.wait()


def main() -> None:
    """Compile Calls.java and record both codings."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "pom.xml").write_text(POM)
        maven = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run(maven, cwd=work, check=True)
        classes = f"{work}/lib/*:{work}"
        subprocess.run(["javac", "-cp", classes, "-d", work, str(HERE / "Calls.java")], check=True)
        for coding in PORTS:
            record(coding, classes, folder / f"avatica_{coding}.pcap")


if __name__ == "__main__":
    main()
