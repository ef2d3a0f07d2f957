"""Arrivals and departures of a node as columns, against a walk from one to the next."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapscope.analyze.inside import Inside, by_window, distinct, level, place_in
from tapscope.analyze.main_sequence import FullPeriods, main_sequence, steps

STAYS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 25), st.sampled_from([0.0, 1.0, 2.5])),
    min_size=1,
    max_size=40,
)
LEFT_OUT = st.lists(st.integers(0, 90), max_size=6, unique=True).map(sorted)


def walked(
    stays: list[tuple[int, int, float]], left_out: list[tuple[int, int]]
) -> list[tuple[int, int, float, bool]]:
    """(time on the clock that stands still, calls inside afterwards, work done, whether a call left) of every
    step: at one instant calls arrive first, and leave in the order in which they did."""

    def clock(at: int) -> int:
        return at - sum(max(0, min(at, end) - begin) for begin, end in left_out)

    first = min(clock(begin) for begin, _, _ in stays)
    events = [(clock(begin) - first, 0, begin, 0.0) for begin, _, _ in stays]
    events += [(clock(begin + took) - first, 1, begin + took, work) for begin, took, work in sorted(stays)]
    inside, out = 0, []
    for at, leaves, _, work in sorted(events, key=lambda event: event[:3]):
        inside += -1 if leaves else 1
        out.append((at, inside, work, bool(leaves)))
    return out


def built(stays: list[tuple[int, int, float]], borders: list[int]) -> tuple[list, list, object]:
    """Intervals that are left out, the steps of a walk, and those of the product."""
    out = list(zip(borders[::2], borders[1::2], strict=False))
    arranged = sorted(stays)
    begin = np.array([begin for begin, _, _ in arranged], dtype=np.int64)
    end = np.array([begin + took for begin, took, _ in arranged], dtype=np.int64)
    order = np.argsort(end, kind="stable")
    work = np.array([work for *_, work in arranged])[order]
    left_out = np.array(out, dtype=np.int64).reshape(-1, 2).T
    return out, walked(stays, out), steps(Inside(begin, end), work, (left_out[0], left_out[1]))


@given(STAYS, LEFT_OUT)
@settings(max_examples=300)
def test_levels_are_those_of_a_walk(stays, borders) -> None:
    _, expected, found = built(stays, borders)
    up = [(at, inside) for at, inside, _, leaves in expected if not leaves]
    down = [(at, inside, work) for at, inside, work, leaves in expected if leaves]
    assert list(zip(found.begin_ns.tolist(), found.up.tolist(), strict=True)) == up
    assert list(zip(found.end_ns.tolist(), found.down.tolist(), found.work.tolist(), strict=True)) == down


@given(STAYS, LEFT_OUT)
@settings(max_examples=200)
def test_time_and_work_by_level_are_those_of_a_walk(stays, borders) -> None:
    _, expected, found = built(stays, borders)
    time, work = np.zeros(len(stays) + 1), np.zeros(len(stays) + 1)
    before, since = 0, 0
    for at, inside, done, _ in expected:
        time[before] += at - since
        work[before] += done
        before, since = inside, at
    used = np.flatnonzero(time[1:]) + 1
    sequence = main_sequence(found)
    assert sequence.level.tolist() == pytest.approx(used.tolist())
    assert (sequence.seconds * 1e9).tolist() == pytest.approx(time[used].tolist())
    assert sequence.work.tolist() == pytest.approx(work[used].tolist())


@given(STAYS, LEFT_OUT, st.integers(1, 6))
@settings(max_examples=300)
def test_full_periods_are_those_of_a_walk(stays, borders, least) -> None:
    _, expected, found = built(stays, borders)
    periods, before, done = [], 0, []
    for at, inside, work, _ in expected:
        if before < least <= inside:
            done = []
        if before >= least and work > 0:
            done.append((at, work))
        if inside < least <= before and len(done) > 1:
            periods.append((done[0][0], done[-1][0] - done[0][0], sum(work for _, work in done[1:])))
        before = inside
    got = [np.asarray(column) for column in FullPeriods(found).at(least)]
    assert (got[0] * 1e9).tolist() == pytest.approx([begin for begin, _, _ in periods])
    assert (got[1] * 1e9).tolist() == pytest.approx([length for _, length, _ in periods])
    assert got[2].tolist() == pytest.approx([work for *_, work in periods])


@given(STAYS, st.integers(1, 30))
@settings(max_examples=200)
def test_a_call_meets_those_inside_when_it_arrives(stays, width) -> None:
    begin = np.array([begin for begin, _, _ in stays], dtype=np.int64)
    end = begin + np.array([took for _, took, _ in stays], dtype=np.int64)
    inside = Inside(begin, end)
    at = np.sort(begin)
    assert inside.met.tolist() == [int(((begin <= t) & (end > t)).sum()) for t in at]
    edges = np.arange(0, 90 + width, width)
    highest = [
        max(int(((begin <= t) & (end > t)).sum()) for t in range(low, high))
        for low, high in itertools.pairwise(edges.tolist())
    ]
    assert inside.highest(edges).tolist() == highest
    assert inside.highest(edges[2:-1]).tolist() == highest[2:-1]
    assert level(inside.begin_ns, inside.end_ns, at).tolist() == inside.met.tolist()


def test_windows_without_values_keep_what_was_asked_for() -> None:
    cuts = np.array([1, 1, 3, 3, 4])
    assert by_window(np.maximum, np.array([9, 2, 5, 7, 9]), cuts, -1).tolist() == [-1, 5, -1, 7]
    assert by_window(np.add, np.array([True, True, True, False]), np.array([0, 3, 4])).tolist() == [3, 0]
    assert by_window(np.add, np.zeros(0), np.zeros(3, dtype=np.int64)).tolist() == [0, 0]


@given(st.lists(st.one_of(st.integers(-3, 9), st.integers(-(2**31), 2**31 - 1)), max_size=30))
def test_different_values_are_told_however_far_apart(values) -> None:
    column = np.array(values, dtype=np.int32)
    found = distinct(column)
    assert found.tolist() == sorted(set(values))
    assert found[place_in(found, column)].tolist() == values
