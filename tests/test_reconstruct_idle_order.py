"""Pools that hand out their idle connections as a stack, as a queue, or in no order: which one is learned."""

from __future__ import annotations

import heapq
import random
from enum import Enum

import pytest
from one_node import MS, SECOND, US, Score, World, score

from tapscope.store.codes import EvidenceMode


class Habit(Enum):
    STACK = "the one that was given back last"
    QUEUE = "the one that was given back first"
    NONE = "any of the idle ones"


def _pool_with_idle_connections(seed: int, habit: Habit, connections: int = 16) -> World:
    """Requests that look alike: each takes a connection for its calls, and gives it back after its answer.

    Nothing but time tells them apart, and gaps of one kind differ too much for gaps to tell.
    """
    draw = random.Random(seed)
    world = World()
    idle = list(range(connections))
    busy: list[tuple[float, int]] = []
    arrive, starts = 0.0, []
    for _ in range(2500):
        arrive += draw.expovariate(200) * SECOND
        starts.append((arrive + draw.lognormvariate(1.0, 1.0) * MS, arrive))
    now = 0.0
    for start, arrive in sorted(starts):
        now = max(now, start)
        while busy and (busy[0][0] <= now or not idle):
            free, conn = heapq.heappop(busy)
            now = max(now, free)
            idle.append(conn)
        conn = idle.pop({Habit.STACK: -1, Habit.QUEUE: 0, Habit.NONE: draw.randrange(len(idle))}[habit])
        at = now + 30 * US
        calls = []
        for _ in range(draw.randint(2, 4)):
            end = at + draw.lognormvariate(1.0, 0.6) * MS
            calls.append((int(at), int(end)))
            at = end + draw.lognormvariate(0.5, 1.2) * MS
        parent = world.serve(0, int(arrive), int(at))
        for k, (begin, end) in enumerate(calls):
            world.call(parent, min(k, 1), begin, end, conn)
        heapq.heappush(busy, (at + draw.expovariate(1.0) * 200 * US, conn))
    return world


@pytest.fixture(scope="module")
def unordered() -> Score:
    return score(_pool_with_idle_connections(41, Habit.NONE), EvidenceMode.TIMING)


@pytest.mark.parametrize("habit", [Habit.STACK, Habit.QUEUE])
def test_when_a_connection_is_taken_again_tells_whose_it_was(habit, unordered):
    ordered = score(_pool_with_idle_connections(41, habit), EvidenceMode.TIMING)
    assert unordered.edges < 0.92, "the world is too easy"
    assert 1 - ordered.edges < 0.5 * (1 - unordered.edges)
    assert ordered.right[ordered.probability >= 0.99].mean() >= 0.99


def test_a_pool_without_order_is_not_taken_for_one_that_has_it(unordered):
    assert abs(unordered.probability.mean() - unordered.right.mean()) < 0.02
    assert unordered.right[unordered.probability >= 0.99].mean() >= 0.995
