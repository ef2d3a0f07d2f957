"""Links that are too unsure: as many as are to be refused are, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapscope.reconstruct.match.refusal import Refusal

PROBABILITIES = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.7, 0.9, 0.99, 1.0]) | st.floats(0, 1), max_size=40)


def _most_that_may_be_made(probability: list[float], floor: float, most: float) -> list[float]:
    """The obvious way: of the surest links, all the equally sure ones together, as many as may be."""
    made: list[float] = []
    for value in sorted({p for p in probability if p >= floor}, reverse=True):
        more = made + [p for p in probability if p == value]
        if np.mean([1 - p for p in more]) > most + 1e-12:
            break
        made = more
    return made


@given(PROBABILITIES, st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.005, 0.1, 0.5, 1.0]))
def test_as_many_as_may_be_are_made(probability: list[float], floor: float, most: float) -> None:
    least = Refusal(floor, most).least(np.array(probability))
    made = sorted((p for p in probability if p >= least), reverse=True)
    wanted = _most_that_may_be_made(probability, floor, most)
    # Sums that are put together in another order may differ where the share is met exactly.
    assert made == wanted or abs(np.mean([1 - p for p in max(made, wanted, key=len)]) - most) < 1e-9


def test_nothing_is_refused_where_nothing_is_asked() -> None:
    assert Refusal().least(np.array([0.3, 0.9])) == 0.0
    assert Refusal(max_wrong_joins=0.005).least(np.array([])) == 0.0


@pytest.mark.parametrize(("most", "left"), [(0.25, 4), (0.2, 3), (0.06, 2), (0.0, 0)])
def test_equally_sure_links_are_refused_together(most: float, left: int) -> None:
    probability = np.array([0.95, 0.95, 0.7, 0.4])
    assert (probability >= Refusal(max_wrong_joins=most).least(probability)).sum() == left
