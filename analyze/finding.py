"""What a finding is: one episode in which users were hurt, with everything that explains it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tapscope.analyze.candidates import Candidate
from tapscope.analyze.mechanisms import Mechanism
from tapscope.analyze.onset import Onset
from tapscope.analyze.pushback import Rise, Travel
from tapscope.analyze.symptoms import Episode
from tapscope.analyze.tcp_events import Trouble
from tapscope.store.runfile import RunFile


@dataclass(frozen=True)
class Finding:
    """One episode explained. `origin` is a row of nodes, -1: no node's own queue rose.

    `path` are the nodes whose queues rose, lowest tier first, `travel` by how much they were behind the
    origin, `overflowed` how many SYNs got no answer at which listener (address, port). `mechanisms` are those
    recognised at the origin, strongest first (none: unknown); `ruled_out` those that were looked for in vain,
    `not_told` those that could not be looked for, because no log of the origin's host says anything of them;
    `ranking` the metrics of the origin with the numbers that speak for each, best first. `began`: when the
    cause began, as far as the origin's pace tells; the episode begins later, with the users' harm. `tcp`:
    what TCP did in the episode to calls that were under way.
    """

    episode: Episode
    origin: int
    path: list[Rise]
    travel: list[Travel]
    overflowed: list[tuple[int, int, int]]
    mechanisms: list[Mechanism]
    ruled_out: list[str]
    ranking: list[Candidate]
    not_told: list[str] = field(default_factory=list)
    began: Onset | None = None
    tcp: list[Trouble] = field(default_factory=list)

    @property
    def cause(self) -> str:
        """Name of the strongest mechanism; "unknown" without one."""
        return self.mechanisms[0].name if self.mechanisms else "unknown"

    @property
    def began_ms(self) -> tuple[float, float, float] | None:
        """When the cause began, and the bounds of that, after the begin of the users' harm; None: unknown."""
        if self.began is None:
            return None
        at, low, high = (
            (when - self.episode.begin_ns) / 1e6
            for when in (self.began.at_ns, self.began.low_ns, self.began.high_ns)
        )
        return at, low, high


def one_clock(run: RunFile) -> bool:
    """Whether all times of a run are one clock's: a tap's are; span tables have a clock per service, whose
    queues cannot be compared."""
    return all(source["kind"] != "spans" for source in run.sources())


def why_none(run: RunFile) -> str:
    """What it means that a run has no findings."""
    if not run.count("calls"):
        return "The run has no calls."
    if one_clock(run):
        return "No queue was unusually long, and no transaction took very long."
    return (
        "Each service of this run has its own clock (span tables), so that queues of different nodes cannot "
        "be compared in short windows."
    )
