"""Calls that the tap lost whole are matched like others, so that what belongs to them goes to nobody else."""

from __future__ import annotations

import numpy as np
import pytest
from one_node import NODE
from random_systems import random_system
from simulator import simulate
from thinned import Thinned, thinned_by

from tapscope.reconstruct import run, unseen
from tapscope.reconstruct.assumed import LONGEST_NS, Assumed, Stays
from tapscope.reconstruct.match.links import links
from tapscope.reconstruct.match.node import begins
from tapscope.store.codes import EvidenceMode, LinkKind
from tapscope.store.tables import Table, empty

SECOND, MS = 1_000_000_000, 1_000_000


@pytest.mark.parametrize("mode", [EvidenceMode.ALL, EvidenceMode.TIMING])
def test_what_lost_nothing_is_as_right_as_if_nothing_had_been_lost(mode: EvidenceMode) -> None:
    world = simulate(seed=31, users=90, seconds=8.0)
    whole = run.trace(thinned_by(world, 0.0).tables, mode)
    inner = world.true_parent >= 0
    thinned = thinned_by(world, 0.04)
    made = run.trace(thinned.tables, mode)
    linked, sure, right = _judged(made.links, thinned)
    others = linked & ~thinned.touched
    assert right[others].mean() > (whole.links["parent"] == world.true_parent)[inner].mean() - 0.005
    # Hardly a call whose parent was lost goes to somebody else, or even surely. Without these rows, more do.
    assert thinned.orphan.sum() > 300
    assert (linked & thinned.orphan).sum() < 0.15 * thinned.orphan.sum()
    gone = unseen.gone_by(made.calls, thinned.tables.connections)
    plain, _ = links(made.calls, thinned.tables.evidence, mode, gone_ns=gone)
    linked_before, _, _ = _judged(plain, thinned)
    assert (linked_before & thinned.orphan).sum() > 1.2 * (linked & thinned.orphan).sum()
    assert (~right[sure]).mean() < 0.001


def _judged(made: Table, thinned: Thinned) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which calls have a parent, which surely, and whether it is the right one."""
    linked = made["kind"] == LinkKind.LINKED
    return linked, linked & (made["probability"] >= 0.99), made["parent"] == thinned.parent


def test_who_made_a_lost_call_is_not_complete_and_few_others_are_not():
    thinned = thinned_by(simulate(seed=32, users=60, seconds=8.0), 0.01)
    made = run.trace(thinned.tables)
    complete = made.traces["complete"]
    touched = thinned.touched[made.traces["root"]]
    assert complete[touched].mean() < 0.02
    assert complete[~touched & (made.links["kind"][made.traces["root"]] == LinkKind.ROOT)].mean() > 0.9


def _calls(**columns: list[int]) -> Table:
    count = len(columns["conn"])
    calls = {name: np.zeros(count, dtype=values.dtype) for name, values in empty("calls").items()}
    return calls | {name: np.array(values, dtype=calls[name].dtype) for name, values in columns.items()}


CALLS = _calls(
    conn=[0, 0, 1],
    client_node=[0, 0, 1],
    server_node=[1, 1, 2],
    class_id=[3, 4, 5],
    arrive_ns=[0, 10_000, 2_000],
    request_end_ns=[0, 10_000, 2_000],
    response_begin_ns=[4_000, 12_000, 3_000],
    depart_ns=[4_500, 13_000, 3_000],
)


def _lost(*rows: tuple[int, ...]) -> unseen.Unseen:
    """Connection, first begin and last end, answer and its length, client's and server's node."""
    conn, after, before, answer, length, client, server = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    nothing = np.full(len(rows), -1)
    return unseen.Unseen(conn, after, before, answer, length, nothing, nothing, client, server)


def test_a_lost_call_began_early_as_a_parent_and_late_as_a_child():
    lost = _lost(
        (0, 4_500, 9 * SECOND, 8 * SECOND, 900, 0, 1),
        (1, 3_000, SECOND, -1, -1, 1, 2),
        (7, 0, 1, 1, 1, -1, 2),  # nobody knows who made that
        (8, 0, 1, 1, 1, 2, 7),  # its node is not known to serve anybody
    )
    assumed = Assumed.behind(CALLS, np.array([-1, -1, -1]), lost)
    assert assumed.which.tolist() == [0, 1]
    assert assumed.seen == 3
    calls = assumed.calls
    assert calls["request"].tolist() == [0, 0, 0, -1, -1]
    assert calls["arrive_ns"].tolist()[3:] == [8 * SECOND - LONGEST_NS, 3_000]
    assert calls["response_begin_ns"].tolist()[3:] == [8 * SECOND, -1]
    assert calls["depart_ns"].tolist()[3:] == [9 * SECOND, -1]
    assert assumed.gone_ns.tolist() == [-1, -1, -1, -1, SECOND]
    assert calls["class_id"].tolist() == [3, 4, 5, -2, -2]
    assert calls["response_bytes"].tolist()[3:] == [900, -1]
    # Nothing tells when the other one was made: it is nobody's child.
    assert calls["client_node"].tolist()[3:] == [0, -1]
    assert begins(calls, calls, np.arange(4)).tolist() == [0, 10_000, 2_000, 8 * SECOND]


def test_how_long_calls_stay_is_told_by_those_before_whenever_it_is_asked():
    draw = np.random.default_rng(5)
    arrive = np.sort(draw.integers(0, 60 * SECOND, 6000))
    calls = {"arrive_ns": arrive, "response_begin_ns": arrive + draw.integers(1, 9, 6000) * MS}
    at = np.sort(draw.integers(0, 61 * SECOND, 300))
    whole = Stays()
    whole.add(calls, np.arange(6000))
    expected = np.stack(whole.known(at))
    for when, (shortest, longest) in zip(at, expected.T, strict=True):
        before = int((arrive < when).sum()) // 100 * 100
        stay = (calls["response_begin_ns"] - arrive)[max(0, before - 1000) : before]
        assert (shortest, longest) == (
            (int(np.quantile(stay, 0.1)), stay.max()) if before else (0, LONGEST_NS)
        )
    piecewise, answers = Stays(), []
    for low in range(0, 6000, 70):
        piecewise.add(calls, np.arange(low, min(low + 70, 6000)))
        until = arrive[low + 70] if low + 70 < 6000 else 61 * SECOND
        begin = arrive[low] if low else 0
        answers.append(np.stack(piecewise.known(at[(at >= begin) & (at < until)])))
        piecewise.forget(until)
    assert (np.concatenate(answers, axis=1) == expected).all()


@pytest.mark.parametrize("count", [1, 15])
def test_who_has_a_worker_is_known_although_requests_were_lost(count: int):
    """An assumed call began early: others seem to pass it, more of them than there are workers. Before those
    rows were told (worker_queue.hpp), 0.993 and 0.945 were right, and 7 and 12 sure ones wrong."""
    calls, evidence, truth = random_system(5004, 1500, background=0.1)[1].tables()
    served = np.flatnonzero(calls["server_node"] == NODE)
    lost = np.random.default_rng(1).choice(served, count, replace=False)
    seen = np.setdiff1d(np.arange(len(truth)), lost)
    known = ("depart_ns", "response_begin_ns", "response_bytes", "client_node", "server_node")
    rows = np.column_stack([calls["conn"][lost], np.zeros_like(lost), *(calls[name][lost] for name in known)])
    left = {name: values[seen] for name, values in calls.items()}
    assumed = Assumed.behind(left, np.full(len(seen), -1), _lost(*map(tuple, rows.tolist())))
    assert len(assumed.which) == count
    made = assumed.without(links(assumed.calls, evidence, EvidenceMode.ALL, gone_ns=assumed.gone_ns)[0])
    whole = (truth[seen] >= 0) & ~np.isin(truth[seen], lost)
    right = (seen[made["parent"]] == truth[seen])[whole]
    sure = made["probability"][whole] >= 0.99
    assert right.mean() > 0.97
    assert sure.mean() > 0.8
    assert (sure & ~right).sum() < 5


def test_where_nothing_was_lost_nothing_is_assumed():
    assumed = Assumed.behind(CALLS, np.array([-1, -1, -1]), _lost())
    assert len(assumed.which) == 0
    assert all((assumed.calls[name] == values).all() for name, values in CALLS.items())


def test_links_to_lost_calls_are_not_made_and_their_makers_are_told():
    lost = _lost(
        (0, 4_500, 9_000, 8_800, 1, 1, 2), (0, 4_500, 9_000, 8_800, 1, 1, 2), (1, 0, 9_000, -1, -1, 1, 2)
    )
    assumed = Assumed.behind(CALLS, np.array([-1, -1, -1]), lost)
    found = {
        "child": np.arange(6),
        "parent": np.array([-1, -1, 3, 0, 1, -1]),
        "kind": np.array([LinkKind.ROOT, LinkKind.ROOT, *[LinkKind.LINKED] * 3, LinkKind.ROOT]),
        "probability": np.array([1.0, 1.0, 0.9, 0.999, 0.6, 1.0]),
        "runner_up": np.array([-1, -1, 4, -1, 0, -1]),
        "runner_up_probability": np.array([0.0, 0.0, 0.1, 0.0, 0.3, 0.0]),
    }
    made = assumed.without(found)
    assert made["parent"].tolist() == [-1, -1, -1]
    assert made["runner_up"].tolist() == [-1, -1, -1]
    assert made["runner_up_probability"].tolist() == [0.0, 0.0, 0.0]
    assert made["kind"].tolist() == [LinkKind.ROOT, LinkKind.ROOT, LinkKind.UNKNOWN]
    makers, told = assumed.makers(found)
    assert makers.tolist() == [True, True, False]
    assert told.tolist() == [True, False, False], (
        "of the second it may be a third one, of the last nothing is known"
    )
