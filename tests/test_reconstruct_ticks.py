"""Clocks that tick: stamps of whole milliseconds tell less of short gaps, but nothing wrong."""

from __future__ import annotations

import random

import pytest
from one_node import MS, US, score
from waiting_worlds import ticks

from tapscope.store.codes import EvidenceMode


@pytest.mark.parametrize("in_flight", [2.0, 6.0])
def test_a_gap_of_no_tick_is_not_one_of_no_time(in_flight):
    fine, coarse = (
        score(ticks(random.Random(1), 1500, in_flight, tick), EvidenceMode.TIMING) for tick in (US, MS)
    )
    assert coarse.edges > fine.edges - 0.1
    sure = coarse.probability >= 0.99
    assert sure.mean() > 0.15
    assert coarse.right[sure].mean() > 0.99
