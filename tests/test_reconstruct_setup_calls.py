"""Calls that only set up the next one on their connection go with it (setup_calls.hpp)."""

from __future__ import annotations

import random
from statistics import mean

import numpy as np
import pytest
from one_node import MS, SECOND, US, World

from tapscope.reconstruct.match.links import links
from tapscope.store.codes import EvidenceMode

LOG_IN = 500
"""Classes of calls that set up others, from here on."""


def _prepared_now_and_then(seed: int, *, known: bool) -> World:
    """Requests that look alike, two statements each, each on any of 24 connections, and one in ten prepared
    there before. `known`: the protocol says which calls prepare."""
    draw = random.Random(seed)
    world = World()
    statements: list[tuple[int, int | None, int, int, int, int]] = []
    now = 0.0

    def lasts(log_ms: float, spread: float) -> int:
        return int(draw.lognormvariate(log_ms, spread) * MS)

    for _ in range(500):
        now += draw.expovariate(150) * SECOND
        at = int(now)
        parent = world.serve(0, at, 0)
        for statement in draw.sample(range(40), 2):
            first = begin = at + lasts(0.6, 1.0)
            prepared = None
            if draw.random() < 0.1:
                prepared = first + lasts(-1.0, 0.5)
                begin = prepared + lasts(0.5, 1.0)
            at = begin + lasts(0.5, 0.6)
            statements.append((first, prepared, begin, at, statement, parent))
        world.answer(parent, at + lasts(0.6, 1.0))
    free_at = [0] * 24
    for first, prepared, begin, end, statement, parent in sorted(statements, key=lambda each: each[0]):
        conn = draw.choice([each for each in range(24) if free_at[each] < first])
        free_at[conn] = end
        if prepared is not None:
            world.call(parent, LOG_IN + statement, first, prepared, conn, setup=known)
        world.call(parent, statement, begin, end, conn)
    return world


def _prepared_by_another_request(seed: int, *, known: bool) -> World:
    """Requests that look alike on 24 pooled connections; each of 40 statements is prepared once on each, by a
    request of its own. `known`: the protocol says which calls prepare."""
    draw = random.Random(seed)
    world = World()
    free_at = [0] * 24
    prepared: set[tuple[int, int]] = set()
    now = 0.0

    def work() -> int:
        return int(draw.lognormvariate(0.6, 1.0) * MS)

    for _ in range(1000):
        now += draw.expovariate(250) * SECOND
        free = [each for each in range(24) if free_at[each] < now]
        if not free:
            continue
        conn = draw.choice(free)
        arrive = at = int(now)
        calls = []
        for statement in draw.sample(range(40), 2):
            begin = at + work()
            if (conn, statement) not in prepared and not calls:
                prepared.add((conn, statement))
                done = begin + int(draw.lognormvariate(-1.0, 0.5) * MS)
                first = world.serve(1, arrive, done + 50 * US)
                world.call(first, LOG_IN + statement, begin, done, conn, setup=known)
                arrive = done + 100 * US
                begin = done + 200 * US
            at = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
            calls.append((statement, begin, at))
        end = at + work()
        free_at[conn] = end
        parent = world.serve(0, arrive, end)
        for kind, begin, done in calls:
            world.call(parent, kind, begin, done, conn)
    return world


def _edges_and_share_with_the_next(world: World) -> tuple[float, float]:
    """Share of the edges that are right, and of the calls that set up others that the matcher gives to the
    parent of the next one on their connection."""
    calls, evidence, truth = world.tables()
    parent = links(calls, evidence, EvidenceMode.TIMING)[0]["parent"]
    own = np.flatnonzero(calls["class_id"] >= 1000)
    by_conn = own[np.lexsort((own, calls["conn"][own]))]
    setup = np.flatnonzero(calls["class_id"][by_conn[:-1]] >= 1000 + LOG_IN)
    edges = (parent == truth)[truth >= 0].mean()
    return float(edges), float((parent[by_conn[setup]] == parent[by_conn[setup + 1]]).mean())


def test_what_is_prepared_goes_with_the_call_that_it_was_prepared_for():
    told, blind = (
        [_edges_and_share_with_the_next(_prepared_now_and_then(seed, known=known)) for seed in range(1, 11)]
        for known in (True, False)
    )
    assert all(share == 1.0 for _, share in told)
    assert mean(share for _, share in blind) < 0.99, "the world is too easy"
    assert mean(edges for edges, _ in told) > mean(edges for edges, _ in blind)


def test_what_is_prepared_by_a_request_of_its_own_is_not_joined():
    (told, share), (blind, _) = (
        _edges_and_share_with_the_next(_prepared_by_another_request(seed=71, known=known))
        for known in (True, False)
    )
    assert share < 0.95
    assert abs(told - blind) < 0.03


def _prepared_on_shared_connections(seed: int) -> World:
    """Requests that look alike send what they want on one of three connections, whoever has not been answered
    there yet; one statement in five is prepared first."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    for _ in range(500):
        now += draw.expovariate(400) * SECOND
        arrive = int(now)
        begin = arrive + int(draw.lognormvariate(0.0, 0.6) * MS)
        conn = draw.randrange(3)
        parent = world.serve(0, arrive, 0)
        for _ in range(2):
            if draw.random() < 0.2:
                end = begin + int(draw.lognormvariate(1.0, 0.4) * MS)
                world.call(parent, LOG_IN, begin, end, conn, setup=True)
                begin = end + 50 * US
            end = begin + int(draw.lognormvariate(1.0, 0.4) * MS)
            world.call(parent, draw.randrange(4), begin, end, conn)
            begin = end + int(draw.lognormvariate(0.0, 0.6) * MS)
        world.answer(parent, begin)
    return world


def _sessions_opened_on_demand(seed: int, *, pipelined: bool) -> World:
    """Requests that look alike; who finds no idle connection of the pool logs in on a new one, and asks for
    its settings. `pipelined`: both at once, before the first is answered."""
    draw = random.Random(seed)
    world = World()
    idle: list[tuple[int, int]] = []  # until when, and which
    opened = 0
    now = 0.0

    def lasts(log_ms: float, spread: float) -> int:
        return int(draw.lognormvariate(log_ms, spread) * MS)

    for _ in range(600):
        now += draw.expovariate(200) * SECOND
        arrive = int(now)
        begin = arrive + lasts(0.6, 1.0)
        free = [each for each in idle if each[0] < begin]
        conn = draw.choice(free)[1] if free else opened
        idle = [each for each in idle if each[1] != conn]
        parent = world.serve(0, arrive, 0)
        if conn == opened:
            opened += 1
            # A driver that does not wait sends on while the server is still at the first one.
            for kind in (LOG_IN, LOG_IN + 1, LOG_IN + 2):
                end = begin + 200 * US + lasts(-2.0, 0.5)
                world.call(parent, kind, begin, end, conn, setup=kind == LOG_IN)
                at_once = pipelined and kind == LOG_IN + 1
                begin += 20 * US if at_once else end - begin + 100 * US
        for _ in range(2):
            end = begin + lasts(0.5, 0.6)
            world.call(parent, draw.randrange(4), begin, end, conn)
            begin = end + lasts(0.6, 1.0)
        world.answer(parent, begin)
        if draw.random() < 0.9:  # the pool closes the others
            idle.append((end, conn))
    return world


def _sessions_opened_by_a_pool(seed: int) -> World:
    """Requests that look alike and wait for a connection now and then, which the pool opens meanwhile:
    whoever is first in its queue by then gets it, and may have come behind the log-in."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    idle: list[tuple[int, int]] = []  # since when, and which
    opened = 0
    for _ in range(700):
        now += draw.expovariate(300) * SECOND
        arrive = int(now)
        begin = arrive + int(draw.lognormvariate(0.6, 0.6) * MS)
        free = [each for each in idle if each[0] < begin]
        if free and draw.random() < 0.85:
            conn = draw.choice(free)[1]
        else:
            conn = opened
            opened += 1
            log_in = begin - int(draw.uniform(2, 15) * MS)
            world.call(-1, LOG_IN, log_in, begin - 300 * US, conn, setup=True)
        idle = [each for each in idle if each[1] != conn]
        parent = world.serve(0, arrive, 0)
        for _ in range(2):
            end = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
            world.call(parent, draw.randrange(4), begin, end, conn)
            begin = end + int(draw.lognormvariate(0.0, 0.6) * MS)
        world.answer(parent, begin)
        if draw.random() < 0.85:  # the pool closes the others
            idle.append((begin, conn))
    return world


def test_what_a_pool_opened_is_not_of_who_gets_it():
    world = _sessions_opened_by_a_pool(seed=91)
    calls, evidence, truth = world.tables()
    parent = links(calls, evidence, EvidenceMode.TIMING)[0]["parent"]
    log_ins = np.flatnonzero(calls["class_id"] == 1000 + LOG_IN)
    behind = np.array(
        [row + 1 + np.argmax(calls["conn"][row + 1 :] == calls["conn"][row]) for row in log_ins]
    )
    assert 50 < len(log_ins) < 300, "a session is opened now and then"
    assert (calls["arrive_ns"][truth[behind]] > calls["arrive_ns"][log_ins]).mean() > 0.5
    assert (parent[behind] >= 0).all()
    assert (parent[behind] == truth[behind]).mean() > 0.8


def _pinged_before_use(seed: int, *, by_the_pool: bool) -> World:
    """Requests that look alike on twelve pooled connections, three in ten of which are asked for a sign of
    life before: by the request, or some time before it by the pool, whoever comes."""
    draw = random.Random(seed)
    world = World()
    free_at = [0] * 12
    now = 0.0
    for _ in range(700):
        now += draw.expovariate(150) * SECOND
        arrive = int(now)
        begin = arrive + int(draw.lognormvariate(0.6, 0.8) * MS)
        conn = draw.choice([each for each in range(12) if free_at[each] < begin])
        parent = world.serve(0, arrive, 0)
        if draw.random() < 0.3:
            at = max(free_at[conn] + 1, begin - int(draw.uniform(1, 60) * MS)) if by_the_pool else begin
            if not by_the_pool:
                begin += 200 * US
            if at + 100 * US < begin:
                world.call(-1 if by_the_pool else parent, LOG_IN, at, at + 100 * US, conn, setup=True)
        for _ in range(2):
            end = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
            world.call(parent, draw.randrange(4), begin, end, conn)
            begin = end + int(draw.lognormvariate(0.3, 0.6) * MS)
        free_at[conn] = begin
        world.answer(parent, begin)
    return world


def test_a_sign_of_life_that_a_pool_asked_for_is_nobodys():
    calls, evidence, truth = _pinged_before_use(seed=1, by_the_pool=True).tables()
    parent = links(calls, evidence, EvidenceMode.TIMING)[0]["parent"]
    pings = calls["class_id"] == 1000 + LOG_IN
    assert pings.sum() > 150
    assert (parent[pings] == truth[pings]).mean() > 0.97
    assert _edges_and_share_with_the_next(_pinged_before_use(seed=1, by_the_pool=False))[1] == 1.0


def test_what_is_sent_before_a_statement_is_prepared_may_be_another_requests():
    _, share = _edges_and_share_with_the_next(_prepared_on_shared_connections(seed=75))
    assert share < 0.8


@pytest.mark.parametrize("pipelined", [False, True])
def test_what_opens_a_session_goes_with_the_call_that_it_was_opened_for(pipelined):
    world = _sessions_opened_on_demand(seed=81, pipelined=pipelined)
    sessions = sum(row[1] == LOG_IN for row in world.rows)
    assert 50 < sessions < 300, "sessions are opened now and then"
    edges, share = _edges_and_share_with_the_next(world)
    assert share == 1.0
    assert edges > 0.6
