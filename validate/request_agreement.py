"""Request by request: where the log's stamps sit relative to the wire."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.event_calls import EventCalls
from tapscope.validate.joining import last_before
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


def agree(
    compared: Compared, events: EventCalls, truth: Truth, truth_row: Ints, clock_ns: int = 0
) -> RequestAgreement:
    """Match the calls of one tier by request ID.

    An ID with as many calls as lines: by order of arrival, whatever the clocks say. Otherwise (a line or a
    call is missing): a line goes with the last call of its ID that the tap saw arrive before the line's
    arrival, and every call with one line at most.

    truth_row : for every call of the tap its row of the truth, -1 none
    clock_ns  : by how much the log host's clock is ahead; used to find partners, the differences keep it
    """
    codes = {text: code for code, text in enumerate(events.request_ids)}
    code_of = np.array([codes.get(text, -1) for text in truth.request_ids] + [-1], dtype=np.int64)
    row = truth_row[compared.tap_rows]
    tap_id = code_of[np.where(row >= 0, truth.request_id[row], -1)] if len(truth.keys) else row
    rows = compared.log_rows
    log_id = events.calls["request_id"][rows].astype(np.int64)
    latest = compared.log_arrive + events.calls["arrive_precision_ns"][rows] - clock_ns
    same = _same_number(tap_id, log_id)
    tap, log = _by_order(np.where(same[tap_id], tap_id, -1), compared.tap_arrive, log_id, compared.log_arrive)
    tap_id, log_id = np.where(same[tap_id], -1, tap_id), np.where(same[log_id], -1, log_id)
    partner = last_before(tap_id, compared.tap_arrive, log_id, latest)
    rest = np.flatnonzero(partner >= 0)
    # Of several lines for one call the first one is its own: the later ones lost theirs.
    rest = rest[np.lexsort((compared.log_arrive[rest], partner[rest]))]
    more, first = np.unique(partner[rest], return_index=True)
    tap, log = np.concatenate([tap, more]), np.concatenate([log, rest[first]])
    arrive = compared.log_arrive[log] - compared.tap_arrive[tap]
    known = (compared.log_depart[log] >= 0) & (compared.tap_depart[tap] >= 0)
    depart = compared.log_depart[log][known] - compared.tap_depart[tap][known]
    return RequestAgreement(
        tier=compared.tier,
        matched=len(tap),
        tap_only=len(compared.tap_rows) - len(tap),
        log_only=len(compared.log_rows) - len(log),
        arrive=_difference(arrive),
        depart=_difference(depart),
    )


def _same_number(tap_id: Ints, log_id: Ints) -> NDArray[np.bool_]:
    """Per ID code, and False for -1 (which indexes the last element): as many calls on both sides?"""
    size = int(max(tap_id.max(initial=-1), log_id.max(initial=-1))) + 1
    tap, log = (np.bincount(ids[ids >= 0], minlength=size) for ids in (tap_id, log_id))
    return np.append((tap == log) & (tap > 0), False)


def _by_order(tap_id: Ints, tap_at: Ints, log_id: Ints, log_at: Ints) -> tuple[Ints, Ints]:
    """Rows of both sides that have the same ID and the same place in its order of arrival; IDs that tap_id
    has."""
    wanted = np.unique(tap_id[tap_id >= 0])
    tap, log = np.flatnonzero(tap_id >= 0), np.flatnonzero(np.isin(log_id, wanted))
    return tap[np.lexsort((tap_at[tap], tap_id[tap]))], log[np.lexsort((log_at[log], log_id[log]))]


def _difference(values: Ints) -> Difference | None:
    if not len(values):
        return None
    p1, median, p99 = np.percentile(values, (1, 50, 99))
    return Difference(float(median), float(p1), float(p99))
