"""One mechanism at a time, with known truth: what the model must have learned to tell look-alikes apart."""

from __future__ import annotations

import heapq
import random
from statistics import mean

import numpy as np
from one_node import MS, NODE, SECOND, US, World, score
from statements_any_order import any_of_many_statements

from tapscope.capture import _native
from tapscope.reconstruct.match.lent import CONNECTION_NAME, lent_connections
from tapscope.reconstruct.match.node import TokenIndex, match_node
from tapscope.store.codes import ID_LIKE, EvidenceMode, Protocol, TokenKind


def _side_by_side(seed: int, rate_per_s: float, seconds: float) -> World:
    """Four calls from the arrival on, in any order, each once; the answer waits for the last to end."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    while now < seconds * SECOND:
        now += draw.expovariate(rate_per_s) * SECOND
        arrive = int(now)
        calls = []
        begin = arrive + 200 * US
        for kind in draw.sample(range(4), 4):
            begin += int(draw.expovariate(1.0) * 120 * US)
            calls.append((kind, begin, begin + int(draw.lognormvariate(1.3, 0.7) * MS)))
        depart = max(end for _, _, end in calls) + 100 * US + int(draw.expovariate(1.0) * 60 * US)
        parent = world.serve(0, arrive, depart)
        for kind, begin, end in calls:
            world.call(parent, kind, begin, end)
    return world


def test_calls_side_by_side_are_matched_by_the_last_of_them_to_end():
    made = score(_side_by_side(seed=5, rate_per_s=110, seconds=10), EvidenceMode.TIMING)
    assert made.edges >= 0.98
    assert made.paths >= 0.93


def test_probabilities_of_calls_side_by_side_mean_what_they_say():
    made = score(_side_by_side(seed=6, rate_per_s=200, seconds=8), EvidenceMode.TIMING)
    assert abs(made.probability.mean() - made.right.mean()) < 0.02
    sure = made.probability >= 0.99
    assert sure.mean() > 0.85
    assert made.right[sure].mean() >= 0.995


def _two_forms(seed: int, rate_per_s: float, seconds: float) -> World:
    """One class of requests: most name their user, and so do all calls."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    while now < seconds * SECOND:
        now += draw.expovariate(rate_per_s) * SECOND
        user = draw.randrange(400)
        named = draw.random() < 0.7
        at = int(now)
        calls = []
        for _ in range(draw.randint(2, 6)):
            begin = at + int(draw.lognormvariate(0.0, 0.8) * MS)
            at = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
            calls.append((begin, at, user if named else draw.randrange(400)))
        parent = world.serve(0, int(now), at + int(draw.lognormvariate(0.0, 0.6) * MS))
        if named:
            world.token(parent, 1, TokenKind.NUMBER, user)
        for begin, end, value in calls:
            world.token(world.call(parent, 0, begin, end), 0, TokenKind.NUMBER, value)
    return world


def test_a_slot_that_is_not_there_does_not_count_against_a_request():
    made = score(_two_forms(seed=11, rate_per_s=120, seconds=10))
    assert made.edges >= 0.96
    assert made.paths >= 0.88
    sure = made.probability >= 0.99
    assert made.right[sure].mean() >= 0.999


def _known_users(seed: int, rate_per_s: float, seconds: float) -> World:
    """Pages without parameters: the request has the user's cookie, one of its calls names the user's row."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    while now < seconds * SECOND:
        now += draw.expovariate(rate_per_s) * SECOND
        user = draw.randrange(80)
        at = int(now)
        calls = []
        for kind in range(3):
            begin = at + int(draw.lognormvariate(0.0, 0.9) * 2 * MS)
            at = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
            calls.append((kind, begin, at))
        parent = world.serve(0, int(now), at + int(draw.lognormvariate(0.0, 0.8) * 2 * MS))
        world.token(parent, 1, TokenKind.TEXT, 5000 + user)
        conn = parent  # held for the request
        for kind, begin, end in calls:
            call = world.call(parent, kind, begin, end, conn)
            if kind == 1:
                world.token(call, 0, TokenKind.NUMBER, user)
    return world


def test_whose_page_it_is_tells_from_what_earlier_pages_of_that_user_named():
    world = _known_users(seed=21, rate_per_s=150, seconds=10)
    by_time = score(world, EvidenceMode.TIMING)
    assert by_time.paths < 0.92, "the world is too easy"
    known = score(world)
    assert known.paths >= 0.98
    sure = known.probability >= 0.99
    assert known.right[sure].mean() >= 0.999


def _serve_in_turn(
    world: World, draw: random.Random, arrive: int, kinds: tuple[int, ...], request_kind: int = 0
) -> tuple[int, list[tuple[int, int, int]]]:
    """A request that makes one call after the other, and the kind, beginning and end of each of these."""
    at = arrive
    calls = []
    for kind in kinds:
        begin = at + int(draw.lognormvariate(0.0, 0.9) * MS)
        at = begin + int(draw.lognormvariate(0.5, 0.6) * MS)
        calls.append((kind, begin, at))
    return world.serve(request_kind, arrive, at + int(draw.lognormvariate(0.0, 0.8) * MS)), calls


def _loops_over_rows(seed: int, rate_per_s: float, seconds: float, *, same: bool) -> World:
    """A list, then a call for each of its rows by an id that only the list's answer names; `same`: all lists
    have the same rows."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    while now < seconds * SECOND:
        now += draw.expovariate(rate_per_s) * SECOND
        parent, calls = _serve_in_turn(world, draw, int(now), (0, 1, 1, 1, 1))
        rows = [1, 2, 3, 4] if same else draw.sample(range(5000), 4)
        waiting = list(rows)
        for kind, begin, end in calls:
            call = world.call(parent, kind, begin, end)
            if kind == 0:
                for row in rows:
                    world.token(call, 0, TokenKind.RESULT, row, in_response=True)
            else:
                world.token(call, 3, TokenKind.NUMBER, waiting.pop(0))
    return world


def test_the_rows_of_an_answer_tell_whose_the_calls_for_them_are():
    world = _loops_over_rows(seed=31, rate_per_s=120, seconds=10, same=False)
    by_time = score(world, EvidenceMode.TIMING)
    assert by_time.edges < 0.8, "the world is too easy"
    told = score(world)
    # A list itself names nothing: who asked for it is told by time, and by the calls behind it.
    assert 1 - told.edges < 0.5 * (1 - by_time.edges)
    assert told.right[told.probability >= 0.99].mean() >= 0.99


def test_rows_that_all_answers_have_say_nothing():
    world = _loops_over_rows(seed=32, rate_per_s=60, seconds=10, same=True)
    by_time, told = score(world, EvidenceMode.TIMING), score(world)
    assert abs(told.edges - by_time.edges) < 0.03
    assert abs(told.probability.mean() - told.right.mean()) < 0.03


def _past_a_cache(seed: int, rate_per_s: float, seconds: float, *, same: bool) -> World:
    """A cache that lacks it, the database, and the cache again to put it, by a key that nobody else names;
    `same`: one of three keys."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    while now < seconds * SECOND:
        now += draw.expovariate(rate_per_s) * SECOND
        parent, calls = _serve_in_turn(world, draw, int(now), (0, 1, 2) * 2)
        for kind, begin, end in calls:
            if kind == 0:
                key = draw.randrange(3 if same else 100_000)
            world.token(world.call(parent, kind, begin, end), kind, TokenKind.NUMBER, key)
    return world


def test_what_a_cache_lacked_is_asked_of_the_database_by_the_same_request():
    world = _past_a_cache(seed=33, rate_per_s=120, seconds=10, same=False)
    by_time = score(world, EvidenceMode.TIMING)
    assert by_time.edges < 0.8, "the world is too easy"
    told = score(world)
    # Whose a whole family of three calls is, time alone says.
    assert 1 - told.edges < 0.6 * (1 - by_time.edges)
    assert told.right[told.probability >= 0.99].mean() >= 0.99


def test_who_asks_is_no_value_that_is_handed_on():
    """A connection of HTTP names its client in every call that it carries, of whatever request."""
    draw = random.Random(35)
    world = _past_a_cache(seed=35, rate_per_s=120, seconds=10, same=False)
    without = score(world)
    for call, (parent, *_) in enumerate(world.rows):
        if parent >= 0:
            world.token(call, 0, TokenKind.ENDPOINT, 1_000_000 + draw.randrange(24))
    told = score(world)
    assert np.array_equal(told.right, without.right)
    assert np.array_equal(told.probability, without.probability)


def _pages_by_name(seed: int, *, named: bool = True, words: bool = True) -> World:
    """Pages of 40 names, 20 of which come later; each is a class by its route. Its calls are those of all
    others, and one of them names it unless `named` says no."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    for page in range(1500):
        now += draw.expovariate(150) * SECOND
        name = draw.randrange(20 if page < 500 else 40)
        parent, calls = _serve_in_turn(world, draw, int(now), (0, 1, 2, 3, 4, 5), request_kind=100 + name)
        if words:
            world.token(parent, 77, TokenKind.WORD, name)
        for kind, begin, end in calls:
            call = world.call(parent, kind, begin, end)
            if kind == 2 and named:
                world.token(call, 0, TokenKind.TEXT, name)
    return world


def test_requests_that_differ_in_a_word_that_calls_name_are_one_class():
    by_class, told = score(_pages_by_name(71, words=False)), score(_pages_by_name(71))
    assert by_class.edges < 0.9, "the world is too easy"
    assert 1 - told.edges < 0.6 * (1 - by_class.edges)
    assert told.right[told.probability >= 0.99].mean() >= 0.99
    assert abs(told.probability.mean() - told.right.mean()) < 0.03


def test_words_that_come_later_are_of_the_same_class_whatever_the_chunks():
    calls, evidence, true_parent = _pages_by_name(73).tables()
    parents, children = (np.flatnonzero(calls[end] == NODE) for end in ("server_node", "client_node"))
    tokens = TokenIndex.build(evidence, EvidenceMode.NOIDS)
    short = {"first_stretch": 1500, "stretch": 600, "ahead": 200}
    whole, chunked = (match_node(calls, parents, children, *tokens, chunk=n, **short) for n in (10**6, 7))
    assert whole.counters["stretches"] > 5
    assert np.array_equal(chunked.parent, whole.parent)
    assert np.array_equal(chunked.probability, whole.probability)
    later = len(whole.child) // 2
    assert (whole.parent == true_parent[whole.child])[later:].mean() > 0.9


def test_a_word_that_no_call_names_says_what_its_class_says():
    without, told = (score(_pages_by_name(72, named=False, words=words)) for words in (False, True))
    assert np.array_equal(told.right, without.right)
    assert np.array_equal(told.probability, without.probability)


def test_keys_that_everybody_names_say_nothing():
    world = _past_a_cache(seed=34, rate_per_s=40, seconds=10, same=True)
    by_time, told = score(world, EvidenceMode.TIMING), score(world)
    assert abs(told.edges - by_time.edges) < 0.03
    assert abs(told.probability.mean() - told.right.mean()) < 0.03


def _written_from_rows(seed: int, *, compressed: bool) -> World:
    """A page written from the rows of a list and of a few look-ups; `compressed`: its length is any."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    for _ in range(1500):
        now += draw.expovariate(110) * SECOND
        arrive = at = int(now)
        calls = []
        for k in range(draw.randint(2, 5)):
            begin = at + int(draw.lognormvariate(0.6, 1.0) * MS)
            at = begin + int(draw.lognormvariate(0.8, 0.8) * MS)
            calls.append((min(k, 1), begin, at, draw.randint(300, 4000) if k == 0 else draw.randint(80, 200)))
        page = 2500 + sum(int(0.8 * rows) + 60 for _, _, _, rows in calls) + draw.randint(0, 6)
        if compressed:
            page = draw.randint(2000, 3000)
        parent = world.serve(0, arrive, at + int(draw.lognormvariate(0.0, 0.8) * MS), answer=page)
        for kind, begin, end, rows in calls:
            world.call(parent, kind, begin, end, answer=rows)
    return world


def test_the_length_of_a_page_tells_which_rows_it_was_written_from():
    world = _written_from_rows(seed=61, compressed=False)
    by_time = score(world, EvidenceMode.TIMING)
    assert by_time.paths < 0.7, "the world is too easy"
    told = score(world)
    assert 1 - told.paths < 0.25 * (1 - by_time.paths)
    assert told.right[told.probability >= 0.99].mean() >= 0.99
    assert abs(told.probability.mean() - told.right.mean()) < 0.03


def test_the_length_of_a_compressed_page_says_nothing():
    world = _written_from_rows(seed=62, compressed=True)
    by_time, told = score(world, EvidenceMode.TIMING), score(world)
    assert abs(told.edges - by_time.edges) < 0.01
    assert abs(told.probability.mean() - told.right.mean()) < 0.03


def test_steps_that_hardly_come_twice_do_not_vouch_for_themselves():
    held = score(any_of_many_statements(1, 300, 16, requests=400), EvidenceMode.TIMING)
    assert held.paths > 0.85
    sure = held.probability >= 0.99
    assert sure.mean() > 0.7
    assert held.right[sure].mean() > 0.98
    # On connections of their own nothing tells them apart, and it is said so.
    blind = score(any_of_many_statements(1, 300, 0, requests=250), EvidenceMode.TIMING)
    assert blind.edges < 0.5, "the world is too easy"
    assert (blind.probability >= 0.99).mean() < 0.1
    assert blind.probability.mean() < blind.edges + 0.25


def _seldom_twice(seed: int, requests: int = 4000) -> World:
    """A call for each request, of a class that few others have or none: as where fingerprints do not fold."""
    draw = random.Random(seed)
    world = World()
    now, calls = 0.0, []
    for _ in range(requests):
        now += draw.expovariate(1 / (3 * MS))
        kind, begin = draw.randrange(5000), int(now) + draw.randint(100, 300) * US
        end = begin + draw.randint(500, 1500) * US
        request = world.serve(kind, int(now), end + draw.randint(100, 200) * US)
        calls.append((begin, end, kind, request))
    world.call_on_any(draw, calls, 16)
    return world


def test_a_call_of_a_class_of_its_own_says_nothing_for_another_request():
    unlike = 0
    for seed in range(1, 5):
        found = score(_seldom_twice(seed), EvidenceMode.TIMING)
        assert found.edges > 0.996
        sure = found.probability >= 0.99
        assert sure.mean() > 0.85
        assert found.right[sure].mean() > 0.9995
        unlike += int((found.right & (found.probability < 0.1)).sum())
    assert unlike < 25


def _connection_for_each_request(seed: int, own: bool) -> World:
    """Look-alike statements, a dozen requests in flight; `own`: each opens a connection of its own."""
    draw = random.Random(seed)
    world = World()
    now = 0.0
    for number in range(600):
        now += draw.expovariate(250) * SECOND
        arrive = at = int(now)
        calls = []
        for _ in range(draw.randint(3, 8)):
            begin = at + int(draw.lognormvariate(0.6, 1.0) * MS)
            at = begin + int(draw.lognormvariate(0.8, 0.8) * MS)
            calls.append((begin, at))
        parent = world.serve(0, arrive, at + int(draw.lognormvariate(0.0, 0.8) * MS))
        for k, (begin, end) in enumerate(calls):
            world.call(parent, min(k, 1), begin, end, conn=number if own else None)
    return world


def test_a_connection_opened_for_a_request_is_of_that_request_alone():
    blind = score(_connection_for_each_request(seed=3, own=False), EvidenceMode.TIMING)
    assert blind.paths < 0.6, "the world is too easy"
    known = score(_connection_for_each_request(seed=3, own=True), EvidenceMode.TIMING)
    assert known.paths >= 0.93


def _middleware(seed: int, *, bound: bool) -> World:
    """Statements that look alike are handed on, a few at a time.

    `bound`: by the connection that belongs to the one on which they came; else by any that is free.
    """
    draw = random.Random(seed)
    world = World()
    ahead = [0.0] * 24  # when each connection is free again
    behind = [0.0] * 24
    partner = draw.sample(range(24), 24)
    now = 0.0
    for _ in range(3000):
        now += draw.expovariate(600) * SECOND
        came = draw.choice(
            [k for k in range(24) if ahead[k] <= now] or [min(range(24), key=ahead.__getitem__)]
        )
        arrive = max(now, ahead[came])
        begin = arrive + draw.lognormvariate(1.6, 1.0) * MS
        free = [k for k in range(24) if behind[k] <= begin]
        conn = partner[came] if bound else draw.choice(free)
        end = begin + draw.lognormvariate(0.8, 0.8) * MS
        behind[conn] = end
        ahead[came] = end + draw.lognormvariate(0.0, 0.8) * MS
        parent = world.serve(0, int(arrive), int(ahead[came]), 1000 + came)
        world.call(parent, 0, int(begin), int(end), conn)
    return world


def test_connections_that_belong_together_tell_what_was_handed_on():
    blind = score(_middleware(seed=51, bound=False), EvidenceMode.TIMING)
    assert blind.paths < 0.75, "the world is too easy"
    assert blind.probability.mean() < blind.right.mean() + 0.02
    told = [score(_middleware(seed, bound=True), EvidenceMode.TIMING) for seed in (51, 52, 53)]
    assert mean(each.paths for each in told) >= 0.97
    for each in told:
        assert each.right[each.probability >= 0.99].mean() >= 0.999


def _pool_that_runs_dry(seed: int, *, fair: bool) -> World:
    """Requests that look alike wait for one of four connections, which they hold until they answer.

    A connection goes to the request that waits longest (`fair`) or to any, and is used again at once.
    """
    draw = random.Random(seed)
    world = World()
    arrive, free = 0.0, [(0.0, conn) for conn in range(4)]
    coming, waiting = [], []
    for _ in range(1500):
        arrive += draw.expovariate(160) * SECOND
        coming.append(arrive)
    while coming or waiting:
        at, conn = heapq.heappop(free)
        if not waiting:
            waiting.append(coming.pop(0))
        while coming and coming[0] < at:
            waiting.append(coming.pop(0))
        came = waiting.pop(0 if fair else draw.randrange(len(waiting)))
        now = max(at, came + 300 * US) + 40 * US + draw.expovariate(1.0) * 60 * US
        calls = []
        for _ in range(draw.randint(2, 5)):
            end = now + draw.lognormvariate(1.0, 0.5) * MS
            calls.append((int(now), int(end)))
            now = end + draw.lognormvariate(-0.5, 0.8) * MS
        now += draw.expovariate(1.0) * 5 * MS
        parent = world.serve(0, int(came), int(now))
        for k, (begin, end) in enumerate(calls):
            world.call(parent, min(k, 1), begin, end, conn)
        heapq.heappush(free, (now + 30 * US, conn))
    return world


def test_who_waited_for_a_connection_is_told_by_the_answer_before_and_by_the_order_of_the_queue():
    made = score(_pool_that_runs_dry(seed=31, fair=True), EvidenceMode.TIMING)
    assert made.edges >= 0.98
    assert made.paths >= 0.98
    assert made.right[made.probability >= 0.99].mean() >= 0.998


def test_a_queue_without_order_is_not_taken_for_one():
    made = score(_pool_that_runs_dry(seed=32, fair=False), EvidenceMode.TIMING)
    assert made.edges >= 0.94
    assert made.probability.mean() <= made.right.mean() + 0.01
    assert made.right[made.probability >= 0.99].mean() >= 0.99


def test_what_no_two_requests_can_mend_is_mended_by_another_attempt():
    """Several requests, each with the calls of the next: 95.2 % are right without another attempt, 97.3 with.

    Two systems, as which local optimum is found makes half a point of one.
    """
    systems = [_pool_that_runs_dry(seed, fair=False) for seed in (32, 33)]
    edges = [score(world, EvidenceMode.TIMING).edges for world in systems]
    assert np.mean(edges) >= 0.965


def test_avatica_lends_the_connection_that_its_calls_name():
    """Two TCP connections carry three logical ones; a call that names none keeps its TCP connection."""
    slot = _native.slot_of_name(CONNECTION_NAME)
    calls = {
        "conn": np.array([0, 0, 1, 1, 5]),
        "request": np.array([10, 12, 14, 16, 18]),
        "protocol": np.array([Protocol.AVATICA] * 4 + [Protocol.MYSQL]),
    }
    evidence = {
        "message": np.array([14, 10, 12, 18]),
        "slot": np.array([slot] * 4),
        "kind": np.full(4, TokenKind.TEXT | ID_LIKE),
        "hash": np.array([7, 7, 9, 7], dtype=np.uint64),
    }
    conn = lent_connections(calls, evidence)
    assert conn[0] == conn[2]
    assert len({conn[0], conn[1], conn[3], conn[4]}) == 4
    assert conn[3:].tolist() == [1, 5]
