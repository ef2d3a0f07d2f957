"""Pages that read. What they ask depends on what is kept, who asks and what is found."""

from __future__ import annotations

import html
from datetime import datetime

from . import goods, stores
from .stores import AND_ID
from .visit import Answer, Visit, not_found

_PAGE = 12
_LIST_S = 3


def _best_sellers() -> str:
    with stores.database() as rows:
        found = rows.all(
            "SELECT l.product_id, SUM(l.quantity) AS sold"
            " FROM order_line l JOIN orders o ON o.id = l.order_id"
            f" WHERE o.id > (SELECT MAX(id) FROM orders) - 400{AND_ID}"
            " GROUP BY l.product_id ORDER BY sold DESC LIMIT 6"
        )
    return goods.listed(goods.products([row.product_id for row in found]))


def _newest() -> str:
    with stores.database() as rows:
        found = rows.all(f"SELECT id FROM product WHERE stock > 0{AND_ID} ORDER BY added DESC LIMIT 6")
    return goods.listed(goods.products([row.id for row in found]))


def _categories() -> str:
    with stores.database() as rows:
        found = rows.all(f"SELECT id, name FROM category WHERE id > 0{AND_ID} ORDER BY name")
    return "".join(f'<a href="/shop/category?category={r.id}">{html.escape(r.name)}</a>\n' for r in found)


def front(visit: Visit) -> Answer:
    """Three pieces from memcached, what is looked at most, and what this visitor has seen."""
    pieces = goods.fragments(
        {"frag:best": _best_sellers, "frag:newest": _newest, "frag:categories": _categories}, _LIST_S
    )
    hot = stores.data.zrevrange("looked", 0, 3)
    pieces.append(goods.listed(goods.products([int(number) for number in hot])))
    if visit.customer:
        seen = stores.data.lrange(f"seen:{visit.session}", 0, 3)
        pieces.append(goods.listed(goods.products([int(number) for number in seen])))
    return Answer([], pieces)


def category(visit: Visit) -> Answer:
    """A page of a category, kept whole for a while."""
    number, page = visit.number("category"), visit.number("page")

    def make() -> str:
        with stores.database() as rows:
            found = rows.all(
                f"SELECT id FROM product WHERE category_id = %(category)s{AND_ID}"
                " ORDER BY name LIMIT 12 OFFSET %(first)s",
                category=number,
                first=page * _PAGE,
            )
        return goods.listed(goods.products([row.id for row in found]))

    return Answer([], [goods.fragment(f"category:{number}:{page}", _LIST_S, make)])


def product(visit: Visit) -> Answer:
    """One product, how many there are, what others bought with it, and what they say."""
    number = visit.number("product")
    shown = goods.product(number)
    if shown is None:
        return not_found()
    with stores.data.pipeline(transaction=False) as steps:
        steps.incr(f"views:{number}")
        steps.zincrby("looked", 1, number)
        steps.lpush(f"seen:{visit.session}", number)
        steps.ltrim(f"seen:{visit.session}", 0, 9)
        views = steps.execute()[0]
    with stores.database() as rows:
        stock = rows.one(f"SELECT stock FROM product WHERE id = %(product)s{AND_ID}", product=number)
        lines = [f"{shown['name']}: {stock.stock if stock else 0} in stock, seen {views} times"]
        if stock and stock.stock == 0:
            for other in rows.all(
                f"SELECT name, stock FROM product WHERE category_id = %(category)s{AND_ID}"
                " AND stock > 0 ORDER BY price_cents LIMIT 3",
                category=shown["category_id"],
            ):
                lines.append(f"instead: {other.name}")

    def opinions() -> str:
        with stores.database() as rows:
            found = rows.all(
                f"SELECT stars, body, customer_id FROM review WHERE product_id = %(product)s{AND_ID}"
                " ORDER BY id DESC LIMIT 3",
                product=number,
            )
        return "".join(f"<p>{row.stars}: {html.escape(row.body)}</p>\n" for row in found)

    return Answer(lines, [goods.fragment(f"opinions:{number}", 2 * _LIST_S, opinions)])


def together(visit: Visit) -> Answer:
    """What others bought with a product."""
    with stores.database() as rows:
        found = rows.all(
            "SELECT b.product_id, COUNT(*) AS n"
            " FROM order_line a JOIN order_line b ON b.order_id = a.order_id"
            f" WHERE a.product_id = %(product)s AND b.product_id <> a.product_id{AND_ID}"
            " GROUP BY b.product_id ORDER BY n DESC, b.product_id LIMIT 4",
            product=visit.number("product"),
        )
    shown = [goods.product(row.product_id) for row in found]
    return Answer([], [goods.listed([each for each in shown if each])])


def reviews(visit: Visit) -> Answer:
    """All that is said about a product, each with its writer's name, which Redis keeps."""
    number = visit.number("product")
    with stores.database() as rows:
        found = rows.all(
            f"SELECT stars, body, customer_id FROM review WHERE product_id = %(product)s{AND_ID}"
            " ORDER BY id DESC LIMIT 8 OFFSET %(first)s",
            product=number,
            first=8 * visit.number("page"),
        )
        lines = []
        for row in found:
            name = stores.data.hget("names", row.customer_id)
            if name is None:
                writer = rows.one(
                    f"SELECT name FROM customer WHERE id = %(customer)s{AND_ID}", customer=row.customer_id
                )
                name = writer.name if writer else "?"
                stores.data.hset("names", row.customer_id, name)
            lines.append(f"{name} gives {row.stars}: {row.body}")
    return Answer(lines or ["Nobody has said anything."])


def search(visit: Visit) -> Answer:
    """Products whose name has a word, and how many there are."""
    word = visit.text("q")
    stores.data.zincrby("searched", 1, word)
    with stores.database() as rows:
        found = rows.all(
            f"SELECT id FROM product WHERE name ILIKE %(word)s{AND_ID} ORDER BY price_cents LIMIT 8",
            word=f"%{word}%",
        )
        count = rows.one(
            f"SELECT COUNT(*) AS n FROM product WHERE name ILIKE %(word)s{AND_ID}", word=f"%{word}%"
        )
    return Answer(
        [f"{count.n if count else 0} products"], [goods.listed(goods.products([r.id for r in found]))]
    )


def suggest(visit: Visit) -> Answer:
    """Names that begin as what is typed does."""
    prefix = visit.text("q")[:8]

    def make() -> str:
        with stores.database() as rows:
            found = rows.all(
                f"SELECT name FROM product WHERE name LIKE %(prefix)s{AND_ID} ORDER BY name LIMIT 5",
                prefix=f"{prefix}%",
            )
        return "".join(f"<option>{html.escape(row.name)}</option>" for row in found)

    return Answer([], [goods.fragment(f"suggest:{prefix}", 2 * _LIST_S, make)])


def cart(visit: Visit) -> Answer:
    """What is in the cart, at today's prices."""
    held = stores.data.hgetall(visit.cart)
    if not held:
        return Answer(["Your cart is empty."])
    lines, total = [], 0
    for each in goods.products([int(number) for number in held]):
        quantity = int(held[str(each["id"])])
        total += quantity * int(each["price_cents"])
        lines.append(f"{quantity} {each['name']}")
    with stores.database() as rows:
        for row in rows.all(
            f"SELECT name, stock FROM product WHERE id = ANY(%(products)s){AND_ID} AND stock < 3",
            products=[int(number) for number in held],
        ):
            lines.append(f"Only {row.stock} left: {row.name}")
    return Answer([*lines, f"{total / 100:.2f}"])


def account(visit: Visit) -> Answer:
    """Who has logged in, and the last orders with their lines, as one moment has them."""
    if not visit.customer:
        return Answer(["Please log in."])
    with stores.database() as rows, rows.connection.transaction():
        told = rows.one(
            f"SELECT name, city, joined FROM customer WHERE id = %(customer)s{AND_ID}",
            customer=visit.customer,
        )
        lines = [f"{told.name}, {told.city}, since {told.joined:%Y}"]
        for order in rows.all(
            f"SELECT id, placed, total_cents FROM orders WHERE customer_id = %(customer)s{AND_ID}"
            " ORDER BY id DESC LIMIT 4",
            customer=visit.customer,
        ):
            placed: datetime = order.placed
            lines.append(f"{placed:%d.%m.%Y}: {order.total_cents / 100:.2f}")
            for line in rows.all(
                "SELECT p.name, l.quantity FROM order_line l JOIN product p ON p.id = l.product_id"
                f" WHERE l.order_id = %(order)s{AND_ID} ORDER BY p.name",
                order=order.id,
            ):
                lines.append(f"{line.quantity} {line.name}")
    return Answer(lines)


def figures(visit: Visit) -> Answer:
    """What the shop is like today: counters of Redis, sums of the database, noticed by compare-and-set."""
    best = stores.data.zrevrange("looked", 0, 7, withscores=True)
    counted = stores.data.mget([f"views:{number}" for number, _ in best] or ["views:1"])
    with stores.database() as rows:
        sums = rows.one(
            "SELECT COUNT(*) AS n, COALESCE(SUM(total_cents), 0) AS cents FROM orders"
            f" WHERE id > (SELECT MAX(id) FROM orders) - 100{AND_ID}"
        )
    value, mark = stores.fragments.gets("notice:figures")
    told = f"{sums.n} orders, {sums.cents / 100:.2f}"
    if mark is None:
        stores.fragments.set("notice:figures", told.encode(), expire=2 * _LIST_S, noreply=False)
    elif bytes(value).decode() != told:
        stores.fragments.cas("notice:figures", told.encode(), mark, expire=2 * _LIST_S)
    words = stores.data.zrevrange("searched", 0, 4)
    return Answer(
        [told, *(f"{number}: {n or 0}" for (number, _), n in zip(best, counted, strict=False)), *words]
    )


ALL = (
    front, category, product, together, reviews, search, suggest, cart, account, figures,
)  # fmt: skip
