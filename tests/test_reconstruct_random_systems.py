"""Nodes of all kinds, by times alone or with values that calls repeat: what is claimed is right."""

from __future__ import annotations

import random

import numpy as np
import pytest
from one_node import score
from random_systems import Running, System, random_system

from tapscope.store.codes import EvidenceMode
from tapscope.validate.edges import calibration


def test_what_is_claimed_of_systems_drawn_at_random_is_right():
    """`python benchmarks/systems_at_random.py` has more of them, and what each is made of."""
    found = []
    for seed in range(300, 315):
        system, world = random_system(seed, 700)
        found.append(score(world, EvidenceMode.ALL if system.repeats else EvidenceMode.TIMING))
    right = np.concatenate([each.right for each in found])
    told = calibration(np.concatenate([each.probability for each in found]), right)
    assert right.mean() > 0.85
    assert told.error < 0.02
    assert told.sure_edges > 0.6 * len(right)
    assert told.sure_wrong < 0.003 * told.sure_edges


def test_a_stack_of_connections_does_not_say_that_a_request_kept_its_own() -> None:
    """The connection that was used last is lent to whoever asks next. Where that is not known (pick.hpp),
    0.72 of the edges of the first one are right and 0.81 claimed, where it is 0.76 and 0.77. How many are
    sure turns on small differences, so it is asked of three."""
    system = System(
        arrivals="at random",
        callers=0,
        load=3.0,
        pages=16,
        in_common=0.7,
        repeats=0.0,
        workers=0,
        processors=2,
        lent_for="a call",
        connections=20,
        lend="last",
        in_order=True,
        pause_ms=0,
        spread=1.0,
        work_ms=3.0,
        call_ms=1.0,
    )
    found = [
        score(Running(system, random.Random(seed), 500).serve_all(), EvidenceMode.TIMING)
        for seed in (1, 5, 6)
    ]
    assert all(abs(each.probability.mean() - each.edges) < 0.06 for each in found)
    right = np.concatenate([each.right for each in found])
    sure = np.concatenate([each.probability for each in found]) >= 0.99
    assert sure.mean() > 0.35
    assert right[sure].mean() > 0.99


@pytest.mark.parametrize("seed", [1060, 2082])
def test_a_stack_does_not_teach_that_calls_keep_their_connection(seed: int) -> None:
    """Few are in flight, so that who gives a connection back mostly gets the same one again. Before that was
    expected (log_again in model.hpp), 0.911 and 0.871 of the edges were right where 0.964 and 0.917 are, and
    of the sure ones 3.1 and 3.8 % were wrong."""
    found = score(random_system(seed, 1500)[1], EvidenceMode.TIMING)
    assert found.edges > 0.895
    assert found.probability.mean() < found.edges + 0.01
    sure = found.probability >= 0.99
    assert sure.mean() > 0.5
    assert found.right[sure].mean() > 0.993


@pytest.mark.parametrize("seed", [7001, 7008, 7035])
def test_each_server_behind_a_node_has_a_pool_of_its_own(seed: int) -> None:
    """Three servers, whose connections are lent in different ways. When all were taken for one pool, 27, 104
    and 55 of the sure links were wrong, and 0, 8 and 0 are."""
    system, world = random_system(seed, 1500, servers=3)
    found = score(world, EvidenceMode.ALL if system.repeats else EvidenceMode.TIMING)
    sure = found.probability >= 0.99
    assert sure.mean() > 0.8
    assert found.right[sure].mean() > 0.998


@pytest.mark.parametrize("seed", [43, 50, 62])
def test_calls_of_timers_are_not_given_to_the_requests_that_are_there(seed: int) -> None:
    """Three for ten requests, half of them for a statement that requests ask for, too. What comes while no
    request is there tells how many they are (orphans.hpp): before that was reckoned with, 38, 17 and 30 % of
    them were given a parent, where 8, 0 and 8 % are."""
    system, world = random_system(seed, 1500, background=0.3)
    found = score(world, EvidenceMode.ALL if system.repeats else EvidenceMode.TIMING)
    assert found.nobodys > 400
    assert len(found.taken) < 0.12 * found.nobodys
    assert found.edges > 0.985


@pytest.mark.parametrize("seed", [3023, 3039, 3053])
def test_no_request_surely_has_the_calls_of_timers_where_somebody_is_nearly_always_there(seed: int) -> None:
    """One for ten requests, of which few are alone. When only what requests make was tempered
    (Model::orphan), 30, 48 and 188 of them had a parent of 0.99 and more."""
    system, world = random_system(seed, 1500, background=0.1)
    found = score(world, EvidenceMode.ALL if system.repeats else EvidenceMode.TIMING)
    assert found.nobodys > 140
    assert (found.taken >= 0.99).sum() <= 0.01 * found.nobodys
    sure = found.probability >= 0.99
    assert sure.sum() > 1150
    assert found.right[sure].mean() > 0.998


@pytest.mark.parametrize("seed", [5034, 5044])
def test_where_somebody_is_always_there_hardly_a_timer_s_call_is_surely_a_request_s(seed: int) -> None:
    """None of them is seen while nobody is there. When none was expected for that (Orphans), 81 and 50 of
    them had a parent of 0.99 and more; the links are the same."""
    system, world = random_system(seed, 1500, background=0.1)
    found = score(world, EvidenceMode.ALL if system.repeats else EvidenceMode.TIMING)
    assert len(found.taken) > 0.5 * found.nobodys, "the world is too easy"
    assert (found.taken >= 0.99).sum() < 0.1 * len(found.taken)
    assert (found.probability >= 0.99).mean() > 0.3


def test_calls_that_timers_make_as_well_are_not_all_left_to_nobody() -> None:
    """Requests of one class make one each. Before it was asked whether more are nobody's than can be
    (unclaimed.cpp), 211 of 223 of these had no parent: 0.930 of the links were right, 0.970 claimed, and of
    the sure ones 2.8 % wrong."""
    found = score(random_system(5071, 1500, background=0.1)[1], EvidenceMode.TIMING)
    assert found.edges > 0.96
    assert len(found.taken) < 0.1 * found.nobodys
    assert found.probability.mean() < found.edges + 0.01
    sure = found.probability >= 0.99
    assert sure.mean() > 0.6
    assert found.right[sure].mean() > 0.998


def test_who_waits_for_a_worker_makes_no_calls() -> None:
    """Four workers and requests that come in bursts. While it was not told who has one (worker_queue.hpp),
    0.947 of the links were right, 0.65 sure and 8 of these wrong."""
    system, world = random_system(5004, 1500, background=0.1)
    assert system.workers == 4
    found = score(world, EvidenceMode.ALL)
    assert found.edges > 0.975
    sure = found.probability >= 0.99
    assert sure.mean() > 0.85
    assert found.right[sure].mean() > 0.998


def test_what_another_search_does_not_find_is_not_sure() -> None:
    """Hardly anything tells the requests apart, and many are there: 15 % of the links are right, and of the
    sure ones 76 % were wrong before a second search was asked (second_opinion.cpp). It still claims too much,
    30 to 43 % by where the run ends."""
    worlds = [random_system(3026, requests, background=0.1)[1] for requests in (1400, 1500, 1600)]
    found = [score(world, EvidenceMode.TIMING) for world in worlds]
    right = np.concatenate([each.right for each in found])
    probability = np.concatenate([each.probability for each in found])
    assert right.mean() < 0.3, "the world is too easy"
    sure = probability >= 0.99
    assert sure.sum() < 0.05 * len(right)
    assert (~right[sure]).sum() <= 0.01 * len(right)
    assert probability.mean() < right.mean() + 0.25


def test_sure_links_of_requests_with_doubted_ones_are_held_to_their_like() -> None:
    """Both searches err alike, and of all sure links they agree on 99.2 %. Before those of requests that
    have, or may have, a doubted call were counted apart, 2.9 % of the sure ones were wrong, and 1.9 before
    mistakes were counted that both make and that do not show; none is."""
    system, world = random_system(5002, 1500, background=0.1)
    assert system.repeats
    found = score(world, EvidenceMode.ALL)
    sure = found.probability >= 0.99
    assert sure.mean() > 0.45
    assert found.right[sure].mean() > 0.99
