"""Forms: what changes something, and what has to be forgotten by the caches then."""

from __future__ import annotations

from . import goods, stores
from .stores import AND_ID
from .visit import SESSION_S, Answer, Visit, go_to, not_found


def login(visit: Visit) -> Answer:
    """Tells the session who it is."""
    with stores.database() as rows:
        known = rows.one(
            f"SELECT id, name FROM customer WHERE name = %(name)s{AND_ID}", name=visit.text("name")
        )
    if known is None:
        return not_found()
    key = f"session:{visit.session}"
    with stores.data.pipeline(transaction=True) as steps:
        steps.hset(key, mapping={"customer": known.id, "name": known.name})
        steps.hincrby(key, "pages", 1)
        steps.expire(key, SESSION_S)
        steps.execute()
    return go_to("/shop/front")


def add(visit: Visit) -> Answer:
    """Puts something into the cart."""
    number = visit.number("product")
    if goods.product(number) is None:
        return not_found()
    with stores.data.pipeline(transaction=True) as steps:
        steps.hincrby(visit.cart, str(number), max(1, visit.number("quantity")))
        steps.expire(visit.cart, SESSION_S)
        steps.execute()
    return go_to("/shop/cart")


def order(visit: Visit) -> Answer:
    """Buys what is in the cart: a transaction, or none of it where something is sold out."""
    held = {int(number): int(quantity) for number, quantity in stores.data.hgetall(visit.cart).items()}
    if not held or not visit.customer:
        return go_to("/shop/cart")
    with stores.database() as rows, rows.connection.transaction():
        total = 0
        # In the order of their numbers, so that two orders never wait for each other.
        for number in sorted(held):
            row = rows.one(
                f"SELECT price_cents, stock FROM product WHERE id = %(product)s{AND_ID} FOR UPDATE",
                product=number,
            )
            if row is None or row.stock < held[number]:
                return Answer(["Something is sold out."], status=409)
            total += row.price_cents * held[number]
            rows.do(
                f"UPDATE product SET stock = stock - %(quantity)s WHERE id = %(product)s{AND_ID}",
                quantity=held[number],
                product=number,
            )
        placed = rows.one(
            "INSERT INTO orders (customer_id, total_cents) VALUES (%(customer)s, %(total)s) RETURNING id",
            customer=visit.customer,
            total=total,
        )
        rows.many(
            "INSERT INTO order_line (order_id, product_id, quantity)"
            " VALUES (%(order)s, %(product)s, %(quantity)s)",
            [{"order": placed.id, "product": n, "quantity": q} for n, q in sorted(held.items())],
        )
    stores.data.delete(visit.cart, *(f"product:{number}" for number in held))
    stores.fragments.delete("frag:best", noreply=False)
    return go_to("/shop/account")


def review(visit: Visit) -> Answer:
    """Says something about a product."""
    if not visit.customer:
        return go_to("/shop/front")
    number = visit.number("product")
    with stores.database() as rows:
        rows.do(
            "INSERT INTO review (product_id, customer_id, stars, body)"
            " VALUES (%(product)s, %(customer)s, %(stars)s, %(body)s)",
            product=number,
            customer=visit.customer,
            stars=min(5, visit.number("stars")),
            body=visit.text("body"),
        )
    stores.fragments.delete(f"opinions:{number}")
    return go_to(f"/shop/reviews?product={number}")


ALL = (login, add, order, review)
