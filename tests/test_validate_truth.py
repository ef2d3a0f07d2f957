"""Which row of the truth is which call of the tap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tapscope.validate import truth
from tapscope.validate.truth import REACH_NS, Keys

ROW = st.tuples(
    st.sampled_from([0, 1, 2, 5, REACH_NS, REACH_NS + 1, 3 * REACH_NS]),
    st.just(0),
    st.integers(0, 2),
    st.just(1),
    st.just(80),
    st.integers(0, 2),
)
ROWS = st.lists(ROW, max_size=9)


def _keys(rows: list[tuple[int, ...]]) -> Keys:
    return Keys(*np.array(rows, dtype=np.int64).reshape(-1, 6).T)


def _one_by_one(wanted: list[tuple[int, ...]], offered: list[tuple[int, ...]]) -> list[set[int]]:
    """Per wanted row the offered ones that it may get: the nearest, where nobody is nearer to that one."""
    near = []
    for row in wanted:
        apart = {place: abs(row[0] - each[0]) for place, each in enumerate(offered) if each[1:] == row[1:]}
        least = min(apart.values(), default=REACH_NS + 1)
        near.append({p for p, distance in apart.items() if distance == least} if least <= REACH_NS else set())
    return near


@given(ROWS, ROWS)
def test_a_call_gets_the_nearest_row_of_its_place_and_no_row_is_given_twice(wanted, offered):
    found = truth.match(_keys(wanted), _keys(offered)).tolist()
    given = [row for row in found if row >= 0]
    assert len(set(given)) == len(given)
    near = _one_by_one(wanted, offered)
    for row, may in zip(found, near, strict=True):
        assert row in may if row >= 0 else True
    for place in set().union(*near):
        asking = [row for row, may in enumerate(near) if place in may]
        if len(asking) == 1 and near[asking[0]] == {place}:
            assert found[asking[0]] == place, "nobody else wants it"


@given(ROWS, ROWS)
def test_rows_with_the_same_stamp_are_found_as_the_others_are(wanted, offered):
    keys = _keys(wanted), _keys(offered)
    assert truth.match(*keys).tolist() == truth._match(*keys).tolist()
