"""Asks small servers that a test has started on loopback."""

from __future__ import annotations

import socket
import time
import urllib.request


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answer(url: str, **headers: str) -> str:
    """Body of one answer; the server gets a while to start."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=names), timeout=60) as response:
                return str(response.read().decode())
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
