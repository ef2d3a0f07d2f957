"""Response times: in short windows, in their whole distribution, and the very long ones.

All from the tap: first byte of the request to last byte of the response. A closed loop of users that wait for
slow answers sends fewer requests while the system is slow, so that percentiles over calls understate what a
steady stream of users would have met (coordinated omission); `OMISSION` says so wherever percentiles are
shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.inside import Int, by_window, in_order
from tapscope.analyze.service_time import Float

OMISSION = (
    "Calls that were not sent because their sender waited are not in it (coordinated omission): "
    "percentiles are those of calls, not of moments."
)

VLRT_FACTOR = 10
"""Times the mean from which a response time is very long (one to two orders of magnitude, METHOD section
1)."""

VLRT_LEAST_NS = 100_000_000
"""And at least this: ten times nothing is still nothing that a user would notice."""

SIGNIFICANT_BITS = 11
"""Values are kept to within 1/2048, three digits; how many there are of each is exact."""


class Histogram:
    """Counts of int64 values in buckets of a relative width of 1/2**SIGNIFICANT_BITS, exact below that many
    units.

    The layout of HdrHistogram: a bucket is what is left of a value when all bits but the leading ones are
    dropped. Values can be added part by part.
    """

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, values: Int) -> None:
        """Count values; negative ones are not observed, and left out."""
        got = np.bincount(_bucket(values[values >= 0]), minlength=len(self.counts))
        got[: len(self.counts)] += self.counts
        self.counts = got.astype(np.int64)

    def __len__(self) -> int:
        return int(self.counts.sum())

    def percentile(self, share: float) -> float:
        """The value that `share` (0 to 1) of all values do not exceed, as the middle of its bucket; NaN when
        empty."""
        total = len(self)
        if not total:
            return float("nan")
        rank = max(int(np.ceil(share * total)), 1)
        at = int(np.searchsorted(np.cumsum(self.counts), rank))
        low, high = bucket_edges(np.array([at, at + 1]))
        return float(low + high - 1) / 2


def _bucket(values: Int) -> NDArray[np.int64]:
    exact = 1 << SIGNIFICANT_BITS
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - SIGNIFICANT_BITS - 1, 0)
    return shift * exact + (values >> shift)


def bucket_edges(bucket: NDArray[np.int64]) -> Int:
    """Smallest value of each bucket."""
    exact = 1 << SIGNIFICANT_BITS
    shift = np.maximum(bucket // exact - 1, 0)
    return (bucket - shift * exact) << shift


@dataclass(frozen=True)
class PitSeries:
    """Point-in-time response time of each window: `mean_ns` (NaN without a call), `max_ns` (-1), `calls`."""

    edges_ns: Int
    mean_ns: Float
    max_ns: Int
    calls: Int


def pit(begin_ns: Int, end_ns: Int, edges_ns: Int, *, by_start: bool = False) -> PitSeries:
    """Response time of the calls that end (`by_start`: begin) in each window between neighbouring edges."""
    windows = len(edges_ns) - 1
    at = np.searchsorted(edges_ns, begin_ns if by_start else end_ns, side="right") - 1
    seen = (at >= 0) & (at < windows)
    at, took = at[seen], (end_ns - begin_ns)[seen]
    if not in_order(at):
        order = np.argsort(at, kind="stable")
        at, took = at[order], took[order]
    cuts = np.searchsorted(at, np.arange(windows + 1))
    calls, total = np.diff(cuts), by_window(np.add, took, cuts)
    longest = by_window(np.maximum, took, cuts, -1)
    mean = np.divide(total, calls, out=np.full(windows, np.nan), where=calls > 0)
    return PitSeries(edges_ns, mean, longest, calls)


def vlrt(took_ns: Int, factor: float = VLRT_FACTOR) -> tuple[NDArray[np.bool_], float]:
    """Which response times are very long, and the threshold in ns.

    The mean is taken without the very long ones themselves, which would raise it until they hide.
    """
    if not len(took_ns):
        return np.zeros(0, dtype=np.bool_), float("nan")
    threshold = max(factor * float(np.median(took_ns)), float(VLRT_LEAST_NS))
    for _ in range(20):
        usual = took_ns[took_ns < threshold]
        moved = max(factor * float(usual.mean()), float(VLRT_LEAST_NS)) if len(usual) else threshold
        if moved == threshold:
            break
        threshold = moved
    return took_ns >= threshold, float(threshold)


@dataclass(frozen=True)
class Mode:
    """A hump of the distribution: where it peaks, from where to where it goes (ns), and its share of the
    calls."""

    peak_ns: float
    low_ns: float
    high_ns: float
    share: float
    ladder: str
    """Which retransmission of a SYN would explain it ("1 s", "3 s", "7 s" after the main mode), or ""."""


LADDER_NS = {"1 s": 1e9, "3 s": 3e9, "7 s": 7e9, "15 s": 15e9}
"""When a client sends its SYN again: 1 s first, doubled each time (Linux; RFC 6298). Older systems begin at 3
s."""

DIP = 0.5
"""Two humps are two modes where the density between them falls below this share of the smaller one."""


def modes(took_ns: Int, least: int = 5) -> list[Mode]:
    """Modes of the distribution on a log scale (density smoothed over a tenth of an octave and more),
    shortest first."""
    took = took_ns[took_ns > 0]
    if len(took) < least:
        return []
    scale = 16  # bins per octave
    at = (np.log2(took) * scale).astype(np.int64)
    first = int(at.min())
    density = np.bincount(at - first).astype(np.float64)
    width = max(2, round(scale * 2.0 / max(len(took), 2) ** 0.2))
    kernel = np.hanning(2 * width + 1)
    smooth = np.convolve(density, kernel / kernel.sum(), mode="full")[width:-width]
    borders = _valleys(smooth)
    main = None
    found = []
    for low, high in itertools.pairwise(borders):
        count = float(density[low:high].sum())
        if count < least:
            continue
        peak = float(2 ** ((first + low + int(np.argmax(smooth[low:high])) + 0.5) / scale))
        edge = [float(2 ** ((first + b) / scale)) for b in (low, high)]
        found.append(Mode(peak, edge[0], edge[1], count / len(took), ""))
        if main is None or count / len(took) > main.share:
            main = found[-1]
    return [
        Mode(m.peak_ns, m.low_ns, m.high_ns, m.share, _ladder(m, main) if main is not None else "")
        for m in found
    ]


def _ladder(mode: Mode, main: Mode) -> str:
    for name, wait in LADDER_NS.items():
        if mode.low_ns <= wait + main.peak_ns <= mode.high_ns and wait * 0.9 <= mode.peak_ns <= wait * 1.35:
            return name
    return ""


def _valleys(smooth: Float) -> list[int]:
    """Borders between humps: the lowest point between two peaks that both rise high enough above it."""
    borders = [0]
    peak, valley, at = smooth[0], smooth[0], 0
    rising = True
    for i in range(1, len(smooth)):
        if rising:
            peak = max(peak, smooth[i])
            if smooth[i] < DIP * peak:
                rising, valley, at = False, smooth[i], i
        elif smooth[i] < valley:
            valley, at = smooth[i], i
        elif valley < DIP * smooth[i]:
            borders.append(at)
            rising, peak = True, smooth[i]
    return [*borders, len(smooth)]


def concurrent(calls: Mapping[str, NDArray[Any]], row: int) -> NDArray[np.int64]:
    """Rows of the calls that were inside the same node during call `row` (itself left out), in order of
    arrival."""
    begin, end = int(calls["arrive_ns"][row]), int(calls["depart_ns"][row])
    if end < 0:
        end = int(calls["request_end_ns"][row])
    departed = np.where(calls["depart_ns"] < 0, np.iinfo(np.int64).max, calls["depart_ns"])
    here = calls["server_node"] == calls["server_node"][row]
    rows = np.flatnonzero(here & (calls["arrive_ns"] < end) & (departed > begin))
    rows = rows[rows != row]
    return rows[np.argsort(calls["arrive_ns"][rows], kind="stable")]
