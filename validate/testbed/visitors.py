"""What one emulated visitor asks next: a Markov chain over the board's interactions, seeded per visitor.

The keys (story, user, topic, word ...) are drawn with the popularity that boards show: most visits go to a
few recent stories, so that many concurrent requests carry the same keys.
"""

from __future__ import annotations

from urllib.parse import urlencode

from . import dataset
from .pace import Pace, Step

# page -> (next page, weight); a visitor who can do nothing else goes to the front page
_CHAIN: dict[str, tuple[tuple[str, int], ...]] = {
    "front": (
        ("story", 45),
        ("topic", 12),
        ("topics", 6),
        ("hot", 8),
        ("archive", 5),
        ("tag", 6),
        ("search", 8),
        ("search-users", 2),
        ("stats", 3),
        ("inbox", 4),
        ("watchlist", 4),
        ("review", 2),
    ),
    "topics": (("topic", 80), ("front", 20)),
    "topic": (("story", 55), ("topic", 25), ("front", 12), ("search-comments", 8)),
    "archive": (("story", 50), ("archive", 35), ("front", 15)),
    "hot": (("story", 70), ("thread", 15), ("front", 15)),
    "tag": (("story", 50), ("tag", 35), ("front", 15)),
    "stats": (("profile", 50), ("front", 50)),
    "story": (
        ("story", 22),
        ("comment", 22),
        ("thread", 12),
        ("related", 10),
        ("profile", 8),
        ("author", 5),
        ("tag", 5),
        ("front", 16),
    ),
    "comment": (("comment", 20), ("thread", 20), ("story", 25), ("profile", 15), ("front", 20)),
    "thread": (("comment", 35), ("story", 35), ("front", 30)),
    "related": (("story", 75), ("front", 25)),
    "search": (("story", 45), ("search", 25), ("search-comments", 15), ("front", 15)),
    "search-comments": (("comment", 55), ("search-comments", 20), ("front", 25)),
    "search-users": (("profile", 60), ("search-users", 20), ("front", 20)),
    "profile": (("author", 35), ("comment", 25), ("story", 20), ("front", 20)),
    "author": (("story", 50), ("author", 20), ("profile", 10), ("front", 20)),
    "inbox": (("comment", 40), ("profile", 20), ("front", 40)),
    "watchlist": (("story", 75), ("front", 25)),
    "review": (("review", 15), ("profile", 20), ("front", 65)),
}
_NEED_MEMBER = {"inbox", "watchlist", "review"}
_SESSION_PAGES = 25
WRITE_SHARE = 0.10


class Visitor(Pace):
    """State of one emulated user between requests."""

    def __init__(self, seed: int, number: int, mix: str) -> None:
        super().__init__(seed, number, mix)
        self._begin()

    def _begin(self) -> None:
        self._page = ""
        self._left = max(3, int(self._rng.expovariate(1 / _SESSION_PAGES)))
        self._story = self._popular_story()
        self._topic = self._rng.randint(1, dataset.TOPICS)
        self._number = 0
        self._user = self._rng.randint(1, dataset.USERS)
        moderator = dataset.USERS // dataset.MODERATORS
        # One visitor in eight is a moderator, so that moderation happens at all.
        self._me = (
            moderator * self._rng.randint(1, dataset.MODERATORS)
            if self._rng.random() < 0.125
            else (self._rng.randint(1, dataset.USERS))
        )
        self.session = ""

    def next_step(self) -> Step:
        """The next request."""
        self._left -= 1
        if self._left <= 0:
            self._begin()
        if not self._page:
            self._page = "front"
            return Step("front", "/board/front")
        if self._mix == "write10" and self._rng.random() < WRITE_SHARE:
            return self._login() if not self.session else self._write()
        names, weights = zip(*_CHAIN[self._page], strict=True)
        name = self._rng.choices(names, weights)[0]
        if name in _NEED_MEMBER and not self.session:
            if self._mix == "write10" and self._rng.random() < 0.5:
                return self._login()
            name = "story"
        return self._read(name)

    def followed(self, target: str) -> Step:
        """The page that a form's answer sends the browser to."""
        name = target.removeprefix("/board/").split("?")[0]
        self._page = name if name in _CHAIN else "front"
        return Step(name, target)

    def _popular_story(self) -> int:
        rng = self._rng
        if rng.random() < 0.7:
            return max(1, dataset.STORIES - int(rng.paretovariate(0.6)) % 400)
        return rng.randint(1, dataset.STORIES)

    def _comment(self) -> int:
        near = self._story * dataset.COMMENTS // dataset.STORIES + self._rng.randint(-40, 40)
        return min(dataset.COMMENTS, max(1, near))

    def _word(self) -> str:
        return dataset.WORDS[min(len(dataset.WORDS) - 1, int(self._rng.expovariate(1 / 15)))]

    def _read(self, name: str) -> Step:
        rng = self._rng
        self._number = self._number + 1 if name == self._page else 0
        self._page = name
        paged = {"page": str(self._number)} if self._number else {}
        keys: dict[str, str] = {}
        if name == "story":
            if not self._number:
                self._story = self._popular_story()
            keys = {"story": str(self._story), **paged}
        elif name == "related":
            keys = {"story": str(self._story)}
        elif name in ("comment", "thread"):
            keys = {"comment": str(self._comment())}
        elif name == "topic":
            if not self._number:
                self._topic = rng.randint(1, dataset.TOPICS)
            keys = {"topic": str(self._topic), **paged}
        elif name == "archive":
            keys = {"day": str(max(0, dataset.DAYS - int(rng.expovariate(1 / 20)))), **paged}
        elif name == "tag":
            unknown = rng.random() < 0.1
            keys = {
                "tag": self._word() + "x" if unknown else dataset.tag_name(rng.randint(1, dataset.TAGS)),
                **paged,
            }
        elif name == "search":
            keys = {"q": self._word(), **paged}
        elif name == "search-comments":
            keys = {"q": self._word(), "topic": str(self._topic)}
        elif name == "search-users":
            keys = {"prefix": self._word()[: rng.randint(1, 4)]}
        elif name in ("profile", "author"):
            if not self._number:
                self._user = rng.randint(1, dataset.USERS)
            keys = {"user": str(self._user), **(paged if name == "author" else {})}
        return Step(name, f"/board/{name}" + (f"?{urlencode(keys)}" if keys else ""))

    def _form(self, name: str, values: dict[str, str]) -> Step:
        return Step(name, f"/board/{name}", urlencode(values).encode())

    def _login(self) -> Step:
        name = dataset.nick(self._me)
        return self._form("login", {"nick": name, "password": name})

    def _write(self) -> Step:
        rng = self._rng
        moderator = dataset.is_moderator(self._me)
        weights = (45, 12, 35, 30 if moderator else 0)
        name = rng.choices(("post-comment", "submit-story", "rate", "moderate"), weights)[0]
        text = " ".join(self._word() for _ in range(rng.randint(10, 40)))
        if name == "post-comment":
            parent = "0" if rng.random() < 0.5 else str(self._comment())
            return self._form(
                name, {"story": str(self._story), "parent": parent, "subject": text[:40], "body": text}
            )
        if name == "submit-story":
            tags = " ".join(dataset.tag_name(rng.randint(1, dataset.TAGS)) for _ in range(rng.randint(1, 3)))
            title = f"{self._word()} {self._word()} {rng.randint(1, 99999)}"
            return self._form(name, {"topic": str(self._topic), "title": title, "body": text, "tags": tags})
        if name == "rate":
            return self._form(name, {"comment": str(self._comment()), "value": rng.choice(("1", "1", "-1"))})
        return self._form(
            name,
            {
                "topic": str(rng.randint(1, dataset.TOPICS)),
                "verdict": rng.choice(("accept", "accept", "reject")),
            },
        )
