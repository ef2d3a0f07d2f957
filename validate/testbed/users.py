"""Closed-loop emulated users: `python -m tapscope.validate.testbed.users CONFIG.json` on the client host.

Each user keeps one HTTP/1.1 connection, waits for the answer, thinks, and asks again. Where only so many
requests may be in flight, who would be one more waits, first come, first served. The plan of phases comes as
absolute times, so that the caller knows them beforehand. One row per request goes to requests.csv:
request_id, user, interaction, method, target, intended_ns (when the think time was over), start_ns
(request handed to the kernel), end_ns (last byte of the answer read; -1 when it never came), status (0:
connection failed), bytes, local_port, answer (its text, where the visitors keep it: the path in vApp's).
"""

from __future__ import annotations

import asyncio
import csv
import importlib
import json
import resource
import sys
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

from .pace import Step

COLUMNS = (
    "request_id",
    "user",
    "interaction",
    "method",
    "target",
    "intended_ns",
    "start_ns",
    "end_ns",
    "status",
    "bytes",
    "local_port",
    "answer",
)


class Answer:
    """Incremental reader of one HTTP/1.1 answer: enough to find its end, status, cookie and redirect."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._body_at = -1
        self._length = -1
        self._chunk_at = -1
        self.status = 0
        self.session = ""
        self.location = ""
        self.close = False

    @property
    def size(self) -> int:
        return len(self._data)

    def body(self) -> str:
        """What came after the head; for answers that are not chunked."""
        return self._data[self._body_at :].decode("latin-1")

    def feed(self, data: bytes) -> bool:
        """Takes bytes; true when the answer is complete."""
        self._data += data
        if self._body_at < 0 and not self._head():
            return False
        if self._chunk_at < 0:
            return len(self._data) >= self._body_at + self._length
        return self._chunks()

    def _head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return False
        self._body_at = end + 4
        lines = self._data[:end].decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ", 2)[1])
        self._length = 0
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            if name == "content-length":
                self._length = int(value)
            elif name == "transfer-encoding" and value.lower() == "chunked":
                self._chunk_at = self._body_at
            elif name == "set-cookie" and value.startswith("sid="):
                self.session = value[4:].split(";")[0]
            elif name == "location":
                self.location = value
            elif name == "connection" and value.lower() == "close":
                self.close = True
        return True

    def _chunks(self) -> bool:
        while True:
            end = self._data.find(b"\r\n", self._chunk_at)
            if end < 0:
                return False
            size = int(self._data[self._chunk_at : end].split(b";")[0], 16)
            after = end + 2 + size + 2
            if len(self._data) < after:
                return False
            if size == 0:
                return True
            self._chunk_at = after


class Connection(asyncio.Protocol):
    """One keep-alive connection; at most one request is open."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.alive = False
        self._answer = Answer()
        self._waiting: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.alive = True

    def data_received(self, data: bytes) -> None:
        if self._answer.feed(data) and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("closed before the answer was complete"))

    def local_port(self) -> int:
        assert self.transport is not None
        name = self.transport.get_extra_info("sockname")
        return int(name[1])

    async def ask(self, request: bytes) -> Answer:
        assert self.transport is not None
        self._answer = Answer()
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiting


class User:
    """One emulated user."""

    def __init__(
        self, number: int, config: dict[str, Any], turns: AbstractAsyncContextManager[Any], out: Any
    ) -> None:
        self._number = number
        self._config = config
        self._turns = turns
        visitors = importlib.import_module(f".{config['visitors']}", __package__)
        self._visitor = visitors.Visitor(config["seed"], number, config["mix"])
        self._out = out
        self._connection: Connection | None = None

    async def live(self) -> None:
        """Asks until the run is over."""
        config = self._config
        await _sleep_until(config["warmup_ns"] + int(self._visitor.start_s(config["spread_s"]) * 1e9))
        follow = ""
        answered_ns = time.time_ns()
        while True:
            pause = 0.0 if follow else self._visitor.think_s(config["think_s"])
            intended_ns = answered_ns + int(pause * 1e9)
            if config["burst_ns"] and not follow and self._number % 2 == 0:
                # Half of the users come all at once, when the next burst is due.
                intended_ns += -intended_ns % config["burst_ns"]
            if intended_ns >= config["end_ns"]:
                break
            await _sleep_until(intended_ns)
            step = self._visitor.followed(follow) if follow else self._visitor.next_step()
            async with self._turns:
                if time.time_ns() >= config["end_ns"]:
                    break  # its turn came too late
                answer = await self._request(step, intended_ns)
            answered_ns = time.time_ns()
            follow = answer.location if answer is not None and answer.status in (302, 303) else ""
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.close()

    async def _connect(self) -> Connection:
        if self._connection is None or not self._connection.alive:
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_connection(Connection, self._config["host"], self._config["port"])
            self._connection = protocol
        return self._connection

    async def _request(self, step: Step, intended_ns: int) -> Answer | None:
        identity = self._visitor.request_id() if self._config["ids"] else ""
        method = "GET" if step.form is None else "POST"
        lines = [
            f"{method} {step.target} HTTP/1.1",
            f"Host: {self._config['host']}",
            "User-Agent: board-user/1",
            "Accept: text/html",
        ]
        if not self._config["keep_alive"]:
            lines.append("Connection: close")
        if identity:
            lines.append(f"X-Request-ID: {identity}")
        if self._visitor.session:
            lines.append(f"Cookie: sid={self._visitor.session}")
        lines += step.headers
        body = b""
        if step.form is not None:
            body = step.form
            lines += [f"Content-Type: {step.content_type}", f"Content-Length: {len(body)}"]
        request = ("\r\n".join(lines) + "\r\n\r\n").encode() + body
        start_ns, port, answer, end_ns = time.time_ns(), 0, None, -1
        try:
            connection = await self._connect()
            port = connection.local_port()
            start_ns = time.time_ns()
            answer = await asyncio.wait_for(connection.ask(request), 60)
            end_ns = time.time_ns()
            if answer.session:
                self._visitor.session = answer.session
            if answer.close or not self._config["keep_alive"]:
                self._drop()
        except (OSError, TimeoutError):
            self._drop()
        self._out.writerow(
            (
                identity,
                self._number,
                step.interaction,
                method,
                step.target,
                intended_ns,
                start_ns,
                end_ns,
                answer.status if answer else 0,
                answer.size if answer else 0,
                port,
                answer.body() if answer is not None and self._visitor.keeps_answers else "",
            )
        )
        return answer

    def _drop(self) -> None:
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.abort()
        self._connection = None


async def _sleep_until(moment_ns: int) -> None:
    left = (moment_ns - time.time_ns()) / 1e9
    if left > 0:
        await asyncio.sleep(left)


async def _run(config: dict[str, Any]) -> None:
    with Path(config["out"]).open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        most = config["in_flight"]
        turns = asyncio.Semaphore(most) if most else nullcontext()
        await asyncio.gather(*(User(n, config, turns, out).live() for n in range(config["users"])))


def main() -> None:
    """Runs all users and prints how much CPU that took (JSON)."""
    config = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(_run(config))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"user_s": usage.ru_utime, "system_s": usage.ru_stime}))


if __name__ == "__main__":
    main()
