"""What one emulated reader of the WordPress site asks next; one in ten comments, edits or writes a post."""

from __future__ import annotations

import base64
import json
from urllib.parse import urlencode, urlsplit

from . import dataset, wordpress
from .pace import Pace, Step

# interaction -> (next interaction, weight)
_CHAIN: dict[str, tuple[tuple[str, int], ...]] = {
    "front": (
        ("post", 50),
        ("page", 12),
        ("topic", 10),
        ("tag", 6),
        ("month", 5),
        ("search", 10),
        ("feed", 4),
        ("recent", 3),
    ),
    "page": (("post", 55), ("page", 25), ("front", 20)),
    "post": (("post", 30), ("author", 12), ("topic", 14), ("comments", 8), ("tag", 10), ("front", 26)),
    "topic": (("post", 60), ("topic", 20), ("front", 20)),
    "tag": (("post", 60), ("tag", 20), ("front", 20)),
    "month": (("post", 60), ("month", 25), ("front", 15)),
    "author": (("post", 60), ("author", 15), ("front", 25)),
    "search": (("post", 50), ("search", 30), ("front", 20)),
    "feed": (("feed", 20), ("front", 80)),
    "comments": (("post", 70), ("front", 30)),
    "recent": (("recent", 30), ("front", 70)),
}
WRITE_SHARE = 0.10


class Visitor(Pace):
    """State of one emulated user between requests."""

    def __init__(self, seed: int, number: int, mix: str) -> None:
        super().__init__(seed, number, mix)
        self._page = ""
        self._post = self._popular_post()

    def next_step(self) -> Step:
        """The next request."""
        if not self._page:
            return self._read("front")
        if self._mix == "write10" and self._rng.random() < WRITE_SHARE:
            return self._write()
        names, weights = zip(*_CHAIN[self._page], strict=True)
        return self._read(self._rng.choices(names, weights)[0])

    def followed(self, target: str) -> Step:
        """The page with the comment that was just written."""
        parts = urlsplit(target)
        self._page = "post"
        return Step("post", parts.path + (f"?{parts.query}" if parts.query else ""))

    def _popular_post(self) -> int:
        rng = self._rng
        if rng.random() < 0.6:
            return wordpress.FIRST_POST + wordpress.POSTS - 1 - int(rng.paretovariate(0.6)) % 200
        return wordpress.FIRST_POST + rng.randrange(wordpress.POSTS)

    def _word(self) -> str:
        return dataset.WORDS[min(len(dataset.WORDS) - 1, int(self._rng.expovariate(1 / 15)))]

    def _read(self, name: str) -> Step:
        rng = self._rng
        self._page = name
        # Most people look at the first page of a list.
        further = f"page/{rng.randint(2, 4)}/" if rng.random() < 0.25 else ""
        if name == "post":
            self._post = self._popular_post()
            return Step(name, f"/archives/{self._post}/")
        if name == "page":
            return Step(name, f"/page/{rng.randint(2, wordpress.POSTS // 12)}/")
        if name == "topic":
            topic = dataset.WORDS[rng.randint(1, wordpress.TOPICS)]
            return Step(name, f"/archives/category/topic-{topic}/{further}")
        if name == "tag":
            return Step(name, f"/archives/tag/{dataset.WORDS[rng.randrange(20, 20 + wordpress.TAGS)]}/")
        if name == "month":
            return Step(name, f"/archives/date/2025/{rng.randint(1, 12):02}/{further}")
        if name == "author":
            return Step(name, f"/archives/author/author{rng.randint(1, wordpress.AUTHORS)}/{further}")
        if name == "search":
            return Step(name, "/?" + urlencode({"s": self._word()}))
        if name == "feed":
            return Step(name, "/feed/" if rng.random() < 0.6 else "/comments/feed/")
        if name == "comments":
            return Step(name, f"/wp-json/wp/v2/comments?post={self._post}")
        if name == "recent":
            return Step(name, f"/wp-json/wp/v2/posts?per_page={rng.choice((3, 5, 10))}")
        return Step("front", "/")

    def _text(self, fewest: int, most: int) -> str:
        return " ".join(self._word() for _ in range(self._rng.randint(fewest, most)))

    def _write(self) -> Step:
        rng = self._rng
        kind = rng.choices(("comment", "edit", "new-post"), (60, 30, 10))[0]
        if kind == "comment":
            writer = f"reader{rng.randint(1, 500)}"
            form = {
                "comment_post_ID": str(self._post),
                "comment_parent": "0",
                "author": writer,
                "email": f"{writer}@example.org",
                "url": "",
                "comment": self._text(8, 40),
            }
            return Step(kind, "/wp-comments-post.php", urlencode(form).encode())
        author = f"author{rng.randint(1, wordpress.AUTHORS)}"
        secret = base64.b64encode(f"{author}:{wordpress.PASSWORD}".encode()).decode()
        headers = (f"Authorization: Basic {secret}",)
        wish: dict[str, object] = {"title": self._text(3, 7), "content": self._text(40, 160)}
        target = f"/wp-json/wp/v2/posts/{self._popular_post()}"
        if kind == "new-post":
            topic = wordpress.FIRST_TOPIC + rng.randrange(wordpress.TOPICS)
            wish |= {"status": "publish", "categories": [topic]}
            target = "/wp-json/wp/v2/posts"
        return Step(kind, target, json.dumps(wish).encode(), "application/json", headers)
