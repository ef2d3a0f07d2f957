"""Superposition: the same transactions, k times as many at once, with the same known truth.

The time in which the transactions began is cut into k pieces of one length, and all pieces are laid over the
first. Every transaction is shifted as a whole, by the same amount on every clock, so that delays inside it
stay what they were: waiting that more load would bring is not simulated. What is judged is how the matcher
tells k times as many candidates apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tapscope.reconstruct.spans import Spans
from tapscope.store.errors import TapscopeError
from tapscope.validate.span_truth import SpanTruth


def superposed(spans: Spans, truth: SpanTruth, times: int) -> Spans:
    """The table with `times` as many transactions in flight; ids, and with them the truth, stay valid.

    A transaction begins where its earliest row does, by whatever clock that row has. Rows that the truth does
    not know are left out: nobody knows with which transaction they would have to move.
    """
    if times < 1:
        raise TapscopeError(f"cannot superpose {times} times", remedy="Give a whole number from 1 on.")
    number = {name: at for at, name in enumerate(dict.fromkeys(truth.trace))}
    of_row = {own: number[trace] for own, trace in zip(truth.message_id, truth.trace, strict=True)}
    trace = np.array([of_row.get(own, -1) for own in spans.message_id], dtype=np.int64)
    kept = np.flatnonzero(trace >= 0)
    trace = trace[kept]
    begin = np.where(spans.received_ns < 0, spans.sent_ns, spans.received_ns)[kept]
    began = np.full(len(number), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(began, trace, begin)
    seen = np.unique(trace)
    if len(seen) == 0:
        raise TapscopeError("the truth knows no row of the span table", remedy="Give the files of one set.")
    first, last = int(began[seen].min()), int(began[seen].max())
    piece_ns = (last - first) // times + 1
    shift = ((began - first) // piece_ns * piece_ns)[trace]

    def moved(times_ns: np.ndarray) -> np.ndarray:
        here = times_ns[kept]
        return np.where(here < 0, -1, here - shift)

    return replace(
        spans,
        message_id=[spans.message_id[row] for row in kept.tolist()],
        caller=spans.caller[kept],
        callee=spans.callee[kept],
        endpoint=spans.endpoint[kept],
        sent_ns=moved(spans.sent_ns),
        received_ns=moved(spans.received_ns),
        responded_ns=moved(spans.responded_ns),
        answered_ns=moved(spans.answered_ns),
        counters={},
    )
