"""Systems of one node with known truth in which requests wait, forget what they called, or clocks tick.

Every request makes a call x, then a call y. Its own work is 2 ms a step and a call takes 3 ms, lognormal.
"""

from __future__ import annotations

import heapq
import random

import numpy as np
from one_node import MS, World

SLOTS, CALLERS, THINK_NS = 4, 16, 2 * MS
WORK_MS, CALL_MS, SPREAD = 2.0, 3.0, 0.6


def _lasts(draw: random.Random, mean_ms: float) -> int:
    return int(draw.lognormvariate(np.log(mean_ms) - SPREAD**2 / 2, SPREAD) * MS)


def pool(draw: random.Random, requests: int, connections: bool, classes: int, busy: float) -> World:
    """Four connections, lent for each call in the order of asking; they are busy for this share of time."""
    gap = 2 * CALL_MS * MS / (SLOTS * busy)
    now = 0.0
    arrive: list[int] = []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        arrive.append(int(now))
    asks = [(at + _lasts(draw, WORK_MS), request, 0) for request, at in enumerate(arrive)]
    heapq.heapify(asks)
    idle = [(0, slot) for slot in range(SLOTS)]
    made: list[list[tuple[int, int, int]]] = [[] for _ in range(requests)]
    depart = [0] * requests
    while asks:
        at, request, step = heapq.heappop(asks)
        free, slot = heapq.heappop(idle)
        begin = max(at, free)
        end = begin + _lasts(draw, CALL_MS)
        heapq.heappush(idle, (end, slot))
        made[request].append((begin, end, slot))
        after = end + _lasts(draw, WORK_MS)
        if step == 0:
            heapq.heappush(asks, (after, request, 1))
        else:
            depart[request] = after
    kinds = [draw.randrange(classes) for _ in range(requests)]
    return _written(kinds, arrive, depart, made, connections)


def workers(draw: random.Random, requests: int) -> World:
    """Four, each with one request at a time; callers ask again after their answer, so that all are busy."""
    waiting = [(draw.randrange(20 * MS), caller) for caller in range(CALLERS)]
    heapq.heapify(waiting)
    free = [0] * SLOTS
    arrive, depart, made = [], [], []
    for _ in range(requests):
        asked, caller = heapq.heappop(waiting)
        at = max(asked, heapq.heappop(free))
        calls = []
        for _ in range(2):
            begin = at + _lasts(draw, WORK_MS)
            at = begin + _lasts(draw, CALL_MS)
            calls.append((begin, at, 0))
        answered = at + _lasts(draw, WORK_MS)
        heapq.heappush(free, answered)
        heapq.heappush(waiting, (answered + THINK_NS, caller))
        arrive.append(asked)
        depart.append(answered)
        made.append(calls)
    return _written([0] * requests, arrive, depart, made)


def held(draw: random.Random, requests: int, callers: int, in_order: bool, connections: int = 6) -> World:
    """Connections, each held for all calls of a request; callers ask again after their answer, so that a
    request spends most of its stay in waiting. Ten pages have two statements of their own, and then some that
    all have. `in_order`: who came first gets the next connection, else any of those who wait."""
    waiting = [(draw.randrange(20 * MS), caller) for caller in range(callers)]
    free = [(0, slot) for slot in range(connections)]
    world = World()
    for _ in range(requests):
        released, slot = heapq.heappop(free)
        waiting.sort()
        ready = sum(asked <= released for asked, _ in waiting)
        asked, caller = waiting.pop(0 if in_order or ready == 0 else draw.randrange(ready))
        page = draw.randrange(10)
        at = max(asked, released) + _lasts(draw, 0.5)
        calls = []
        for statement in (10 * page, 10 * page + 1, *[999] * draw.randint(1, 4)):
            begin = at + _lasts(draw, 1.0)
            at = begin + _lasts(draw, 1.5)
            calls.append((begin, at, statement))
        heapq.heappush(free, (at + MS // 20, slot))
        answered = at + _lasts(draw, 3.0)
        waiting.append((answered + _lasts(draw, 20.0), caller))
        request = world.serve(page, asked, answered)
        for begin, end, statement in calls:
            world.call(request, statement, begin, end, slot)
    return world


def kept(draw: random.Random, requests: int, in_flight: float) -> World:
    """Nothing waits, and half of the requests make no call, as what they need is in a cache; yet they stay
    half as long as those that make four. There are as many connections as anybody needs."""
    gap = 9 * MS / in_flight
    now = 0.0
    world = World()
    calls = []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        at = int(now)
        page = draw.randrange(4)
        made = []
        if draw.random() < 0.5:
            at += _lasts(draw, 6.0)
        else:
            at += _lasts(draw, 1.0)
            for statement in (10 * page, 10 * page + 1, 999, 999):
                begin = at
                at = begin + _lasts(draw, 1.5)
                made.append((begin, at, statement))
                at += _lasts(draw, 1.0)
        request = world.serve(page, int(now), at)
        calls += [(begin, end, statement, request) for begin, end, statement in made]
    world.call_on_any(draw, calls, connections=60)
    return world


def forgets(draw: random.Random, requests: int, in_flight: float, outlasts_ms: float = 20.0) -> World:
    """Call y begins before the answer and ends behind it, so long on average."""
    gap = (2 * WORK_MS + CALL_MS) * MS / in_flight
    now = 0.0
    arrive, depart, made = [], [], []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        first = int(now) + _lasts(draw, WORK_MS)
        second = first + _lasts(draw, CALL_MS)
        answered = second + _lasts(draw, WORK_MS)
        arrive.append(int(now))
        depart.append(answered)
        made.append([(first, second, 0), (answered - MS // 10, answered + _lasts(draw, outlasts_ms), 1)])
    return _written([0] * requests, arrive, depart, made)


def ticks(draw: random.Random, requests: int, in_flight: float, tick_ns: int = MS) -> World:
    """Nothing waits; stamps are cut to whole ticks."""

    def stamp(at: int) -> int:
        return at // tick_ns * tick_ns

    gap = (3 * WORK_MS + 2 * CALL_MS) * MS / in_flight
    now = 0.0
    arrive, depart, made = [], [], []
    for _ in range(requests):
        now += draw.expovariate(1 / gap)
        at = int(now)
        calls = []
        for _ in range(2):
            begin = at + _lasts(draw, WORK_MS)
            at = begin + _lasts(draw, CALL_MS)
            calls.append((stamp(begin), stamp(at), 0))
        arrive.append(stamp(int(now)))
        depart.append(stamp(at + _lasts(draw, WORK_MS)))
        made.append(calls)
    return _written([0] * requests, arrive, depart, made)


def _written(
    kinds: list[int],
    arrive: list[int],
    depart: list[int],
    made: list[list[tuple[int, int, int]]],
    connections: bool = False,
) -> World:
    world = World()
    for kind, begin, end, calls in zip(kinds, arrive, depart, made, strict=True):
        request = world.serve(kind, begin, end)
        for number, (asked, answered, slot) in enumerate(calls):
            world.call(request, 10 * kind + number, asked, answered, slot if connections else None)
    return world
