"""Calls that nobody waits for end behind the answer of their request, and are still told to be its own."""

from __future__ import annotations

import random

import pytest
from one_node import score
from waiting_worlds import forgets

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
