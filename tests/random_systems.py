"""Nodes with known truth, drawn at random: what a node may be made of, and how it is used.

Workers, processors and pools of connections, each as many as wanted or too few; pages with statements of
their own or in common, in loops, left out at times, or side by side; callers that come at random, in bursts,
or wait for their answers; pauses; values that calls repeat, or none.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
from one_node import MS, World
from processes import Clock, Lend, Pool, Process

FOREVER = 1 << 62
PASSING_ON_NS = 30_000
VALUES = 400
ENDLESS = 5000  # items, where as many as are wanted
BACKGROUND = (900, 950)  # statements of timers: one that pages may have in common, and one of their own
NOBODY = -1
LENDS: list[Lend] = ["last", "first", "any"]
BUSY = 0.8  # share of the time, of what is scarcest


@dataclass(frozen=True)
class Step:
    """A statement, asked so often at least and at most, if it is asked at all."""

    statement: int
    least: int
    most: int
    chance: float
    side_by_side: bool


@dataclass(frozen=True)
class System:
    """What a node is made of. No workers or processors: as many as are wanted.

    Requests come `arrivals`, from `callers` in a closed loop, so that `load` are in flight where nothing is
    scarce. Pages share `in_common` of their statements, and `repeats` of the calls say what their request
    says. Connections are `lent_for` nothing (each call has its own), a call, or a request. For each request
    timers make `background` calls, which are nobody's. Statements are shared out among `servers`, each with
    as many connections, which are lent in another way from one to the next; those of the second and further
    ones for a call, where those of the first are lent for a request.
    """

    arrivals: str
    callers: int
    load: float
    pages: int
    in_common: float
    repeats: float
    workers: int
    processors: int
    lent_for: str
    connections: int
    lend: Lend
    in_order: bool
    pause_ms: int
    spread: float
    work_ms: float
    call_ms: float
    background: float = 0.0
    servers: int = 1

    @classmethod
    def draw(cls, draw: random.Random) -> System:
        """Any system."""
        return cls(
            arrivals=draw.choice(["at random", "at random", "in bursts", "closed loop"]),
            callers=draw.choice([5, 15, 40]),
            load=draw.choice([0.3, 1.0, 3.0, 10.0]),
            pages=draw.choice([1, 2, 4, 8, 16, 30]),
            in_common=draw.choice([0.0, 0.3, 0.7, 1.0]),
            repeats=draw.choice([0.0, 0.0, 0.0, 0.5, 0.9]),
            workers=draw.choice([0, 0, 4, 16, 40]),
            processors=draw.choice([0, 0, 1, 2, 4]),
            lent_for=draw.choice(["nothing", "a call", "a request", "a request"]),
            connections=draw.choice([3, 8, 20, 60]),
            lend=draw.choice(LENDS),
            in_order=draw.random() < 0.7,
            pause_ms=draw.choice([0, 0, 0, 30, 200]),
            spread=draw.choice([0.3, 0.6, 1.0]),
            work_ms=draw.choice([0.2, 1.0, 3.0]),
            call_ms=draw.choice([0.3, 1.0, 4.0]),
        )

    def __str__(self) -> str:
        """In words."""
        callers = f" of {self.callers}" if self.arrivals == "closed loop" else ""
        words = [f"{self.arrivals}{callers}", f"{self.pages} pages", f"{self.in_common:.0%} in common"]
        words += [f"work {self.work_ms} ms", f"calls {self.call_ms} ms", f"spread {self.spread}"]
        words += [f"{self.workers} workers"] * (self.workers > 0)
        words += [f"{self.processors} processors"] * (self.processors > 0)
        if self.lent_for != "nothing":
            words += [f"{self.connections} connections for {self.lent_for}", f"{self.lend} one lent"]
            words += ["in order" if self.in_order else "to anybody"]
        words += [f"{self.servers} servers"] * (self.servers > 1)
        words += [f"pauses of {self.pause_ms} ms"] * (self.pause_ms > 0)
        words += [f"{self.repeats:.0%} repeat a value"] * (self.repeats > 0)
        words += [f"{self.background} background calls for a request"] * (self.background > 0)
        return ", ".join(words)

    def gap_ms(self, work_ms: float, calls_ms: float) -> float:
        """Between requests that take so long each: what is scarcest is busy for 0.8 of the time."""
        stay_ms = work_ms + calls_ms
        gaps = [stay_ms / self.load]
        if self.workers:
            gaps.append(stay_ms / self.workers / BUSY)
        if self.processors:
            gaps.append(work_ms / self.processors / BUSY)
        if self.lent_for == "a call":
            gaps.append(calls_ms / self.connections / BUSY)
        if self.lent_for == "a request":
            gaps.append(stay_ms / self.connections / BUSY)
        return max(gaps)


class Running(Clock):
    """A system at work; `world` has what a tap sees of it."""

    def __init__(self, system: System, draw: random.Random, requests: int) -> None:
        super().__init__()
        self.system, self.draw, self.left = system, draw, requests
        self.world = World()
        self.calls: list[tuple[int, int, int, int, int | None, int]] = []
        self.pages = self._pages()
        self.popular = [1 / (1 + page) ** draw.choice([0.0, 0.7, 1.2]) for page in range(system.pages)]
        self.page_ms = [system.work_ms * draw.lognormvariate(0, 0.5) for _ in self.pages]
        self.statement_ms = [system.call_ms * draw.lognormvariate(0, 0.7) for _ in range(1000)]
        self.workers = Pool(list(range(system.workers or ENDLESS)))
        self.processors = Pool(list(range(system.processors or ENDLESS)))
        self.connections = []  # by server
        for server in range(system.servers):
            lend = LENDS[(LENDS.index(system.lend) + server) % len(LENDS)]
            items = [server * ENDLESS + each for each in range(system.connections)]
            self.connections.append(Pool(items, lend, draw, in_order=system.in_order))
        self.gap_ms = self._gap_ms()
        self.stopped_until = 0

    def _pages(self) -> list[list[Step]]:
        draw, pages, own = self.draw, [], iter(range(900))
        in_common = list(range(900, 900 + draw.choice([1, 3, 8])))
        for _ in range(self.system.pages):
            steps = []
            for _ in range(
                draw.choice([0, 1, 1, 2, 3, 4, 6]) if self.system.pages > 1 else draw.choice([1, 2, 4])
            ):
                common = draw.random() < self.system.in_common
                least, most = draw.choice([(1, 1), (1, 1), (1, 1), (1, 3), (2, 8), (0, 4)])
                statement = draw.choice(in_common) if common else next(own)
                steps.append(
                    Step(statement, least, most, draw.choice([1.0, 1.0, 0.8, 0.3]), draw.random() < 0.1)
                )
            pages.append(steps)
        return pages

    def _gap_ms(self) -> float:
        work_ms = calls_ms = 0.0
        for page, popular, page_ms in zip(self.pages, self.popular, self.page_ms, strict=True):
            calls = [step.chance * (step.least + step.most) / 2 for step in page]
            work_ms += popular * (2 + sum(calls)) * page_ms
            calls_ms += popular * sum(
                many * self.statement_ms[step.statement] for many, step in zip(calls, page, strict=True)
            )
        return self.system.gap_ms(work_ms / sum(self.popular), calls_ms / sum(self.popular))

    def serve_all(self) -> World:
        """Let all requests be made and answered."""
        system = self.system
        if system.arrivals == "closed loop":
            think_ms = system.callers * self.gap_ms
            for caller in range(system.callers):
                self.start(self._caller(caller, think_ms), int(self.draw.random() * think_ms * MS))
        else:
            self.start(self._source(), 0)
        if system.pause_ms:
            self.start(self._pauses(), 0)
        if system.background:
            self.start(self._timers(), 0)
        self.run(FOREVER)
        for begin, end, statement, request, connection, value in sorted(self.calls):
            server = self.server(statement)
            call = self.world.call(request, statement, begin, end, connection, server=server)
            if value >= 0:
                self.world.token(call, 0, 1, value)
        return self.world

    def server(self, statement: int) -> int:
        """That is asked for it."""
        return statement % self.system.servers

    def _pauses(self) -> Process:
        while self.left > 0:
            yield self._after(20.0 * self.system.pause_ms)
            self.stopped_until = self.now + self.system.pause_ms * MS

    def _timers(self) -> Process:
        while self.left > 0:
            yield self._after(self.gap_ms / self.system.background)
            statement = self.draw.choice(BACKGROUND)
            self.start(self._call(statement, NOBODY, self.draw.randrange(VALUES), None, None), self.now)

    def _source(self) -> Process:
        bursts = self.system.arrivals == "in bursts"
        while self.left > 0:
            many = self.draw.randint(2, 12) if bursts and self.draw.random() < 0.1 else 1
            for _ in range(many):
                self.start(self._request(None), self.now)
            yield self._after(self.gap_ms * (1.6 if bursts else 1.0))

    def _caller(self, caller: int, think_ms: float) -> Process:
        while self.left > 0:
            yield from self._request(caller)
            yield self._after(think_ms)

    def _request(self, caller: int | None) -> Process:
        self.left -= 1
        system, draw = self.system, self.draw
        page = draw.choices(range(system.pages), self.popular)[0]
        request = self.world.serve(page, self.now, 0, caller)
        value = draw.randrange(VALUES)
        if system.repeats:
            self.world.token(request, 0, 1, value)
        worker = yield self.workers
        yield from self._work(page)
        held = None
        first = any(self.server(step.statement) == 0 for step in self.pages[page])
        if system.lent_for == "a request" and first:
            held = yield self.connections[0]
            yield PASSING_ON_NS
        for step in self.pages[page]:
            if draw.random() >= step.chance:
                continue
            count = draw.randint(step.least, step.most)
            if step.side_by_side and held is None:
                done = Pool([])
                for _ in range(count):
                    self.start(self._call(step.statement, request, value, None, done), self.now)
                for _ in range(count):
                    yield done
                yield from self._work(page)
                continue
            for _ in range(count):
                yield from self._call(step.statement, request, value, held, None)
                yield from self._work(page)
        if held is not None:
            self.give(self.connections[0], held)
        yield from self._work(page)
        self.give(self.workers, worker)
        self.world.answer(request, self.now)

    def _call(self, statement: int, request: int, value: int, held: int | None, done: Pool | None) -> Process:
        system, draw = self.system, self.draw
        server = self.server(statement)
        connection = held if server == 0 else None
        lent = system.lent_for == "a call" or (
            system.lent_for == "a request" and (request == NOBODY or server > 0)
        )
        if lent:
            connection = yield self.connections[server]
        yield PASSING_ON_NS
        begin = self.now
        yield self._lasts(self.statement_ms[statement])
        says = -1
        if system.repeats:
            says = value if draw.random() < system.repeats else draw.randrange(VALUES)
        self.calls.append((begin, self.now, statement, request, connection, says))
        if lent:
            self.give(self.connections[server], connection)
        if done is not None:
            self.give(done, 0)

    def _work(self, page: int) -> Process:
        processor = yield self.processors
        yield self._lasts(self.page_ms[page])
        yield max(self.stopped_until - self.now, 0)
        self.give(self.processors, processor)

    def _lasts(self, mean_ms: float) -> int:
        spread = self.system.spread
        return int(self.draw.lognormvariate(np.log(mean_ms) - spread**2 / 2, spread) * MS)

    def _after(self, mean_ms: float) -> int:
        return int(self.draw.expovariate(1 / mean_ms) * MS)


def random_system(
    seed: int, requests: int, background: float = 0.0, servers: int = 1
) -> tuple[System, World]:
    """The system of this seed, and what it did."""
    draw = random.Random(seed)
    system = replace(System.draw(draw), background=background, servers=servers)
    return system, Running(system, draw, requests).serve_all()
