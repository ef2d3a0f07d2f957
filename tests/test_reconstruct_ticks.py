"""Clocks that tick: stamps of whole milliseconds tell less of gaps that are not much longer, but nothing wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest

from one_node import MS, US, World, score
from tapscope.store.codes import EvidenceMode


def _stamped(seed: int, tick_ns: int, in_flight: float) -> World:
    """Chains of two calls, about 2 ms of work a step and 3 ms a call, by a clock of this tick."""
    draw = random.Random(seed)

    def lasts(mean_ms: float) -> int:
        return int(draw.lognormvariate(np.log(mean_ms) - 0.18, 0.6) * MS)

    def stamp(at: int) -> int:
        return at // tick_ns * tick_ns

    world = World()
    now = 0.0
    for _ in range(1500):
        now += draw.expovariate(in_flight / (12 * MS))
        kind = draw.randrange(3)
        at = int(now)
        calls = []
        for number in range(2):
            begin = at + lasts(2.0)
            at = begin + lasts(3.0)
            calls.append((10 * kind + number, stamp(begin), stamp(at)))
        request = world.serve(kind, stamp(int(now)), stamp(at + lasts(2.0)))
        for each in calls:
            world.call(request, *each)
    return world


@pytest.mark.parametrize("in_flight", [2.0, 6.0])
def test_a_gap_of_no_tick_is_not_one_of_no_time(in_flight):
    fine, coarse = (score(_stamped(1, tick, in_flight), EvidenceMode.TIMING) for tick in (US, MS))
    assert coarse.edges > fine.edges - 0.03
    sure = coarse.probability >= 0.99
    assert sure.mean() > 0.4
    assert coarse.right[sure].mean() > 0.995
