"""Live capture: into memory for a short time, or into a spool for as long as it is wanted."""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tapscope.capture import _native, dpdk
from tapscope.capture.read import (
    CaptureTables,
    as_tapscope_error,
    checked_keylog,
    checked_ports,
    checked_salt,
)
from tapscope.capture.rotation import Rotation
from tapscope.capture.spool import Spool, SpoolBound
from tapscope.capture.spool_writer import SpoolWriter
from tapscope.store.errors import ExitCode, TapscopeError

ALL_PACKETS = 2**63
RUN_MS = 50
"""The engine takes packets for so long before we look at signals and the clock."""
RING_MS = 250
"""At the end, so long for what still lies in the kernel's ring: a block is handed over within 100 ms."""
SEGMENT_SECONDS = 0.5
"""Rows lie in memory for so long: with the time it takes to write them, killing loses less than a second."""
IDLE_SECONDS = 10.0
"""Without new rows a segment (with the counters) is written so often."""
KEY_WAIT_NS = 2_000_000_000
"""A TLS connection waits so long for secrets that are not in the key log yet."""
WAITING_ROWS = 8_000_000
"""Rows that may gather in the engine (about 0.5 GB); beyond it the kernel's ring fills, and the kernel drops
and counts packets."""


@dataclass(frozen=True)
class LiveSettings:
    """What to capture. `interface` is one of the kernel's, or "dpdk:DEVICE" (see ``capture.dpdk``), which has
    `queues` receive queues and no filter, snap length or ring; several interfaces are joined by commas.
    `filter` is a BPF expression, `write` a pcap file that gets every packet, in turns as `rotation` says;
    `ring_bytes` is the size of the kernel's ring, `clock` libpcap's name of a time stamp type ("": the
    kernel's), `fanout` the number of a group of processes that share an interface. `seconds` and `packets`
    end the capture, None: never. `tls_keylog` is a file into which somebody writes TLS secrets meanwhile (in
    the format of SSLKEYLOGFILE): a connection waits `tls_keylog_wait_ns` at most for its own."""

    interface: str
    seconds: float | None = None
    packets: int | None = None
    snaplen: int = 262144
    filter: str = ""
    write: str | Path | None = None
    rotation: Rotation = field(default_factory=Rotation)
    ring_bytes: int = 64 * 1024 * 1024
    promiscuous: bool = True
    clock: str = ""
    fanout: int | None = None
    keep_text: bool = False
    port_map: Mapping[int, int] = field(default_factory=dict)
    queues: int = 1
    tls_keylog: str | Path | None = None
    tls_keylog_wait_ns: int = KEY_WAIT_NS


@dataclass
class Control:
    """What signal handlers ask of a running capture; it looks several times a second."""

    stop: bool = False
    report: bool = False
    parent: int | None = None
    """Process that the capture ends with; None: with no other."""


def capture_live(
    interface: str,
    seconds: float | None = None,
    packets: int | None = None,
    *,
    snaplen: int = 262144,
    filter: str = "",  # noqa: A002  (the word that every capture tool uses)
    write: str | Path | None = None,
    ring_bytes: int = 64 * 1024 * 1024,
    promiscuous: bool = True,
    salt: bytes | None = None,
    keep_text: bool = False,
    port_map: Mapping[int, int] | None = None,
) -> CaptureTables:
    """Capture on an interface by libpcap until `seconds`, `packets` or Ctrl-C, all tables in memory.

    For minutes; ``capture_to_spool`` is for days. The one entry of `sources` has libpcap's counters:
    received, dropped_by_kernel, dropped_by_interface. Raises TapscopeError.
    """
    settings = LiveSettings(
        interface,
        seconds,
        packets,
        snaplen,
        filter,
        write,
        ring_bytes=ring_bytes,
        promiscuous=promiscuous,
        keep_text=keep_text,
        port_map=port_map or {},
    )
    with _source_errors():
        capture = _open(settings, checked_salt(salt), handed_over=False, dissect=True)
        until = _until(settings)
        interrupted = False
        try:
            while capture.run(RUN_MS, _limit(settings)) and time.monotonic() < until:
                pass
        except KeyboardInterrupt:
            interrupted = True
        capture.run(RING_MS, _limit(settings))
        capture.finish()
        return CaptureTables(**capture.tables(interrupted))


def capture_to_spool(
    settings: LiveSettings,
    spool: Path | None,
    *,
    bound: SpoolBound | None = None,
    sync: bool = False,
    user: str | None = None,
    control: Control | None = None,
    on_report: Callable[[dict[str, Any]], None] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Capture until `settings` or `control` end it; what was read goes to disk twice a second.

    `spool` None: packets are only written to ``settings.write`` and counted. Once everything is open the
    process becomes `user` (when it is root) and gives up its capabilities for good; None: stay as it is.
    `on_report` and `on_progress` get the counters so far: the first when ``control.report`` asks for it, the
    other every second. Returns the counters at the end, and as `packet_file_lost` the packet file if it was
    removed or replaced while it was written. Raises TapscopeError; what was read before stays.
    """
    control = control or Control()
    owner = None
    if user not in (None, "root") and os.geteuid() == 0:
        owner = _ids(str(user))
    writer = None if spool is None else SpoolWriter(Spool(spool, bound=bound, sync=sync, owner=owner))
    try:
        with _source_errors():
            salt = bytes(16) if writer is None else writer.spool.salt
            capture = _open(settings, salt, handed_over=True, dissect=writer is not None)
            if settings.write is not None and owner is not None:
                settings.rotation.give_to(owner, capture.packet_file())
            if user is not None:
                np.savez(io.BytesIO(), nothing=np.zeros(0))  # imports what the user may not be able to read
                _native.drop_privileges(user)
            if settings.write is not None and owner is not None:
                settings.rotation.check_folder(str(user), Path(settings.write))
            sources = capture.status()["sources"]
        if writer is not None:
            writer.begin(_describe(settings, sources))
    except BaseException:
        if writer is not None:
            writer.spool.abandon()
        raise
    record = _Run(settings, capture, writer, control, on_report, on_progress)
    return record.to_the_end()


class _Run:
    """One capture from its first packet to its last."""

    def __init__(
        self,
        settings: LiveSettings,
        capture: _native.Capture,
        writer: SpoolWriter | None,
        control: Control,
        on_report: Callable[[dict[str, Any]], None] | None,
        on_progress: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self._settings, self._capture, self._writer, self._control = settings, capture, writer, control
        self._on_report, self._on_progress = on_report, on_progress
        self._late = 0
        self._handed_over = time.monotonic()

    def to_the_end(self) -> dict[str, Any]:
        outcome = "done"
        failure: TapscopeError | None = None
        # The interface is gone, or the disk full, which may show only now: what was read before is good.
        for step in (self._go, self._capture.finish):
            try:
                outcome = step() or outcome
            except _native.SourceError as error:
                failure = failure or as_tapscope_error(error)
                outcome = f"failed: {failure.what}"
        if self._writer is not None:
            self._writer.put(self._segment(), last=True)
            self._writer.end(outcome)
        record = self._status()
        record["packet_file_lost"] = self._capture.packet_file() if self._capture.packet_file_lost() else None
        if failure is not None:
            raise failure
        return record

    def _go(self) -> str:
        until, limit = _until(self._settings), _limit(self._settings)
        told = time.monotonic()
        while True:
            more = self._capture.run(RUN_MS, limit)
            now = time.monotonic()
            if self._control.report:
                self._control.report = False
                if self._on_report is not None:
                    self._on_report(self._status())
            if self._control.stop or self._control.parent not in (None, os.getppid()):
                self._capture.run(RING_MS, limit)
                return "stopped"
            if not more:
                return "done"
            if now >= until:
                self._capture.run(RING_MS, limit)
                return "done"
            if self._on_progress is not None and now - told >= 1.0:
                told = now
                self._on_progress(self._status())
            if self._writer is not None:
                self._hand_over(now)

    def _hand_over(self, now: float) -> None:
        assert self._writer is not None
        self._writer.check()
        waited = now - self._handed_over
        rows = self._capture.rows()
        if waited < (SEGMENT_SECONDS if rows else IDLE_SECONDS):
            return
        if self._writer.full() and rows < WAITING_ROWS:
            self._late += 1
            self._handed_over = now - SEGMENT_SECONDS + RUN_MS / 1000  # soon again
            return
        self._writer.put(self._segment())
        self._handed_over = now

    def _segment(self) -> dict[str, Any]:
        segment = self._capture.drain()
        if self._late:
            segment["counters"].append(("spool.late_segments", self._late, "events"))
        return segment

    def _status(self) -> dict[str, Any]:
        status = self._capture.status()
        source = _total(status.pop("sources"))
        if self._writer is None:
            return {"packets": status["packets"]} | _drops(source)
        return status | _drops(source) | self._writer.status() | {"late_segments": self._late}


def _open(settings: LiveSettings, salt: bytes, *, handed_over: bool, dissect: bool) -> _native.Capture:
    keylog = checked_keylog(settings.tls_keylog)
    if settings.interface.startswith(dpdk.PREFIX):
        if settings.filter:
            raise TapscopeError(
                "DPDK captures have no filter",
                remedy="Leave out the filter, or capture on the kernel's interface.",
                exit_code=ExitCode.USAGE,
            )
        capture = dpdk.open_device(
            settings.interface.removeprefix(dpdk.PREFIX),
            queues=settings.queues,
            promiscuous=settings.promiscuous,
            salt=salt,
            keep_text=settings.keep_text,
            port_map=checked_ports(settings.port_map),
            handed_over=handed_over,
            tls_keylog=keylog,
            tls_key_wait_ns=settings.tls_keylog_wait_ns,
        )
    else:
        capture = _native.Capture.of_interfaces(
            interfaces=settings.interface.split(","),
            snaplen=settings.snaplen,
            filter=settings.filter,
            ring_bytes=settings.ring_bytes,
            promiscuous=settings.promiscuous,
            clock=settings.clock,
            fanout=-1 if settings.fanout is None else settings.fanout,
            salt=salt,
            keep_text=settings.keep_text,
            port_map=checked_ports(settings.port_map),
            handed_over=handed_over,
            tls_keylog=keylog,
            tls_key_wait_ns=settings.tls_keylog_wait_ns,
            dissect=dissect,
        )
    if settings.write is not None:
        turn = settings.rotation
        capture.write_to(
            path=os.fspath(settings.write),
            bytes=turn.bytes,
            seconds=turn.seconds,
            files=turn.files,
            snaplen=settings.snaplen,
        )
    return capture


def _limit(settings: LiveSettings) -> int:
    return ALL_PACKETS if settings.packets is None else settings.packets


def _until(settings: LiveSettings) -> float:
    return float("inf") if settings.seconds is None else time.monotonic() + settings.seconds


def _drops(source: dict[str, Any]) -> dict[str, Any]:
    return {key: source.get(key) for key in ("received", "dropped_by_kernel", "dropped_by_interface")}


def _total(sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Drops of all interfaces; a number that one of them does not know is not known."""
    keys = [key for key in ("received", "dropped_by_kernel", "dropped_by_interface") if key in sources[0]]
    return {key: sum(int(source[key]) for source in sources) for key in keys}


def _describe(settings: LiveSettings, sources: list[dict[str, Any]]) -> dict[str, Any]:
    source = sources[0]
    return {
        "interface": settings.interface,
        "link_type": source["link_type"],
        "ts_resolution": source["ts_resolution"],
        "clock": source.get("clock", dpdk.CLOCK),
        "snaplen": settings.snaplen,
        "filter": settings.filter,
        "keep_text": settings.keep_text,
        "port_map": {str(port): int(protocol) for port, protocol in settings.port_map.items()},
    }


def _ids(user: str) -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise TapscopeError(
            f"no such user: {user}", remedy="Name an existing unprivileged user with -Z."
        ) from None
    return entry.pw_uid, entry.pw_gid


@contextlib.contextmanager
def _source_errors() -> Any:
    try:
        yield
    except _native.SourceError as error:
        raise as_tapscope_error(error) from None
