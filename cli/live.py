"""Live capture for the command line: packets to a file, messages to a spool, or a traced run at the end."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapscope.capture.spool import is_spool
from tapscope.cli.output import Progress, note
from tapscope.cli.pipeline import TraceOptions, port_codes, trace
from tapscope.cli.signals import asked_to_stop
from tapscope.store.codes import Protocol
from tapscope.store.errors import ExitCode, TapscopeError
from tapscope.store.runfile import RunFile

if TYPE_CHECKING:
    pass

BEGUN_SECONDS = 0.1
"""It is looked so often whether a capture has begun."""
NICE = 10
"""By how much whoever traces stands back behind the capture."""
UNPRIVILEGED = ("tapscope", "nobody")
"""Users that root becomes for a capture: the first one that exists."""


@dataclass(frozen=True)
class LiveOptions:
    """What to capture and where to put it. `seconds` and `count`: None = until Ctrl-C."""

    interface: str
    packet_file: Path | None = None
    spool: Path | None = None
    output: Path | None = None
    count: int | None = None
    snaplen: int = 262144
    seconds: float | None = None
    ring_bytes: int = 64 * 1024 * 1024
    queues: int = 1
    file_bytes: int = 0
    file_seconds: int = 0
    file_count: int = 0
    clock: str = ""
    fanout: int | None = None
    promiscuous: bool = True
    user: str | None = None
    filter: str = ""
    force: bool = False
    keep_text: bool = False
    port_map: dict[int, str] = field(default_factory=dict)
    spool_bytes: int | None = None
    spool_age_ns: int | None = None
    sync: bool = False
    parent: int | None = None
    tls_keylog: Path | None = None
    tls_keylog_wait_ns: int = 2_000_000_000


def interfaces() -> list[str]:
    """Names of the interfaces that one can capture on."""
    return [name for _, name in socket.if_nameindex()] + ["any"]


def _names(options: LiveOptions) -> list[str]:
    """The interfaces one by one; what DPDK calls a device may hold commas."""
    whole = options.interface
    return [whole] if whole.startswith("dpdk:") else whole.split(",")


def capture(options: LiveOptions, progress: Progress | None = None) -> dict[str, Any]:
    """Capture until the end that the options name, a signal, or Ctrl-C; returns what was counted, and where
    everything lies."""
    for name in _names(options):
        if not name.startswith("dpdk:") and name not in interfaces():
            raise TapscopeError(
                f"there is no interface {name!r}",
                remedy=f"There are: {', '.join(interfaces())}.",
                exit_code=ExitCode.USAGE,
            )
    if options.output is not None:
        return _capture_and_trace(options, options.output)
    from tapscope.capture.live import Control, LiveSettings, capture_to_spool
    from tapscope.capture.rotation import Rotation
    from tapscope.capture.spool import SpoolBound

    settings = LiveSettings(
        interface=options.interface,
        seconds=options.seconds,
        packets=options.count,
        snaplen=options.snaplen,
        filter=options.filter,
        write=options.packet_file,
        ring_bytes=options.ring_bytes,
        queues=options.queues,
        rotation=Rotation(options.file_bytes, options.file_seconds, options.file_count),
        clock=options.clock,
        fanout=options.fanout,
        promiscuous=options.promiscuous,
        keep_text=options.keep_text,
        port_map=port_codes(options.port_map),
        tls_keylog=options.tls_keylog,
        tls_keylog_wait_ns=options.tls_keylog_wait_ns,
    )
    control = Control(parent=options.parent)
    with asked_to_stop(control):
        counted = capture_to_spool(
            settings,
            options.spool,
            bound=SpoolBound(options.spool_bytes, options.spool_age_ns),
            sync=options.sync,
            user=options.user or _unprivileged(),
            control=control,
            on_report=report,
            on_progress=None if progress is None else lambda status: progress(status_line(status), 0, 0),
        )
    return _record(options, counted)


def _unprivileged() -> str | None:
    if os.geteuid() != 0:
        return ""  # no other user, but no capabilities either
    known = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in UNPRIVILEGED if name in known), None)
    if found is None:
        raise TapscopeError("there is no unprivileged user to become", remedy="Name one with -Z.")
    return found


def report(status: dict[str, Any]) -> None:
    """What SIGUSR1 prints: one line, then all counters."""
    note(f"tapscope: {status_line(status)}")
    for name, value, unit in status.get("counters", ()):
        note(f"  {name} {value} {unit}")


def status_line(status: dict[str, Any]) -> str:
    """The state of a capture in one line."""
    words = [f"{status['packets']} packets"]
    if "messages" in status:
        protocols = ", ".join(
            f"{Protocol(number).name.lower()} {count}"
            for number, count in sorted(status["messages_by_protocol"].items())
        )
        words.append(f"{status['messages']} messages" + (f" ({protocols})" if protocols else ""))
        words.append(f"{status['connections_open']} connections open")
    for key, what in (
        ("received", "received"),
        ("dropped_by_kernel", "dropped by kernel"),
        ("dropped_by_interface", "dropped by interface"),
    ):
        if status[key] is not None:
            words.append(f"{status[key]} {what}")
    if "segments_written" in status:
        words.append(f"{status['segments_written']} segments written ({status['spool_bytes'] / 1e6:.1f} MB)")
        words.append(f"{status['segments_waiting']} waiting")
    return ", ".join(words)


def _record(options: LiveOptions, counted: dict[str, Any]) -> dict[str, Any]:
    names = {int(code): code.name.lower() for code in Protocol}
    by_protocol = counted.get("messages_by_protocol", {})
    return {
        "interface": options.interface,
        "packets": counted["packets"],
        "received": counted["received"],
        "dropped_by_kernel": counted["dropped_by_kernel"],
        "dropped_by_interface": counted["dropped_by_interface"],
        "messages": counted.get("messages"),
        "messages_by_protocol": {names[number]: count for number, count in sorted(by_protocol.items())},
        "packet_file": None if options.packet_file is None else str(options.packet_file),
        "packet_file_lost": counted["packet_file_lost"],
        "spool": None if options.spool is None else str(options.spool),
        "run": None,
    }


def _capture_and_trace(options: LiveOptions, output: Path) -> dict[str, Any]:
    """A capture in a process of its own, which gives up its rights; what it puts into its spool is traced
    with ours meanwhile."""
    spool = options.spool or output.with_name(output.name + ".spool")
    if options.spool is None and spool.exists():
        raise TapscopeError(
            "an earlier capture left its spool here",
            path=spool,
            remedy=f"Trace it with: tapscope trace {spool} -o RUN.db, or remove it.",
        )
    RunFile.create(output, force=options.force).close()  # fails now, not at the end
    try:
        record = _in_child(_arguments(options, spool), spool, output)
    except BaseException:
        if not any(spool.glob("*.npz")):  # it never began: nothing stays that would be in the way of the next
            output.unlink()
            if options.spool is None:
                shutil.rmtree(spool, ignore_errors=True)
        raise
    if options.spool is None:
        shutil.rmtree(spool)
    return record | {"run": str(output), "spool": None if options.spool is None else str(spool)}


def _arguments(options: LiveOptions, spool: Path) -> list[str]:
    words = [word for name in _names(options) for word in ("-i", name)]
    words += ["--spool", str(spool), "--json", "-s", str(options.snaplen)]
    words += ["--buffer-mb", str(options.ring_bytes // 2**20), "--queues", str(options.queues)]
    for option, value in (
        ("-w", options.packet_file),
        ("-c", options.count),
        ("-C", options.file_bytes // 1_000_000 or None),
        ("-G", options.file_seconds or None),
        ("-W", options.file_count or None),
        ("-j", options.clock or None),
        ("--fanout", options.fanout),
        ("-Z", options.user),
        ("--duration", None if options.seconds is None else f"{options.seconds * 1e9:.0f}ns"),
        ("--spool-size", None if options.spool_bytes is None else f"{options.spool_bytes / 1000}KB"),
        ("--tls-keylog", options.tls_keylog),
        ("--tls-keylog-wait", f"{options.tls_keylog_wait_ns}ns"),
        ("--spool-age", None if options.spool_age_ns is None else f"{options.spool_age_ns}ns"),
        ("--port-map", ",".join(f"{port}={name}" for port, name in options.port_map.items()) or None),
    ):
        words += [] if value is None else [option, str(value)]
    words += ["--end-with", str(os.getpid())]
    words += [] if options.promiscuous else ["-p"]
    words += ["--keep-text"] if options.keep_text else []
    words += ["--fsync"] if options.sync else []
    return [*words, "--", *([options.filter] if options.filter else [])]


def _in_child(arguments: list[str], spool: Path, output: Path) -> dict[str, Any]:
    """Runs `tapscope capture` and follows its spool; hands signals on to it, and returns what it says at its
    end."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tapscope", "capture", *arguments],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        process_group=0,  # Ctrl-C comes to it from here alone, as an INT of a supervisor does
    )

    def hand_on(number: int, frame: object) -> None:
        child.send_signal(number)

    handed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    before = {number: signal.signal(number, hand_on) for number in handed_on}
    try:
        while child.poll() is None and not is_spool(spool):
            time.sleep(BEGUN_SECONDS)
        if is_spool(spool):
            os.nice(NICE)
            trace(
                [spool], output, TraceOptions(follow=True), force=True, over=lambda: child.poll() is not None
            )
        out, _ = child.communicate()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if child.returncode == ExitCode.DONE:
        record: dict[str, Any] = json.loads(out)
        return record
    if any(spool.glob("*.npz")):
        raise TapscopeError(
            "the capture was broken off; what it read is kept",
            path=spool,
            remedy=f"Trace it with: tapscope trace {spool} -o RUN.db.",
            exit_code=ExitCode.INTERRUPTED if child.returncode == ExitCode.INTERRUPTED else ExitCode.ERROR,
        )
    if child.returncode < 0:  # it had nothing to say, and nobody else would
        raise TapscopeError("the capture was ended before it began", exit_code=ExitCode.INTERRUPTED)
    raise SystemExit(child.returncode)
