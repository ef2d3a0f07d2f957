"""Two network namespaces joined by a veth pair, with an HTTP server in one and clients in the other."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli_program import COMMAND, environment

SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits for the client to acknowledge the head, 40 ms
    def do_GET(self):
        body = b"x" * (int(self.path.rpartition("/")[2]) * 37 % 5000)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
class Server(ThreadingHTTPServer):
    request_queue_size = 128
print("ready", flush=True)
Server(("10.213.0.1", 8080), Page).serve_forever()
"""

CLIENT = """
import http.client, sys, time
requests, per_connection, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for number in range(requests):
    if number % per_connection == 0:
        connection = http.client.HTTPConnection("10.213.0.1", 8080, timeout=60)
    connection.request("GET", f"/story/{number}")
    connection.getresponse().read()
    if (number + 1) % per_connection == 0:
        connection.close()
    time.sleep(pause)
"""


class Network:
    """The names are of this process, so that tests can run side by side."""

    def __init__(self) -> None:
        self.server_space = f"ts-server-{os.getpid()}"
        self.client_space = f"ts-client-{os.getpid()}"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, space: str, *words: str, **options) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["ip", "netns", "exec", space, *words], **options)
        self._running.append(process)
        return process

    def client(self, requests: int, per_connection: int = 10, pause: float = 0.0) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", CLIENT, str(requests), str(per_connection), str(pause)]
        return self.start(self.client_space, *words)

    def capture(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """`tapscope capture` on the server's interface."""
        return self.capture_on("tap0", *words)

    def capture_on(self, interface: str, *words: str | Path) -> subprocess.Popen[bytes]:
        return self.start(
            self.server_space,
            *COMMAND,
            "capture",
            "-i",
            interface,
            *map(str, words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Needs root."""
    net = Network()
    ip = lambda *words: subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: E731
    try:
        for space in (net.server_space, net.client_space):
            ip("netns", "add", space)
        ip(
            "link",
            "add",
            "tap0",
            "netns",
            net.server_space,
            "type",
            "veth",
            "peer",
            "name",
            "tap1",
            "netns",
            net.client_space,
        )
        for space, device, address in (
            (net.server_space, "tap0", "10.213.0.1/24"),
            (net.client_space, "tap1", "10.213.0.2/24"),
        ):
            ip("-n", space, "address", "add", address, "dev", device)
            ip("-n", space, "link", "set", device, "up")
            ip("-n", space, "link", "set", "lo", "up")
        server = net.start(net.server_space, sys.executable, "-c", SERVER, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield net
    finally:
        net.end()
        for space in (net.server_space, net.client_space):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def let_others_through(folder: Path) -> None:
    """Every user may pass through the folder and those above it that pytest made, however many."""
    ours = (folder.resolve(), *folder.resolve().parents)
    for path in ours[: ours.index(Path(tempfile.gettempdir()).resolve())]:
        path.chmod(path.stat().st_mode | 0o011)


def has_segments(spool: Path) -> bool:
    return any(re.fullmatch(r"\d+(-\d+)?\.npz", path.name) for path in spool.glob("*.npz"))


def program_of(process: subprocess.Popen[bytes]) -> int:
    """`ip netns exec` becomes the program: the same process."""
    return process.pid


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> tuple[str, str]:
    """Sends a signal and returns what the process wrote."""
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    return out.decode(), errors.decode()
