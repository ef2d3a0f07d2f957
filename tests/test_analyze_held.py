"""Calls that wait for a lock are told from those that a stop, or nothing at all, holds up."""

from __future__ import annotations

import numpy as np
import pytest
from queueing import read_of

from tapscope.analyze.held import Separator

MS = 1_000_000
CLASSES = [
    (4, "SELECT title FROM stories WHERE id = ?"),
    (4, "SELECT nick FROM users WHERE id = ?"),
    (4, "UPDATE stories SET comments = comments + ? WHERE id = ?"),
    (4, "PREPARE SELECT title FROM stories WHERE id = ?"),
    (4, "COMMIT"),
    (4, "SELECT s.id FROM story_tags t JOIN `stories` s ON s.id = t.story_id"),
]
BEGIN, END = 2000 * MS, 2300 * MS


def calls(held: set[int], seed: int = 1) -> Separator:
    """Calls of all classes, 2 ms each; those of the classes in `held` that meet [BEGIN, END) end at END."""
    rng = np.random.default_rng(seed)
    arrive = np.sort(rng.integers(0, 4000, 1600)) * MS
    kind = rng.integers(0, len(CLASSES), len(arrive))
    depart = arrive + 2 * MS
    waits = np.isin(kind, list(held)) & (depart > BEGIN) & (arrive < END)
    table = {
        "server_node": np.ones(len(arrive), dtype=np.int64),
        "class_id": kind,
        "arrive_ns": arrive,
        "depart_ns": np.where(waits, END + 1, depart),
        "flags": np.zeros(len(arrive), dtype=np.int64),
        "conn": np.arange(len(arrive)),
    }
    return Separator(read_of(table).at(1), CLASSES)


def test_calls_that_wait_for_a_table_are_named_by_it() -> None:
    found = calls({0, 2, 5}).between(BEGIN, END)
    assert found.what == "stories"
    assert found.phi == pytest.approx(1.0, abs=0.1)  # the last calls wait for less than 10 ms
    assert found.others_held == 0
    assert "calls that name stories were held up" in found.said()


def test_calls_of_one_class_are_named_by_it() -> None:
    assert calls({4}).between(BEGIN, END).what == "COMMIT"
    assert calls({0}).between(BEGIN, END).what == CLASSES[0][1]


def test_of_a_table_that_one_class_alone_names_it_is_always_the_class() -> None:
    """Whatever order a set of both has in this process."""
    assert calls({1}).between(BEGIN, END).what == CLASSES[1][1]


def test_a_stop_holds_all_alike() -> None:
    found = calls(set(range(len(CLASSES)))).between(BEGIN - 20 * MS, END)
    assert found is None or found.phi == 0


def test_chance_separates_nothing() -> None:
    assert calls(set()).between(BEGIN, END) is None
    assert calls({0}).between(BEGIN, BEGIN + MS) is None, "too few calls"
    rng = np.random.default_rng(2)
    one = calls({0})
    one._held = rng.random(len(one._held)) < 0.3  # whoever waits does so by chance
    hits = sum(
        (found := one.between(low * MS, (low + 200) * MS)) is not None and found.phi > 0
        for low in range(0, 3800, 100)
    )
    assert hits <= 2


def test_calls_that_always_take_long_are_not_held_up() -> None:
    assert calls(set(range(len(CLASSES)))).overdue(BEGIN, END) > 0.9
    assert calls(set()).overdue(BEGIN, END) == 0.0
    assert calls(set()).overdue(9000 * MS, 9001 * MS) == 1.0, "nobody was inside"
    arrive = np.concatenate([np.arange(0, 4000, 4), np.arange(100, 4000, 600)]) * MS
    slow = np.arange(len(arrive)) >= 1000
    table = {
        "server_node": np.ones(len(arrive), dtype=np.int64),
        "class_id": slow.astype(np.int64),
        "arrive_ns": arrive,
        "depart_ns": arrive + np.where(slow, 500, 1) * MS,
        "flags": np.zeros(len(arrive), dtype=np.int64),
        "conn": np.arange(len(arrive)),
    }
    assert Separator(read_of(table).at(1), CLASSES).overdue(1300 * MS, 1800 * MS) == 0.0
