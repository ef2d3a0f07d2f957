"""Runs the C++ engine on capture files and hands over its tables."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapscope.capture import _native
from tapscope.capture.descriptors import make_room
from tapscope.store.codes import DISSECTED
from tapscope.store.errors import TapscopeError
from tapscope.store.tables import Table

SALT_BYTES = 16

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in total (0: not known), a few times a second at most."""


@dataclass(frozen=True)
class CaptureTables:
    """What a capture holds. The tables have the columns of ``store.tables.TABLES``; they view C++ memory.

    Messages stand in the order in which their first bytes could be read, which is not sorted by time across
    connections. All times are int64 ns UTC by the clock of the tap, all sizes bytes.
    """

    connections: Table
    messages: Table
    evidence: Table
    tcp_events: Table
    """What TCP did that may have kept somebody waiting, in order of its end."""
    classes: list[tuple[int, str]]
    """Protocol and text of each class; the row is the class_id."""
    addresses: list[str]
    """IP addresses as text; the row is the index in client_addr and server_addr."""
    counters: list[tuple[str, int, str]]
    """Every oddity by name, with its count and unit. "unparsed.*" count bytes seen that are in no message."""
    sources: list[dict[str, Any]]
    """Per file or interface: path, format, packets, bytes, first_ns, last_ns, link_type, ts_resolution,
    truncated_packets; received, dropped_by_kernel and dropped_by_interface where recorded; warning where
    reading stopped early, or several files lay in one."""
    tap_points: list[tuple[int, int, int, int]]
    """Per tap point (`store.codes.tap_point_text`): its code, packets, captured bytes, segments that
    were copies of others. The first row is traffic without tag and tunnel."""
    examples: list[str]
    """One raw text per class, only with keep_text (else empty strings)."""
    interrupted: bool
    """Ctrl-C stopped the reading: the tables hold what was read until then."""

    def counter(self, name: str) -> int:
        """Value of a named counter, 0 when it never counted."""
        return next((value for known, value, _ in self.counters if known == name), 0)


def read_files(
    paths: Sequence[str | os.PathLike[str]],
    salt: bytes | None = None,
    keep_text: bool = False,
    port_map: Mapping[int, int] | None = None,
    progress: Progress | None = None,
    limits: Mapping[str, int] | None = None,
    tls_keylog: str | os.PathLike[str] | None = None,
    threads: int = 1,
) -> CaptureTables:
    """Read pcap and pcapng files (plain, gzip, zstd, xz; "-" is standard input), merged in time order.

    `salt` (16 bytes, random when None) keys the evidence hashes; `port_map` gives the Protocol of a TCP port
    where content is not to decide; `limits` overrides bounds of the engine (reorder_packets, held_bytes,
    held_bytes_of_stream, connections), the reorder_window_ns of merging (10 ms), how long a TLS connection
    waits for secrets of a log that grows (tls_key_wait_ns, 0), or adds the UDP port of a tunnel (vxlan_port,
    geneve_port).
    `tls_keylog` is a file with TLS secrets in the format of SSLKEYLOGFILE; secrets inside pcapng files are
    used, too. With two `threads` (0: as many as usable cores; more are two) one decodes and follows
    connections of files, the other dissects; the tables are the same. Ctrl-C ends the reading; what was read
    is returned with `interrupted` set. Raises TapscopeError with path, offset and remedy for what is not a
    capture; a file that is cut is read up to there (see ``sources[i]["warning"]`` and the counter
    source.truncated_file).
    """
    if not paths:
        raise TapscopeError("no capture file was named", remedy="Name at least one pcap or pcapng file.")
    make_room(len(paths))
    try:
        out = _native.read_files(
            [os.fspath(path) for path in paths],
            checked_salt(salt),
            keep_text,
            checked_ports(port_map),
            progress,
            dict(limits or {}),
            checked_keylog(tls_keylog),
            _usable(threads, paths),
        )
    except _native.SourceError as error:
        raise as_tapscope_error(error) from None
    return CaptureTables(**out)


def _usable(threads: int, paths: Sequence[str | os.PathLike[str]]) -> int:
    """Threads that read. A pipe that is silent must answer to Ctrl-C, which one thread does."""
    if not all(Path(path).is_file() for path in paths):
        return 1
    return threads or len(os.sched_getaffinity(0))


def checked_keylog(path: str | os.PathLike[str] | None) -> str:
    """The path of a TLS key log as the engine wants it; None: "". Raises TapscopeError."""
    if path is None:
        return ""
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise TapscopeError(
            f"the TLS key log cannot be read: {error.strerror}",
            path=os.fspath(path),
            remedy="Name the file that SSLKEYLOGFILE pointed to in the client or server.",
        ) from None
    return os.fspath(path)


def checked_salt(salt: bytes | None) -> bytes:
    """The salt, or a random one."""
    if salt is None:
        return secrets.token_bytes(SALT_BYTES)
    if len(salt) != SALT_BYTES:
        raise TapscopeError(f"the salt has {len(salt)} bytes, not {SALT_BYTES}")
    return salt


def checked_ports(port_map: Mapping[int, int] | None) -> dict[int, int]:
    """Port to protocol, as the engine wants it. Raises TapscopeError."""
    out: dict[int, int] = {}
    for port, protocol in (port_map or {}).items():
        if not 0 < port < 65536:
            raise TapscopeError(f"port map: {port} is not a TCP port", remedy="Ports are 1 to 65535.")
        if protocol not in DISSECTED:
            names = ", ".join(item.name.lower() for item in DISSECTED)
            raise TapscopeError(
                f"port map: no dissector for protocol {protocol}", remedy=f"Known are {names}."
            )
        out[port] = int(protocol)
    return out


def as_tapscope_error(error: Exception) -> TapscopeError:
    """A SourceError of the engine in the words of the store."""
    what, path, offset, remedy = error.args
    return TapscopeError(what, path=path or None, offset=offset, remedy=remedy or None)
