"""What made a node's queue grow: mechanisms that are recognised by name, each with the numbers that speak for
it.

Every test looks at the windows in which the node's own queue rose and compares them with the rest of the run.
A mechanism that was looked for and not found is named as ruled out; one that could not be looked for, because
the run has no such log, is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tapscope.analyze.service_time import Float

RISEN = 4.0
"""Scaled median deviations by which a metric must be above its median to have risen."""

BUSY_PCT = 90.0
"""Percent from which a resource is saturated."""


@dataclass(frozen=True)
class Evidence:
    """Series of one node, one value per window; None where the run has none. Shares are 0 to 1, others in
    their unit."""

    own_load: Float
    throughput: Float
    arrivals: Float
    stalled: NDArray[np.bool_]
    open_below: dict[str, Float] = field(default_factory=dict)
    """By name of a called node: mean number of calls open to it."""
    most_below: dict[str, int] = field(default_factory=dict)
    """And the most that were ever open at once."""
    refused: NDArray[np.int64] | None = None
    """SYNs of the window that got no answer at first."""
    gc: Float | None = None
    safepoint: Float | None = None
    cpu: Float | None = None
    machine_cpu: Float | None = None
    steal: Float | None = None
    io_wait: Float | None = None
    disk_busy: Float | None = None
    written: Float | None = None
    dirty: Float | None = None
    speed_mhz: Float | None = None


@dataclass(frozen=True)
class Mechanism:
    """A mechanism with how strongly it speaks for itself (0 to 1), in words."""

    name: str
    strength: float
    words: str


def recognise(seen: Evidence, first: int, last: int) -> tuple[list[Mechanism], list[str]]:
    """Mechanisms found in windows [first, last), strongest first, and the names of those ruled out."""
    found, ruled_out = [], []
    for name, test in TESTS.items():
        result = test(seen, slice(first, last))
        if result is None:
            continue
        strength, words = result
        if strength > 0:
            found.append(Mechanism(name, min(strength, 1.0), words))
        else:
            ruled_out.append(f"{name} ({words})")
    return sorted(found, key=lambda one: -one.strength), ruled_out


Result = tuple[float, str] | None
"""Strength and words; None: cannot be told."""


def _collection(seen: Evidence, at: slice) -> Result:
    if seen.gc is None:
        return None
    return _stops(seen.gc, seen.stalled, at, "of the time in garbage collection")


def _safepoint(seen: Evidence, at: slice) -> Result:
    if seen.safepoint is None:
        return None
    without = seen.safepoint if seen.gc is None else np.maximum(seen.safepoint - seen.gc, 0.0)
    return _stops(without, seen.stalled, at, "of the time in stops of the JVM other than collections")


def _stops(share: Float, stalled: NDArray[np.bool_], at: slice, what: str) -> Result:
    """Stops explain an episode as far as they fill its worst windows."""
    part = np.nan_to_num(share[at])
    if not len(part):
        return None
    worst = float(part.max())
    usual = float(np.nanmean(share)) if np.isfinite(share).any() else 0.0
    halted = stalled[at]
    explained = float(part[halted].mean()) if halted.any() else worst
    words = f"{worst:.0%} {what} in the worst window, {usual:.1%} over the run"
    return (explained if worst > 0.5 else 0.0), words


def _stood_still(seen: Evidence, at: slice) -> Result:
    halted = int(seen.stalled[at].sum())
    if not halted:
        return 0.0, "something was always completed"
    # Weaker than a log that says why.
    return 0.6, f"nothing was completed in {halted} windows although calls were inside"


def _cpu(seen: Evidence, at: slice) -> Result:
    busy = seen.machine_cpu if seen.machine_cpu is not None else None
    own = seen.cpu
    if busy is None and own is None:
        return None
    whole = busy if busy is not None else own
    assert whole is not None
    level, usual, risen = _change(whole, at)
    if own is not None and busy is not None and level >= BUSY_PCT:
        own_level, own_usual, own_risen = _change(own, at)
        if not own_risen and own_level <= own_usual:
            return 0.0, f"the node's own use is {own_level:.0f} % of a core, usually {own_usual:.0f} %"
    words = f"{level:.0f} % busy, usually {usual:.0f} %"
    return (0.8 if level >= BUSY_PCT and risen else 0.0), words


def _neighbour(seen: Evidence, at: slice) -> Result:
    if seen.steal is not None:
        level, usual, risen = _change(seen.steal, at)
        if level > 5 and risen:  # a few percent slow a node down, but do not stop it
            return min(
                0.3 + level / 100, 0.9
            ), f"{level:.0f} % stolen by the hypervisor, usually {usual:.0f} %"
    if seen.machine_cpu is None or seen.cpu is None:
        return None if seen.steal is None else (0.0, "no time was stolen")
    level, usual, risen = _change(seen.machine_cpu, at)
    own, own_usual, _ = _change(seen.cpu, at)
    words = f"machine {level:.0f} % busy, usually {usual:.0f} %; "
    words += f"the node itself {own:.0f} %, usually {own_usual:.0f} %"
    return (0.75 if level >= BUSY_PCT and risen and own <= own_usual else 0.0), words


def _disk(seen: Evidence, at: slice) -> Result:
    series = [
        (seen.disk_busy, "% busy"),
        (seen.written, "KiB/s written"),
        (seen.io_wait, "% waiting for I/O"),
    ]
    known = [(values, unit) for values, unit in series if values is not None]
    if not known:
        return None
    changes = [(*_change(values, at), unit) for values, unit in known]
    words = "; ".join(f"{level:.3g} {unit}, usually {usual:.3g}" for level, usual, _, unit in changes)
    risen = sum(1 for *_, rose, _ in changes if rose)
    saturated = any(unit == "% busy" and level >= BUSY_PCT and rose for level, _, rose, unit in changes)
    return (0.7 if saturated and risen >= 2 else 0.4 if risen == len(changes) > 1 else 0.0), words


def _dirty(seen: Evidence, at: slice) -> Result:
    if seen.dirty is None:
        return None
    around = seen.dirty[max(at.start - 5, 0) : at.stop]
    around = around[np.isfinite(around)]
    if len(around) < 3:
        return None
    drop = float(np.maximum.accumulate(around).max() - around[-1])
    spread = float(np.nanmedian(np.abs(np.diff(seen.dirty)))) * len(around) + 4096.0
    return (0.5 if drop > RISEN * spread else 0.0), f"dirty pages fell by {max(drop, 0) / 1024:.0f} MiB"


def _slower(seen: Evidence, at: slice) -> Result:
    if seen.speed_mhz is None:
        return None
    part, usual = np.nanmin(seen.speed_mhz[at]), float(np.nanmedian(seen.speed_mhz))
    return (0.6 if part < 0.8 * usual else 0.0), f"lowest clock {part:.0f} MHz, usually {usual:.0f} MHz"


def _pool(seen: Evidence, at: slice) -> Result:
    best: tuple[float, str] | None = None
    for name, open_calls in seen.open_below.items():
        most = seen.most_below[name]
        if most < 1:
            continue
        full = open_calls >= 0.9 * most
        part = float(full[at].mean()) if len(full[at]) else 0.0
        words = f"{most} calls to {name} at most, reached in {part:.0%} of the windows, "
        words += f"{full.mean():.0%} over the run"
        strength = 0.7 * part if part > 0.5 and seen.own_load[at].max(initial=0.0) > 1 else 0.0
        if best is None or strength > best[0]:
            best = strength, words
    return best


def _burst(seen: Evidence, at: slice) -> Result:
    before = slice(max(at.start - 2, 0), at.stop)
    level, usual, risen = _change(seen.arrivals, before)
    flowing = float(seen.throughput[at].max(initial=0.0)) >= float(np.median(seen.throughput))
    words = f"{level:.0f} arrivals in a window, usually {usual:.0f}"
    return (
        0.5 if risen and level >= 2 * usual + 3 and flowing and not seen.stalled[at].any() else 0.0
    ), words


def _overflow(seen: Evidence, at: slice) -> Result:
    if seen.refused is None:
        return None
    refused = int(seen.refused[max(at.start - 1, 0) : at.stop].sum())
    return (0.45 if refused else 0.0), f"{refused} connections whose first SYN got no answer"


TESTS: dict[str, Callable[[Evidence, slice], Result]] = {
    "garbage collection": _collection,
    "stop of the JVM": _safepoint,
    "node stood still": _stood_still,
    "CPU saturation": _cpu,
    "CPU taken by a neighbour": _neighbour,
    "disk writes": _disk,
    "dirty-page recycling": _dirty,
    "lower clock speed": _slower,
    "connection or thread limit": _pool,
    "workload burst": _burst,
    "accept queue overflow": _overflow,
}


def _change(values: Float, at: slice) -> tuple[float, float, bool]:
    """Highest value in the windows, the usual one, and whether it has risen beyond what is usual."""
    known = values[np.isfinite(values)]
    part = values[at]
    part = part[np.isfinite(part)]
    if not len(known) or not len(part):
        return float("nan"), float("nan"), False
    usual = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - usual)))
    level = float(part.max())
    return level, usual, level > usual + RISEN * max(spread, 0.02 * abs(usual), 1e-9)
