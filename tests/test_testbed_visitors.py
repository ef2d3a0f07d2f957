"""Emulated users: seeded, mixed as promised, and able to read answers in any pieces."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tapscope.cli.commands import testbed_run
from tapscope.validate.testbed import dataset, scrub, shop_catalogue, shop_visitors
from tapscope.validate.testbed.truth import IDENTITY
from tapscope.validate.testbed.users import Answer
from tapscope.validate.testbed.visitors import Step, Visitor

WRITES = {"login", "post-comment", "submit-story", "rate", "moderate"}
READS = {
    *("front", "topics", "topic", "archive", "hot", "tag", "stats", "story", "comment", "thread", "related"),
    *("search", "search-comments", "search-users", "profile", "author", "inbox", "watchlist", "review"),
}


def walk(seed: int, number: int, mix: str, steps: int) -> list[Step]:
    visitor = Visitor(seed, number, mix)
    taken = []
    for _ in range(steps):
        step = visitor.next_step()
        if step.interaction == "login":
            visitor.session = "0123456789abcdef"
        taken.append(step)
    return taken


def test_the_same_seed_gives_the_same_visit() -> None:
    assert walk(4, 2, "write10", 300) == walk(4, 2, "write10", 300)


@pytest.mark.parametrize("other", [(5, 2), (4, 3)])
def test_another_seed_or_user_gives_another_visit(other: tuple[int, int]) -> None:
    assert walk(4, 2, "write10", 300) != walk(*other, "write10", 300)


def test_all_24_interactions_occur_in_the_writing_mix() -> None:
    seen = {step.interaction for n in range(40) for step in walk(1, n, "write10", 500)}
    assert seen == READS | WRITES


def test_one_interaction_in_ten_writes() -> None:
    counts = Counter(step.form is not None for n in range(40) for step in walk(1, n, "write10", 500))
    assert 0.08 < counts[True] / counts.total() < 0.12


def test_the_browsing_mix_writes_nothing() -> None:
    steps = [step for n in range(20) for step in walk(1, n, "browse", 300)]
    assert [s for s in steps if s.form is not None or s.interaction not in READS] == []


def test_ids_are_unique_and_the_scrubber_knows_their_form() -> None:
    ids = [Visitor(1, n, "browse").request_id().encode() for n in range(500)]
    assert len(set(ids)) == 500
    assert [i for i in ids if not IDENTITY.fullmatch(i) or len(i) != len(scrub.FILLER)] == []


def test_targets_are_paths_with_plain_keys() -> None:
    pattern = re.compile(r"/board/[a-z-]+(\?[a-z]+=[A-Za-z0-9]+(&[a-z]+=[A-Za-z0-9]+)*)?")
    targets = {s.target for n in range(20) for s in walk(2, n, "write10", 300)}
    assert [t for t in targets if not pattern.fullmatch(t)] == []


def test_nick_and_tag_names_are_unique() -> None:
    assert len({dataset.nick(u) for u in range(1, dataset.USERS + 1)}) == dataset.USERS
    assert len({dataset.tag_name(t) for t in range(1, dataset.TAGS + 1)}) == dataset.TAGS


def shop_walk(seed: int, number: int, mix: str, steps: int) -> list[Step]:
    visitor = shop_visitors.Visitor(seed, number, mix)
    return [visitor.next_step() for _ in range(steps)]


def test_customers_of_the_shop_are_seeded_and_ask_for_all_its_pages() -> None:
    assert shop_walk(4, 2, "write10", 300) == shop_walk(4, 2, "write10", 300)
    steps = [step for n in range(30) for step in shop_walk(1, n, "write10", 300)]
    forms = Counter(step.interaction for step in steps if step.form is not None)
    assert forms.keys() == {"login", "add", "order", "review"}
    assert 0.08 < forms.total() / len(steps) < 0.12
    assert {step.interaction for step in steps if step.form is None} == {
        *("front", "category", "product", "together", "reviews", "search", "suggest", "cart", "account"),
        "figures",
    }


def test_the_catalogue_of_the_shop_is_always_the_same(tmp_path: Path) -> None:
    for name in ("one", "other"):
        shop_catalogue.write(tmp_path / name)
    text = (tmp_path / "one").read_text()
    assert text == (tmp_path / "other").read_text()
    assert text.count("COPY ") == text.count("\\.\n") == 6
    assert all(line.count("\t") in (0, 1, 2, 3, 4, 6) for line in text.splitlines())


ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=abc; Path=/board\r\nContent-Length: 5\r\n\r\nhello",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
    "redirect": b"HTTP/1.1 303 See Other\r\nLocation: /board/front\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_answer_is_complete_at_its_last_byte_in_any_pieces(name: str, size: int) -> None:
    data, answer = ANSWERS[name], Answer()
    ends = [answer.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert answer.status == (303 if name == "redirect" else 200)
    assert answer.session == ("abc" if name == "length" else "")
    assert answer.location == ("/board/front" if name == "redirect" else "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run"], "Missing option"),
        (["run", "-o", "x", "--cpu-quota", "app"], "is not HOST=CPUS"),
        (["run", "-o", "x", "--mix", "none"], "is not one of"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments: list[str], expected: str) -> None:
    done = CliRunner().invoke(testbed_run.testbed, arguments)
    assert done.exit_code == 2
    assert expected in done.output
