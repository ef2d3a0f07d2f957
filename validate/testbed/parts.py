"""Ids of the calls that one request is split into when a server asks several others at the same time.

Which of two parallel calls to one server made a statement cannot be told from the id of the request. The
server that splits therefore hands on the id with another last digit: the users' ids end in 0, part 1 in 1,
and so on. In the truth, a call has the id that the user gave and, beside it, the number of its part (0: not
split).
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 15


def whole(identity: str) -> str:
    """The id of the request that a call belongs to."""
    return identity[:-1] + "0"


def number(identity: str) -> int:
    """The part that a call belongs to."""
    return int(identity[-1], 16)


def with_parts(ids: Iterable[str], parts: int) -> set[str]:
    """The ids and those of their parts. parts: the highest number, at most MOST."""
    return {name[:-1] + f"{part:x}" for name in ids for part in range(parts + 1)} if parts else set(ids)
