"""Calls that nobody waits for end behind the answer of their request, and are still told to be its own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from one_node import MS, World, score
from tapscope.store.codes import EvidenceMode

WORK_MS, CALL_MS = 2.0, 3.0


def _forgets(seed: int, in_flight: float, outlasts_ms: float) -> World:
    """Each request waits for a call of class 0, then makes one of class 1 and answers before that is over."""
    draw = random.Random(seed)

    def lasts(mean_ms: float) -> int:
        return int(draw.lognormvariate(np.log(mean_ms) - 0.18, 0.6) * MS)

    world = World()
    now = 0.0
    for _ in range(1500):
        now += draw.expovariate(in_flight / ((2 * WORK_MS + CALL_MS) * MS))
        begin = int(now) + lasts(WORK_MS)
        end = begin + lasts(CALL_MS)
        depart = end + lasts(WORK_MS)
        request = world.serve(0, int(now), depart)
        world.call(request, 0, begin, end)
        world.call(request, 1, depart - MS // 10, depart + lasts(outlasts_ms))
    return world


@pytest.mark.parametrize(
    ("in_flight", "outlasts_ms", "least"), [(0.2, 1.0, 0.97), (0.2, 20.0, 0.97), (2.0, 1.0, 0.8), (2.0, 20.0, 0.8)]
)
def test_a_call_that_outlasts_its_request_is_linked_to_it(in_flight, outlasts_ms, least):
    found = score(_forgets(1, in_flight, outlasts_ms), EvidenceMode.TIMING)
    assert found.edges > least
    assert abs(found.probability.mean() - found.edges) < 0.03
    sure = found.probability >= 0.99
    assert sure.mean() > 0.5
    assert found.right[sure].mean() > 0.99

