"""Calls by the servers' logs in the run file: rows of numbers, whose texts stand once in a table of their
own. The view `event_call` shows the texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = (
    *("tier", "host", "request_id", "class"),
    *("arrive_ns", "downstream_send_ns", "downstream_receive_ns", "depart_ns"),
    *("status", "file", "line"),
)
"""tier, host, request_id, class and file : index into the texts"""

TOGETHER = 32
"""Rows of one statement: that is a fifth faster than row by row."""

BATCH = 2048 * TOGETHER


def replace_event_calls(
    connection: sqlite3.Connection, columns: Mapping[str, NDArray[Any]], texts: Sequence[str]
) -> None:
    """Replace all of them, in the transaction that is open. columns : COLUMNS; texts : all different"""
    connection.execute("DELETE FROM event_call_row")
    connection.execute("DELETE FROM event_text")
    connection.executemany("INSERT INTO event_text (id, text) VALUES (?, ?)", enumerate(texts))
    # Sorting once is faster than finding every row's place in the index.
    connection.execute("DROP INDEX IF EXISTS event_call_row_request")
    values = [columns[name].astype(np.int64) for name in COLUMNS]
    count = len(values[0])
    whole = count - count % TOGETHER
    for low, high, together in [
        *((low, min(low + BATCH, whole), TOGETHER) for low in range(0, whole, BATCH)),
        (whole, count, 1),
    ]:
        rows = np.stack([np.arange(low, high), *(column[low:high] for column in values)], axis=1)
        marks = f"(?{', ?' * len(COLUMNS)})"
        connection.executemany(
            f"INSERT INTO event_call_row (id, {', '.join(COLUMNS)}) VALUES {', '.join([marks] * together)}",
            rows.reshape(-1, together * rows.shape[1]).tolist(),
        )
    connection.execute("CREATE INDEX event_call_row_request ON event_call_row (request_id)")
