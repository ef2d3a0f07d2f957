"""What the shop's database holds when a run begins: made anew for every run, always the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from . import dataset

CATEGORIES = 40
PRODUCTS = 2400
CUSTOMERS = 1500
ORDERS = 4000
REVIEWS = 9000

_SCHEMA = """
CREATE TABLE category (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE product (id int PRIMARY KEY, category_id int NOT NULL, name text NOT NULL,
    price_cents int NOT NULL, stock int NOT NULL, added date NOT NULL, description text NOT NULL);
CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL, city text NOT NULL, joined date NOT NULL);
CREATE TABLE orders (id serial PRIMARY KEY, customer_id int NOT NULL, total_cents int NOT NULL,
    placed timestamptz NOT NULL DEFAULT now());
CREATE TABLE order_line (order_id int NOT NULL, product_id int NOT NULL, quantity int NOT NULL);
CREATE TABLE review (id serial PRIMARY KEY, product_id int NOT NULL, customer_id int NOT NULL,
    stars int NOT NULL, body text NOT NULL);
"""
_AFTER = """
CREATE INDEX ON product (category_id, name);
CREATE INDEX ON product (name text_pattern_ops);
CREATE UNIQUE INDEX ON customer (name);
CREATE INDEX ON orders (customer_id);
CREATE INDEX ON order_line (order_id);
CREATE INDEX ON order_line (product_id);
CREATE INDEX ON review (product_id);
SELECT setval('orders_id_seq', (SELECT MAX(id) FROM orders));
SELECT setval('review_id_seq', (SELECT MAX(id) FROM review));
"""


def customer_name(number: int) -> str:
    """Name that a customer logs in with."""
    return dataset.nick(number)


def product_word(number: int) -> str:
    """First word of a product's name."""
    return dataset.WORDS[number * 13 % len(dataset.WORDS)]


def _date(rng: random.Random) -> str:
    return f"20{rng.randint(18, 24)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _tables() -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    rng = random.Random("shop")

    def words(count: int) -> str:
        return " ".join(rng.choice(dataset.WORDS) for _ in range(count))

    yield "category (id, name)", [(c, f"{dataset.WORDS[c * 2]} {c}") for c in range(1, CATEGORIES + 1)]
    prices = [rng.randint(200, 90_000) for _ in range(PRODUCTS)]
    yield (
        "product (id, category_id, name, price_cents, stock, added, description)",
        [
            (
                *(p, rng.randint(1, CATEGORIES), f"{product_word(p)} {words(1)} {p}", prices[p - 1]),
                *(0 if rng.random() < 0.1 else rng.randint(1, 400), _date(rng), words(rng.randint(15, 60))),
            )
            for p in range(1, PRODUCTS + 1)
        ],
    )
    yield (
        "customer (id, name, city, joined)",
        [(c, customer_name(c), words(1), _date(rng)) for c in range(1, CUSTOMERS + 1)],
    )
    orders, lines = [], []
    for order in range(1, ORDERS + 1):
        chosen = rng.sample(range(1, PRODUCTS + 1), min(8, 1 + int(rng.expovariate(0.6))))
        quantities = [rng.randint(1, 3) for _ in chosen]
        total = sum(prices[p - 1] * q for p, q in zip(chosen, quantities, strict=True))
        orders.append((order, rng.randint(1, CUSTOMERS), total))
        lines += [(order, p, q) for p, q in zip(chosen, quantities, strict=True)]
    yield "orders (id, customer_id, total_cents)", list(orders)
    yield "order_line (order_id, product_id, quantity)", list(lines)
    yield (
        "review (id, product_id, customer_id, stars, body)",
        [
            (
                r,
                rng.randint(1, PRODUCTS),
                rng.randint(1, CUSTOMERS),
                rng.randint(1, 5),
                words(rng.randint(6, 25)),
            )
            for r in range(1, REVIEWS + 1)
        ],
    )


def write(path: Path) -> None:
    """Writes the script for psql that fills an empty database."""
    with path.open("w", encoding="utf-8") as file:
        file.write(_SCHEMA)
        for table, rows in _tables():
            file.write(f"COPY {table} FROM stdin;\n")
            file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
            file.write("\\.\n")
        file.write(_AFTER)
