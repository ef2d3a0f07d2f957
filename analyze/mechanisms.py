"""What made a node's queue grow: mechanisms that are recognised by name, each with the numbers that speak for
it.

A mechanism stands on one or more metrics (`metrics.py`) that were weighed for the episode (`candidates.py`).
Its strength is the best score among them times how directly that metric names the mechanism: a log that says
what happened comes before a counter that fits, and that before what only the tap's timing suggests. What was
looked for and not found is ruled out; what could not be looked for, because the run has no such metric, is
not, and of what a log of the host would tell it is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tapscope.analyze.candidates import Candidate, Scene
from tapscope.analyze.evidence import Evidence
from tapscope.analyze.held import Held

WRITES = re.compile(r"(COMMIT|INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
SOME = 0.3
"""Share of the queue's growth during which bytes must have been written more than usually."""

FOUND = 0.1
"""Least strength with which a mechanism is named."""

NEIGHBOUR = "CPU taken by a neighbour"
BURST, LIMIT, LOCK = "workload burst", "connection or thread limit", "lock contention"
OVERFLOW = "accept queue overflow"
STOOD_STILL = "node stood still"
BY_LOGS = (
    "garbage collection",
    "CPU quota",
    "lower clock speed",
    "dirty-page recycling",
    "disk writes",
    "disk saturation",
    "CPU saturation",
    NEIGHBOUR,
)
"""What a log of the host would tell; the tap alone hardly ever."""

OF_RESOURCES = (*BY_LOGS, "stop of the JVM", STOOD_STILL)
"""Mechanisms that make calls wait at the node above for a connection: there the limit is a consequence."""


@dataclass(frozen=True)
class Case:
    """All that a mechanism is judged by: a node's series, the windows of the episode, its candidates by name
    of the metric, and which calls were held up while others were not (None: all alike, or too few)."""

    seen: Evidence
    scene: Scene
    candidates: Mapping[str, Candidate]
    held: Held | None = None
    overdue: float = 1.0
    """Share of the time of the calls inside that belongs to calls that took far longer than they usually
    do."""

    def score(self, name: str) -> float:
        """Score of a metric, 0 where it is not known."""
        return self.candidates[name].score if name in self.candidates else 0.0

    @property
    def apart(self) -> float:
        """How clearly some calls were held up and others not (0 to 1)."""
        return 0.0 if self.held is None else self.held.phi

    def best(self, *names: str) -> Candidate | None:
        """The best of these metrics; None where none is known."""
        known = [self.candidates[name] for name in names if name in self.candidates]
        return max(known, key=lambda one: one.score, default=None)


@dataclass(frozen=True)
class Mechanism:
    """A mechanism with how strongly it speaks for itself (0 to 1), in words, and the metric that it stands
    on."""

    name: str
    strength: float
    words: str
    metric: str


Result = tuple[float, str, str] | None
"""Strength, words, metric; None: cannot be told."""


class Recognised(NamedTuple):
    """Mechanisms found, strongest first; those ruled out, with why; those that no log could tell."""

    found: list[Mechanism]
    ruled_out: list[str]
    not_told: list[str]


def recognise(case: Case) -> Recognised:
    """Judge an episode by every mechanism."""
    found, ruled_out, not_told = [], [], []
    for name, test in TESTS.items():
        result = test(case)
        if result is None:
            not_told += [name] if name in BY_LOGS else []
            continue
        strength, words, metric = result
        if strength >= FOUND:
            found.append(Mechanism(name, min(strength, 1.0), words, metric))
        else:
            ruled_out.append(f"{name} ({words})")
    return Recognised(sorted(found, key=lambda one: -one.strength), ruled_out, not_told)


def _shown_by(directness: float, *names: str) -> Callable[[Case], Result]:
    """A mechanism that any of these metrics shows."""

    def test(case: Case) -> Result:
        best = case.best(*names)
        return None if best is None else (directness * best.score, best.said(), best.metric)

    return test


def _slower(case: Case) -> Result:
    """The clock itself, or (Wang IV-C) full windows at a lower level of throughput than other full ones."""
    clock, slow = case.best("speed_mhz"), case.best("slow")
    if clock is not None:
        return 0.9 * clock.score, clock.said(), clock.metric
    if slow is None:
        return None
    # A slower clock slows all classes down alike.
    return 0.4 * slow.score * (1 - case.apart), slow.said(), slow.metric


def _waited(case: Case) -> tuple[float, Candidate | None]:
    """How much speaks for waiting for a disk; pressure of the node's own group says whose wait it is."""
    best = case.best("io_pressure", "disk_busy", "io_wait")
    if best is None:
        return 0.0, None
    return (0.85 if best.metric == "io_pressure" else 0.75) * best.score, best


def _writes(case: Case) -> Result:
    """Writing and waiting for the disk together; or calls that write wait, while those that only read go
    on."""
    written = case.best("own_written", "machine_written")
    strength, waited = _waited(case)
    if case.held is not None and WRITES.match(case.held.what) and case.apart > 0:
        words = case.held.said()
        return 0.6 * case.apart, words if waited is None else f"{words}; {waited.said()}", ""
    if written is None:
        return None
    if waited is None:
        return 0.4 * written.score, written.said(), written.metric
    # Bytes alone hurt nobody.
    return (
        strength if written.covered >= SOME else 0.0,
        f"{written.said()}; {waited.said()}",
        written.metric,
    )


def _disk(case: Case) -> Result:
    """Waiting for a disk that gets little done: reads, or a device that was slowed down from outside."""
    strength, waited = _waited(case)
    return None if waited is None else (0.9 * strength, waited.said(), waited.metric)


def _saturated(case: Case) -> Result:
    """The CPU, as far as nothing is known that used it: a collector, dirty pages, more calls."""
    best = case.best("saturated")
    if best is None:
        return None
    named = max(case.score("gc"), case.score("own_dirty"), _bursting(case))
    return 0.8 * best.score * (1 - 0.5 * named), best.said(), best.metric


def _dirty(case: Case) -> Result:
    """Pages of the node's own group say whose they are; those of the machine could be anybody's."""
    own = case.best("own_dirty", "own_writeback")
    machine = case.best("machine_dirty")
    if own is not None:
        return 0.9 * own.score, own.said(), own.metric
    return None if machine is None else (0.75 * machine.score, machine.said(), machine.metric)


def _neighbour(case: Case) -> Result:
    """The node gets less than it wants: a hypervisor says so (steal), the machine is busy with others, or its
    tasks wait for a CPU while they use no more than usual."""
    steal, crowded, starved = (case.best(name) for name in ("steal", "crowded", "starved"))
    # A few percent stolen slow a node down, but do not stop it.
    stolen = 0.0 if steal is None else 0.85 * steal.score * min(steal.level / 50, 1.0)
    ways = [
        (stolen, steal),
        (0.0 if crowded is None else 0.75 * crowded.score, crowded),
        (0.0 if starved is None else 0.8 * starved.score * (1 - case.score("throttled")), starved),
    ]
    known = [(strength, one) for strength, one in ways if one is not None]
    if not known:
        return None
    strength, best = max(known, key=lambda way: way[0])
    # Who has more to do may find the CPU too small without anybody's fault.
    return strength * (1 - 0.5 * _bursting(case)), best.said(), best.metric


def _pool(case: Case) -> Result:
    best = case.best("pool")
    if best is None:
        return None
    if case.seen.own_load[case.scene.at].max(initial=0.0) <= 1:
        return 0.0, "no call waited at the node itself", "pool"
    limits = ", ".join(f"{most} to {name}" for name, most in case.seen.most_below.items())
    return 0.7 * best.score, f"{best.said()}; at most {limits}", "pool"


def _stood_still(case: Case) -> Result:
    best = case.best("stalled")
    if best is None:
        return None
    if best.covered <= 0:
        return 0.0, "something was always completed", "stalled"
    halted = int(case.seen.series["stalled"][case.scene.at].sum())
    # Some calls that are held up while others go on are no halt of the node: it would stop them all.
    # And calls that always take long leave a node without completions, too.
    # Nor are the first moments of a crowd one.
    directness = 0.65 * (1 - case.apart) * case.overdue * (1 - 0.5 * _crowding(case))
    return (
        directness * best.score,
        f"nothing was completed in {halted} windows although calls were inside; {best.said()}",
        "stalled",
    )


def _lock(case: Case) -> Result:
    """Lock statistics; or calls that name one thing wait, others go on, and no resource is short."""
    logged = case.best("lock_wait")
    if logged is not None and logged.score > FOUND:
        return 0.8 * logged.score, logged.said(), "lock_wait"
    if case.held is None:
        return None if logged is None else (0.0, logged.said(), "lock_wait")
    short = max(case.score(name) for name in ("saturated", "crowded", "starved", "io_pressure", "throttled"))
    if WRITES.match(case.held.what):
        return 0.0, case.held.said(), ""
    return 0.8 * case.apart * (1 - short), case.held.said(), ""


def _loss(case: Case) -> Result:
    """Segments sent again, unless the node could not answer in time: then nothing was lost."""
    best = case.best("resent")
    if best is None:
        return None
    held_up = max(case.score(name) for name in ("stalled", "saturated", "crowded", "starved", "gc"))
    return 0.6 * best.score * (1 - held_up), best.said(), "resent"


def _bursting(case: Case, name: str = "arrivals") -> float:
    """How much speaks for more arrivals: twice the usual ones and three, at least."""
    best = case.best(name)
    return best.score if best is not None and best.level >= 2 * best.usual + 3 else 0.0


def _crowding(case: Case) -> float:
    """How much speaks for a crowd: more clients than usual ask for connections, which does not depend on what
    the node does with them."""
    return _bursting(case, "attempts")


def _burst(case: Case) -> Result:
    best = case.best("arrivals")
    if best is None:
        return None
    # Where nothing is completed, what arrives piles up however little it is.
    return 0.55 * _bursting(case) * (1 - case.score("stalled")), best.said(), "arrivals"


def _overflow(case: Case) -> Result:
    """A consequence of whatever held the node up; but of a crowd that a larger queue would have held, the
    limit is the cause."""
    best = case.best("refused")
    if best is None:
        return None
    return (0.5 + 0.3 * _crowding(case)) * best.score, best.said(), "refused"


TESTS: dict[str, Callable[[Case], Result]] = {
    "garbage collection": _shown_by(1.0, "gc"),
    "stop of the JVM": _shown_by(1.0, "safepoint"),
    "CPU quota": _shown_by(0.95, "throttled"),
    "lower clock speed": _slower,
    "dirty-page recycling": _dirty,
    "disk writes": _writes,
    "disk saturation": _disk,
    "CPU saturation": _saturated,
    NEIGHBOUR: _neighbour,
    LIMIT: _pool,
    STOOD_STILL: _stood_still,
    LOCK: _lock,
    "network loss": _loss,
    BURST: _burst,
    OVERFLOW: _overflow,
    "wait for the nodes below": _shown_by(0.3, "waiting"),
}
"""By name, the more directly shown first: of equal strength the first is named."""
