"""Products and pieces of pages that are kept: looked for in a cache first, then made and put there."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from typing import Any

from . import stores

PRODUCT_S = 6
"""How long a product stays in Redis; short, so that a recording of seconds has misses throughout."""

Product = dict[str, Any]

_COLUMNS = "id, category_id, name, price_cents, description"


def _kept(row: Any) -> Product:
    return dict(row._asdict())


def product(number: int) -> Product | None:
    """One product: from Redis, else from the database."""
    text = stores.data.get(f"product:{number}")
    if text:
        return dict(json.loads(text))
    with stores.database() as rows:
        row = rows.one(
            f"SELECT {_COLUMNS} FROM product WHERE id = %(product)s{stores.AND_ID}", product=number
        )
    if row is None:
        return None
    stores.data.set(f"product:{number}", json.dumps(_kept(row)), ex=PRODUCT_S)
    return _kept(row)


def products(numbers: Sequence[int]) -> list[Product]:
    """Several products: one MGET, one statement for what is missing, one pipeline that puts it there."""
    if not numbers:
        return []
    texts = stores.data.mget([f"product:{number}" for number in numbers])
    found = {number: dict(json.loads(text)) for number, text in zip(numbers, texts, strict=True) if text}
    missing = [number for number in numbers if number not in found]
    if missing:
        with stores.database() as rows:
            for row in rows.all(
                f"SELECT {_COLUMNS} FROM product WHERE id = ANY(%(products)s){stores.AND_ID}",
                products=missing,
            ):
                found[row.id] = _kept(row)
        with stores.data.pipeline(transaction=False) as steps:
            for number in missing:
                if number in found:
                    steps.set(f"product:{number}", json.dumps(found[number]), ex=PRODUCT_S)
            steps.execute()
    return [found[number] for number in numbers if number in found]


def listed(goods: Sequence[Product]) -> str:
    """A list of products as HTML."""
    items = (f"<li>{html.escape(p['name'])} {p['price_cents'] / 100:.2f}</li>" for p in goods)
    return f"<ul>{''.join(items)}</ul>\n"


def fragment(key: str, seconds: int, make: Callable[[], str]) -> str:
    """A piece of a page: from memcached, else made."""
    kept = stores.fragments.get(key)
    if kept is not None:
        return bytes(kept).decode()
    made = make()
    stores.fragments.set(key, made.encode(), expire=seconds)
    return made


def fragments(wanted: dict[str, Callable[[], str]], seconds: int) -> list[str]:
    """Several pieces, asked for at once; what is missing is made one after the other."""
    kept = stores.fragments.get_many(list(wanted))
    pieces = []
    for key, make in wanted.items():
        if key in kept:
            pieces.append(bytes(kept[key]).decode())
        else:
            pieces.append(make())
            stores.fragments.set(key, pieces[-1].encode(), expire=seconds)
    return pieces
