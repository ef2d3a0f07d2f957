"""The board's tables and their seeded content: the same bytes every time."""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

USERS = 3000
MODERATORS = 60
TOPICS = 12
STORIES = 6000
COMMENTS = 60000
TAGS = 80
MESSAGES = 8000
WATCHES = 9000
DAYS = 365
WAITING_EVERY = 40
_SEED = 20131


def _app_data(name: str) -> str:
    return resources.files(__package__).joinpath("app", "data", name).read_text(encoding="utf-8")


WORDS = _app_data("words.txt").split()
FILLER = _app_data("filler.txt").split()


def nick(user: int) -> str:
    """Nick name of a seeded user; also its password."""
    return f"{WORDS[(user * 7) % len(WORDS)]}{user}"


def is_moderator(user: int) -> bool:
    """Whether a seeded user may moderate."""
    return user % (USERS // MODERATORS) == 0


def tag_name(tag: int) -> str:
    """Name of a seeded tag (1-based)."""
    return WORDS[(tag * 3) % len(WORDS)] + ("" if tag <= len(WORDS) // 3 else str(tag))


def _text(rng: random.Random, words: int) -> str:
    out = []
    for i in range(words):
        word = rng.choice(WORDS) if rng.random() < 0.4 else rng.choice(FILLER)
        out.append(f"*{word}*" if rng.random() < 0.02 else word)
        if i % 12 == 11:
            out[-1] += "."
    return " ".join(out).capitalize()


def _when(day: int, second: int) -> str:
    """Day 0 is 1 January 2025; months of 28 days keep this free of calendars."""
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"2025-{1 + day // 31:02d}-{1 + day % 28:02d} {clock}"


def _rows() -> Iterator[tuple[str, list[list[object]]]]:
    """Table name and rows, in the order of the schema's columns."""
    rng = random.Random(_SEED)
    users: list[list[object]] = []
    for user in range(1, USERS + 1):
        password = hashlib.sha1(nick(user).encode()).hexdigest()
        karma = min(200, int(rng.expovariate(1 / 18)))
        users.append(
            [
                user,
                nick(user),
                password,
                karma,
                int(is_moderator(user)),
                _when(rng.randrange(300), 0),
                "\\N",
                _text(rng, 25),
            ]
        )
    yield "users", users
    yield "topics", [[t, WORDS[t * 7].capitalize(), _text(rng, 15)] for t in range(1, TOPICS + 1)]

    popularity = [rng.paretovariate(1.1) for _ in range(STORIES)]
    per_story = [0] * (STORIES + 1)
    comments: list[list[object]] = []
    of_story: dict[int, list[int]] = {}
    for comment in range(1, COMMENTS + 1):
        # Discussion follows publication: comment ids grow with story ids, popular stories draw more.
        centre = max(1, round(comment / COMMENTS * STORIES))
        window = range(max(1, centre - 60), min(STORIES, centre + 20) + 1)
        story = max((rng.choice(window) for _ in range(3)), key=lambda s: popularity[s - 1])
        earlier = of_story.setdefault(story, [])
        parent = rng.choice(earlier) if earlier and rng.random() < 0.55 else 0
        earlier.append(comment)
        per_story[story] += 1
        comments.append(
            [
                comment,
                story,
                parent,
                rng.randint(1, USERS),
                _when(story * DAYS // STORIES, comment % 86400),
                _text(rng, 4),
                _text(rng, rng.randint(8, 60)),
                rng.randint(-1, 5),
            ]
        )
    stories: list[list[object]] = []
    for story in range(1, STORIES + 1):
        day = story * DAYS // STORIES
        status = 0 if story % WAITING_EVERY == 0 else 1
        stories.append(
            [
                story,
                rng.randint(1, TOPICS),
                1 + int(USERS * rng.random() ** 2),
                _text(rng, rng.randint(4, 8)),
                _text(rng, rng.randint(40, 120)),
                _when(day, rng.randrange(86400)),
                day,
                per_story[story],
                rng.randint(-5, 40),
                status,
            ]
        )
    yield "stories", stories
    yield "comments", comments
    yield "tags", [[t, tag_name(t)] for t in range(1, TAGS + 1)]
    yield (
        "story_tags",
        [
            [s, tag]
            for s in range(1, STORIES + 1)
            for tag in sorted({1 + int(TAGS * rng.random() ** 2) for _ in range(rng.randint(1, 4))})
        ],
    )
    yield (
        "messages",
        [
            [
                m,
                rng.randint(1, USERS),
                rng.randint(1, USERS),
                _when(rng.randrange(DAYS), m % 86400),
                _text(rng, 5),
                rng.randint(0, 1),
            ]
            for m in range(1, MESSAGES + 1)
        ],
    )
    yield (
        "watches",
        [[rng.randint(1, USERS), rng.randint(1, STORIES), rng.randint(0, 10)] for _ in range(WATCHES)],
    )


def write(folder: Path) -> str:
    """Writes one tab-separated file per table into folder. Returns the SQL that makes and loads them."""
    script = [_app_data("schema.sql")]
    for table, rows in _rows():
        file = folder / f"{table}.tsv"
        with file.open("w", encoding="utf-8") as out:
            for row in rows:
                out.write("\t".join(str(value) for value in row) + "\n")
        script.append(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table};")
    script.append("ANALYZE TABLE users, stories, comments, story_tags, messages, watches;")
    return "\n".join(script)


def fingerprint() -> str:
    """Changes whenever schema, words or this file change: the key of the cached data folder."""
    parts = [inspect.getsource(sys.modules[__name__]), _app_data("schema.sql"), *WORDS, *FILLER]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
