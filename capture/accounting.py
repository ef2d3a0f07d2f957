"""Where every captured byte went: in a message, in a named remainder or in a named discard.

Four sums must agree, and `Account.disagreements` says which do not::

    payload captured            = bytes in streams + discarded, by name
    bytes in streams            = bytes in messages + outside messages, by name   (per connection, direction)
    bytes missing from streams  = missing, by name
    missing inside messages    <= bytes missing from the stream                   (per connection, direction)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tapscope.store.codes import Direction
from tapscope.store.tables import Table

Counter = tuple[str, int, str]

PAYLOAD = "tcp.payload"
DISCARDED = "discarded."
MISSING = "missing."
OUTSIDE = "unparsed."

_SIDES = ((Direction.TO_SERVER, "to_server"), (Direction.TO_CLIENT, "to_client"))


@dataclass(frozen=True)
class Account:
    """Sums over a capture, in bytes. The dicts go from the name of a counter to its value."""

    payload: int
    """TCP payload of all packets that were captured."""
    discarded: dict[str, int]
    """Payload that is in no stream: copies, retransmissions, what lies before a start or behind an end."""
    in_streams: int
    in_messages: int
    outside: dict[str, int]
    """Bytes of streams that are in no message."""
    missing: dict[str, int]
    """Bytes that belong to streams and were never captured."""
    missing_in_messages: int
    disagreements: tuple[str, ...]
    """Sums that differ, in words; empty when every byte is accounted for."""


def account(connections: Table, messages: Table, counters: Iterable[Counter]) -> Account:
    """Sum up what the tables `connections` and `messages` and the counters of one capture say."""
    named = [(name, value) for name, value, _ in counters]

    def under(prefix: str) -> dict[str, int]:
        return {name: value for name, value in named if name.startswith(prefix) and value}

    payload = dict(named).get(PAYLOAD, 0)
    discarded, outside, missing = under(DISCARDED), under(OUTSIDE), under(MISSING)
    wrong = []
    in_streams = in_messages = missing_inside = not_seen = unparsed_total = 0
    for direction, side in _SIDES:
        here = messages["direction"] == direction
        conn = messages["conn"][here]
        lost = _per_connection(conn, messages["missing_bytes"][here], len(connections["midstream"]))
        read = _per_connection(conn, messages["wire_bytes"][here], len(lost)) - lost
        seen, unparsed, absent = (
            connections[f"{what}_{side}"].astype(np.int64) for what in ("bytes", "unparsed", "missing")
        )
        in_streams += int(seen.sum())
        in_messages += int(read.sum())
        missing_inside += int(lost.sum())
        not_seen += int(absent.sum())
        unparsed_total += int(unparsed.sum())
        for at in np.flatnonzero(read + unparsed != seen):
            wrong.append(
                f"connection {at} {side}: {read[at]} bytes in messages and {unparsed[at]} outside are not "
                f"the {seen[at]} of its stream"
            )
        for at in np.flatnonzero(lost > absent):
            wrong.append(
                f"connection {at} {side}: messages miss {lost[at]} bytes, their stream only {absent[at]}"
            )
    for what, ours, theirs in (
        ("payload captured", payload, in_streams + sum(discarded.values())),
        ("bytes outside messages", unparsed_total, sum(outside.values())),
        ("bytes never seen", not_seen, sum(missing.values())),
    ):
        if ours != theirs:
            wrong.append(f"{what}: {ours}, but by name {theirs}")
    return Account(
        payload, discarded, in_streams, in_messages, outside, missing, missing_inside, tuple(wrong)
    )


def _per_connection(
    conn: np.ndarray[tuple[int], np.dtype[np.int32]],
    values: np.ndarray[tuple[int], np.dtype[np.uint64]],
    connections: int,
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    # bincount's weights are doubles, exact to 2^53; sums of one connection stay far below.
    return np.bincount(conn, weights=values, minlength=connections).astype(np.int64)
