"""The calls of one tier with every log's stamps as times of the tap, and the two logs of each call joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapscope.validate.clocks import (
    CORRELATION,
    HostClock,
    by_correlation,
    corrected,
)
from tapscope.validate.senders import callers_of
from tapscope.validate.statistics import Lag, best_lag
from tapscope.validate.tiers import Compared

Ints = NDArray[np.int64]

SURE_CORRELATION = 0.5
"""A lag is believed when the queue lengths are at least this alike at it."""

SMALL_LAG_NS = 5_000_000
"""A clock known by cross-correlation only: below this its offset may be the way between wire and log
stamp."""

MOST_SLACK_NS = 1_000_000
"""Taken for the error of a clock of which nobody knows it."""


@dataclass(frozen=True)
class Side:
    """One log of a tier's calls by the tap's clock; depart -1 unknown.

    kept_arrive, kept_depart : the same without taking a small lag, which may be no clock's, for the clock's
    lag : shift at which the queue length by the stamps as they are is most like the tap's
    """

    arrive: Ints
    depart: Ints
    kept_arrive: Ints
    kept_depart: Ints
    lag: Lag | None

    @property
    def lag_ns(self) -> int | None:
        """The lag, None when it could not be told."""
        return self.lag.lag_ns if self.lag is not None and self.lag.correlation >= SURE_CORRELATION else None


@dataclass(frozen=True)
class Aligned:
    """One tier. log, caller : the server's own log and its caller's (None: not logged)
    caller_of : per call of the log the row of the caller's log that is the same call; -1 none
    unsure : begin and end of tap times around steps of these logs' clocks
    clocks : by EventCalls.owner
    """

    compared: Compared
    log: Side
    caller: Side | None
    caller_of: Ints
    unsure: list[tuple[int, int]]
    clocks: dict[int, HostClock]


def align(compared: Compared, capture_ns: tuple[int, int], known: Mapping[int, HostClock]) -> Aligned:
    """Put one tier's stamps on the tap's clock.

    known : clocks by matched requests; a clock that is not among them is found by cross-correlation
    """
    clocks: dict[int, HostClock] = {}
    log = _side(
        compared, compared.log_arrive, compared.log_depart, compared.log_owner, capture_ns, known, clocks
    )
    caller = None
    caller_of = np.full(len(log.arrive), -1, dtype=np.int64)
    if len(compared.caller_arrive):
        caller = _side(
            compared,
            compared.caller_arrive,
            compared.caller_depart,
            compared.caller_owner,
            capture_ns,
            known,
            clocks,
        )
        caller_of = callers_of(
            compared.log_key,
            log.kept_arrive,
            compared.caller_key,
            caller.kept_arrive,
            caller.kept_depart,
            compared.log_coarse_ns + round(slack_ns(clocks)),
        )
    stays = compared.log_depart - compared.log_arrive
    usual = int(np.percentile(stays[compared.log_depart >= 0], 99)) if np.any(compared.log_depart >= 0) else 0
    steps = [step for clock in clocks.values() for step in clock.steps()]
    unsure = sorted({(begin - usual, end + usual) for begin, end, _ in steps})
    return Aligned(compared, log, caller, caller_of, unsure, clocks)


def slack_ns(clocks: Mapping[int, HostClock]) -> float:
    """By how much stamps of these clocks may contradict each other because of the clocks, ns."""
    return sum(min(clock.error_ns, MOST_SLACK_NS) for clock in clocks.values())


def _side(
    compared: Compared,
    arrive: Ints,
    depart: Ints,
    owner: Ints,
    capture_ns: tuple[int, int],
    known: Mapping[int, HostClock],
    clocks: dict[int, HostClock],
) -> Side:
    """One log on the tap's clock; the clocks used are added to `clocks`."""
    tap_known, log_known = compared.tap_depart >= 0, depart >= 0
    tap = (compared.tap_arrive[tap_known], compared.tap_depart[tap_known])
    lag = best_lag(tap, (arrive[log_known], depart[log_known]), *capture_ns)
    owners = np.unique(owner).tolist()
    used = {number: known[number] for number in owners if number in known and known[number].lines}
    missing = [number for number in owners if number not in used]
    if missing:
        mine = log_known & np.isin(owner, missing)
        guess = by_correlation(tap, (arrive[mine], depart[mine]), *capture_ns, SURE_CORRELATION)
        used |= dict.fromkeys(missing, guess)
    kept = {
        number: clock
        for number, clock in used.items()
        if clock.method != CORRELATION or not clock.small(SMALL_LAG_NS)
    }
    clocks |= used
    return Side(
        corrected(used, owner, arrive),
        corrected(used, owner, depart),
        corrected(kept, owner, arrive),
        corrected(kept, owner, depart),
        lag,
    )
