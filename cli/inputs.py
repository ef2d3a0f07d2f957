"""Which files a `trace` reads: capture files and spools as given, and of a run directory its captures or
spools, host logs and manifest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapscope.capture.spool import CLASSES, is_spool
from tapscope.store.errors import ExitCode, TapscopeError

NOT_CAPTURES = {"hosts", "events", "truth", "users", "logs"}
"""Folders of a run directory in which no capture is looked for."""

MAGICS = (
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",  # pcap, us and ns
    b"\xa1\xb2\xcd\x34",
    b"\x34\xcd\xb2\xa1",  # pcap, Kuznetzov
    b"\x0a\x0d\x0d\x0a",  # pcapng
)
PCAP_HEADER = 24
"""Bytes; the first block of a pcapng file is longer."""
PACKED = (
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    *(bytes([0x50 + user, 0x2A, 0x4D, 0x18]) for user in range(16)),
    b"\xfd7zXZ",
)  # gzip, zstd (and what pzstd begins with), xz: what the engine unpacks


@dataclass
class Inputs:
    """What one `trace` reads."""

    captures: list[Path] = field(default_factory=list)
    spools: list[Path] = field(default_factory=list)
    host_folders: list[Path] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)
    manifest_path: Path | None = None


def check_captures(paths: Sequence[Path]) -> None:
    """Refuse what does not begin like a capture, packed or not, before a run file is replaced for it."""
    for path in paths:
        if str(path) == "-" or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                head = file.read(PCAP_HEADER)
        except OSError as error:
            raise TapscopeError(
                f"cannot be read: {error.strerror}", path=path, remedy="Check its permissions."
            ) from error
        if not head.startswith(MAGICS + PACKED):
            raise TapscopeError(
                "this is not a capture file" if head else "the file is empty",
                path=path,
                offset=0,
                remedy="Name a pcap or pcapng file (also gzip, zstd or xz).",
            )
        if head.startswith(MAGICS) and len(head) < PCAP_HEADER:
            raise TapscopeError(
                "the file is cut inside its header", path=path, offset=len(head), remedy="Capture again."
            )


def find_inputs(given: Sequence[str | Path]) -> Inputs:
    """Expand run directories. Files, and - for stdin, are taken as they are: the engine judges them."""
    found = Inputs()
    for path in map(Path, given):
        if str(path) == "-":
            found.captures.append(path)
            continue
        if not path.exists():
            raise TapscopeError("no such file or folder", path=path, remedy="Check the path.")
        if path.is_file() or path.is_fifo():
            found.captures.append(path)
            continue
        if is_spool(path):
            found.spools.append(path)
            continue
        captures, spools = captures_below(path), spools_below(path)
        if not captures and not spools:
            raise TapscopeError(
                "there is no capture file in this folder"
                if path.is_dir()
                else "this is no file, pipe or folder",
                path=path,
                remedy="A run directory holds .pcap or .pcapng files (also packed) or spools, hosts/, "
                "manifest.json.",
            )
        found.captures.extend(captures)
        found.spools.extend(spools)
        if (path / "hosts").is_dir():
            found.host_folders.append(path / "hosts")
        if (path / "manifest.json").is_file():
            found.manifest_path = path / "manifest.json"
            found.manifest = read_manifest(found.manifest_path)
    _check_each_once(found.captures + found.spools)
    if found.captures and found.spools:
        raise TapscopeError(
            "capture files and spools cannot be traced together",
            path=found.spools[0],
            remedy="Trace the capture files and the spools in runs of their own.",
            exit_code=ExitCode.USAGE,
        )
    return found


def _check_each_once(paths: Sequence[Path]) -> None:
    """An input read twice would be counted twice, its packets taken for copies that a mirror made."""
    known: set[tuple[int, int] | None] = set()
    for path in paths:
        file = path.stat() if str(path) != "-" else None
        which = None if file is None else (file.st_dev, file.st_ino)
        if which in known:
            raise TapscopeError(
                "is named more than once",
                path=path,
                remedy="Name each capture once; a folder stands for all captures in it.",
                exit_code=ExitCode.USAGE,
            )
        known.add(which)


def spools_below(folder: Path) -> list[Path]:
    """Spools of a live capture in a folder and below it."""
    return sorted(path.parent for path in folder.rglob(CLASSES) if is_spool(path.parent))


def captures_below(folder: Path) -> list[Path]:
    """Capture files in a folder and below it, by their first bytes, in order of name."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not NOT_CAPTURES & set(path.relative_to(folder).parts[:-1]) and is_capture(path)
    )


def is_capture(path: Path) -> bool:
    """Does the file begin like a capture, or is it a packed one by its name?"""
    try:
        with path.open("rb") as file:
            head = file.read(6)
    except OSError:
        return False
    if head.startswith(MAGICS):
        return True
    return head.startswith(PACKED) and any(word in path.name.lower() for word in (".pcap", ".cap"))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run directory; TapscopeError names the place where it is no JSON object, or says
    that its hosts are none."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TapscopeError(f"cannot be read: {error}", path=path, remedy="Repair or remove it.") from error
    except json.JSONDecodeError as error:
        raise TapscopeError(
            f"this is no JSON: {error.msg}", path=path, offset=error.pos, remedy="Repair or remove it."
        ) from error
    if not isinstance(manifest, dict):
        raise TapscopeError("this is no JSON object", path=path, offset=0, remedy="Repair or remove it.")
    if not isinstance(manifest.get("hosts") or {}, dict):
        raise TapscopeError(
            '"hosts" is no JSON object', path=path, remedy='Write {"NAME": "ADDRESS", ...}, or leave it out.'
        )
    return manifest
