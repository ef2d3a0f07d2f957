"""Builds the Java agent where it is installed: its sources, a JDK, and the server's own servlet API."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from tapscope.store.errors import TapscopeError

RELEASE = "11"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every entry of the jar: the same sources give the same bytes."""


def build(
    parts: Sequence[str], classpath: Sequence[Path], *, servlet: str = "jakarta", javac: str = ""
) -> bytes:
    """The jar as bytes.

    parts : of core (log, JDBC driver), servlet (request filter), avatica (service)
    classpath : jars that the parts are compiled against: the servlet API, Avatica
    servlet : jakarta (Tomcat 10 and later) or javax (Tomcat 9 and earlier)
    Raises TapscopeError when there is no compiler, or it fails.
    """
    return _built(tuple(parts), tuple(classpath), servlet, javac or shutil.which("javac"))


@lru_cache(maxsize=4)  # one command asks more than once: what is there, what is wanted
def _built(parts: tuple[str, ...], classpath: tuple[Path, ...], servlet: str, program: str | None) -> bytes:
    if program is None:
        raise TapscopeError(
            "the agent is compiled where it is installed, and there is no javac",
            remedy="Install the package default-jdk-headless.",
        )
    with tempfile.TemporaryDirectory() as name:
        files = sources(Path(name) / "src", parts, servlet)
        classes = Path(name) / "classes"
        path = ":".join(map(str, classpath))
        argv = [program, "--release", RELEASE, "-Xlint:-options", "-g:none", "-d", str(classes), "-cp", path]
        done = subprocess.run([*argv, *map(str, files)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TapscopeError(f"the agent cannot be compiled: {done.stderr.strip()[:500]}")
        return _packed(classes, parts, servlet)


def sources(target: Path, parts: Sequence[str], servlet: str) -> list[Path]:
    """Copies of the sources, for the wanted servlet API, in `target`."""
    target.mkdir()
    made = []
    for part in parts:
        for source in (_top() / part / "tapscope" / "agent").iterdir():
            text = source.read_text(encoding="utf-8")
            made.append(target / source.name)
            made[-1].write_text(re.sub(r"\bjakarta\.servlet\b", f"{servlet}.servlet", text), encoding="utf-8")
    return sorted(made)


def _top() -> Traversable:
    return resources.files("tapscope.validate.monitors") / "agents" / "java"


def _packed(classes: Path, parts: Sequence[str], servlet: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as jar:
        for part in parts:
            services = _top() / part / "META-INF" / "services"
            for file in services.iterdir() if services.is_dir() else ():
                name = f"META-INF/services/{file.name.replace('jakarta', servlet)}"
                jar.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes())
        for compiled in sorted(classes.rglob("*.class")):
            name = str(compiled.relative_to(classes))
            jar.writestr(zipfile.ZipInfo(name, _EPOCH), compiled.read_bytes())
    return out.getvalue()
