"""Calls by the stamps of those who sent: begun when the caller sent, over when the server had its answer
ready.

A sender stamps right before the message goes out. A receiver stamps when its thread runs again, on a busy
host milliseconds later: that wait is on no server's log, yet the call was there. So the caller's sending and
the server's departure tell nearer than either log alone what the wire saw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.joining import last_before

Ints = NDArray[np.int64]


def callers_of(
    key: Ints,
    arrive_ns: Ints,
    caller_key: Ints,
    send_ns: Ints,
    receive_ns: Ints,
    slack_ns: int,
) -> Ints:
    """Per call of a server's log the row of its caller's log that is the same call; -1 none.

    All times by the tap's clock; key : connection or request, the same on both sides, -1 unknown; slack_ns :
    by how much the stamps may contradict (clocks' errors and the stamps' coarseness). The caller's record is
    the last one of the key that was sent before the call arrived, and was not answered by then: some servers
    stamp a departure after the answer went out. No record is given twice.
    """
    found = np.full(len(key), -1, dtype=np.int64)
    taken = np.zeros(len(caller_key), dtype=bool)
    # First as if the clocks were right: with slack a call would also reach the record of the one after it.
    for slack in (0, slack_ns):
        rest, offered = np.flatnonzero(found < 0), np.flatnonzero(~taken)
        row = last_before(caller_key[offered], send_ns[offered], key[rest], arrive_ns[rest] + slack)
        rest, row = rest[row >= 0], offered[row[row >= 0]]
        fits = (receive_ns[row] < 0) | (arrive_ns[rest] <= receive_ns[row] + slack)
        rest, row = rest[fits], row[fits]
        # Of several calls that would take the same record the first one is its own.
        order = np.lexsort((arrive_ns[rest], row))
        rest, row = rest[order], row[order]
        first = np.ones(len(row), dtype=bool)
        first[1:] = row[1:] != row[:-1]
        found[rest[first]] = row[first]
        taken[row[first]] = True
    return found
