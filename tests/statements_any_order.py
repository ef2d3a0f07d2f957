"""A node whose statements come in any order: hardly a step comes twice, and there is no grammar to learn."""

from __future__ import annotations

import random

from one_node import MS, SECOND, World


def any_of_many_statements(seed: int, statements: int, connections: int, requests: int = 1200) -> World:
    """Requests that ask up to six of so many statements in any order: hardly a step comes twice.

    Each holds one of the connections until it is answered; with none, a call has one of its own.
    """
    draw = random.Random(seed)
    world = World()
    free_at = [0] * connections
    now = 0.0
    for _ in range(requests):
        now += draw.expovariate(400) * SECOND
        free = [each for each in range(connections) if free_at[each] < now]
        if connections and not free:
            continue
        conn = draw.choice(free) if free else None
        arrive = at = int(now)
        calls = []
        for _ in range(draw.randint(1, 6)):
            begin = at + int(draw.lognormvariate(0.0, 0.8) * MS)
            at = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
            calls.append((draw.randrange(statements), begin, at))
        end = at + int(draw.lognormvariate(0.0, 0.8) * MS)
        if conn is not None:
            free_at[conn] = end
        parent = world.serve(0, arrive, end)
        for kind, begin, done in calls:
            world.call(parent, kind, begin, done, conn)
    return world
