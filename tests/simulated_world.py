"""The queues behind `simulator`: users, workers, pools and processors as processes over one clock.

Every queue is real: users think and wait, the web server has worker threads, both servers take connections
from pools, every node has processors that serve first come, first served, and the application server can
stand still for a while (a stop-the-world collection). What comes out is a list of calls with their true
parents, and when each node's processors were busy.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass

from processes import Clock, Pool

from tapscope.store.codes import Protocol

START_NS = 1_790_000_000_000_000_000
"""First instant of every simulation: 2026-09-21 UTC."""
HOP_NS = 20_000
"""From a host to the tap, and from the tap to the other host."""
PROTOCOLS = (Protocol.UNKNOWN, Protocol.HTTP, Protocol.AJP, Protocol.MYSQL)
WEB, APP, DB = 1, 2, 3

# Route, mean application milliseconds, and its statements (index, how often at least, at most).
PAGES = (
    ("GET /board/stories ?page", 1.5, ((0, 1, 1), (1, 2, 5))),
    ("GET /board/story/{n}", 2.0, ((2, 1, 1), (3, 1, 6), (1, 1, 2))),
    ("GET /board/search ?q&type", 4.0, ((4, 1, 1), (1, 0, 4))),
    ("GET /board/about", 0.6, ()),
    ("POST /board/comment ?parent&story", 3.0, ((1, 1, 1), (2, 1, 1), (5, 1, 1))),
)
STATEMENTS = (
    ("SELECT id, title, writer FROM stories ORDER BY date DESC LIMIT ?", 1.8),
    ("SELECT nickname FROM users WHERE id = ?", 0.35),
    ("SELECT * FROM stories WHERE id = ?", 0.6),
    ("SELECT * FROM comments WHERE story_id = ? AND parent = ?", 1.1),
    ("SELECT id FROM stories WHERE title LIKE ? LIMIT ?", 6.0),
    ("INSERT INTO comments VALUES (?+)", 1.4),
)


@dataclass
class Call:
    node: int
    conn: int
    class_id: int
    parent: int
    story: int
    arrive: int
    request_end: int
    begin: int = -1
    depart: int = -1


class World(Clock):
    def __init__(self, seed: int, end_ns: int) -> None:
        super().__init__(START_NS)
        self.random = random.Random(seed)
        self.end = end_ns
        self.calls: list[Call] = []
        self.busy: dict[int, list[tuple[int, int]]] = {WEB: [], APP: [], DB: []}
        self.cpu: dict[int, Pool] = {}
        self.pool: dict[int, Pool] = {}
        self.workers = Pool([])

    def think(self, mean_ns: float) -> int:
        return int(self.random.expovariate(1.0 / mean_ns))

    def compute(self, node: int, mean_ms: float) -> Generator:
        item = yield self.cpu[node]
        began = self.now
        yield self.think(mean_ms * 1e6)
        self.busy[node].append((began, self.now))
        self.give(self.cpu[node], item)

    def call(self, node: int, conn: int, class_id: int, parent: int, story: int) -> tuple[int, Call]:
        arrive = self.now + HOP_NS
        record = Call(node, conn, class_id, parent, story, arrive, arrive + 1000 + story % 3000)
        self.calls.append(record)
        return len(self.calls) - 1, record

    def reply(self, record: Call) -> int:
        record.begin = self.now + HOP_NS
        size_ns = self.random.randrange(2_000, 60_000)
        if record.begin + size_ns < self.end:
            record.depart = record.begin + size_ns
        else:
            record.begin = -1
        return 2 * HOP_NS + size_ns

    def user(self, conn: int, think_ns: float) -> Generator:
        while True:
            yield self.think(think_ns)
            page = self.random.choices(range(len(PAGES)), (5, 6, 1, 2, 1))[0]
            row, record = self.call(WEB, conn, page, -1, self.random.randrange(1, 90_000))
            yield 2 * HOP_NS
            worker = yield self.workers
            yield from self.compute(WEB, 0.25)
            link = yield self.pool[APP]
            yield from self.application(link, page, row, record.story)
            self.give(self.pool[APP], link)
            yield from self.compute(WEB, 0.1)
            self.give(self.workers, worker)
            yield self.reply(record)

    def application(self, conn: int, page: int, parent: int, story: int) -> Generator:
        row, record = self.call(APP, conn, len(PAGES) + page, parent, story)
        yield 2 * HOP_NS
        _, mean_ms, statements = PAGES[page]
        yield from self.compute(APP, mean_ms / 2)
        for statement, least, most in statements:
            for _ in range(self.random.randint(least, most)):
                session = yield self.pool[DB]
                yield from self.query(session, statement, row, story)
                self.give(self.pool[DB], session)
                yield from self.compute(APP, mean_ms / 10)
        yield from self.compute(APP, mean_ms / 3)
        yield self.reply(record)

    def query(self, conn: int, statement: int, parent: int, story: int) -> Generator:
        _, record = self.call(DB, conn, 2 * len(PAGES) + statement, parent, story)
        yield 2 * HOP_NS
        yield from self.compute(DB, STATEMENTS[statement][1])
        yield self.reply(record)

    def stall(self, length_ns: int) -> Generator:
        """No processor of the application server takes up new work for `length_ns`."""
        pool = self.cpu[APP]
        pool.frozen = True
        began = self.now
        yield length_ns
        pool.frozen = False
        for _ in range(len(pool.free)):
            self.busy[APP].append((began, self.now))
            self.give(pool, pool.free.popleft())
