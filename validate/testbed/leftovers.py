"""Notes about running testbeds, so that what a killed one left behind can be found and removed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from . import cgroups, mariadb, net

_NOTES = Path("/run/tapscope-testbed")


def _birth(pid: int) -> str:
    """Start time of a process in ticks since boot (field 22 of /proc/PID/stat), "" when it does not live."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


@contextlib.contextmanager
def noted(name: str, scratch: Path) -> Iterator[None]:
    """Keeps a note about a testbed as long as it runs."""
    _NOTES.mkdir(parents=True, exist_ok=True)
    note, begun = _NOTES / f"{name}.json", _NOTES / f"{name}.begun"
    pid = os.getpid()
    begun.write_text(json.dumps({"pid": pid, "birth": _birth(pid), "scratch": str(scratch)}))
    begun.rename(note)  # who cleans meanwhile must not read half a note
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def clean(ip: str) -> dict[str, list[str]]:
    """Removes what testbeds left whose run no longer lives: namespaces, processes, control groups, scratch
    folders, and database templates that were never finished.

    Returns {"removed": names, "alive": names}.
    """
    removed, alive = [], []
    for note in sorted(_NOTES.glob("*.json")) if _NOTES.exists() else []:
        name = note.stem
        try:
            told = json.loads(note.read_text())
        except FileNotFoundError:  # that testbed has ended just now, and left nothing
            continue
        if told["birth"] and _birth(told["pid"]) == told["birth"]:
            alive.append(name)
            continue
        net.remove_namespaces(ip, name)
        cgroups.remove_leftovers(name)
        scratch = Path(told["scratch"])
        if scratch.name.startswith(net.PREFIX):
            shutil.rmtree(scratch, ignore_errors=True)
        note.unlink(missing_ok=True)
        removed.append(name)
    for folder in sorted(mariadb.cache_folder().glob(f"{mariadb.MAKING}*")):
        if not _birth(int(folder.name.removeprefix(mariadb.MAKING).split("-")[0])):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(str(folder))
    return {"removed": removed, "alive": alive}
