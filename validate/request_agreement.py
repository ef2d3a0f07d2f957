"""Request by request: where the logs' stamps sit relative to the wire."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.aligned import Aligned, slack_ns
from tapscope.validate.clocks import Sightings
from tapscope.validate.event_calls import EventCalls
from tapscope.validate.joining import by_order, last_before
from tapscope.validate.tiers import Compared
from tapscope.validate.truth import Truth

Ints = NDArray[np.int64]

SLACK_NS = 100_000
"""Beyond this (and the clocks' errors) a time of the wire is not between two stamps: a thread may lose its
processor between taking a stamp and sending, and a packet takes its way to the tap."""


@dataclass(frozen=True)
class Difference:
    """Log stamp minus tap stamp over `calls` matched requests, ns, the log's clock removed."""

    calls: int
    median_ns: float
    p1_ns: float
    p99_ns: float
    mean_ns: float


@dataclass(frozen=True)
class Near:
    """How the wire's times of calls that both logs have lie to the nearer of the two stamps.

    inside : share of calls that came between caller's sending and server's arrival, and left between server's
        departure and caller's receiving, to SLACK_NS and the clocks' errors
    mean_arrive_ns, mean_depart_ns : mean distance to the nearer stamp, the senders' moved by their median
        way to the wire; mean_stay_ns : of these calls by the tap
    """

    calls: int
    inside: float
    mean_arrive_ns: float
    mean_depart_ns: float
    mean_stay_ns: float


@dataclass(frozen=True)
class RequestAgreement:
    """One tier. matched : calls with a line of the server's log; tap_only, log_only : without a partner.

    arrive, depart : by the server's log; sent, received : by its caller's; None when nothing was matched
    """

    tier: str
    matched: int
    tap_only: int
    log_only: int
    arrive: Difference | None
    depart: Difference | None
    sent: Difference | None
    received: Difference | None
    near: Near | None

    def position_ns(self) -> tuple[float, float] | None:
        """Where the senders' stamps sit relative to the wire: medians of sending and of departure."""
        if self.sent is None or self.depart is None:
            return None
        return self.sent.median_ns, self.depart.median_ns


def ids_of_calls(events: EventCalls, truth: Truth, truth_row: Ints) -> Ints:
    """Per call of the tap the code of its request ID in the logs; -1 none.

    truth_row : per call the row of the truth file (truth.match), -1 none
    """
    codes = {text: code for code, text in enumerate(events.request_ids)}
    code_of = np.array([codes.get(text, -1) for text in truth.request_ids] + [-1], dtype=np.int64)
    if not len(truth.keys):
        return np.full(len(truth_row), -1, dtype=np.int64)
    return np.asarray(code_of[np.where(truth_row >= 0, truth.request_id[truth_row], -1)])


def sightings(compared: Compared, events: EventCalls, call_id: Ints) -> dict[int, Sightings]:
    """Per clock its stamps of requests whose time on the wire is known, by IDs that are on both sides equally
    often: no clock has to be right for that."""
    found: dict[int, Sightings] = {}
    tap_id = call_id[compared.tap_rows]
    log_id = events.calls["request_id"][compared.log_rows].astype(np.int64)
    caller_id = events.callers["request_id"][compared.caller_rows].astype(np.int64)
    tap, log = by_order(tap_id, compared.tap_arrive, log_id, compared.log_arrive)
    latest = compared.log_arrive + events.calls["arrive_precision_ns"][compared.log_rows]
    arrive, depart = compared.tap_arrive, compared.tap_depart
    for owner, rows, at in _by_owner(compared.log_owner, log, tap):
        mine = found.setdefault(owner, Sightings())
        mine.received.append((arrive[at], latest[rows] - arrive[at]))
        known = (compared.log_depart[rows] >= 0) & (depart[at] >= 0)
        mine.departed.append((depart[at][known], (compared.log_depart[rows] - depart[at])[known]))
    tap, row = by_order(tap_id, compared.tap_arrive, caller_id, compared.caller_arrive)
    for owner, rows, at in _by_owner(compared.caller_owner, row, tap):
        mine = found.setdefault(owner, Sightings())
        mine.sent.append((arrive[at], compared.caller_arrive[rows] - arrive[at]))
        known = (compared.caller_depart[rows] >= 0) & (depart[at] >= 0)
        mine.received.append((depart[at][known], (compared.caller_depart[rows] - depart[at])[known]))
    return found


def _by_owner(owner: Ints, rows: Ints, partners: Ints) -> list[tuple[int, Ints, Ints]]:
    """(owner, its rows, their partners) for every owner among the rows."""
    of_row = owner[rows]
    return [(int(each), rows[of_row == each], partners[of_row == each]) for each in np.unique(of_row)]


def agree(aligned: Aligned, events: EventCalls, call_id: Ints) -> RequestAgreement:
    """Match the calls of one tier by request ID.

    An ID with as many calls as lines: by order of arrival, whatever the clocks say. Otherwise (a line or a
    call is missing): a line goes with the last call of its ID that the tap saw arrive before the line's
    arrival, within the log's precision.

    call_id : per call of the tap its ID (ids_of_calls)
    """
    compared, log = aligned.compared, aligned.log
    tap_id = call_id[compared.tap_rows]
    rows = compared.log_rows
    log_id = events.calls["request_id"][rows].astype(np.int64)
    tap, line = by_order(tap_id, compared.tap_arrive, log_id, compared.log_arrive)
    rest_tap, rest_log = tap_id.copy(), log_id.copy()
    rest_tap[tap], rest_log[line] = -1, -1
    latest = log.arrive + events.calls["arrive_precision_ns"][rows]
    partner = last_before(rest_tap, compared.tap_arrive, rest_log, latest)
    rest = np.flatnonzero(partner >= 0)
    # Of several lines for one call the first one is its own: the later ones lost theirs.
    rest = rest[np.lexsort((log.arrive[rest], partner[rest]))]
    more, first = np.unique(partner[rest], return_index=True)
    tap, line = np.concatenate([tap, more]), np.concatenate([line, rest[first]])
    arrive = log.arrive[line] - compared.tap_arrive[tap]
    known = (log.depart[line] >= 0) & (compared.tap_depart[tap] >= 0)
    depart = (log.depart[line] - compared.tap_depart[tap])[known]
    sent = received = near = None
    joined = aligned.caller_of[line] >= 0
    if aligned.caller is not None and joined.any():
        row, at = aligned.caller_of[line[joined]], tap[joined]
        send = aligned.caller.arrive[row] - compared.tap_arrive[at]
        answered = (aligned.caller.depart[row] >= 0) & known[joined]
        receive = (aligned.caller.depart[row] - compared.tap_depart[at])[answered]
        sent, received = _difference(send), _difference(receive)
        whole = np.flatnonzero(joined)[answered]
        near = _near(
            aligned,
            (send[answered], arrive[whole]),
            ((log.depart[line] - compared.tap_depart[tap])[whole], receive),
            (compared.tap_depart - compared.tap_arrive)[tap[whole]],
        )
    return RequestAgreement(
        tier=compared.tier,
        matched=len(tap),
        tap_only=len(compared.tap_rows) - len(tap),
        log_only=len(compared.log_rows) - len(line),
        arrive=_difference(arrive),
        depart=_difference(depart),
        sent=sent,
        received=received,
        near=near,
    )


def _near(aligned: Aligned, arrive: tuple[Ints, Ints], depart: tuple[Ints, Ints], stay: Ints) -> Near | None:
    """arrive, depart : (sender's, receiver's) stamp minus the wire."""
    if not len(stay):
        return None
    slack = SLACK_NS + slack_ns(aligned.clocks)
    inside = np.ones(len(stay), dtype=bool)
    distance = []
    for sender, receiver in (arrive, depart):
        inside &= (np.minimum(sender, receiver) <= slack) & (np.maximum(sender, receiver) >= -slack)
        moved = sender - np.median(sender)
        distance.append(float(np.mean(np.minimum(np.abs(moved), np.abs(receiver)))))
    return Near(len(stay), float(np.mean(inside)), distance[0], distance[1], float(np.mean(stay)))


def _difference(values: Ints) -> Difference | None:
    if not len(values):
        return None
    p1, median, p99 = np.percentile(values, (1, 50, 99))
    return Difference(len(values), float(median), float(p1), float(p99), float(np.mean(values)))
