"""Live capture for the command line: packets to a file, a traced run, or both."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapscope import __version__
from tapscope.cli.output import Progress
from tapscope.cli.pipeline import TraceOptions, reconstruct, store_capture
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile


@dataclass(frozen=True)
class LiveOptions:
    """What to capture and where to put it. `seconds` and `count`: None = until Ctrl-C."""

    interface: str
    packet_file: Path | None = None
    output: Path | None = None
    count: int | None = None
    snaplen: int = 262144
    seconds: float | None = None
    ring_bytes: int = 64 * 1024 * 1024
    promiscuous: bool = True
    user: str | None = None
    filter: str = ""
    force: bool = False


def interfaces() -> list[str]:
    """Names of the interfaces that one can capture on."""
    return [name for _, name in socket.if_nameindex()] + ["any"]


def capture(options: LiveOptions, progress: Progress | None = None) -> dict[str, Any]:
    """Capture until the end that the options name; returns packets, received, dropped and where they lie."""
    from tapscope import capture as engine

    if options.interface not in interfaces():
        raise TapscopeError(
            f"there is no interface {options.interface!r}",
            remedy=f"There are: {', '.join(interfaces())}.",
            exit_code=ExitCode.USAGE,
        )
    run = None if options.output is None else RunFile.create(options.output, force=options.force)
    try:
        tables = engine.capture_live(
            options.interface,
            options.seconds,
            options.count,
            snaplen=options.snaplen,
            filter=options.filter,
            write=options.packet_file,
            ring_bytes=options.ring_bytes,
            promiscuous=options.promiscuous,
            user=options.user,
            progress=None if progress is None else lambda done, total: progress("capturing", done, total),
        )
        if run is not None:
            traced = TraceOptions()
            run.set_meta("tapscope_version", __version__)
            run.set_meta("options", traced.record())
            run.set_meta("inputs", [options.interface])
            store_capture(run, tables)
            reconstruct(run, tables, traced, progress)
            run.set_meta("complete", True)
    finally:
        if run is not None:
            run.close()
    (source,) = tables.sources
    return {
        "interface": options.interface,
        "packets": int(source["packets"]),
        "received": source.get("received"),
        "dropped_by_kernel": source.get("dropped_by_kernel"),
        "dropped_by_interface": source.get("dropped_by_interface"),
        "packet_file": None if options.packet_file is None else str(options.packet_file),
        "run": None if options.output is None else str(options.output),
    }
