"""A world of servers with threads whose every step is known: writes thread logs as the recorder does, and
knows which call was made for which.

Tiers of processes call downwards at random over pooled connections. `model` is how a server works: worker (a
thread receives, works and answers), dispatcher (one thread receives everything, others work and answer) or
events (one thread goes from request to request as answers come).
"""

from __future__ import annotations

import heapq
import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

from tapscope.reconstruct.threads.log import MAGIC, How, Kind, Way

BEGIN_NS = 1_700_000_000_000_000_000
LISTENER = 80
Key = tuple[str, int, str, int, int, int]
"""A call: client address and port, server address and port, which of the connections that had these one after
the other, and the offset of its request."""


def header(pid: int, program: str) -> bytes:
    """Head of a log."""
    names = struct.pack("<64s64s", b"simulated", program.encode())
    return MAGIC + struct.pack("<4IqQ2I", 176, 56, pid, 1, BEGIN_NS, 7, 16384, 0) + names


def opened(
    at_ns: int, number: int, thread: int, how: How, own: tuple[str, int], peer: tuple[str, int]
) -> bytes:
    """Record of a connection's beginning."""
    head = struct.pack("<qIIBBBBHH", at_ns, number, thread, Kind.OPEN, how, 4, 0, own[1], peer[1])
    return head + b"".join(IPv4Address(address).packed.ljust(16, b"\0") for address, _ in (own, peer))


def moved(begin_ns: int, end_ns: int, number: int, thread: int, way: Way, offset: int, size: int) -> bytes:
    """Record of a send or a receive."""
    head = struct.pack("<qIIBBBBi", begin_ns, number, thread, Kind.CALL, 1, way, 0, 0)
    return head + struct.pack("<4q", end_ns, offset, size, 0)


def closed(at_ns: int, number: int, thread: int, sizes: tuple[int, int], kind: Kind = Kind.CLOSE) -> bytes:
    """Record of a connection's end: bytes received and sent."""
    return struct.pack("<qIIBBBBi4q", at_ns, number, thread, kind, 0, 0, 0, 0, *sizes, *sizes)


def end(at_ns: int) -> bytes:
    """The last record."""
    return struct.pack("<qIIBBBBi4q", at_ns, 0, 0, Kind.END, 0, 0, 0, 0, 0, 0, 0, 0)


@dataclass
class Node:
    """A server process; callers are nodes without a model."""

    address: str
    pid: int
    model: str
    workers: int
    below: list[Node] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    connections: int = 0
    free: list[int] = field(default_factory=list)
    waiting: deque[Callable[[int], None]] = field(default_factory=deque)
    pools: dict[str, list[Connection]] = field(default_factory=dict)
    next_port: int = 0
    in_use: set[int] = field(default_factory=set)
    used: Counter[tuple[int, str]] = field(default_factory=Counter)


@dataclass
class Connection:
    """Both ends of a connection; sent: bytes to the server and back."""

    client: Node
    server: Node
    port: int
    numbers: tuple[int, int]
    use: int
    sent: list[int] = field(default_factory=lambda: [0, 0])


class World:
    """Runs the simulation. parent: of every call, None for those of the clients."""

    def __init__(
        self,
        seed: int,
        model: str,
        tiers: tuple[int, ...] = (1, 2, 2),
        *,
        workers: int = 4,
        ports: int = 50_000,
    ) -> None:
        self.chance = random.Random(seed)
        self.now = BEGIN_NS
        self.parent: dict[Key, Key | None] = {}
        self.ports = ports
        self.nodes: list[Node] = []
        self.users: list[Node] = []
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        rows: list[list[Node]] = []
        for depth, width in enumerate(tiers):
            row = [Node(f"10.0.{depth}.{i + 1}", 100 * (depth + 1) + i, model, workers) for i in range(width)]
            for node in row:
                node.free = [node.pid + 1 + i for i in range(workers)]
            rows.append(row)
            self.nodes += row
        for upper, lower in pairwise(rows):
            for node in upper:
                node.below = lower
        self.entry = rows[0][0]

    def run(self, requests: int, users: int) -> None:
        """Users ask the first tier, one request after the other."""
        for user in range(users):
            client = Node(f"10.9.0.{user + 1}", 0, "", 1)
            self.users.append(client)
            self.later(0, lambda c=client: self._step(self._user(c, requests // users), None))
        while self._agenda:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        for node in self.nodes + self.users:
            for connection in (c for pool in node.pools.values() for c in pool):
                self._end(connection, 0, Kind.STILL)

    def write(self, folder: Path, keep: Callable[[], bool] = lambda: True) -> None:
        """Writes the logs, without the sends and receives that `keep` does not want."""
        folder.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            kept = [r for r in node.records if r[16] != Kind.CALL or keep()]
            body = b"".join([header(node.pid, "server"), *kept, end(self.now)])
            (folder / f"server-{node.pid}.threads").write_bytes(body)

    def later(self, delay_ns: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self.now + delay_ns, self._count, action))

    def _wait(self) -> int:
        return self.chance.randrange(2_000, 300_000)

    def _step(self, work: Iterator[object], value: object) -> None:
        """Goes on with `work`, which yields a delay, or a function that takes what to call later."""
        try:
            wanted = work.send(value)  # type: ignore[attr-defined]
        except StopIteration:
            return
        if isinstance(wanted, int):
            self.later(wanted, lambda: self._step(work, None))
        else:
            wanted(lambda result=None: self._step(work, result))  # type: ignore[operator]

    def _user(self, client: Node, requests: int) -> Iterator[object]:
        for _ in range(requests):
            yield self._wait()
            yield from self._ask(client, self.entry, 0, None)

    def _ask(self, caller: Node, callee: Node, thread: int, parent: Key | None) -> Iterator[object]:
        """A call by `thread` of `caller`; ends when the answer was received."""
        pool = caller.pools.setdefault(callee.address, [])
        connection = (
            pool.pop(self.chance.randrange(len(pool))) if pool else self._connect(caller, callee, thread)
        )
        key = (caller.address, connection.port, callee.address, LISTENER, connection.use, connection.sent[0])
        self.parent[key] = parent
        begin, size = connection.sent[0], self.chance.randrange(1, 400)
        self._move(connection, 0, thread, size)
        answered: list[Callable[[], None]] = []
        self.later(self._wait() // 10, lambda: self._arrive(connection, begin, size, key, answered))
        answer_from = connection.sent[1]
        yield lambda go_on: answered.append(go_on)
        yield self._wait() // 10
        self._note(caller, connection, 0, thread, Way.RECEIVED, answer_from, connection.sent[1] - answer_from)
        if self.chance.random() < 0.1:
            caller.in_use.discard(connection.port)
            self._end(connection, thread, Kind.CLOSE)
        else:
            pool.append(connection)

    def _end(self, connection: Connection, thread: int, kind: Kind) -> None:
        there, back = connection.sent
        ends = ((connection.client, (back, there)), (connection.server, (there, back)))
        for (node, sizes), number in zip(ends, connection.numbers, strict=True):
            node.records.append(closed(self.now, number, thread, sizes, kind))

    def _connect(self, caller: Node, callee: Node, thread: int) -> Connection:
        while (port := 20_000 + caller.next_port % self.ports) in caller.in_use:
            caller.next_port += 1
        caller.next_port += 1
        caller.in_use.add(port)
        use = caller.used[port, callee.address]
        caller.used[port, callee.address] += 1
        for node in (caller, callee):
            node.connections += 1
        made = Connection(caller, callee, port, (caller.connections, callee.connections), use)
        ends = ((caller.address, port), (callee.address, LISTENER))
        caller.records.append(opened(self.now, caller.connections, thread, How.CONNECTED, *ends))
        callee.records.append(opened(self.now, callee.connections, callee.pid, How.ACCEPTED, *ends[::-1]))
        return made

    def _move(self, connection: Connection, direction: int, thread: int, size: int) -> None:
        """Sends a message in one to three pieces."""
        node = connection.server if direction else connection.client
        self._note(node, connection, direction, thread, Way.SENT, connection.sent[direction], size)
        connection.sent[direction] += size

    def _note(
        self, node: Node, connection: Connection, side: int, thread: int, way: Way, offset: int, size: int
    ) -> None:
        cuts = sorted({0, size, *(self.chance.randrange(size + 1) for _ in range(self.chance.randrange(3)))})
        number = connection.numbers[side]
        for at, (low, high) in enumerate(pairwise(cuts)):
            begin = self.now + 2 * at  # pieces of one message follow one another
            node.records.append(moved(begin, begin + 1, number, thread, way, offset + low, high - low))

    def _arrive(
        self, connection: Connection, offset: int, size: int, key: Key, answered: list[Callable[[], None]]
    ) -> None:
        """A request is at its server: received at once by a dispatcher, else by the thread that takes it."""
        node = connection.server

        def taken(thread: int) -> None:
            receiver = node.pid if node.model == "dispatcher" else thread
            if node.model != "dispatcher":
                self._note(node, connection, 1, receiver, Way.RECEIVED, offset, size)
            self._step(self._serve(connection, thread, key, answered), None)

        if node.model == "dispatcher":
            self._note(node, connection, 1, node.pid, Way.RECEIVED, offset, size)
        if node.model == "events":
            taken(node.pid)
        elif node.free:
            taken(node.free.pop(self.chance.randrange(len(node.free))))
        else:
            node.waiting.append(taken)

    def _serve(
        self, connection: Connection, thread: int, key: Key, answered: list[Callable[[], None]]
    ) -> Iterator[object]:
        node = connection.server
        yield self._wait()
        while node.below and self.chance.random() < 0.6:
            yield from self._ask(node, self.chance.choice(node.below), thread, key)
            yield self._wait()
        self._move(connection, 1, thread, self.chance.randrange(1, 3000))
        answered[0]()
        if node.model != "events":
            yield 10  # its pieces are out before the thread takes the next request
            if node.waiting:
                node.waiting.popleft()(thread)
            else:
                node.free.append(thread)
