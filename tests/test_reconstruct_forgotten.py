"""Calls that nobody waits for end behind the answer of their request, and are still told to be its own."""

from __future__ import annotations

import random

import pytest
from one_node import MS, World, score
from waiting_worlds import forgets

from tapscope.reconstruct.match.links import links
from tapscope.store.codes import EvidenceMode


@pytest.mark.parametrize(
    ("in_flight", "outlasts_ms", "least"),
    [(0.2, 1.0, 0.97), (0.2, 20.0, 0.97), (2.0, 1.0, 0.85), (2.0, 20.0, 0.85)],
)
def test_a_call_that_outlasts_its_request_is_linked_to_it(in_flight, outlasts_ms, least):
    found = score(forgets(random.Random(1), 1500, in_flight, outlasts_ms), EvidenceMode.TIMING)
    assert found.edges > least
    assert abs(found.probability.mean() - found.edges) < 0.03
    sure = found.probability >= 0.99
    assert sure.mean() > 0.5
    assert found.right[sure].mean() > 0.99


def test_a_call_that_begins_behind_the_answer_is_not_given_to_whoever_is_there():
    """Most begin while nobody is there, and outlast the few requests that others meet."""
    draw = random.Random(3)
    world = World()
    now = 0.0
    for _ in range(1500):
        now += draw.expovariate(1 / (30 * MS))
        depart = int(now) + 8 * MS
        request = world.serve(0, int(now), depart)
        world.call(request, 0, int(now) + 2 * MS, int(now) + 5 * MS)
        begin = depart + draw.randrange(10 * MS)
        world.call(request, 1, begin, begin + 20 * MS)
    calls, evidence, true = world.tables()
    parent = links(calls, evidence, EvidenceMode.TIMING)[0]["parent"]
    late = (calls["class_id"] == 1001) & (true >= 0)
    assert (parent[late] >= 0).mean() < 0.1
    waited_for = (calls["class_id"] == 1000) & (true >= 0)
    assert (parent == true)[waited_for].mean() > 0.95
