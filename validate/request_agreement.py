"""Request by request: where the log's stamps sit relative to the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.event_calls import EventCalls
from tapscope.validate.tiers import Compared
from tapscope.validate.truth import Truth

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """Log stamp minus tap stamp over the matched requests, ns."""

    median_ns: float
    p1_ns: float
    p99_ns: float


@dataclass(frozen=True)
class RequestAgreement:
    """One tier. tap_only, log_only : calls without a partner; arrive, depart : None when nothing was
    matched."""

    tier: str
    matched: int
    tap_only: int
    log_only: int
    arrive: Difference | None
    depart: Difference | None


def agree(compared: Compared, events: EventCalls, truth: Truth, truth_row: Ints) -> RequestAgreement:
    """Match the calls of one tier by request ID, and within one ID by order of arrival.

    truth_row : for every call of the tap its row of the truth, -1 none. An ID with a different number of
    calls on the two sides is not matched at all: which of them is missing cannot be told.
    """
    codes = {text: code for code, text in enumerate(events.request_ids)}
    code_of = np.array([codes.get(text, -1) for text in truth.request_ids] + [-1], dtype=np.int64)
    row = truth_row[compared.tap_rows]
    tap_id = code_of[np.where(row >= 0, truth.request_id[row], -1)] if len(truth.keys) else row
    log_id = events.calls["request_id"][compared.log_rows].astype(np.int64)
    tap, log = _pairs(tap_id, compared.tap_arrive, log_id, compared.log_arrive)
    arrive = compared.log_arrive[log] - compared.tap_arrive[tap]
    known = (compared.log_depart[log] >= 0) & (compared.tap_depart[tap] >= 0)
    depart = compared.log_depart[log][known] - compared.tap_depart[tap][known]
    return RequestAgreement(
        tier=compared.tier,
        matched=len(tap),
        tap_only=len(tap_id) - len(tap),
        log_only=len(log_id) - len(log),
        arrive=_difference(arrive),
        depart=_difference(depart),
    )


def _pairs(tap_id: Ints, tap_at: Ints, log_id: Ints, log_at: Ints) -> tuple[Ints, Ints]:
    """Rows of both sides with the same ID and the same place in its order of arrival."""
    size = int(max(tap_id.max(initial=-1), log_id.max(initial=-1))) + 1
    times = [np.bincount(ids[ids >= 0], minlength=size) for ids in (tap_id, log_id)]
    equal = (times[0] == times[1]) & (times[0] > 0)
    sides: list[NDArray[Any]] = []
    for ids, at in ((tap_id, tap_at), (log_id, log_at)):
        rows = np.flatnonzero((ids >= 0) & np.append(equal, False)[ids])
        sides.append(rows[np.lexsort((at[rows], ids[rows]))])
    return sides[0], sides[1]


def _difference(values: Ints) -> Difference | None:
    if not len(values):
        return None
    p1, median, p99 = np.percentile(values, (1, 50, 99))
    return Difference(float(median), float(p1), float(p99))
