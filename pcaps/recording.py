"""What the generators of captures share: tcpdump on the loopback device, servers in a temporary folder."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

PACK_BEYOND = 100_000
"""Captures larger than this many bytes are stored as .pcap.gz."""


@contextlib.contextmanager
def recording(target: Path, *ports: int) -> Iterator[None]:
    """Record what passes TCP `ports` on the loopback device to `target` (.pcap, or .pcap.gz when large)."""
    command = [
        "tcpdump",
        "-q",
        "-i",
        "lo",
        "-s",
        "0",
        "-B",
        "16384",
        "--immediate-mode",
        "-U",
        "-w",
        str(target),
    ]
    condition = " or ".join(f"tcp port {port}" for port in ports)
    tcpdump = subprocess.Popen([*command, condition], stderr=subprocess.PIPE, text=True)
    assert tcpdump.stderr is not None
    while "listening" not in tcpdump.stderr.readline():
        pass
    time.sleep(0.3)
    try:
        yield
        time.sleep(0.7)
    finally:
        tcpdump.terminate()
        summary = tcpdump.communicate()[1]
    if "\n0 packets dropped by kernel" not in summary:
        raise RuntimeError(f"{target}: packets are missing, record it again: {summary}")
    packed = target.with_name(target.name + ".gz")
    packed.unlink(missing_ok=True)
    if target.stat().st_size > PACK_BEYOND:
        packed.write_bytes(gzip.compress(target.read_bytes(), 9, mtime=0))
        target.unlink()
        target = packed
    print(f"{target.name}: {target.stat().st_size} bytes")


@contextlib.contextmanager
def folder_of(user: str) -> Iterator[Path]:
    """A temporary folder that belongs to `user`."""
    path = Path(tempfile.mkdtemp(prefix="tapscope-"))
    account = pwd.getpwnam(user)
    os.chown(path, account.pw_uid, account.pw_gid)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def server(command: list[str], user: str, port: int) -> Iterator[None]:
    """Run a server in the foreground as `user` until the block ends; the block begins when `port` accepts."""
    process = subprocess.Popen(
        command, user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=[], start_new_session=True
    )
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode}")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class PlainClient:
    """A connection to loopback that sends bytes and reads whatever comes within a while."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))

    def say(self, *parts: bytes, wait: float = 0.05) -> None:
        """Send the parts one by one, then read until nothing has come for `wait` seconds."""
        for part in parts:
            self.socket.sendall(part)
        self.socket.settimeout(wait)
        with contextlib.suppress(TimeoutError):
            while self.socket.recv(1 << 20):
                pass

    def close(self) -> None:
        """End the connection."""
        self.socket.close()


def cases_to_record(about: str | None, names: Iterable[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """The captures that the command line asks for (all without a name), each with its file."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=folder)
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    for name in options.case or names:
        yield name, options.output / f"{name}.pcap"
