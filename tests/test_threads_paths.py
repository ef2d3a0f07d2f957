"""The rule of the same thread on worlds whose parents are known, and what happens where it does not hold."""

from __future__ import annotations

import csv
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thread_world import Key, World

from tapscope.reconstruct.threads import log
from tapscope.reconstruct.threads import parents as rule
from tapscope.reconstruct.threads.parents import Why
from tapscope.validate.threads import logged
from tapscope.validate.threads.logged import LoggedPaths


def told(world: World, folder: Path) -> tuple[LoggedPaths, list[Key], dict[Key, Key | None]]:
    """What the logs say: result, key of every call found, and the parent of every call."""
    found = logged.paths(log.read([folder]))
    table, addresses = found.logs.connections, found.logs.addresses
    keys: list[Key] = []
    uses: Counter[tuple[int, ...]] = Counter()
    use_of = []
    for ends in zip(*(table[n].tolist() for n in ("own", "own_port", "peer", "peer_port")), strict=True):
        use_of.append(uses[ends])  # a log has its connections in order of time
        uses[ends] += 1
    for client, server, offset in zip(
        found.calls.ranges.at_client, found.calls.ranges.at_server, found.calls.ranges.request, strict=True
    ):
        row, mirrored = (client, False) if client >= 0 else (server, True)
        own = (addresses[table["own"][row]], int(table["own_port"][row]))
        peer = (addresses[table["peer"][row]], int(table["peer_port"][row]))
        keys.append((*(peer if mirrored else own), *(own if mirrored else peer), use_of[row], int(offset)))
    parents = {
        key: keys[parent] if parent >= 0 else None
        for key, parent in zip(keys, found.told.parent.tolist(), strict=True)
    }
    return found, keys, parents


def world_in(folder: Path, seed: int, model: str, **options: int) -> World:
    world = World(seed, model, **options)
    world.run(requests=60, users=12)
    world.write(folder)
    return world


@pytest.mark.parametrize("model", ["worker", "dispatcher"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_every_call_gets_its_true_parent(model, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    world = world_in(folder, seed, model)
    found, keys, parents = told(world, folder)
    assert parents == world.parent
    assert len(keys) == len(set(keys))
    assert found.refused == []


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_ports_that_are_used_again_are_told_apart_by_time(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    world = World(seed, "worker", ports=15)
    world.run(requests=240, users=6)
    world.write(folder)
    assert max(key[4] for key in world.parent) > 0
    _, _, parents = told(world, folder)
    assert parents == world.parent


def test_requests_wait_for_a_thread_and_are_not_mixed_up(tmp_path):
    world = World(5, "dispatcher", workers=1)
    world.run(requests=200, users=20)
    world.write(tmp_path)
    _, _, parents = told(world, tmp_path)
    assert parents == world.parent


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_lost_records_cost_links_but_make_no_wrong_ones(seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    world = World(seed, "worker")
    world.run(requests=60, users=12)
    chance = random.Random(seed)
    world.write(folder, keep=lambda: chance.random() > 0.01)
    found, _, parents = told(world, folder)
    wrong = {key for key, parent in parents.items() if parent is not None and world.parent.get(key) != parent}
    assert wrong == set()
    assert found.summary["calls with a parent"] > 0.5 * len(world.parent)
    assert found.summary["threads.calls_next_to_lost_records"] > 0


def test_a_server_driven_by_events_is_refused_by_name(tmp_path):
    world_in(tmp_path, 3, "events")
    found = logged.paths(log.read([tmp_path]))
    assert len(found.refused) == 3  # the first two tiers make calls
    assert "server (process 100)" in found.refused[0]
    assert "driven by events" in found.refused[0]
    made = np.isin(found.told.why, (Why.REFUSED, Why.NOT_LOGGED))
    assert made.all()
    assert (found.told.parent < 0).all()


def test_a_server_driven_by_events_with_one_request_at_a_time_is_told_rightly(tmp_path):
    world = World(4, "events")
    world.run(requests=40, users=1)
    world.write(tmp_path)
    found, _, parents = told(world, tmp_path)
    assert found.refused == []
    assert parents == world.parent


def test_threads_and_times_that_do_not_fit_into_one_number_are_ordered_all_the_same():
    chance = np.random.default_rng(7)
    threads = chance.integers(0, 1000, 5000) << 32
    for last_ns in (10**9, 10**17):  # within a second, within three years
        at_ns = chance.integers(0, last_ns, 5000) + 1_700_000_000_000_000_000
        place = rule._Line([threads], [at_ns]).place(threads, at_ns)
        assert (np.argsort(place, kind="stable") == np.lexsort((at_ns, threads))).all()


def test_the_table_of_calls_has_every_path(tmp_path):
    world = world_in(tmp_path / "logs", 8, "worker")
    found = logged.paths(log.read([tmp_path / "logs"]))
    logged.write(found, tmp_path / "calls.csv")
    with (tmp_path / "calls.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(world.parent)
    assert len({row["root"] for row in rows}) == 60
    for row in rows:
        above = rows[int(row["parent"])] if row["parent"] else None
        assert (above is None) == (row["client"].startswith("10.9."))
        if above is not None:
            assert above["server"] == row["client"]
            assert above["server_thread"] == row["client_thread"]
            assert int(above["begin_ns"]) <= int(row["begin_ns"]) < int(row["end_ns"]) < int(above["end_ns"])
