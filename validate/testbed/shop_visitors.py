"""What one emulated customer of the shop asks next; one in ten requests is a form."""

from __future__ import annotations

from urllib.parse import urlencode

from . import dataset, shop_catalogue
from .pace import Pace, Step

# page -> (next page, weight)
_CHAIN: dict[str, tuple[tuple[str, int], ...]] = {
    "front": (
        ("category", 35),
        ("product", 30),
        ("search", 12),
        ("suggest", 10),
        ("account", 8),
        ("figures", 5),
    ),
    "category": (("product", 55), ("category", 25), ("front", 12), ("suggest", 8)),
    "product": (
        ("product", 20),
        ("together", 18),
        ("reviews", 20),
        ("category", 18),
        ("cart", 8),
        ("search", 6),
        ("front", 10),
    ),
    "together": (("product", 75), ("front", 25)),
    "reviews": (("reviews", 25), ("product", 55), ("front", 20)),
    "search": (("product", 50), ("search", 30), ("front", 20)),
    "suggest": (("suggest", 45), ("search", 35), ("product", 20)),
    "cart": (("product", 40), ("account", 25), ("front", 35)),
    "account": (("product", 45), ("front", 55)),
    "figures": (("front", 50), ("product", 50)),
}
WRITE_SHARE = 0.10


class Visitor(Pace):
    """State of one emulated user between requests. Whose session it is, the service's cookie tells."""

    def __init__(self, seed: int, number: int, mix: str) -> None:
        super().__init__(seed, number, mix)
        self._page = ""
        self._number = 0
        self._typed = ""
        self._known = False
        self._held = 0
        self._me = self._rng.randint(1, shop_catalogue.CUSTOMERS)
        self._product = self._popular()

    def next_step(self) -> Step:
        """The next request."""
        if not self._page:
            return self._read("front")
        if self._mix == "write10" and self._rng.random() < WRITE_SHARE:
            return self._write()
        names, weights = zip(*_CHAIN[self._page], strict=True)
        return self._read(self._rng.choices(names, weights)[0])

    def followed(self, target: str) -> Step:
        """The page that a form's answer sends the browser to."""
        self._page = target.removeprefix("/shop/").split("?")[0]
        return Step(self._page, target)

    def _popular(self) -> int:
        rng = self._rng
        if rng.random() < 0.7:
            return 1 + int(rng.paretovariate(0.5)) * 7 % 300
        return rng.randint(1, shop_catalogue.PRODUCTS)

    def _word(self) -> str:
        return shop_catalogue.product_word(self._popular())

    def _read(self, name: str) -> Step:
        rng = self._rng
        self._number = self._number + 1 if name == self._page else 0
        self._page = name
        paged = {"page": str(self._number)} if self._number else {}
        keys: dict[str, str] = {}
        if name == "category":
            keys = {"category": str(1 + int(rng.expovariate(1 / 8)) % shop_catalogue.CATEGORIES), **paged}
        elif name == "product":
            self._product = (
                rng.randint(1, shop_catalogue.PRODUCTS + 20) if rng.random() < 0.1 else self._popular()
            )
            keys = {"product": str(self._product)}
        elif name == "together":
            keys = {"product": str(self._product)}
        elif name == "reviews":
            keys = {"product": str(self._product), **paged}
        elif name == "search":
            keys = {"q": self._word()}
        elif name == "suggest":
            # A word is typed letter by letter.
            if not self._number or len(self._typed) < self._number + 2:
                self._typed, self._number = self._word(), 0
            keys = {"q": self._typed[: self._number + 2]}
        return Step(name, f"/shop/{name}" + (f"?{urlencode(keys)}" if keys else ""))

    def _write(self) -> Step:
        rng = self._rng
        if not self._known:
            self._known = True
            return self._form("login", {"name": shop_catalogue.customer_name(self._me)})
        name = rng.choices(("add", "order", "review"), (45, 35 if self._held else 0, 20))[0]
        if name == "order":
            self._held = 0
            return self._form(name, {"confirmed": "yes"})
        if name == "add":
            self._held += 1
            return self._form(name, {"product": str(self._product), "quantity": str(rng.randint(1, 3))})
        body = " ".join(rng.choice(dataset.WORDS) for _ in range(rng.randint(5, 25)))
        return self._form(
            name, {"product": str(self._product), "stars": str(rng.randint(1, 5)), "body": body}
        )

    def _form(self, name: str, values: dict[str, str]) -> Step:
        return Step(name, f"/shop/{name}", urlencode(values).encode())
