"""The emulated users at a server that takes its time: how many ask at once, and until when."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

TAKES_S = 0.3
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class SlowServer:
    """Answers every request after TAKES_S, as many at a time as there are."""

    arrived_ns: list[int] = field(default_factory=list)
    at_a_time: int = 0
    most: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.arrived_ns.append(time.time_ns())
                self.at_a_time += 1
                self.most = max(self.most, self.at_a_time)
                await asyncio.sleep(TAKES_S)
                self.at_a_time -= 1
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            writer.close()


async def asked_by_users(folder: Path, in_flight: int) -> tuple[SlowServer, int]:
    """What the server saw of eight users who ask for 1.5 s without a pause, and when that was over."""
    seen = SlowServer()
    server = await asyncio.start_server(seen.serve, "127.0.0.1", 0)
    begin_ns = time.time_ns() + 1_000_000_000
    config = {
        "host": "127.0.0.1",
        "port": server.sockets[0].getsockname()[1],
        "visitors": "visitors",
        "users": 8,
        "seed": 1,
        "mix": "browse",
        "think_s": 0.0,
        "in_flight": in_flight,
        "keep_alive": True,
        "burst_ns": 0,
        "ids": False,
        "spread_s": 0.1,
        "warmup_ns": begin_ns,
        "end_ns": begin_ns + 1_500_000_000,
        "out": str(folder / "requests.csv"),
    }
    (folder / "users.json").write_text(json.dumps(config))
    users = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tapscope.validate.testbed.users", str(folder / "users.json"),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert await users.wait() == 0
    server.close()
    return seen, begin_ns + 1_500_000_000


def test_without_a_limit_all_ask_at_once(tmp_path: Path) -> None:
    seen, _ = asyncio.run(asked_by_users(tmp_path, in_flight=0))
    assert seen.most == 8


def test_who_waits_for_a_turn_does_not_ask_when_the_run_is_over(tmp_path: Path) -> None:
    seen, end_ns = asyncio.run(asked_by_users(tmp_path, in_flight=2))
    assert seen.most == 2
    assert max(seen.arrived_ns) < end_ns + TAKES_S / 2 * 1e9
