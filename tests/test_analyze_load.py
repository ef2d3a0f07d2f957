"""Load, throughput and point-in-time response time against plainly right twins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queueing import read_of

from tapscope.analyze import load
from tapscope.analyze.inside import integral
from tapscope.analyze.stays import stays
from tapscope.store import tables
from tapscope.store.codes import CallFlag, Protocol
from tapscope.store.errors import TapscopeError

EPOCH = 1_795_219_720_751_000_003  # ns; a real time, so that precision is tested where it matters


def calls_of(rows: list[tuple[int, int, int]], conn: list[int] | None = None, flags: list[int] | None = None):
    """A calls table from (server node, arrive, depart) with the times relative to EPOCH; depart None = -1."""
    table = {c.name: np.zeros(len(rows), dtype=c.dtype) for c in tables.TABLES["calls"]}
    table["server_node"][:] = [row[0] for row in rows]
    table["arrive_ns"][:] = [EPOCH + row[1] for row in rows]
    table["depart_ns"][:] = [-1 if row[2] is None else EPOCH + row[2] for row in rows]
    table["conn"][:] = range(len(rows)) if conn is None else conn
    table["flags"][:] = 0 if flags is None else flags
    return table


def connections_of(closed_ns: list[int], protocol: Protocol = Protocol.HTTP, port: int = 80):
    """Connections to a port, closed at times relative to EPOCH; None: open."""
    table = {c.name: np.zeros(len(closed_ns), dtype=c.dtype) for c in tables.TABLES["connections"]}
    table["closed_ns"][:] = [-1 if closed is None else EPOCH + closed for closed in closed_ns]
    table["protocol"][:] = protocol
    table["server_port"][:] = port
    return table


NODES = {c.name: np.zeros(3, dtype=c.dtype) for c in tables.TABLES["nodes"]}


def twin(calls, width: int):
    """Walks every window and every call with exact fractions."""
    stays = [
        (int(n), int(a), int(d))
        for n, a, d in zip(calls["server_node"], calls["arrive_ns"], calls["depart_ns"], strict=True)
    ]
    first = min(a for _, a, _ in stays) // width
    last = max(max(a, d) for _, a, d in stays) // width
    out = []
    for node in sorted({n for n, _, _ in stays}):
        mine = [(a, d) for n, a, d in stays if n == node]
        for w in range(first, last + 1):
            low, high = w * width, (w + 1) * width
            area = sum(max(0, min(d, high) - max(a, low)) for a, d in mine)
            moments = [low] + [a for a, _ in mine if low <= a < high]
            highest = max(sum(a <= t < d for a, d in mine) for t in moments)
            done = [d - a for a, d in mine if low <= d < high]
            out.append(
                (
                    node,
                    low,
                    width,
                    float(Fraction(area, width)),
                    highest,
                    sum(low <= a < high for a, _ in mine),
                    len(done),
                    float(Fraction(sum(done), len(done))) if done else np.nan,
                    max(done, default=-1),
                )
            )
    return out


def as_rows(table):
    return list(zip(*(table[c.name].tolist() for c in tables.TABLES["loads"]), strict=True))


stay_lists = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 400), st.integers(0, 300)).map(
        lambda t: (t[0], t[1], t[1] + t[2])
    ),
    min_size=1,
    max_size=40,
)


@given(stay_lists, st.integers(1, 90))
@settings(max_examples=300)
def test_loads_equal_an_exact_walk_over_windows_and_calls(rows, width):
    calls = calls_of(rows)
    found = load.loads(read_of(calls), NODES, width)
    tables.check("loads", found)
    np.testing.assert_equal(as_rows(found), twin(calls, width))


@given(stay_lists, st.integers(1, 40), st.integers(1, 5))
@settings(max_examples=100)
def test_coarser_windows_equal_windows_computed_wide_where_fully_covered(rows, width, factor):
    calls = calls_of(rows)
    first, last = int(calls["arrive_ns"].min()), int(calls["depart_ns"].max())
    wide = width * factor
    span = {"first_ns": first // wide * wide, "last_ns": (last // wide + 1) * wide - 1}
    folded = load.coarser(load.loads(read_of(calls), NODES, width, **span), factor)
    direct = load.loads(read_of(calls), NODES, wide, **span)
    for column in tables.TABLES["loads"]:
        np.testing.assert_allclose(folded[column.name], direct[column.name], rtol=1e-12, err_msg=column.name)


def test_wangs_figure_six_reads_as_the_mean_of_the_step_function():
    # Two windows of 100: three overlapping calls, means by hand.
    base = -EPOCH % 100
    calls = calls_of([(1, base + 0, base + 50), (1, base + 25, base + 125), (1, base + 100, base + 200)])
    found = load.loads(read_of(calls), NODES, 100)
    assert found["load"].tolist() == [1.25, 1.25, 0.0]
    assert found["max"].tolist() == [2, 2, 0]
    assert found["completions"].tolist() == [1, 1, 1]


def test_a_stay_of_no_length_arrives_and_departs_but_never_queues():
    found = load.loads(read_of(calls_of([(0, 7, 7), (0, 7, 7)])), NODES, 1000)
    assert found["load"].tolist() == [0.0]
    assert found["max"].tolist() == [0]
    assert found["arrivals"].tolist() == found["completions"].tolist() == [2]
    assert found["pit_mean_ns"].tolist() == [0.0]


def test_an_unanswered_call_stays_until_the_next_call_on_its_connection():
    calls = calls_of([(0, 0, None), (0, 40, 60)], conn=[5, 5], flags=[CallFlag.UNANSWERED, 0])
    stay = stays(calls)
    assert (stay.end_ns - EPOCH).tolist() == [40, 60]
    assert ("load.open_until_end", 1, "calls") in stay.counters


def test_an_unanswered_call_stays_until_its_connection_ends():
    calls = calls_of([(0, 0, None), (0, 40, 90)], conn=[0, 1], flags=[CallFlag.UNANSWERED, 0])
    stay = stays(calls, connections_of([70, None]))
    assert (stay.end_ns - EPOCH).tolist() == [70, 90]


def test_an_unanswered_call_stays_until_its_client_gives_it_up():
    calls = calls_of([(0, 0, None), (0, 10, None), (0, 20, 90)], conn=[0, 0, 0])
    calls["flags"][:2] = CallFlag.UNANSWERED
    calls["gone_ns"][:] = [EPOCH + 30, -1, -1]
    assert (stays(calls, connections_of([None], Protocol.HTTP2)).end_ns - EPOCH).tolist() == [30, 90, 90]
    assert (stays(calls, connections_of([25], Protocol.HTTP2)).end_ns - EPOCH).tolist() == [25, 25, 90]


@pytest.mark.parametrize(
    "connections",
    [
        connections_of([None, 70], Protocol.HTTP2),
        connections_of([None, 70], Protocol.UNKNOWN, port=0),  # a pair of services in a span table
    ],
)
def test_the_next_call_ends_none_where_a_connection_carries_several_at_a_time(connections):
    rows = [(0, 0, None), (0, 40, 60), (0, 0, None), (0, 50, 90)]
    calls = calls_of(rows, conn=[0, 0, 1, 1], flags=[CallFlag.UNANSWERED, 0, CallFlag.UNANSWERED, 0])
    assert (stays(calls, connections).end_ns - EPOCH).tolist() == [90, 60, 70, 90]


def test_the_next_call_ends_none_where_calls_were_side_by_side():
    rows = [(0, 0, None), (0, 40, 60), (0, 50, 90), (0, 0, None), (0, 40, 60), (0, 60, 90)]
    calls = calls_of(rows, conn=[0, 0, 0, 1, 1, 1], flags=[CallFlag.UNANSWERED, 0, 0] * 2)
    assert (stays(calls).end_ns - EPOCH).tolist() == [90, 60, 90, 40, 60, 90]


def test_an_unanswered_call_stays_until_the_capture_ends():
    calls = calls_of([(0, 0, None), (0, 40, 90)], flags=[CallFlag.UNANSWERED, 0])
    assert (stays(calls).end_ns - EPOCH).tolist() == [90, 90]
    assert load.loads(read_of(calls), NODES, 10**9)["completions"].sum() == 1


def test_a_call_whose_response_was_lost_is_an_arrival_but_not_load():
    calls = calls_of([(0, 0, None), (0, 10, 20)], flags=[CallFlag.LOST_RESPONSE, 0])
    found = load.loads(read_of(calls), NODES, 10**9)
    assert found["arrivals"].sum() == 2
    assert found["load"].sum() * 10**9 == pytest.approx(10)
    assert ("load.lost_response_excluded", 1, "calls") in stays(calls).counters


def test_a_call_that_departs_before_it_arrives_is_left_out_and_counted():
    calls = calls_of([(0, 50, 20), (0, 10, 20)])
    assert load.loads(read_of(calls), NODES, 10**9)["arrivals"].sum() == 1
    assert ("load.negative_stay_excluded", 1, "calls") in stays(calls).counters


def test_the_integral_is_exact_where_products_pass_64_bits():
    rng = np.random.default_rng(4)
    begin = EPOCH + rng.integers(0, 86_400 * 10**9, 200_000)
    end = begin + rng.integers(0, 10**10, len(begin))
    at = np.array([EPOCH, EPOCH + 86_400 * 10**9 + 10**10], dtype=np.int64)
    assert np.diff(integral(begin, end, at)).tolist() == [sum((end - begin).tolist())]


def test_a_call_to_a_node_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="outside of 3 nodes"):
        load.loads(read_of(calls_of([(3, 0, 1)])), NODES)


def test_no_calls_give_no_windows():
    assert tables.rows(load.loads(read_of(tables.empty("calls")), NODES)) == 0


def test_absurdly_many_windows_are_refused_with_a_remedy():
    with pytest.raises(TapscopeError, match="--window"):
        load.loads(read_of(calls_of([(0, 0, 10**14)])), NODES, 1_000_000)


def test_throughput_is_completions_per_second():
    found = load.loads(read_of(calls_of([(0, 0, 1), (0, 0, 2)])), NODES, 50_000_000)
    assert load.throughput_per_s(found).sum() == pytest.approx(40.0)


DAY = 86_400_000_000_000


@pytest.mark.parametrize("away", [-300 * DAY, -2 * DAY, 2 * DAY, 30 * DAY, 50 * 365 * DAY])
@pytest.mark.parametrize("only_departs", [False, True])
def test_a_call_stamped_far_from_the_others_is_left_out_and_counted(away, only_departs):
    near = [(0, i * 1000, i * 1000 + 500) for i in range(50)]
    arrive = 0 if only_departs else away
    if only_departs and away < 0:
        return
    calls = calls_of([*near, (0, arrive, away + 500), (1, 30_000, None)])
    stay = stays(calls)
    assert ("load.far_stamp_excluded", 1, "calls") in stay.counters
    assert np.flatnonzero(~stay.arrived).tolist() == [50]
    assert stay.span_ns == (EPOCH, EPOCH + 49_500)
    assert stay.end_ns[51] == EPOCH + 49_500, "an open call stays until the last event that is not far"
    windows = load.loads(read_of(calls), NODES, 10_000)
    without = {name: np.delete(values, 50) for name, values in calls.items()}
    np.testing.assert_equal(as_rows(windows), as_rows(load.loads(read_of(without), NODES, 10_000)))


@pytest.mark.parametrize(
    ("days", "kept"),
    [
        ((0, 0.4), 60),  # a night
        ((0, 1), 60),  # as many the next day
        ((0, 2, 4, 6), 120),
        ((0, 8), 30),  # more than a week: the first of two that hold as many
        ((0, 3, 30), 60),
    ],
)
def test_days_with_calls_are_kept_through_nights_and_weekends(days, kept):
    begins = [int(day * DAY) + i * 1000 for day in days for i in range(30)]
    rows = [(0, begin, begin + 500) for begin in begins]
    assert int(stays(calls_of(rows)).arrived.sum()) == kept


def test_a_handful_of_late_calls_is_kept_within_half_a_day():
    rows = [(0, i, i + 5) for i in range(1000)] + [(0, DAY // 2, DAY // 2 + 5)]
    assert stays(calls_of(rows)).arrived.all()
    rows[-1] = (0, DAY, DAY + 5)
    assert int(stays(calls_of(rows)).arrived.sum()) == 1000
